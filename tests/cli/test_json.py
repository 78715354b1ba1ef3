"""Every command, with `--json`, in a project as a user has it: stdout fits docs/schema/<command>.json.

The schema of `site check` is site_check.json: site.json is that of site files.

A command of `campaign.cli.COMMANDS` without a schema, without a case that succeeds or without one that fails, fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from campaign.cli import COMMANDS
from campaign.cli import cli as group
from campaign.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK
from tests.conftest import Cli
from tests.needs import needs

ANSWERS = str(Path(__file__).resolve().parents[1] / "sitecheck" / "mixed.json")
"""What a cluster answered, as `campaign site check --save` keeps it."""
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"

RANK = """
import os, sys
from campaign.record import Recorder
recorder = Recorder.from_env()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
recorder.world(rank, size)
print("rank", rank)
if sys.argv[1] == "broken":
    sys.exit("broken on purpose")
for epoch in range(3):
    recorder.epoch(epoch, epoch_time_s=8.0 / size, steps=4, samples_seen=16 // size, samples_unique=16)
"""


@dataclass(frozen=True)
class Case:
    """One call: arguments after the command ({run} and {failed} are run ids), where, and its exit code."""

    words: tuple[str, ...] = ()
    code: int = EXIT_OK
    where: str = "project"
    """project | outside (a folder that is in no project) | new (an empty project folder)"""


def ok(*words: str, **more: Any) -> Case:
    return Case(words, **more)


def bad(*words: str, code: int = EXIT_BAD_INPUT, **more: Any) -> Case:
    return Case(words, code, **more)


CASES: dict[str, list[Case]] = {
    "init": [ok("more", "--site", "local"), bad("--site", "nowhere")],
    "plan": [
        ok("sites/local.yaml", "--study", "tally"),
        ok("sites/local.yaml", "--study", "tally", "--show-script"),
        ok("sites/local.yaml", "--study", "tally", "--diff"),
        bad("sites/local.yaml", "--study", "nothing"),
        bad("sites/torn.yaml"),
    ],
    "try": [
        ok("tally", "local", "--steps", "3"),
        bad("broken", "local", code=EXIT_FAILED),
        bad("nothing", "local"),
        bad("tally", "local", "--here"),
    ],
    "rebuild": [ok("--force"), bad(), bad("--force", where="new"), bad(where="outside")],
    "timer": [ok(), ok("systemd", "--every", "2h", "--max-queued", "5"), bad("--every", "7m"), bad(where="outside")],
    "submit": [ok("--dry-run", "--study", "later"), bad("--where", "no_such_column = 1"), bad(where="outside")],
    "run": [
        ok("sites/local.yaml", "--study", "tally", "--no-plots"),
        bad("sites/local.yaml", "--study", "broken", "--no-plots", code=EXIT_FAILED),
        bad("sites/local.yaml", "--set", "no_such_axis=3"),
    ],
    "status": [
        ok(),
        ok("-v"),
        ok("--advance", "--study", "tally"),
        ok("--study", "tally"),
        ok(where="new"),
        bad("--where", "1 ="),
        bad(where="outside"),
    ],
    "show": [ok("{run}"), ok("{failed}"), bad("zzzz"), bad()],
    "script": [ok("{slurm}"), ok("{slurm}", "--standalone"), bad("{run}"), bad("{run}", "--standalone"), bad("zzzz")],
    "logs": [ok("{run}"), ok("{failed}", "--failed"), bad("zzzz")],
    "collect": [ok(), ok("--rebuild"), bad("--where", "1 ="), bad(where="outside")],
    "cost": [ok(), ok("--no-refresh"), bad(where="outside")],
    "sql": [
        ok("SELECT site, world_size, epoch_time_s, speedup, efficiency FROM scaling"),
        ok("SELECT * FROM jobs"),
        bad("SELECT nothing FROM nowhere"),
    ],
    "plot": [ok("scaling"), ok(where="outside"), bad("no-such-figure"), bad("scaling", where="outside")],
    "export mlflow": [
        ok("--uri", "sqlite:///mlflow.db"),
        bad("--uri", "mlruns"),
        bad("--uri", "sqlite:///mlflow.db", where="outside"),
    ],
    "data prepare": [
        ok("hydrology", "--synthetic", "--cells", "8", "--years", "14", "--dest", "small"),
        bad("hydrology", "--synthetic", "--cells", "-1", "--dest", "smaller"),
        bad("weather"),
    ],
    "site check": [
        ok("local"),
        ok("mixed1", "--from", ANSWERS),
        bad("mixed1", "jupiter", "--from", ANSWERS),
        bad("nowhere"),
        bad("jupiter", "--from", ANSWERS, code=EXIT_FAILED),
    ],
    "site discover": [
        ok("--from", ANSWERS),
        bad("--from", ANSWERS, "--name", "Not A Name"),
        bad("--from", "torn.json"),
    ],
    "site probe": [ok("local"), bad("nowhere"), bad("vega", "--partition", "nowhere")],
    # last: what they change, the cases above would see
    "retry": [ok("--study", "broken"), bad(), bad("--run", "zzzz")],
    "cancel": [ok("--study", "later"), bad(), bad("--run", "zzzz")],
    "doctor": [ok(where="outside"), bad("--site", "nowhere"), bad("--site", "local", where="outside")],
    "completion": [ok("bash"), ok("zsh"), ok("fish"), bad("tcsh")],
}
NEEDS = {"plot": "matplotlib", "export mlflow": "mlflow", "data prepare": "zarr"}


def group_context() -> click.Context:
    """The context of `campaign` itself. Without its settings click would cache a `--help` without `-h` for good."""
    return click.Context(group, info_name="campaign", **group.context_settings)


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something: `data prepare`, not `data`."""
    context = group_context()
    for name in COMMANDS:
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {child}", command.commands[child]) for child in sorted(command.commands))
        elif command is not None:
            yield name, command


def registry() -> Registry[Any]:
    """All schemas, by file name and by the relative names with which they refer to each other."""
    contents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")}
    return Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in contents.items())


def validate(answer: dict[str, Any], name: str) -> None:
    """Fail unless `answer` fits docs/schema/<name>.json and the envelope."""
    for schema in (f"{name}.json", "envelope.json"):
        path = SCHEMAS / schema
        assert path.exists(), f"docs/schema/{schema} is missing"
        definition = json.loads(path.read_text(encoding="utf-8"))
        Draft202012Validator.check_schema(definition)
        validator = Draft202012Validator(definition, registry=registry())
        faults = [f"{fault.json_path}: {fault.message[:300]}" for fault in validator.iter_errors(answer)]
        assert faults == [], f"against docs/schema/{schema}"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the cases: `project` has two studies that were run, one of which fails, and one that is planned."""
    root = tmp_path_factory.mktemp("json")
    project, outside, new = (root / name for name in ("project", "outside", "new"))
    outside.mkdir()
    (new / "sites").mkdir(parents=True)
    for name in ("tally", "broken", "later"):
        study = {"schema": 1, "name": name, "command": [sys.executable, "rank.py", name], "scaling": "strong",
                 "params": {"global_batch": 16}, "axes": {"nodes": [1], "ranks_per_node": [1, 2]}, "repeats": 1,
                 "kind": "sweep", "walltime": "00:05:00", "gate": False, "retry": {}}  # fmt: skip
        (project / "studies").mkdir(parents=True, exist_ok=True)
        (project / "studies" / f"{name}.yaml").write_text(json.dumps(study))
    (project / "rank.py").write_text(RANK)
    return {"project": project, "outside": outside, "new": new}


@pytest.fixture(scope="module")
def runs(places: dict[str, Path], module_cli: Cli) -> dict[str, str]:
    """Run ids by what became of them; `slurm` is only planned, on a site with Slurm."""
    project = places["project"]
    module_cli("init", project, code=EXIT_OK)
    words = ("--from", ANSWERS, "--out", "sites/mixed1.yaml")
    module_cli("site", "discover", *words, cwd=project, code=EXIT_OK)
    (project / "sites" / "torn.yaml").write_text("schema: 1\nname: torn\nscheduler: [\n")
    module_cli("run", "sites/local.yaml", "--study", "tally", "--no-plots", cwd=project, code=EXIT_OK)
    module_cli("run", "sites/local.yaml", "--study", "broken", "--no-plots", cwd=project, code=EXIT_FAILED)
    module_cli("plan", "sites/local.yaml", "--study", "later", cwd=project, code=EXIT_OK)
    module_cli("plan", "sites/vega.yaml", "--study", "later", "--account", "demo", cwd=project, code=EXIT_OK)
    rows = module_cli("status", "-v", "--json", cwd=project, code=EXIT_OK).json()["data"]["runs"]
    of = {name: [row for row in rows if row["study"] == name] for name in ("tally", "broken")}
    assert {row["state"] for row in of["tally"]} == {"done"}
    assert {row["state"] for row in of["broken"]} == {"failed"}
    slurm = next(row["run_id"] for row in rows if row["site"] == "vega")
    return {"run": of["tally"][0]["run_id"], "failed": of["broken"][0]["run_id"], "slurm": slurm}


def parameters() -> Iterator[Any]:
    names = [*CASES, *(name for name, _ in leaves() if name not in CASES)]
    for name in names:
        marks = [needs(NEEDS[name])] if name in NEEDS else []
        yield pytest.param(name, id=name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("name", list(parameters()))
def test_json_of_every_command_fits_its_schema(
    name: str, places: dict[str, Path], runs: dict[str, str], cli: Cli
) -> None:
    cases = CASES.get(name, [])
    assert {case.code == EXIT_OK for case in cases} == {True, False}, "a case that succeeds and one that fails"
    for case in cases:
        words = [word.format(**runs) for word in case.words]
        result = cli(*name.split(), *words, "--json", cwd=places[case.where])
        assert result.code == case.code, str(result)
        answer = result.json()
        assert answer["command"] == name
        assert answer["ok"] is (case.code == EXIT_OK)
        assert bool(answer["errors"]) is not answer["ok"]
        assert "Traceback" not in result.stderr
        validate(answer, name.replace(" ", "_"))


def test_no_schema_accepts_just_anything() -> None:
    """A schema that holds no command to its answer would make the test above worthless."""
    for name, _ in leaves():
        definition = json.loads((SCHEMAS / f"{name.replace(' ', '_')}.json").read_text(encoding="utf-8"))
        validator = Draft202012Validator(definition, registry=registry())
        good = {"schema": 1, "command": name, "ok": True, "data": {}, "warnings": [], "errors": []}
        assert not validator.is_valid(good), f"{name}: success without data"
        assert not validator.is_valid(good | {"command": "other"}), f"{name}: another command's name"
        assert not validator.is_valid(good | {"ok": False, "errors": [{"text": "no"}]}), f"{name}: not a problem"


# -- help and exit codes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_short_help_is_the_docstring(name: str) -> None:
    command = group.get_command(group_context(), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].short_help


@pytest.mark.parametrize(("name", "command"), list(leaves()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_has_examples_that_parse(name: str, command: click.Command) -> None:
    text = command.get_help(click.Context(command, info_name=name, parent=group_context()))
    assert "Examples:" in text
    assert f"campaign {name}" in text.partition("Examples:")[2]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.opts} has no help"


def test_unknown_command_is_told_with_the_nearest_one(cli: Cli) -> None:
    result = cli("statsu", code=EXIT_BAD_INPUT)
    assert "Did you mean `campaign status`?" in result.stderr
    answer = cli("statsu", "--json", code=EXIT_BAD_INPUT).json()
    validate_envelope_only(answer)
    assert "campaign status" in answer["errors"][0]["message"]


def test_wrong_option_names_itself(cli: Cli) -> None:
    answer = cli("status", "--wach", "--json", code=EXIT_BAD_INPUT).json()
    validate_envelope_only(answer)
    assert answer["command"] == "status"
    assert answer["errors"][0]["key"] == "--wach"
    assert "--watch" in answer["errors"][0]["allowed"]


def validate_envelope_only(answer: dict[str, Any]) -> None:
    definition = json.loads((SCHEMAS / "envelope.json").read_text(encoding="utf-8"))
    Draft202012Validator(definition).validate(answer)
