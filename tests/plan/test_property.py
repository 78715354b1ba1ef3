"""Any study: a plan whose runs are within the site's limits or say why not, or an error with file and line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput
from campaign.plan.build import build_plan
from campaign.plan.model import PlannedRun
from campaign.project import Project
from tests.plan.conftest import SITE

# the site's own numbers, written down once more: (at least, at most) nodes, seconds; large is down
LIMITS = {"devel": (1, 2, 7200), "batch": (1, 8, 86400), "shared": (1, 4, None)}
SHORT = (4, 1200)
CORES, GPUS, USABLE = 48, 4, 480 * 10**9

COUNT = st.integers(1, 9)
RESOURCE = st.one_of(
    st.just("site"), st.integers(0, 60), st.sampled_from(["nodes", "nodes * 2", "4 // nodes", "x + 1"])
)
WALLTIMES = st.sampled_from(["1", "00:20:00", "00:20:01", "2:0:0", "02:00:01", "1-0", "1-0:0:1", "0", "x", 30])
MEMORY = st.sampled_from(["1G", "447G", "448G", "1T", "site", "16", 16])


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    """Studies of up to a few dozen runs, most of them valid."""
    axes: dict[str, Any] = {"nodes": draw(st.lists(COUNT, min_size=1, max_size=3, unique=True))}
    if draw(st.booleans()):
        axes["strategy"] = draw(
            st.lists(st.sampled_from(["ddp", "fsdp2", 3, None]), min_size=1, max_size=2, unique=True)
        )
    study: dict[str, Any] = {"schema": 1, "name": "sweep", "command": ["python", "t.py", "{nodes}"], "axes": axes,
                             "walltime": draw(WALLTIMES), "repeats": draw(st.integers(0, 3))}  # fmt: skip
    if draw(st.booleans()):
        length = draw(st.integers(1, 2))
        study["zip"] = [{"x": draw(st.lists(COUNT, min_size=length, max_size=length)), "y": list(range(length))}]
    names = st.sampled_from(["ranks_per_node", "cpus_per_rank", "gpus_per_rank"])
    resources = draw(st.dictionaries(names, RESOURCE, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        resources["memory"] = draw(MEMORY)
    if draw(st.integers(0, 1)) == 0:
        resources["partition"] = draw(st.sampled_from(["devel", "batch", "large", "shared", "nope"]))
    if draw(st.integers(0, 3)) == 0:
        resources["qos"] = draw(st.sampled_from(["short", "long"]))
    study |= {"resources": resources} if resources else {}
    if draw(st.integers(0, 3)) == 0:
        study["exclude"] = [{"nodes": draw(COUNT)}]
    if draw(st.integers(0, 4)) == 0:
        study["pack"] = draw(st.sampled_from(["serial", "concurrent", False, True]))
    return study


def points(study: dict[str, Any]) -> int:
    """How many points the sweep has: product of the axes, each zip being one, less what is excluded."""
    axes = [[{name: value} for value in values] for name, values in study["axes"].items()]
    axes += [[{"x": x, "y": y} for x, y in zip(group["x"], group["y"], strict=True)] for group in study.get("zip", ())]
    merged = [{name: value for part in point for name, value in part.items()} for point in itertools.product(*axes)]
    left_out = study.get("exclude", [])
    return sum(not any(entry.items() <= point.items() for entry in left_out) for point in merged)


def fits(run: PlannedRun) -> bool:
    """Whether a run is within the numbers above."""
    if run.partition not in LIMITS:
        return False
    low, high, longest = LIMITS[run.partition]
    nodes = run.allocation_nodes or run.nodes
    if run.qos is not None and run.partition == "batch":
        most, seconds = SHORT
        if run.qos != "short" or nodes > most or run.walltime_s > seconds:
            return False
    return (
        low <= nodes <= high
        and (longest is None or run.walltime_s <= longest)
        and run.ranks_per_node * run.gpus_per_rank <= GPUS
        and run.ranks_per_node * run.cpus_per_rank <= CORES
        and (run.memory_bytes or 0) <= USABLE
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("property")
    (folder / "sites").mkdir()
    (folder / "studies").mkdir()
    (folder / "sites" / "tiny.yaml").write_text(SITE, encoding="utf-8")
    return folder


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(study=studies())
def test_any_study_is_planned_within_limits_or_refused_with_reasons(folder: Path, study: dict[str, Any]) -> None:
    (folder / "studies" / "sweep.yaml").write_text(json.dumps(study, indent=1), encoding="utf-8")
    try:
        plan = build_plan(Project(folder), ["tiny"])
    except BadInput as error:
        event("refused")
        wrong = error.problems
        assert all(problem.file == "studies/sweep.yaml" and problem.line for problem in wrong), wrong
        return
    event("planned")
    assert len({run.run_id for run in plan.runs}) == len(plan.runs)
    assert len(plan.runs) <= points(study) * study["repeats"]
    if "zip" not in study:
        # zipped values may be equal, and equal runs are measured once
        assert len(plan.runs) == points(study) * study["repeats"]
    for run in plan.runs:
        if run.can_run:
            assert fits(run), run
        for problem in run.problems:
            assert problem.message
            assert problem.file == "studies/sweep.yaml", problem
            assert problem.line is not None and problem.key is not None, problem  # noqa: PT018


@pytest.mark.parametrize("pack", [False, "serial"])
def test_what_is_within_limits_is_not_refused(folder: Path, pack: Any) -> None:
    """The other way round, over every size up to the edge: planned, because it fits."""
    axes = {"nodes": list(range(1, 9)), "ranks_per_node": [1, 2, 4]}
    study = {"schema": 1, "name": "sweep", "command": ["python"], "axes": axes, "walltime": "1:0:0", "pack": pack}
    (folder / "studies" / "sweep.yaml").write_text(json.dumps(study), encoding="utf-8")
    plan = build_plan(Project(folder), ["tiny"])
    assert [(run.nodes, run.ranks_per_node, run.can_run) for run in plan.runs if run.nodes == 8] == [
        (8, 1, True), (8, 2, True), (8, 4, True),
    ]  # fmt: skip
    # 24 hours of ladder and its minute of start are cut into two allocations of a day at most
    assert all(run.can_run for run in plan.runs)
    assert len({run.ladder for run in plan.runs}) == (1 if pack is False else 2)
