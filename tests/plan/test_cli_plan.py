"""`campaign plan` as a user meets it: the table, what it can't do, JSON by its schema, and scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from referencing import Registry, Resource

from campaign.cli import cli
from campaign.project import Project
from campaign.submit.ledger import Ledger
from tests.plan.conftest import ROOT, SITE, STUDY, Make, changed

SCHEMAS = ROOT / "docs" / "schema"


def campaign(project: Project, *args: str) -> Result:
    """Run `campaign plan` in a project."""
    return CliRunner().invoke(
        cli, ["plan", "--project", str(project.root), *args], prog_name="campaign", catch_exceptions=False
    )


def answer(project: Project, *args: str, code: int = 0) -> Any:
    """The JSON envelope, checked against the published schema."""
    done = campaign(project, *args, "--json")
    assert done.exit_code == code, done.output
    envelope = json.loads(done.stdout)
    schemas = {name: json.loads((SCHEMAS / name).read_text()) for name in ("envelope.json", "plan.json")}
    registry: Any = Registry().with_resources(
        [(name, Resource.from_contents(schema)) for name, schema in schemas.items()]
    )
    jsonschema.Draft202012Validator(schemas["plan.json"], registry=registry).validate(envelope)
    return envelope


def limits(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the word that no file system of this site is on the test's machine."""
    return [problem for problem in problems if problem["key"] != "filesystems"]


PARTLY = changed(STUDY, ("[1, 2, 4]", "[1, 64]"))


def test_what_is_planned_is_shown_and_kept(make_project: Make) -> None:
    project = make_project()
    done = campaign(project, "tiny")
    assert done.exit_code == 0
    assert done.stderr == (
        "Unknown, not checked (null in the site file, or not to be seen from here):\n"
        "  sites/tiny.yaml:18  tiny is elsewhere (none of its file systems is on this machine): its project folder and "
        "interpreter\n"
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    # axes, nodes, ranks, cores, GPUs and batch of a rank, partition, runs, GPU-h
    assert ["strategy=ddp", "1", "4", "12", "1", "64", "devel", "2", "4", "gate", "first"] in rows
    assert ["strategy=fsdp2", "4", "16", "12", "1", "16", "batch", "2", "16"] in rows
    for text in ("sweep on tiny: 00:30:00 each at most, account budget", "12 runs of 6 points"):
        assert text in done.stdout, text
    # 2 strategies x 2 repeats x (1 + 2 + 4) nodes x 48 cores x half an hour
    assert "672 core-h on tiny" in done.stdout
    (path,) = project.plans_dir.iterdir()
    assert f"next: campaign submit --plan {path.stem}" in done.stdout
    with Ledger.open(project.ledger_path) as ledger:
        kept = ledger.query("SELECT run_id, state, ord FROM runs ORDER BY ord")
    planned = json.loads(path.read_text())["runs"]
    assert [tuple(row) for row in kept] == [(run["run_id"], "planned", run["order"]) for run in planned]


def test_planning_again_changes_nothing(make_project: Make) -> None:
    project = make_project()
    first, second = answer(project, "tiny")["data"], answer(project, "tiny")["data"]
    assert first["plan_id"] == second["plan_id"]
    assert first["runs"] == second["runs"]
    assert (first["ledger"]["new"], second["ledger"]["new"], second["ledger"]["known"]) == (12, 0, 12)
    assert len(list(project.plans_dir.iterdir())) == 1


def test_a_run_that_cant_run_is_a_warning_and_the_rest_is_planned(make_project: Make) -> None:
    project = make_project(study=PARTLY)
    done = campaign(project, "tiny")
    assert done.exit_code == 0
    assert "can't run" in done.stdout
    assert "warning: studies/sweep.yaml:7: 4 runs can't run: no partition of tiny admits 64 nodes" in done.stderr
    envelope = answer(project, "tiny")
    assert envelope["data"]["totals"]["can_run"] == envelope["data"]["totals"]["cannot_run"] == 4
    assert [len(run["problems"]) for run in envelope["data"]["runs"]].count(1) == 4
    assert [(warning["file"], warning["line"]) for warning in limits(envelope["warnings"])] == [
        ("studies/sweep.yaml", 7)
    ]


def test_strict_makes_it_an_error(make_project: Make) -> None:
    project = make_project(study=PARTLY)
    assert campaign(project, "tiny", "--strict").exit_code == 2
    envelope = answer(project, "tiny", "--strict", code=2)
    assert [error["line"] for error in envelope["errors"]] == [7]
    assert limits(envelope["warnings"]) == []
    assert campaign(make_project(), "tiny", "--strict").exit_code == 0


def test_a_plan_without_any_run_that_can_run_has_no_next_step(make_project: Make) -> None:
    project = make_project()
    done = campaign(project, "tiny", "--set", "nodes=64")
    assert done.exit_code == 0
    plan_id = answer(project, "tiny", "--set", "nodes=64")["data"]["plan_id"]
    assert done.stdout.splitlines()[-2:] == [
        f"plan {plan_id}: 4 runs of 2 points; 4 can't run",
        "nothing can be submitted: mend the above and plan again",
    ]
    assert answer(project, "tiny", "--set", "nodes=64")["data"]["next"] is None


def test_a_plan_with_nothing_left_says_where_its_runs_stand(make_project: Make) -> None:
    project = make_project(study=PARTLY)
    plan_id = answer(project, "tiny")["data"]["plan_id"]
    with Ledger.open(project.ledger_path) as ledger, ledger.transaction() as db:
        for state, places in (("done", (0, 1)), ("running", (2,)), ("failed", (3,))):
            ids = [row["run_id"] for row in ledger.query("SELECT run_id FROM runs ORDER BY ord")]
            db.executemany("UPDATE runs SET state = ? WHERE run_id = ?", [(state, ids[place]) for place in places])
    lines = [line for line in campaign(project, "tiny").stdout.splitlines() if not line.startswith("so far: ")]
    assert lines[-3:] == [
        f"plan {plan_id}: 8 runs of 4 points; 4 can't run; 4 known from before, 2 of them done",
        "nothing left to run: 2 done, 1 on the way, 1 failed",
        f"next: campaign retry --plan {plan_id}",
    ]


# 2 strategies x 2 repeats x (1 + 2 + 4) nodes x half an hour: 14 node-hours, of 4 GPUs and 48 cores each
PRICE_END = "120 files on shared storage for 12 runs (each at its whole walltime; metadata operations not measured)"


@pytest.mark.parametrize(
    ("billing", "words"),
    [
        ("{unit: node-h}", "at most 56 GPU-h, 14 node-h, "),
        ("{unit: gpu-h}", "at most 56 GPU-h, 14 node-h, "),
        ("{unit: gpu-h, per_node_hour: 2}", "at most 56 GPU-h, 14 node-h, 28 gpu-h on tiny, "),
        ("{unit: core-h}", "at most 56 GPU-h, 14 node-h, 672 core-h on tiny, "),
        ("{unit: null}", "at most 56 GPU-h, 14 node-h, tiny's own unit: unknown, "),
    ],
)
def test_what_a_plan_costs_is_said_once(make_project: Make, billing: str, words: str) -> None:
    project = make_project(changed(SITE, ("{unit: core-h, whole_nodes: true}", billing)))
    assert words + PRICE_END in campaign(project, "tiny").stdout.splitlines()


def test_a_share_of_the_node_hours_is_told_apart(make_project: Make) -> None:
    billing = ("{unit: core-h, whole_nodes: true}", "{unit: node-h}")
    other = changed(SITE, ("name: tiny", "name: other"), billing)
    project = make_project(changed(SITE, billing), files={"sites/other.yaml": other})
    price = "at most 112 GPU-h, 28 node-h, 14 node-h on tiny, 14 node-h on other, 240 files on shared storage"
    assert price in campaign(project, "tiny", "other").stdout


def test_a_local_site_has_no_unit(make_project: Make) -> None:
    site = changed(SITE, ("kind: slurm", "kind: local"), ("{unit: core-h, whole_nodes: true}", "{unit: null}"))
    assert "own unit" not in campaign(make_project(site), "tiny").stdout


def test_what_nobody_knows_is_printed_as_unknown(make_project: Make) -> None:
    site = changed(SITE, ("{node: fat, min_nodes: 9, down: true}", "{node: fat}"))
    project = make_project(site)
    done = campaign(project, "tiny", "--set", "nodes=500", "--set", "global_batch=2000")
    assert "Unknown, not checked" in done.stderr
    assert "  sites/tiny.yaml:12  max_time of partition large\n" in done.stderr
    unknown = answer(project, "tiny", "--set", "nodes=500", "--set", "global_batch=2000")["data"]["unknown"]
    assert [problem["key"] for problem in limits(unknown)] == [
        "partitions.large.max_nodes",
        "partitions.large.max_time",
    ]


def test_long_plans_are_cut_unless_asked(make_project: Make) -> None:
    project = make_project()
    seeds = f"axes.seed={','.join(str(seed) for seed in range(30))}"
    done = campaign(project, "tiny", "--set", seeds)
    assert "... 140 more points: -v lists them" in done.stdout
    assert "more points" not in campaign(project, "tiny", "--set", seeds, "-v").stdout


def test_scripts_are_shown_as_submit_sends_them(make_project: Make, tmp_path: Path) -> None:
    project = make_project(changed(SITE, ("/nowhere/{project}", str(tmp_path / "scratch"))))
    done = campaign(project, "tiny", "--show-script")
    assert done.exit_code == 0
    scripts = [script["text"] for script in answer(project, "tiny", "--show-script")["data"]["scripts"]]
    assert scripts
    for script in scripts:
        assert script.rstrip() in done.stdout
        assert "#SBATCH --account=budget" in script
        assert "#SBATCH --no-requeue" in script
    assert {line for script in scripts for line in script.splitlines() if line.startswith("#SBATCH --nodes=")} == {
        "#SBATCH --nodes=1", "#SBATCH --nodes=2", "#SBATCH --nodes=4",
    }  # fmt: skip
    assert not (tmp_path / "scratch").exists(), "showing writes nothing on the site"


def test_a_local_site_has_no_script(make_project: Make) -> None:
    project = make_project(changed(SITE, ("kind: slurm", "kind: local")))
    envelope = answer(project, "tiny", "--show-script")
    assert envelope["data"]["scripts"] == []


def test_values_are_shown_as_they_are(make_project: Make) -> None:
    project = make_project(study=changed(STUDY, ("[ddp, fsdp2]", '["[red]x[/red]", "[/]"]')))
    shown = campaign(project, "tiny").stdout
    assert "strategy=[red]x[/red]" in shown
    assert "strategy=[/]" in shown


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_has_examples(flag: str) -> None:
    done = CliRunner().invoke(cli, ["plan", flag])
    assert done.exit_code == 0
    assert "campaign plan sites/juwels.yaml --show-script" in done.stdout
