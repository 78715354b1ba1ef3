"""Submit limits of real clusters: what fits is queued, the rest stays planned, and later rounds top up."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from campaign.submit.ledger import Ledger
from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import TALLY, counts, make_project, study, tally
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

jupiter = pytest.mark.parametrize("cluster", ["jupiter"], indirect=True)


def five(folder: Path, cluster: Cluster, **more: Any) -> Path:
    """A project with five planned runs in QOS devel, which takes four jobs of a user."""
    axes = {"nodes": [1], "ranks_per_node": [1]}
    sweep = study(["python", "-c", TALLY], axes=axes, repeats=5, resources={"qos": "devel"}, **more)
    return make_project(folder, cluster.name, studies={"t": sweep})


def hold(project: Path, cluster: Cluster) -> None:
    """Jobs of this project wait until somebody releases them."""
    path = project / "sites" / f"{cluster.name}.yaml"
    path.write_text(re.sub(r"sbatch_args: \{", "sbatch_args: {hold: true, ", path.read_text()))
    assert "hold: true" in path.read_text()


def release(cluster: Cluster, project: Path) -> None:
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        ids = {row["job_id"] for row in ledger.query("SELECT job_id FROM jobs WHERE state = 'queued'")}
    for job_id in ids:
        cluster.run("scontrol", "release", job_id)


@needs("slurm")
@jupiter
def test_a_limit_that_nobody_wrote_down_is_asked_for_and_kept(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = five(shared / "p", cluster)
    hold(project, cluster)
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    answer = cli("submit", "--json", cwd=project, code=3).json()
    assert answer["data"]["queued"] == 4
    assert "QOS devel of jupiter allows 4 jobs of a user at once" in answer["errors"][0]["message"]
    assert "1 job stays planned" in answer["errors"][0]["message"]
    assert counts(cli, project) == {"planned": 1, "queued": 4}
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        refused = ledger.query("SELECT DISTINCT tag FROM jobs WHERE state = 'refused'")
        assert len(refused) == 1  # one call that met the limit, one that kept it
    again = cli("submit", "--json", cwd=project, code=3).json()
    assert again["data"]["queued"] == 0
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        assert len(ledger.query("SELECT DISTINCT tag FROM jobs WHERE state = 'refused'")) == 1  # known: not tried

    def top_up() -> dict[str, int]:
        release(cluster, project)
        cli("status", "--advance", cwd=project)
        return counts(cli, project)

    wait_for(lambda: top_up() == {"done": 5}, what=lambda: str(counts(cli, project)))
    assert sorted(tally(project)) == sorted(set(tally(project)))
    assert len(tally(project)) == 5


@needs("slurm")
@jupiter
def test_without_accounting_s_word_half_is_tried(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """sacctmgr gives no answer on this login node: five, then two."""
    project = five(shared / "p", cluster)
    hold(project, cluster)
    programs = shared / "bin"
    programs.mkdir()
    (programs / "sacctmgr").write_text("#!/bin/sh\necho 'sacctmgr: error: no access' >&2\nexit 1\n")
    (programs / "sacctmgr").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    answer = cli("submit", "--json", cwd=project, env=path, code=3).json()
    assert answer["data"]["queued"] == 2
    assert "a submit limit that nobody wrote down was met with 5 jobs" in answer["errors"][0]["message"]
    cli("cancel", "--all", cwd=project, code=0)


@needs("slurm")
@jupiter
def test_limits_of_the_site_file_the_project_and_the_command(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Base points first: of sizes 1 and 2 in two curves, two jobs are one of each curve."""
    axes = {"nodes": [2, 1], "ranks_per_node": [1], "lr": [0.1, 0.2]}
    sweep = study(["python", "-c", TALLY, "{lr}"], axes=axes, repeats=2)
    project = make_project(shared / "p", cluster.name, studies={"t": sweep})
    hold(project, cluster)
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    answer = cli("submit", "--max-queued", "2", "--json", cwd=project, code=3).json()
    assert answer["data"]["queued"] == 2
    assert answer["errors"][0]["key"] == "--max-queued"
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT params, nodes, repeat FROM runs WHERE state = 'queued' ORDER BY params")
        assert [(row["params"], row["nodes"], row["repeat"]) for row in rows] == [
            ('{"lr":0.1}', 1, 1), ('{"lr":0.2}', 1, 1),
        ]  # fmt: skip
    # a run is 5 minutes of a 4-GPU node or two: 0.333 or 0.667 GPU-h
    answer = cli("submit", "--max-gpu-hours", "1.4", "--json", cwd=project, code=3).json()
    assert answer["data"]["queued"] == 2
    assert answer["errors"][0]["key"] == "--max-gpu-hours"
    assert "1.333 queued or running" not in answer["errors"][0]["message"]
    (project / "campaign.yaml").write_text(
        (project / "campaign.yaml").read_text().replace('"schema": 1', '"schema": 1, "caps": {"queued": 5}', 1)
    )
    answer = cli("submit", "--json", cwd=project, code=3).json()
    assert answer["data"]["queued"] == 1
    assert (answer["errors"][0]["file"], answer["errors"][0]["key"]) == ("campaign.yaml", "caps.queued")
    cli("cancel", "--all", cwd=project, code=0)


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_why_jobs_wait_and_when_they_should_start(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = make_project(shared / "p", cluster.name, studies={"t": study(["python", "-c", TALLY])})
    path = project / "sites" / "vega.yaml"
    path.write_text(re.sub(r"sbatch_args: \{", 'sbatch_args: {begin: "now+1hour", ', path.read_text()))
    cli("plan", cluster.name, "--study", "t", cwd=project, code=0)
    cli("submit", cwd=project, code=0)

    def pending() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]["pending"]
        return rows

    wait_for(lambda: pending()[0]["reason"] == "BeginTime", what=lambda: str(pending()))
    (row,) = pending()
    assert "earliest start time hasn't come" in row["words"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["expected_start"])
    text = cli("status", cwd=project, code=0).stdout
    assert "1 pending: its earliest start time hasn't come" in text
    assert "first expected to start" in text
    run = cli("status", "-v", "--json", cwd=project, code=0).json()["data"]["runs"][0]["run_id"]
    assert "expected to start" in cli("show", run, cwd=project, code=0).stdout
    cli("cancel", "--all", cwd=project, code=0)
    wait_for(lambda: counts(cli, project) == {"cancelled": 1}, what=lambda: str(counts(cli, project)))
