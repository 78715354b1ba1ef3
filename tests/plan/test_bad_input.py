"""Every bad input of a plan is a clear error on the command line: file, line, key, exit code 2, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from campaign.cli import cli
from tests.plan.conftest import SITE, STUDY, Make, changed


def campaign(project: Path, *args: str) -> Result:
    """Run `campaign` with the project as working folder."""
    return CliRunner().invoke(
        cli, [args[0], "--project", str(project), *args[1:]], prog_name="campaign", catch_exceptions=False
    )


# study text -> (line, key, words)
WRONG: dict[str, tuple[str, int, str, str]] = {
    "unknown key": (changed(STUDY, ("repeats: 2", "repeat: 2")), 9, "repeat", "did you mean `repeats`"),
    "wrong type": (changed(STUDY, ("repeats: 2", "repeats: two")), 9, "repeats", "an integer"),
    "boolean for a number": (changed(STUDY, ("repeats: 2", "repeats: true")), 9, "repeats", "an integer"),
    "zero repeats": (changed(STUDY, ("repeats: 2", "repeats: 0")), 9, "repeats", "at least 1"),
    "duplicate key": (STUDY + 'walltime: "01:00:00"\n', 11, "walltime", "stands twice (first on line 10)"),
    "object tag": (changed(STUDY, ("1e-3", "!!python/object/apply:os.getcwd []")), 4, "", "no tag may build an object"),
    "unquoted walltime": (
        changed(STUDY, ('"00:30:00"', "10:00")), 10, "walltime",
        'write it quoted: "00:10:00" (10 minutes) or "10:00:00" (10 hours)',
    ),
    "unquoted long walltime": (changed(STUDY, ('"00:30:00"', "24:00:00")), 10, "walltime", '"24:00:00"'),
    "walltime as a number": (changed(STUDY, ('"00:30:00"', "30")), 10, "walltime", '"00:30:00" is 30 minutes'),
    "walltime of nothing": (changed(STUDY, ('"00:30:00"', '"0"')), 10, "walltime", "more than zero"),
    "endless walltime": (changed(STUDY, ('"00:30:00"', "UNLIMITED")), 10, "walltime", "Slurm time"),
    "no walltime": (changed(STUDY, ('walltime: "00:30:00"\n', "")), 1, "walltime", "missing"),
    "axis without values": (changed(STUDY, ("[1, 2, 4]", "[]")), 7, "axes.nodes", "would make no run"),
    "axis excluded": (
        STUDY + "exclude: [{strategy: ddp}, {strategy: fsdp2}]\n", 11, "exclude", "leaves no point",
    ),
    "axis with a value twice": (changed(STUDY, ("[1, 2, 4]", "[1, 2, 1]")), 7, "axes.nodes", "twice: 1"),
    "axis of text": (changed(STUDY, ("[1, 2, 4]", "[1, two]")), 7, "axes.nodes", "integers of 1 or more"),
    "axis that is no list": (changed(STUDY, ("[1, 2, 4]", "3")), 7, "axes.nodes", "a list"),
    "axis of lists": (changed(STUDY, ("[1, 2, 4]", "[[1], 2]")), 7, "axes.nodes[0]", "a single value"),
    "axis with a strange name": (changed(STUDY, ("strategy:", "the-strategy:")), 6, "axes", "letters, digits"),
    "endless number": (changed(STUDY, ("1e-3", ".inf")), 4, "params.lr", "finite"),
    "resource among parameters": (changed(STUDY, ("hidden: 64", "nodes: 3")), 4, "params.nodes", "resources:"),
    "unknown placeholder": (changed(STUDY, ('"{lr}"', '"{lrr}"')), 3, "command[3]", "did you mean `lr`"),
    "placeholder with a format": (changed(STUDY, ('"{lr}"', '"{lr:.2f}"')), 3, "command[3]", "{lr:.2f}"),
    "placeholder with an attribute": (changed(STUDY, ('"{lr}"', '"{lr.real}"')), 3, "command[3]", "{lr.real}"),
    "open brace": (changed(STUDY, ('"{lr}"', '"{lr"')), 3, "command[3]", "{{ }}"),
    "no program": (changed(STUDY, ('command: [python, train.py, --lr, "{lr}"]\n', "")), 1, "command", "either"),
    "two programs": (STUDY + "workload: a.b\n", 3, "command", "not both"),
    "empty command": (changed(STUDY, ('[python, train.py, --lr, "{lr}"]', "[]")), 3, "command", "[python, train.py]"),
    "command of nothing": (changed(STUDY, ("[python,", '["",')), 3, "command[0]", "a command without a program"),
    "command of blanks": (changed(STUDY, ("[python,", '[" ",')), 3, "command[0]", "a command without a program"),
    "number in argv": (changed(STUDY, ('"{lr}"', "0.5")), 3, "command[3]", 'write it quoted: "0.5"'),
    "NUL in argv": (changed(STUDY, ('"{lr}"', r'"a\0b"')), 3, "command[3]", "NUL"),
    "exclude of no axis": (STUDY + "exclude:\n  - {nodes: 1}\n  - {node: 2}\n", 13, "exclude[1].node", "`nodes`"),
    "when of no axis": (STUDY + "when: [{if: {batch: 1}, set: {lr: 1}}]\n", 11, "when[0].if.batch", "no axis"),
    "when sets an axis": (STUDY + "when: [{if: {nodes: 1}, set: {nodes: 2}}]\n", 11, "when[0].set.nodes", "is an axis"),
    "unequal zip": (STUDY + "zip: [{a: [1, 2], b: [1, 2, 3]}]\n", 11, "zip[0]", "a: 2, b: 3"),
    "zipped axis twice": (STUDY + "zip: [{nodes: [1], b: [1]}]\n", 11, "zip[0].nodes", "stands twice"),
    "expression of nothing": (STUDY + 'resources: {nodes: "gpus // 4"}\n', 11, "resources.nodes", "name `gpus`"),
    "expression that is code": (
        STUDY + "resources: {nodes: \"__import__('os').getpid()\"}\n", 11, "resources.nodes", "not allowed",
    ),
    "memory without a unit": (STUDY + "resources: {memory: 16}\n", 11, "resources.memory", '"16G"'),
    "baseline of no axis": (STUDY + "baseline: {gpus: 1}\n", 11, "baseline.gpus", "no axis"),
    "strong without a batch": (
        changed(STUDY, ("global_batch: 256, ", ""), ('command: [python, train.py, --lr, "{lr}"]', "workload: a.b")),
        5, "scaling", "global_batch",
    ),
    "strong with a local batch": (changed(STUDY, ("global_batch", "local_batch")), 4, "params.local_batch", "follows"),
    "metric without a value": (
        STUDY + "metrics: [{name: loss, regex: 'loss (.*)'}]\n", 11, "metrics[0].regex", "(?P<value>...)",
    ),
    "metric that is no regex": (STUDY + "metrics: [{name: l, regex: '('}]\n", 11, "metrics[0].regex", "regular"),
    "search": (STUDY + "kind: search\nsearch: {space: {}, objective: loss}\n", 11, "kind", "can't be planned"),
    "override with an unknown key": (
        STUDY + "sites:\n  tiny:\n    axis: {nodes: [1]}\n", 13, "sites.tiny.axis", "did you mean `axes`",
    ),
    "override that makes no run": (
        STUDY + "sites:\n  tiny:\n    axes: {nodes: []}\n", 13, "axes.nodes", "would make no run",
    ),
    "runs without end": (changed(STUDY, ("repeats: 2", "repeats: 200000")), 9, "repeats", "1200000 runs"),
    "line break in a reservation": (
        STUDY + 'resources: {reservation: "r\\n#SBATCH --wrap=x"}\n', 11, "resources.reservation", "one word",
    ),
    "tab": (changed(STUDY, ("  nodes:", "\tnodes:")), 7, "", "not valid YAML"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_study_is_refused(make_project: Make, name: str) -> None:
    text, line, key, words = WRONG[name]
    project = make_project(study=text)
    people = campaign(project.root, "plan", "tiny")
    assert people.exit_code == 2
    assert "Traceback" not in people.output
    answer = campaign(project.root, "plan", "tiny", "--json")
    assert answer.exit_code == 2
    envelope = json.loads(answer.stdout)
    assert envelope["ok"] is False
    (problem,) = envelope["errors"]
    assert (problem["file"], problem["line"], problem["key"] or "") == ("studies/sweep.yaml", line, key)
    assert words in f"{problem['message']} {problem['allowed']} {problem['hint']}"
    assert f"studies/sweep.yaml:{line}: " in people.stderr
    assert not project.plans_dir.exists(), "a refused plan leaves nothing behind"


def test_a_missing_account_names_every_way_to_give_one(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(site=changed(SITE, ("account: budget", "account: null")))
    answer = campaign(project.root, "plan", "tiny")
    assert answer.exit_code == 2
    for way in ("--account", "$CAMPAIGN_ACCOUNT_TINY", "$CAMPAIGN_ACCOUNT,", "campaign.yaml", "sites/tiny.yaml:3"):
        assert way in answer.stderr
    monkeypatch.setenv("CAMPAIGN_ACCOUNT_TINY", "mine")
    assert campaign(project.root, "plan", "tiny").exit_code == 0


def test_an_account_with_a_line_break_reaches_no_script(make_project: Make) -> None:
    answer = campaign(make_project().root, "plan", "tiny", "--account", "a\n#SBATCH --wrap=x")
    assert answer.exit_code == 2
    assert "one word" in answer.stderr


def test_account_and_project_are_missed_at_once(make_project: Make) -> None:
    project = make_project(site=changed(SITE, ("account: budget", "account: null"), ("project: proj", "project: null")))
    errors = json.loads(campaign(project.root, "plan", "tiny", "--json").stdout)["errors"]
    assert [(error["line"], error["key"]) for error in errors] == [(3, "account"), (4, "project")]


def test_two_studies_of_one_name_are_both_named(make_project: Make) -> None:
    project = make_project(files={"studies/other.yaml": "# a copy\n" + STUDY})
    answer = campaign(project.root, "plan", "tiny")
    assert answer.exit_code == 2
    assert "studies/sweep.yaml:2: the name `sweep` is already taken by studies/other.yaml:3" in answer.stderr


def test_two_sites_of_one_name_are_both_named(make_project: Make) -> None:
    project = make_project(files={"sites/zzz.yaml": SITE})
    answer = campaign(project.root, "plan", "tiny")
    assert answer.exit_code == 2
    assert "sites/zzz.yaml:2: the name `tiny` is already taken by sites/tiny.yaml:2" in answer.stderr


def test_outside_a_project_the_way_in_is_said(tmp_path: Path) -> None:
    answer = campaign(tmp_path, "plan", "tiny")
    assert answer.exit_code == 2
    assert "campaign init" in answer.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["plan", "tinny"], "did you mean `tiny`"),
        (["plan", "sites/tinny.yaml"], "sites/tiny.yaml"),
        (["plan", "tiny", "--study", "swep"], "did you mean `sweep`"),
        (["plan"], "no site is given"),
        (["plan", "tiny", "--set", "lr"], "not KEY=VALUE"),
        (["plan", "tiny", "--set", "lrr=1"], "did you mean `lr`"),
        (["plan", "tiny", "--set", "nodes="], "integers of 1 or more"),
        (["plan", "tiny", "--set", "nodes=[1"], "not a YAML value"),
        (["plan", "tiny", "--set", "repeats=none"], "an integer"),
        (["plan", "tiny", "--set", "walltime=soon"], "not a Slurm time"),
        (["plan", "tiny", "--set", "lr=1", "--set", "lr=2"], "given twice"),
    ],
)
def test_a_wrong_command_line_is_refused(make_project: Make, args: list[str], words: str) -> None:
    answer = campaign(make_project().root, *args)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.output


def test_a_site_that_lists_an_unknown_study_says_where(make_project: Make) -> None:
    answer = campaign(make_project(site=changed(SITE, ("{sweep: {}}", "{swep: {}}"))).root, "plan", "tiny")
    assert answer.exit_code == 2
    assert "sites/tiny.yaml:5: there is no study `swep`" in answer.stderr


def test_errors_of_all_files_come_at_once(make_project: Make) -> None:
    project = make_project(
        site=changed(SITE, ("{sweep: {}}", "{sweep: {}, other: {}}")),
        study=changed(STUDY, ("repeats: 2", "repeat: 2")),
        files={"studies/other.yaml": changed(STUDY, ("name: sweep", "name: other"), ('"00:30:00"', "10:00"))},
    )
    errors = json.loads(campaign(project.root, "plan", "tiny", "--json").stdout)["errors"]
    assert [(error["file"], error["line"]) for error in errors] == [
        ("studies/sweep.yaml", 9),
        ("studies/other.yaml", 10),
    ]


def test_an_override_from_the_site_file_is_blamed_on_the_site_file(make_project: Make) -> None:
    project = make_project(site=changed(SITE, ("{sweep: {}}", "{sweep: {nodes: [1, x]}}")))
    (error,) = json.loads(campaign(project.root, "plan", "tiny", "--json").stdout)["errors"]
    assert (error["file"], error["line"], error["key"]) == ("sites/tiny.yaml", 5, "axes.nodes")
