"""A project is found, its files are found, and account and paths come from where the contract says."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from campaign.errors import BadInput, OutsideProject
from campaign.project import Project, default_node_local
from tests.plan.conftest import SITE, STUDY, Make, changed


@pytest.mark.parametrize("marker", [".campaign", "sites"])
def test_the_nearest_folder_with_a_marker_is_the_project(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sites").mkdir()
    inner = tmp_path / "a" / "inner"
    (inner / marker).mkdir(parents=True)
    (inner / "b" / "c").mkdir(parents=True)
    assert Project.find(inner / "b" / "c").root == inner
    assert Project.find(tmp_path / "a").root == tmp_path
    monkeypatch.chdir(inner / "b")
    assert Project.find().root == inner


def test_outside_a_project_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutsideProject, match="campaign init") as caught:
        Project.find(tmp_path)
    assert caught.value.exit_code == 2
    with pytest.raises(OutsideProject, match="no such folder"):
        Project.find(tmp_path / "typo")


def test_a_file_called_sites_makes_no_project(tmp_path: Path) -> None:
    (tmp_path / "sites").write_text("")
    with pytest.raises(OutsideProject):
        Project.find(tmp_path)


def test_the_store_is_the_flag_else_the_environment_else_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Project(tmp_path).store_path == tmp_path / "campaign.duckdb"
    monkeypatch.setenv("CAMPAIGN_STORE", str(tmp_path / "env.duckdb"))
    assert Project(tmp_path).store_path == tmp_path / "env.duckdb"
    assert Project(tmp_path, tmp_path / "flag.duckdb").store_path == tmp_path / "flag.duckdb"


def test_a_site_is_known_by_name_and_by_file(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(files={"sites/file.yaml": changed(SITE, ("name: tiny", 'name: "named"'))})
    assert project.load_site("named").name == project.load_site("sites/file.yaml").name == "named"
    assert project.load_site(project.root / "sites" / "file.yaml").name == "named"
    monkeypatch.chdir(project.root / "sites")
    assert project.load_site(Path("file.yaml")).name == "named"
    assert project.site_names() == ["named", "tiny"]


def test_one_broken_file_doesnt_hide_the_others(make_project: Make) -> None:
    project = make_project(files={"sites/broken.yaml": "name: [", "studies/broken.yml": "\t"})
    assert project.load_site("tiny").name == "tiny"
    assert project.load_study("sweep").name == "sweep"
    with pytest.raises(BadInput, match=r"sites/broken\.yaml:1"):
        project.load_site("broken")


def test_only_yaml_files_are_files(make_project: Make) -> None:
    project = make_project(
        files={"sites/README.md": "name: readme", "sites/tiny.yaml.bak": SITE, "studies/x.yml": STUDY}
    )
    assert project.site_names() == ["tiny"]


def test_a_file_of_another_project_is_refused(make_project: Make, tmp_path: Path) -> None:
    other = tmp_path / "other" / "sites" / "tiny.yaml"
    other.parent.mkdir(parents=True)
    other.write_text(SITE)
    with pytest.raises(BadInput, match="not a site file of the project") as caught:
        make_project().load_site(other)
    assert caught.value.problems[0].hint == f"cp {other} {tmp_path}/project/sites/"


def test_a_path_from_the_project_s_folder_will_do(
    make_project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    decoy = tmp_path / "sites" / "tiny.yaml"
    decoy.parent.mkdir()
    decoy.write_text(SITE)
    monkeypatch.chdir(tmp_path)
    assert project.site_path("sites/tiny.yaml") == project.root / "sites" / "tiny.yaml"


# -- account ---------------------------------------------------------------------------------------------------------


def test_the_account_comes_from_the_strongest_source(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    site_text = changed(SITE, ("name: tiny", "name: ti-ny"))
    project = make_project(site_text)
    assert project.resolve_account(project.load_site("ti-ny")) == "budget"
    project = make_project(site_text, files={"campaign.yaml": "schema: 1\naccounts: {ti-ny: ours}\n"})
    site = project.load_site("ti-ny")
    assert project.resolve_account(site) == "ours"
    monkeypatch.setenv("CAMPAIGN_ACCOUNT", "everywhere")
    assert project.resolve_account(site) == "everywhere"
    monkeypatch.setenv("CAMPAIGN_ACCOUNT_TI_NY", "here")
    assert project.resolve_account(site) == "here"
    assert project.resolve_account(site, "flag") == "flag"


def test_a_local_site_needs_no_account(make_project: Make) -> None:
    site = changed(SITE, ("account: budget", "account: null"), ("kind: slurm", "kind: local"))
    project = make_project(site)
    assert project.resolve_account(project.load_site("tiny")) is None


# -- paths -----------------------------------------------------------------------------------------------------------


def test_paths_are_those_of_the_site_with_its_project_filled_in(make_project: Make) -> None:
    project = make_project()
    paths = project.site_paths(project.load_site("tiny"))
    assert paths.run_root == Path("/nowhere/proj/runs")
    assert paths.data == Path("/nowhere/proj/data")
    assert paths.node_local == Path("/dev/shm/me")
    assert project.run_roots() == {"tiny": Path("/nowhere/proj/runs")}


def test_campaign_yaml_wins_over_the_site(make_project: Make) -> None:
    config = (
        "schema: 1\nprojects: {tiny: mine}\n"
        "paths: {tiny: {run_root: 'scratch:elsewhere', data: my/data, node_local: '/local/{user}/{project}'}}\n"
    )
    project = make_project(files={"campaign.yaml": config})
    paths = project.site_paths(project.load_site("tiny"))
    assert paths.run_root == Path("/nowhere/mine/elsewhere")
    assert paths.data == project.root / "my/data"
    assert paths.node_local == Path(f"/local/{getpass.getuser()}/mine")


def test_a_site_without_paths_uses_the_project_folder(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(
        changed(SITE, ('paths: {run_root: "scratch:runs", node_local: /dev/shm/me, data: "scratch:data"}', ""))
    )
    site = project.load_site("tiny")
    paths = project.site_paths(site)
    assert (paths.run_root, paths.data) == (project.root / "runs", project.root / "data")
    assert paths.node_local == default_node_local()
    monkeypatch.setenv("CAMPAIGN_DATA", "/big/data")
    assert project.site_paths(site).data == Path("/big/data")


def test_node_local_storage_is_memory_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_node_local() == Path("/dev/shm") / f"campaign-{getpass.getuser()}"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert default_node_local() == tmp_path / f"campaign-{getpass.getuser()}"


def test_a_missing_project_is_said_and_leaves_the_site_out_of_the_run_roots(make_project: Make) -> None:
    project = make_project(
        changed(SITE, ("project: proj\n", "")), files={"sites/b.yaml": changed(SITE, ("name: tiny", "name: b"))}
    )
    with pytest.raises(BadInput, match=r"projects: \{tiny: NAME\}"):
        project.site_paths(project.load_site("tiny"))
    assert project.run_roots() == {"b": Path("/nowhere/proj/runs")}


def test_an_unknown_file_system_in_campaign_yaml_is_refused(make_project: Make) -> None:
    project = make_project(files={"campaign.yaml": "schema: 1\npaths:\n  tiny:\n    run_root: scrach:x\n"})
    with pytest.raises(BadInput) as caught:
        project.site_paths(project.load_site("tiny"))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.key) == ("campaign.yaml", 4, "paths.tiny.run_root")
    assert problem.allowed == "scratch"


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("schema: 1\nsite: [a]\n", 2, "site"),
        ("schema: 1\naccounts: {tiny: 7}\n", 2, "accounts.tiny"),
        ("schema: 1\ncaps: {gpu_hours: -1}\n", 2, "caps.gpu_hours"),
        ("schema: 3\n", 1, "schema"),
    ],
)
def test_a_wrong_campaign_yaml_is_refused(make_project: Make, text: str, line: int, key: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_project(files={"campaign.yaml": text}).config  # noqa: B018
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.key) == ("campaign.yaml", line, key)


def test_sites_and_studies_of_campaign_yaml_are_the_defaults(make_project: Make) -> None:
    from campaign.plan.build import build_plan

    config = "schema: 1\nsites: [tiny]\nstudies: [other]\n"
    files = {"campaign.yaml": config, "studies/other.yaml": changed(STUDY, ("name: sweep", "name: other"))}
    project = make_project(changed(SITE, ("studies: {sweep: {}}\n", "")), files=files)
    assert {(run.site, run.study) for run in build_plan(project, []).runs} == {("tiny", "other")}
