"""A ledger that was lost comes back from plans, run folders and Slurm, and nothing runs twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from campaign.submit.ledger import Ledger
from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import counts, make_project, study
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

SCRIPT = """
import os, pathlib, sys, time
with open("tally", "a") as file:
    file.write(os.environ["CAMPAIGN_RUN_ID"] + " " + os.environ["CAMPAIGN_ATTEMPT"] + "\\n")
if sys.argv[1] == "fail" and os.environ["CAMPAIGN_ATTEMPT"] == "1":
    sys.exit("broken on purpose")
while sys.argv[1] == "wait" and not pathlib.Path("go").exists():
    time.sleep(0.1)
"""


RUN = "run_id, state, attempts, fail_class, reason, valid, run_root, plan_id, ord"
JOB = (
    "run_id, attempt, tag, array_index, job_id, state, slurm_state, exit_code, nodelist, partition, account, fail_class"
)


def tally(project: Path) -> list[str]:
    return sorted((project / "tally").read_text().splitlines())


def rows(project: Path) -> list[tuple[Any, ...]]:
    """What the ledger says of runs and of their jobs, but for the times at which it learned it."""
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        runs = ledger.query(f"SELECT {RUN} FROM runs ORDER BY run_id")
        jobs = ledger.query(f"SELECT {JOB} FROM jobs ORDER BY run_id, attempt, tag")
        return [*map(tuple, runs), *map(tuple, jobs)]


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_a_lost_ledger_comes_back(cluster: Cluster, shared: Path, cli: Cli) -> None:
    axes = {"nodes": [1], "ranks_per_node": [1], "what": ["ok", "fail", "wait"]}
    command = ["python", "-c", SCRIPT, "{what}"]
    studies = {"t": study(command, axes=axes), "later": study(command, axes={**axes, "what": ["later"]})}
    project = make_project(shared / "p", cluster.name, studies=studies)
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    ended = {"done": 1, "failed": 1, "running": 1}
    wait_for(lambda: counts(cli, project) == ended, what=lambda: str(counts(cli, project)))
    cli("retry", "--where", "state = 'failed'", cwd=project, code=0)
    cli("submit", cwd=project, code=0)
    again = {"done": 2, "running": 1}
    wait_for(lambda: counts(cli, project) == again, what=lambda: str(counts(cli, project)))
    cli("plan", cluster.name, "--study", "later", cwd=project, code=0)  # stays planned
    cli("status", "--force", cwd=project, code=0)
    before = rows(project)

    refused = cli("rebuild", cwd=project, code=2)
    assert "there is a ledger that works" in refused.stderr
    (project / ".campaign" / "ledger.sqlite").write_bytes(b"not a ledger at all, " * 300)
    assert "campaign rebuild" in cli("status", cwd=project, code=2).stderr
    answer = cli("rebuild", "--json", cwd=project, code=0).json()["data"]
    assert (answer["runs"], answer["jobs"]) == (4, 4)
    assert answer["states"] == {"done": 2, "running": 1, "planned": 1}
    assert Path(answer["old_ledger"]).exists()
    cli("status", "--force", cwd=project, code=0)
    assert rows(project) == before

    (project / ".campaign" / "ledger.sqlite").unlink()
    cli("rebuild", cwd=project, code=0)
    (project / "go").touch()
    cli("submit", cwd=project, code=0)

    def states() -> dict[str, int]:
        groups = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]["groups"]
        return {name: sum(group["states"][name] for group in groups) for name in ("done", "planned", "failed", "lost")}

    wait_for(lambda: states() == {"done": 4, "planned": 0, "failed": 0, "lost": 0}, what=lambda: str(states()))
    assert len(tally(project)) == len(set(tally(project))) == 5  # four runs, one of them in two attempts
    assert re.search(r"done +4|all done", cli("status", cwd=project, code=0).stdout)


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_an_intent_that_was_refused_is_planned_again(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Its specs lie there, and no job ever came of them."""
    project = make_project(shared / "p", cluster.name, studies={"t": study(["true"])})
    path = project / "sites" / "vega.yaml"
    path.write_text(re.sub(r"adopt_grace_s: \d+", "adopt_grace_s: 1", path.read_text()))
    cli("plan", cluster.name, "--study", "t", "--account", "nobody", cwd=project, code=0)
    cli("submit", cwd=project, code=2)
    (project / ".campaign" / "ledger.sqlite").unlink()
    cli("rebuild", cwd=project, code=0)
    wait_for(lambda: counts(cli, project) == {"planned": 1}, what=lambda: str(counts(cli, project)))
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    cli("run", cluster.name, "--study", "t", "--no-plots", cwd=project, code=0)
