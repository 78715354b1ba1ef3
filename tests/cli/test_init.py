"""`campaign init`: what it writes, and that it never takes anything away."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from campaign import starter
from campaign.project import Project
from tests.conftest import Cli


def test_new_project_is_one_that_campaign_accepts(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "my study: \"a\" & 'b'"
    cli("init", folder, code=0)
    project = Project.find(folder / "sites")
    assert project.root == folder
    assert project.config.name == folder.name
    assert project.site_names() == starter.names("sites")
    assert [study.name for study in project.studies()] == starter.names("studies")
    for name in project.site_names():
        project.load_site(name)


def test_again_changes_nothing(tmp_path: Path, cli: Cli) -> None:
    first = cli("init", "--json", cwd=tmp_path, code=0).json()["data"]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = cli("init", "--json", cwd=tmp_path, code=0).json()["data"]
    assert (second["written"], sorted(second["unchanged"])) == ([], sorted(first["written"]))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_changed_files_stay_unless_forced(tmp_path: Path, cli: Cli) -> None:
    cli("init", cwd=tmp_path, code=0)
    mine = tmp_path / "sites" / "local.yaml"
    original = mine.read_text()
    mine.write_text(original + "# mine\n")
    (tmp_path / "studies" / "strong_scaling.yaml").unlink()
    result = cli("init", cwd=tmp_path, code=2)
    assert "sites/local.yaml" in result.stderr
    assert "--force" in result.stderr
    assert mine.read_text().endswith("# mine\n")
    assert not (tmp_path / "studies" / "strong_scaling.yaml").exists()  # all or nothing
    cli("init", "--force", cwd=tmp_path, code=0)
    assert mine.read_text() == original


def test_only_the_sites_that_were_named(tmp_path: Path, cli: Cli) -> None:
    steps = cli("init", "p", "--site", "juwels", "--json", cwd=tmp_path, code=0).json()["data"]["next"]
    assert [path.name for path in (tmp_path / "p" / "sites").glob("*.yaml")] == ["juwels.yaml"]
    assert steps[0] == "cd p"
    assert steps[-1] == "campaign run sites/juwels.yaml"


def test_unknown_site(tmp_path: Path, cli: Cli) -> None:
    result = cli("init", "--site", "marenostrum", cwd=tmp_path, code=2)
    assert "marenostrum" in result.stderr
    assert "juwels" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    result = cli("init", tmp_path / "file" / "p", cwd=tmp_path, code=2)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_what_click_makes(shell: str, cli: Cli, tmp_path: Path) -> None:
    script = cli("completion", shell, cwd=tmp_path, code=0).stdout
    assert "_CAMPAIGN_COMPLETE" in script
    words = {"COMP_WORDS": "campaign s", "COMP_CWORD": "1" if shell != "fish" else "s"}
    offered = cli(env={"_CAMPAIGN_COMPLETE": f"{shell}_complete", **words}, cwd=tmp_path).stdout
    assert "status" in offered
    assert "submit" in offered
    assert "plan" not in offered.replace("planned", "")


def test_editors_find_the_schema_that_each_file_names(tmp_path: Path, cli: Cli) -> None:
    cli("init", cwd=tmp_path, code=0)
    files = [tmp_path / "campaign.yaml", *(tmp_path / "sites").glob("*.yaml"), *(tmp_path / "studies").glob("*.yaml")]
    assert len(files) > 10
    for file in files:
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
        assert named is not None, file
        schema = json.loads((file.parent / named[1]).read_text())
        Draft202012Validator.check_schema(schema)
        data = YAML(typ="safe", pure=True).load(file.read_text())
        assert [fault.message for fault in Draft202012Validator(schema).iter_errors(data)] == [], file


def test_an_older_schema_is_no_file_of_the_user(tmp_path: Path, cli: Cli) -> None:
    cli("init", cwd=tmp_path, code=0)
    schema = tmp_path / ".campaign" / "schema" / "site.json"
    text = schema.read_text()
    schema.write_text("{}")
    written = cli("init", "--json", cwd=tmp_path, code=0).json()["data"]["written"]
    assert written == [".campaign/schema/site.json"]
    assert schema.read_text() == text
