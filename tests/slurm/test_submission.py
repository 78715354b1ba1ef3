"""Submission on real Slurm: adopted after a crash, refused in words, clean of the caller's environment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from campaign.plan.build import build_plan, save_plan
from campaign.project import Project
from campaign.submit import states
from campaign.submit.batch import Batch, Item, make_batches, write_specs
from campaign.submit.executors import sbatch
from campaign.submit.ledger import Ledger
from campaign.submit.origin import provenance
from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import TALLY, counts, make_project, study, tally
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for


def planned(cluster: Cluster, folder: Path, **more: Any) -> tuple[Project, Batch, Ledger]:
    """A project with two planned runs, and the batch that `submit` would send."""
    axes = {"nodes": [1], "ranks_per_node": [1]}
    make_project(folder, cluster.name, studies={"t": study(["python", "-c", TALLY], axes=axes, repeats=2, **more)})
    project = Project(folder)
    plan = build_plan(project, [cluster.name], ["t"])
    save_plan(project, plan)
    ledger = Ledger.open(project.ledger_path, new=True)
    ledger.add_plan(plan)
    site = project.load_site(cluster.name)
    (batch,) = make_batches(project, site, [Item(run, 1) for run in plan.runs])
    return project, batch, ledger


@needs("slurm")
def test_a_job_whose_answer_was_never_seen_is_adopted(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """As if `submit` had been killed right after sbatch: intent and specs are there, the job id is not."""
    project, batch, ledger = planned(cluster, shared / "p")
    site = project.load_site(cluster.name)
    states.take_intent(ledger, batch, "slurm")
    write_specs(batch, site, project.site_paths(site), project, provenance(project.root))
    job_id = sbatch(batch, site)
    ledger.db.close()
    cli("submit", cwd=project.root)  # nothing may be queued a second time
    wait_for(lambda: counts(cli, project.root) == {"done": 2}, what=lambda: str(counts(cli, project.root)))
    with Ledger.open(project.ledger_path) as after:
        assert {job["job_id"] for job in after.query("SELECT * FROM jobs")} == {job_id}
    assert sorted(tally(project.root)) == sorted(run.run.run_id for _, run in batch.placed())


@needs("slurm")
def test_an_intent_that_never_reached_slurm_is_planned_again(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """As if `submit` had been killed before sbatch: after the grace both queries say no, and it is queued once."""
    project, batch, ledger = planned(cluster, shared / "p")
    path = project.root / "sites" / f"{cluster.name}.yaml"
    path.write_text(re.sub(r"adopt_grace_s: \d+", "adopt_grace_s: 2", path.read_text()))
    states.take_intent(ledger, batch, "slurm")
    assert set(ledger.states(run.run.run_id for _, run in batch.placed()).values()) == {"submitting"}
    ledger.db.close()
    wait_for(lambda: counts(cli, project.root) == {"planned": 2}, what=lambda: str(counts(cli, project.root)))
    cli("plan", cluster.name, "--study", "t", cwd=project.root, code=0)  # the site file has changed
    cli("run", cluster.name, "--study", "t", "--no-plots", cwd=project.root, code=0)
    assert len(tally(project.root)) == 2
    assert len(set(tally(project.root))) == 2


@needs("slurm")
def test_a_job_that_was_accepted_late_is_taken_back(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Given up as never queued, then it turns up before anything else was sent: adopted, nothing is queued again."""
    project, batch, ledger = planned(cluster, shared / "p")
    site = project.load_site(cluster.name)
    states.take_intent(ledger, batch, "slurm")
    write_specs(batch, site, project.site_paths(site), project, provenance(project.root))
    states.give_back(ledger, site.name, batch.tag, "never seen", state="lost")
    late = sbatch(batch, site)
    ledger.db.close()
    cli("submit", cwd=project.root, code=0)
    wait_for(lambda: counts(cli, project.root) == {"done": 2}, what=lambda: str(counts(cli, project.root)))
    with Ledger.open(project.ledger_path) as after:
        assert {job["job_id"] for job in after.query("SELECT * FROM jobs")} == {late}
    assert len(tally(project.root)) == 2


@needs("slurm")
def test_two_jobs_of_one_attempt_run_it_once(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Given up, queued anew, and then the first job turns up and claims: the second ends unrun, the run is done."""
    project, batch, ledger = planned(cluster, shared / "p")
    site = project.load_site(cluster.name)
    states.take_intent(ledger, batch, "slurm")
    write_specs(batch, site, project.site_paths(site), project, provenance(project.root))
    states.give_back(ledger, site.name, batch.tag, "never seen", state="lost")
    (again,) = make_batches(project, site, [Item(item.run, 1, 1) for _, item in batch.placed()])
    assert again.tag != batch.tag
    states.take_intent(ledger, again, "slurm")
    write_specs(again, site, project.site_paths(site), project, provenance(project.root))
    late = sbatch(batch, site)
    for index in range(2):
        cluster.wait_job(f"{late}_{index}")
    states.note_queued(ledger, site.name, again.tag, job_id=sbatch(again, site))
    ledger.db.close()
    wait_for(lambda: counts(cli, project.root) == {"done": 2}, what=lambda: str(counts(cli, project.root)))
    assert len(tally(project.root)) == 2

    def ended() -> set[tuple[str, str]]:
        cli("status", "--force", cwd=project.root, code=0)
        with Ledger.open(project.ledger_path) as after:
            return {(job["tag"], job["state"]) for job in after.query("SELECT * FROM jobs")}

    # the runs are done before the second job has found that out
    wait_for(lambda: ended() == {(batch.tag, "done"), (again.tag, "cancelled")}, what=lambda: str(ended()))


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_a_refusal_is_told_and_nothing_is_lost(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project, _, ledger = planned(cluster, shared / "p")
    ledger.db.close()
    cli("plan", cluster.name, "--study", "t", "--account", "nobody", cwd=project.root, code=0)
    refused = cli("submit", cwd=project.root, code=2)
    assert "Invalid account" in refused.stderr
    assert "campaign plan" in refused.stderr
    assert counts(cli, project.root) == {"planned": 2}
    assert not list((project.root / "runs" / "submit").glob("*/.submission_file*"))
    cli("plan", cluster.name, "--study", "t", cwd=project.root, code=0)
    cli("run", cluster.name, "--study", "t", "--no-plots", cwd=project.root, code=0)
    assert len(set(tally(project.root))) == 2


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_another_site_s_cluster_is_refused(cluster: Cluster, testbed: Testbed, shared: Path, cli: Cli) -> None:
    make_project(shared / "p", "juwels", studies={"t": study(["true"])})
    path = shared / "p" / "sites" / "juwels.yaml"
    path.write_text(re.sub(r"cluster_name: \S+", "cluster_name: juwels", path.read_text()))
    cli("plan", "juwels", "--study", "t", cwd=shared / "p", code=0)
    refused = cli("submit", "--site", "juwels", cwd=shared / "p", code=2)
    assert "cluster `vega`" in refused.stderr
    conf = {"CAMPAIGN_SLURM_CONF_JUWELS": str(testbed.cluster("juwels").slurm_conf)}
    cli("run", "juwels", "--study", "t", "--no-plots", cwd=shared / "p", env=conf, code=0)


@needs("slurm")
def test_the_caller_s_job_does_not_leak_into_the_new_one(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """`campaign` called from inside an allocation: its SLURM_* and SBATCH_* neither steer sbatch nor reach ranks."""
    leaks = {"SLURM_CPU_BIND": "map_cpu:0", "SLURM_JOB_ID": "1", "SLURM_MEM_PER_CPU": "1", "SBATCH_PARTITION": "nope",
             "SLURM_NTASKS": "64", "PMI_RANK": "7", "SBATCH_TIMELIMIT": "1"}  # fmt: skip
    tells = "import os, json; print('ENV', json.dumps(dict(os.environ)))"
    project = make_project(shared / "p", cluster.name, studies={"t": study(["python", "-c", tells])})
    cli("run", cluster.name, "--study", "t", "--no-plots", cwd=project, env=leaks, code=0)
    console = next((project / "runs" / "runs").glob("*/*/a1/console.log")).read_text()
    seen = json.loads(console.split("ENV ")[1])
    leaked = {name: value for name, value in leaks.items() if seen.get(name) == value}
    assert not leaked


@needs("slurm")
def test_a_controller_that_is_away_changes_nothing(
    own_testbed: Testbed, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld down: states stay as they were, with their age; submit queues nothing and leaves nothing half-done."""
    cluster = own_testbed.cluster("vega")
    monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
    folder = cluster.shared / "away"
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)"
    make_project(folder, "vega", studies={"t": study(["python", "-c", waits], resources={"cpus_per_rank": 2})})
    cli("plan", "vega", "--study", "t", cwd=folder, code=0)
    cli("submit", cwd=folder, code=0)
    wait_for(lambda: counts(cli, folder) == {"running": 1}, what="the run runs")
    cli("plan", "vega", "--study", "t", "--set", "revision=2", cwd=folder, code=0)
    own_testbed.ctld_stop("vega")
    try:
        answer = cli("status", "--force", cwd=folder, code=3)
        assert re.search(r"vega last answered in full \d+ s ago: what it didn't say is as it was", answer.stderr)
        kept = cli("status", "--no-refresh", "--json", cwd=folder, code=0).json()["data"]["groups"][0]["states"]
        assert (kept["planned"], kept["running"]) == (1, 1)
        away = cli("submit", cwd=folder, code=3)
        assert "no clear answer" in away.stderr
    finally:
        own_testbed.ctld_start("vega")
    (folder / "go").touch()
    wait_for(lambda: counts(cli, folder) == {"planned": 1, "done": 1}, what=lambda: str(counts(cli, folder)))
