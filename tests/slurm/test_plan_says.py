"""What the planner lets through sbatch accepts; what it refuses sbatch refuses too. On the partitions of every site.

Each site file gets a real controller with its partitions and as many nodes as it names (`sitebed`); every script that
`submit` would send goes to `sbatch --test-only`. Replaced are only account, paths and modules.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from campaign.plan.build import build_plan
from campaign.plan.model import Plan, PlannedRun
from campaign.project import Project
from campaign.site import Site, load_site
from campaign.slurm.durations import parse_duration, parse_size
from campaign.submit import executors
from campaign.submit.batch import Item, make_batches
from campaign.submit.script import render
from tests.needs import needs
from tests.plan.conftest import ROOT
from tests.plan.test_durations import NOT_SIZES, NOT_TIMES, SIZES
from tests.plan.test_durations import TIMES as LISTED_TIMES
from tests.slurm.sitebed import SiteBed, free_port, nodes_of, site_bed
from tests.slurm.sitedbd import ACCOUNT, SiteDbd, site_dbd

pytestmark = needs("slurm")

SITES = sorted(path for path in (ROOT / "sites").glob("*.yaml") if "kind: slurm" in path.read_text(encoding="utf-8"))
SEEN: Counter[tuple[str, str]] = Counter()
"""(site, verdict) -> how often the property met it."""
# limits that Slurm itself keeps; batches, data sets and placeholders are none of its business
KEPT_BY_SLURM = {"nodes", "walltime", "gpus_per_rank", "ranks_per_node", "cpus_per_rank", "memory"}

# a counterexample is not made smaller: each try costs seconds of sbatch
PHASES = (Phase.explicit, Phase.generate)

TIMES = st.sampled_from(["5", "10:00", "30:00", "01:00:00", "0-2", "03:00:01", "12:00:01", "1-0", "4-1:30", "30-0:0:1"])
NODES = st.one_of(st.integers(1, 16), st.integers(17, 6000), st.sampled_from([64, 65, 100, 128, 256, 384, 385, 1024]))


@pytest.fixture(scope="module")
def dbd() -> Iterator[SiteDbd]:
    """Accounting for all sites that have QOS."""
    with site_dbd(free_port()) as dbd:
        dbd.know([site for site in map(load_site, SITES) if has_qos(site)])
        yield dbd


def has_qos(site: Site) -> bool:
    return any(partition.qos for partition in site.partitions.values())


@pytest.fixture(scope="module", params=SITES, ids=lambda path: path.stem)
def bed(request: pytest.FixtureRequest) -> Iterator[SiteBed]:
    """A controller with the partitions of one site file, and its QOS where it has any."""
    site = load_site(request.param)
    with site_bed(site, dbd=request.getfixturevalue("dbd") if has_qos(site) else None) as bed:
        yield bed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("says")


def project(folder: Path, bed: SiteBed, study: dict[str, Any], site: str | None = None) -> Project:
    """A project of the site's own file and one study."""
    for name in ("sites", "studies"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    text = site or (ROOT / "sites" / f"{bed.site.name}.yaml").read_text(encoding="utf-8")
    (folder / "sites" / f"{bed.site.name}.yaml").write_text(text, encoding="utf-8")
    (folder / "studies" / "says.yaml").write_text(json.dumps(study), encoding="utf-8")
    paths = {"run_root": "/nowhere/runs", "node_local": "/dev/shm/campaign", "data": "/nowhere/data"}
    names = {"projects": {bed.site.name: "demo"}, "paths": {bed.site.name: paths}}
    (folder / "campaign.yaml").write_text(json.dumps(names), encoding="utf-8")
    return Project(folder)


def study_of(axes: dict[str, Any], walltime: str, **more: Any) -> dict[str, Any]:
    return {"schema": 1, "name": "says", "command": ["python", "train.py"], "axes": axes, "walltime": walltime, **more}


@st.composite
def studies(draw: st.DrawFn, bed: SiteBed) -> dict[str, Any]:
    """Any study of a few points that may or may not fit: sizes, shapes, memory, partitions, packing."""
    node = bed.site.node_of(bed.site.default_partition)
    cores, gpus = node.cores or 64, node.gpus or 0
    axes: dict[str, Any] = {"nodes": draw(st.lists(NODES, min_size=1, max_size=3, unique=True))}
    resources: dict[str, Any] = {}
    if draw(st.booleans()):
        axes["ranks_per_node"] = [draw(st.one_of(st.integers(1, max(1, gpus)), st.just(2 * max(1, gpus))))]
    if draw(st.booleans()):
        share = cores // max(1, gpus)
        resources["cpus_per_rank"] = draw(st.one_of(st.integers(1, share), st.sampled_from([share, cores, cores + 1])))
    if draw(st.integers(0, 3)) == 0:
        resources["gpus_per_rank"] = draw(st.integers(0, gpus + 1))
    if draw(st.integers(0, 2)) == 0:
        resources["memory"] = draw(st.sampled_from(["1G", "100G", "0.25T", "512G", "900000M", "site"]))
    if draw(st.integers(0, 2)) == 0:
        resources["partition"] = draw(st.sampled_from(sorted(bed.site.partitions)))
    more: dict[str, Any] = {"resources": resources} if resources else {}
    if draw(st.integers(0, 3)) == 0:
        more |= {"pack": "serial", "repeats": 2}
    return study_of(axes, draw(TIMES), **more)


def planned(home: Project, name: str) -> Plan:
    return build_plan(home, [name], ["says"], account=ACCOUNT)


def size(bed: SiteBed, run: PlannedRun) -> int:
    """Nodes of the run's partition in the bed: where the site's file knows no number, Slurm has some all the same."""
    assert run.partition is not None
    return nodes_of(bed.site, bed.site.partitions[run.partition])


def refused_by_limits(plan: Plan) -> list[PlannedRun]:
    """Runs that only limits are against that Slurm keeps too, where it is known what would be sent."""

    def by_slurm(run: PlannedRun) -> bool:
        keys = {(problem.key or "").rpartition(".")[2] for problem in run.problems}
        # an exclusive node's GPUs are all asked for, whatever the ranks would want of them
        others = all("GPUs a node" in (problem.allowed or "") for problem in run.problems)
        return bool(keys) and keys <= KEPT_BY_SLURM and run.pack == "false" and not others

    return [run for run in plan.runs if by_slurm(run)]


def scripts(home: Project, name: str, runs: Sequence[PlannedRun]) -> list[str]:
    """The very scripts that `submit` would send, less the lines that load modules."""
    return render(home, name, runs)


@settings(max_examples=16, deadline=None, derandomize=True, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_planned_is_accepted_and_what_is_refused_is_refused(
    bed: SiteBed, folder: Path, data: st.DataObject
) -> None:
    name = bed.site.name
    study = data.draw(studies(bed))
    home = project(folder / name, bed, study)
    plan = planned(home, name)
    able = [run for run in plan.runs if run.can_run and (run.allocation_nodes or run.nodes) <= size(bed, run)]
    for script in scripts(home, name, able):
        assert bed.refusal(script) is None, (study, script)
        SEEN[name, "accepted"] += 1
    for run in refused_by_limits(plan)[:2]:
        (script,) = scripts(home, name, [dataclasses.replace(run, problems=())])
        assert bed.refusal(script) is not None, (study, run.problems)
        SEEN[name, "refused"] += 1


def test_the_property_was_tried_both_ways(bed: SiteBed) -> None:
    """Runs after the property of the same site: scripts were accepted, and runs were refused by both."""
    if any(site == bed.site.name for site, _ in SEEN):  # it may have been left out by -k
        assert SEEN[bed.site.name, "accepted"] >= 3
        assert SEEN[bed.site.name, "refused"] >= 3


@pytest.mark.parametrize("study", ["strong_scaling", "weak_scaling", "cern_hython"])
def test_the_shipped_studies_are_accepted(bed: SiteBed, folder: Path, study: str) -> None:
    home = project(folder / f"{bed.site.name}-shipped", bed, study_of({"nodes": [1]}, "5"))
    text = (ROOT / "studies" / f"{study}.yaml").read_text(encoding="utf-8")
    (home.root / "studies" / f"{study}.yaml").write_text(text, encoding="utf-8")
    plan = build_plan(home, [bed.site.name], [study], account=ACCOUNT)
    able = [run for run in plan.runs if run.can_run]
    assert len(able) == len(plan.runs) > 0, plan.runs[0].problems
    for script in scripts(home, bed.site.name, able):
        assert bed.refusal(script) is None


def verdicts(bed: SiteBed, home: Project) -> list[tuple[bool, bool]]:
    """(the planner lets it through, sbatch accepts it) of every run of the plan, in order."""
    found = []
    for run in planned(home, bed.site.name).runs:
        (script,) = scripts(home, bed.site.name, [dataclasses.replace(run, problems=())])
        found.append((run.can_run, bed.refusal(script) is None))
    return found


def test_the_largest_job_is_accepted_and_one_node_more_refused(bed: SiteBed, folder: Path) -> None:
    """The edge of every partition whose size is known, by the site file's own numbers."""
    site, checked = bed.site, 0
    for name, partition in site.partitions.items():
        by_size = [partition.qos[qos].max_nodes or math.inf for qos in partition.qos_by_size]
        most = min(partition.nodes or math.inf, partition.max_nodes or math.inf, max(by_size, default=math.inf))
        if partition.down or math.isinf(most):
            continue
        study = study_of({"nodes": [int(most), int(most) + 1]}, "5", resources={"partition": name})
        home = project(folder / f"{site.name}-edge", bed, study)
        assert verdicts(bed, home) == [(True, True), (False, False)], (name, most)
        checked += 1
    assert checked, "no partition of a known size"


def test_the_edges_of_every_qos(bed: SiteBed, folder: Path) -> None:
    """One node or one minute beyond a QOS is refused by both; what it allows is accepted by both."""
    for name, partition in bed.site.partitions.items():
        for qos_name, qos in partition.qos.items():
            resources = {"partition": name, "qos": qos_name}
            nodes = qos.max_nodes or qos.min_nodes or 1
            longest = int((qos.max_time or 3600) // 60)
            cases = [(nodes, longest, True)]
            cases += [(qos.max_nodes + 1, longest, False)] if qos.max_nodes else []
            cases += [(qos.min_nodes - 1, longest, False)] if qos.min_nodes else []
            cases += [(nodes, longest + 1, False)] if qos.max_time and qos.max_time < (partition.max_time or 0) else []
            for count, minutes, fits in cases:
                study = study_of({"nodes": [count]}, str(minutes), resources=resources)
                home = project(folder / f"{bed.site.name}-qos", bed, study)
                assert verdicts(bed, home) == [(fits, fits)], (qos_name, count, minutes)


TIMES_OF_SBATCH = [(text, seconds) for text, seconds in LISTED_TIMES if seconds]
ARRAY_SITE = ROOT / "sites" / "juwels.yaml"


@pytest.fixture(scope="module")
def small_arrays() -> Iterator[SiteBed]:
    """A controller whose MaxArraySize is 4: the largest index is 3."""
    with site_bed(load_site(ARRAY_SITE), max_array_size=4) as bed:
        yield bed


@pytest.mark.parametrize(("said", "accepted"), [(4, True), (5, False)])
def test_an_array_ends_one_below_max_array_size(
    small_arrays: SiteBed, tmp_path: Path, said: int, accepted: bool
) -> None:
    text = ARRAY_SITE.read_text(encoding="utf-8")
    text = text.replace("array_size: null", f"array_size: {said}")
    home = project(tmp_path, small_arrays, study_of({"nodes": [2], "seed": list(range(9))}, "5"), text)
    made = scripts(home, "juwels", planned(home, "juwels").runs)
    arrays = [line for script in made for line in script.splitlines() if "--array=" in line]
    # 9 runs: 0-3, 0-3 and one alone; with 5: 0-4 and 0-3
    sizes = [4, 4, 1] if said == 4 else [5, 4]
    assert [int(line.partition("-")[2].partition("=")[2].partition("%")[0].rpartition("-")[2]) + 1
            for line in arrays] == sizes  # fmt: skip
    refusals = [small_arrays.refusal(script) for script in made]
    assert (refusals[0] is None) is accepted
    assert accepted or "Invalid job array specification" in (refusals[0] or "")
    assert refusals[1:] == [None] * (len(sizes) - 1)


def test_split_arrays_reach_the_queue_whole(
    small_arrays: SiteBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent for real: every run is one element of some array, and no index is above 3."""
    monkeypatch.setenv("SLURM_CONF", str(small_arrays.slurm_conf))
    text = ARRAY_SITE.read_text(encoding="utf-8").replace("array_size: null", "array_size: 4")
    home = project(tmp_path, small_arrays, study_of({"nodes": [2], "seed": list(range(9))}, "5"), text)
    (tmp_path / "campaign.yaml").write_text(
        json.dumps({"projects": {"juwels": "demo"}, "paths": {"juwels": {"run_root": str(tmp_path / "runs")}}})
    )
    home = Project(tmp_path)
    site = home.load_site("juwels")
    batches = make_batches(home, site, [Item(run, 1) for run in planned(home, "juwels").runs])
    for batch in batches:
        batch.submit_dir.mkdir(parents=True)
        executors.sbatch(batch, site)
    rows = small_arrays.run("squeue", "-h", "-r", "-o", "%j %K").stdout.split()
    indices = sorted(rows[1::2])
    assert indices == sorted(["0", "1", "2", "3"] * 2 + ["0"])
    assert len(set(rows[::2])) == 3


# -- times and sizes -------------------------------------------------------------------------------------------------


def queued(bed: SiteBed, column: str, *options: str) -> str | None:
    """Send a held job (whose size is not looked at yet); what squeue then says in this column. None: refused."""
    script = "#!/bin/bash\n#SBATCH --hold --nodes=1 --partition=largebooster\n"
    answer = bed.run("sbatch", "--parsable", *options, stdin=script)
    if answer.returncode:
        return None
    return bed.run("squeue", "-h", "-j", answer.stdout.strip(), "-o", column).stdout.strip()


def test_sbatch_takes_every_time_as_we_read_it(small_arrays: SiteBed) -> None:
    """squeue shows what sbatch understood, rounded up to minutes. Zero is not asked: to sbatch it is "no limit"."""
    for text, seconds in TIMES_OF_SBATCH:
        shown = queued(small_arrays, "%l", f"--time={text}")
        assert shown is not None, text
        clock = shown if shown.count(":") > 1 else f"0:{shown}"  # squeue leaves hours out where there are none
        assert parse_duration(clock) == math.ceil(seconds / 60) * 60, (text, shown)
    for text in NOT_TIMES:
        assert queued(small_arrays, "%l", f"--time={text}") is None, text


def test_sbatch_takes_every_size_as_we_read_it(small_arrays: SiteBed) -> None:
    for text, mebibytes in SIZES:
        shown = queued(small_arrays, "%m", "--time=5", f"--mem={text}")
        assert shown is not None, text
        assert parse_size(shown) == mebibytes * 2**20, (text, shown)
    for text in NOT_SIZES:
        assert queued(small_arrays, "%m", "--time=5", f"--mem={text}") is None, text


def test_a_bed_refuses_what_its_site_has_not(small_arrays: SiteBed) -> None:
    """The bed itself: what sbatch says of a partition, a GPU and a minute too many."""
    script = "#!/bin/bash\n#SBATCH --time=5 --nodes=1\n"
    assert small_arrays.refusal(script, "--partition=booster", "--gres=gpu:4") is None
    for options, words in (
        (["--partition=nope"], "invalid partition"),
        (["--partition=booster", "--gres=gpu:5"], "Requested node configuration is not available"),
        (["--partition=booster", "--time=1441"], "Requested time limit is invalid"),
        (["--partition=booster", "--nodes=385"], "Node count specification invalid"),
    ):
        assert words.lower() in (small_arrays.refusal(script, *options) or "").lower(), options
