"""Thousands of jobs on a real controller: how many calls of Slurm's programs they cost. How long: `make bench`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.slurm.reasons import words
from tests.conftest import Cli, Result
from tests.needs import needs
from tests.slurm.counting import Calls
from tests.slurm.many import MANY, STUDY, bed_of_large_arrays, many_runs
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

pytestmark = [needs("slurm"), needs("root")]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """One cluster with one node and large arrays."""
    with bed_of_large_arrays() as made:
        yield made


@pytest.fixture
def vega(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, without jobs afterwards."""
    cluster = bed.cluster("vega")
    monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
    yield cluster
    cancel_all(cluster)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Counts what `cli` calls from now on."""
    made = Calls.into(tmp_path)
    monkeypatch.setenv("PATH", made.env["PATH"])
    return made


def queued(cluster: Cluster) -> list[str]:
    """Array elements in the queue: `name index reason`, without being counted as a call."""
    answer = cluster.run("/usr/bin/squeue", "--noheader", "--array", "--format=%j %K %r")
    return answer.stdout.splitlines()


def cancel_all(cluster: Cluster) -> None:
    """End everything, as an administrator would."""
    cluster.run("/usr/bin/scancel", "--user=root")
    wait_for(lambda: not queued(cluster), what=lambda: f"{len(queued(cluster))} jobs are still queued")


def state_counts(status: Result) -> dict[str, int]:
    """Runs by state, of `campaign status --json`."""
    (group,) = status.json()["data"]["groups"]
    return {name: count for name, count in group["states"].items() if count}


def test_ten_thousand_pending_jobs_cost_one_call_each(vega: Cluster, calls: Calls, cli: Cli, bed: Testbed) -> None:
    """One sbatch queues them all; one squeue and one sacct say where they all stand; within the interval nothing."""
    project = many_runs(bed.layout.shared / "many", MANY, array_size=MANY)
    cli("plan", "vega", "--study", STUDY, cwd=project, code=0)
    calls.clear()
    cli("submit", cwd=project, code=0)
    assert calls.count().pop("sbatch") == 1, calls.made()
    assert len(queued(vega)) == MANY

    calls.clear()
    said = cli("status", "--force", cwd=project, code=0)
    assert calls.count() == {"squeue": 1, "sacct": 1}, calls.made()
    assert re.search(r"vega +many +10,?000 +10,?000\b", said.stdout), said
    held = words("JobHeldUser")
    assert held is not None
    assert held in said.stdout, said

    calls.clear()
    status = cli("status", "--json", cwd=project, code=0)
    assert calls.made() == []
    assert state_counts(status) == {"queued": MANY}
    (waiting,) = status.json()["data"]["pending"]
    assert (waiting["site"], waiting["count"]) == ("vega", MANY)
    assert "JobHeldUser" in waiting["reason"]

    cli("cancel", "--all", cwd=project, code=0)
    wait_for(lambda: not queued(vega), what=lambda: f"{len(queued(vega))} jobs are still queued")


@pytest.mark.parametrize("array_size", [300, 1000])
def test_runs_of_one_shape_share_arrays_up_to_the_sites_limit(
    array_size: int, vega: Cluster, calls: Calls, cli: Cli, bed: Testbed
) -> None:
    """1,000 runs: as many sbatch calls as arrays of the site's limit hold them, each run in the queue once."""
    project = many_runs(bed.layout.shared / f"arrays-{array_size}", 1000, array_size=array_size)
    cli("plan", "vega", "--study", STUDY, cwd=project, code=0)
    calls.clear()
    cli("submit", cwd=project, code=0)
    arrays = math.ceil(1000 / array_size)
    assert calls.count().pop("sbatch") == arrays, calls.made()
    elements = [line.split()[:2] for line in queued(vega)]
    assert len(elements) == len({tuple(element) for element in elements}) == 1000
    assert len({name for name, _ in elements}) == arrays


def test_a_submit_limit_leaves_the_rest_planned(vega: Cluster, calls: Calls, cli: Cli, bed: Testbed) -> None:
    """450 jobs at once, 300 an array: two sbatch calls, exit 3, and 550 runs stay planned until there is room."""
    project = many_runs(bed.layout.shared / "limit", 1000, array_size=300, submit_jobs=450)
    cli("plan", "vega", "--study", STUDY, cwd=project, code=0)
    calls.clear()
    first = cli("submit", cwd=project, code=3)
    assert "550" in first.stderr, first
    assert calls.count().pop("sbatch") == 2, calls.made()
    assert len(queued(vega)) == 450
    assert state_counts(cli("status", "--json", cwd=project, code=0)) == {"queued": 450, "planned": 550}

    calls.clear()
    cli("submit", cwd=project, code=3)
    assert "sbatch" not in calls.count(), calls.made()


def test_cancelling_one_run_leaves_the_rest_of_its_array(vega: Cluster, cli: Cli, bed: Testbed) -> None:
    """The pending elements of an array are one job to Slurm: `scancel --name=NAME 12_3` ends all of them."""
    project = many_runs(bed.layout.shared / "one", 20)
    cli("plan", "vega", "--study", STUDY, cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    run = cli("status", "-v", "--json", cwd=project, code=0).json()["data"]["runs"][7]["run_id"]
    before = queued(vega)
    cli("cancel", "--run", run, cwd=project, code=0)
    wait_for(lambda: len(queued(vega)) < len(before), what="the element is cancelled")
    assert set(before) - set(queued(vega)) == {line for line in before if line.split()[1] == "7"}
