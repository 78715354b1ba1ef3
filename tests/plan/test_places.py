"""Paths that nodes can't see, or that can't be written, are said when planning; what can't be seen isn't guessed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.errors import BadInput, Problem
from campaign.plan.build import build_plan
from campaign.plan.model import Plan
from campaign.plan.places import unwritable
from campaign.project import Project
from tests.needs import needs
from tests.plan.conftest import SITE, STUDY, Make, changed

# line of the file systems in the changed site: 18, and one line for each
LISTED = (
    '  scratch: {path: "/nowhere/{project}", kind: gpfs, shared: true, on_compute: true}\n',
    '  scratch: {path: "FOLDER/gpfs/{project}", kind: gpfs, shared: true, on_compute: true}\n'
    '  just: {path: "FOLDER/just", kind: gpfs, shared: true, on_compute: false}\n'
    '  inner: {path: "FOLDER/just/inner", kind: gpfs, shared: true, on_compute: true}\n'
    '  node: {path: "FOLDER/node", kind: xfs, shared: false, on_compute: true}\n'
    "  shm: {path: /dev/shm, kind: tmpfs, shared: false, on_compute: true}\n",
)


def site_in(folder: Path, *changes: tuple[str, str]) -> str:
    """The site with file systems in `folder`, which is therefore the site."""
    (folder / "gpfs" / "proj").mkdir(parents=True, exist_ok=True)
    for name in ("just", "node"):
        (folder / name).mkdir(exist_ok=True)
    kind = subprocess.run(
        ["findmnt", "-n", "-o", "FSTYPE", "-T", str(folder / "gpfs")], capture_output=True, text=True, check=True
    ).stdout.strip()
    site = changed(changed(SITE, LISTED), *changes).replace("FOLDER", str(folder))
    return site.replace("kind: gpfs", f"kind: {kind}")


def reasons(plan: Plan) -> list[Problem]:
    """Why runs can't run: each reason once. All runs have the same ones."""
    (found,) = {run.problems for run in plan.runs}
    return list(found)


def warned(plan: Plan, key: str) -> list[str]:
    return [problem.message for problem in plan.warnings if problem.key == key]


def planned(make: Make, site: str, paths: str | None = None, study: str = STUDY) -> Plan:
    files = {} if paths is None else {"campaign.yaml": f"schema: 1\npaths:\n  tiny:\n    {paths}\n"}
    return build_plan(make(site, study, files), ["tiny"])


def test_paths_that_all_nodes_see_are_no_reason(make_project: Make, tmp_path: Path) -> None:
    plan = planned(make_project, site_in(tmp_path))
    assert all(run.can_run for run in plan.runs)
    assert warned(plan, "paths.run_root") == []


@pytest.mark.parametrize(
    ("path", "words", "line"),
    [
        ("FOLDER/just/runs", "is on file system `just`, which compute nodes don't mount", 20),
        ("FOLDER/node/runs", "is on file system `node`, which each node has for itself", 22),
        ("/dev/shm/runs", "is on file system `shm`, which each node has for itself", 23),
    ],
)
def test_a_run_root_that_nodes_dont_share(make_project: Make, tmp_path: Path, path: str, words: str, line: int) -> None:
    plan = planned(make_project, site_in(tmp_path), "run_root: " + path.replace("FOLDER", str(tmp_path)))
    (reason,) = reasons(plan)
    assert words in reason.message
    assert (reason.file, reason.line, reason.key) == ("campaign.yaml", 4, "paths.tiny.run_root")
    assert f"scratch ({tmp_path}/gpfs/proj)" in (reason.allowed or "")
    assert f"(sites/tiny.yaml:{line})" in (reason.allowed or "")
    assert reason.hint == 'paths: {tiny: {run_root: "scratch:campaign"}} in campaign.yaml'


def test_the_longest_prefix_decides(make_project: Make, tmp_path: Path) -> None:
    """`inner` is mounted on nodes, although it lies below `just`, which isn't."""
    (tmp_path / "just" / "inner").mkdir(parents=True)
    site = site_in(tmp_path)
    assert all(run.can_run for run in planned(make_project, site, f"run_root: {tmp_path}/just/inner/runs").runs)
    (reason,) = reasons(planned(make_project, site, f"run_root: {tmp_path}/just/innermost/runs"))
    assert "file system `just`" in reason.message


def test_another_projects_folder_is_on_the_same_file_system(make_project: Make, tmp_path: Path) -> None:
    plan = planned(make_project, site_in(tmp_path), f"run_root: {tmp_path}/gpfs/others/runs")
    assert all(run.can_run for run in plan.runs)


def test_a_run_root_that_slurm_would_expand(make_project: Make, tmp_path: Path) -> None:
    (problem,) = reasons(planned(make_project, site_in(tmp_path), 'run_root: "scratch:100%/runs"'))
    assert (problem.key, problem.line) == ("paths.tiny.run_root", 4)
    assert "expand % in the paths of job logs" in problem.message
    assert problem.allowed == "a path without %"
    assert problem.hint == 'paths: {tiny: {run_root: "scratch:campaign"}} in campaign.yaml'


def test_a_path_on_no_listed_file_system_is_unknown(make_project: Make, tmp_path: Path) -> None:
    plan = planned(make_project, site_in(tmp_path), f"run_root: {tmp_path}/other/runs")
    assert all(run.can_run for run in plan.runs)
    (message,) = warned(plan, "paths.tiny.run_root")
    assert message.startswith(f"run_root {tmp_path}/other/runs is on no file system that tiny's file lists")
    assert message.endswith("unknown, not checked")


@pytest.mark.parametrize("path", ["/proc/nope", "/sys/runs", "/dev/runs"])
def test_the_kernels_own_files_are_no_storage_anywhere(make_project: Make, path: str) -> None:
    (reason,) = reasons(planned(make_project, SITE, f"run_root: {path}"))
    assert reason.message == f"run_root {path}: the kernel's own files are no storage"


@pytest.mark.parametrize(
    ("path", "words"),
    [("runs", "run_root is a relative path"), ('""', "run_root is empty"), ("./runs", "run_root is a relative path"),
     ('"  "', "run_root is empty")],
)  # fmt: skip
def test_a_relative_or_empty_path_is_an_error_with_its_line(make_project: Make, path: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        planned(make_project, SITE, f"run_root: {path}")
    (problem,) = caught.value.problems
    assert problem.message == words
    assert (problem.file, problem.line, problem.key) == ("campaign.yaml", 4, "paths.tiny.run_root")
    assert problem.allowed == "FILESYSTEM:FOLDER (file systems: scratch) or an absolute path"


def test_a_relative_data_folder_of_the_environment(make_project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    site = changed(SITE, (', data: "scratch:data"', ""))
    monkeypatch.setenv("CAMPAIGN_DATA", "data")
    with pytest.raises(BadInput, match="CAMPAIGN_DATA: the data folder is a relative path"):
        planned(make_project, site)


def test_data_that_nodes_dont_see(make_project: Make, tmp_path: Path) -> None:
    study = STUDY + "data: {name: weather}\n"
    plan = planned(make_project, site_in(tmp_path), f"data: {tmp_path}/just/data", study)
    first, *_ = reasons(plan)
    assert first.message == (f"data {tmp_path}/just/data is on file system `just`, which compute nodes don't mount")
    assert (first.file, first.line) == ("campaign.yaml", 4)
    # a study without data needs no data folder
    assert all(run.can_run for run in planned(make_project, site_in(tmp_path), f"data: {tmp_path}/just/data").runs)


def test_node_local_storage_that_nodes_share(make_project: Make, tmp_path: Path) -> None:
    (reason,) = reasons(planned(make_project, site_in(tmp_path), f"node_local: {tmp_path}/gpfs/proj/tmp"))
    assert "is on file system `scratch`, which nodes share" in reason.message
    assert "(sites/tiny.yaml:19)" in (reason.allowed or "")


def project_at(folder: Path, site: str) -> Project:
    for name, text in (("sites/tiny.yaml", site), ("studies/sweep.yaml", STUDY)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Project(folder)


def test_a_project_folder_that_nodes_dont_see(tmp_path: Path) -> None:
    """Ranks start in it."""
    project = project_at(tmp_path / "just" / "mine", site_in(tmp_path))
    (reason,) = reasons(build_plan(project, ["tiny"]))
    assert reason.message == (
        f"the project folder {tmp_path}/just/mine is on file system `just`, which compute nodes don't mount"
    )
    assert (reason.file, reason.line, reason.key) == ("sites/tiny.yaml", 18, "filesystems")
    assert "(sites/tiny.yaml:20)" in (reason.allowed or "")


def test_elsewhere_project_folder_and_interpreter_are_unknown(tmp_path: Path) -> None:
    """On a laptop the same path is another folder: nothing of it is held against the site."""
    site = changed(SITE, LISTED).replace("FOLDER", "/nowhere")
    site = site.replace('"/nowhere/just"', f'"{tmp_path}"').replace(
        "shared: true, on_compute: false", "shared: false, on_compute: false"
    )
    plan = build_plan(project_at(tmp_path / "mine", site), ["tiny"])
    assert all(run.can_run for run in plan.runs)
    assert warned(plan, "filesystems") == [
        "tiny is elsewhere (none of its file systems is on this machine): its project folder and interpreter are "
        "unknown, not checked"
    ]


def test_a_folder_of_the_same_name_on_another_kind_of_file_system_is_not_the_site(
    make_project: Make, tmp_path: Path
) -> None:
    (tmp_path / "gpfs" / "proj").mkdir(parents=True)
    plan = planned(make_project, changed(SITE, LISTED).replace("FOLDER", str(tmp_path)))
    assert all(run.can_run for run in plan.runs)
    assert "tiny is elsewhere" in warned(plan, "filesystems")[0]


def test_a_site_behind_ssh_is_elsewhere_whatever_is_mounted_here(make_project: Make, tmp_path: Path) -> None:
    site = site_in(tmp_path, ("account: budget", "account: budget\ntransport: {kind: ssh, host: tiny}"))
    assert "tiny is elsewhere" in warned(planned(make_project, site), "filesystems")[0]


def test_an_interpreter_that_nodes_dont_see(make_project: Make, tmp_path: Path) -> None:
    python = tmp_path / "just" / "python"
    site = site_in(tmp_path, ("account: budget", f"account: budget\nsoftware: {{python: {python}}}"))
    python.symlink_to(sys.executable)
    (reason,) = reasons(planned(make_project, site))
    assert reason.message == f"the interpreter {python} is on file system `just`, which compute nodes don't mount"
    assert (reason.file, reason.line, reason.key) == ("sites/tiny.yaml", 4, "software.python")


def test_an_image_that_nodes_dont_see_or_that_is_relative(make_project: Make, tmp_path: Path) -> None:
    container = "account: budget\ncontainer: {runtime: apptainer, image: IMAGE}"
    site = site_in(tmp_path, ("account: budget", container.replace("IMAGE", "FOLDER/just/a.sif")))
    (tmp_path / "just" / "a.sif").mkdir()
    (reason,) = reasons(planned(make_project, site))
    assert reason.message.startswith(f"container image {tmp_path}/just/a.sif is on file system `just`")
    (reason,) = reasons(planned(make_project, changed(SITE, ("account: budget", container.replace("IMAGE", "a.sif")))))
    assert (reason.message, reason.key) == ("container image a.sif is a relative path", "container.image")


def test_words_of_a_command_that_nodes_dont_see(make_project: Make, tmp_path: Path) -> None:
    program = tmp_path / "just" / "train"
    site = site_in(tmp_path)
    program.symlink_to("/bin/true")
    study = changed(STUDY, ("[python, train.py,", f"[{program}, {tmp_path}/just/table.csv,"))
    plan = planned(make_project, site, study=study)
    (reason,) = reasons(plan)
    assert (reason.key, reason.line) == ("command[0]", 3)
    assert "compute nodes don't mount" in reason.message
    assert len(warned(plan, "command[1]")) == 1, "an argument may be something else than a file"


# -- can it be written? ----------------------------------------------------------------------------------------------


def test_a_folder_that_can_be_made_is_left_as_it_is(tmp_path: Path) -> None:
    assert unwritable(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(make_project: Make, tmp_path: Path) -> None:
    site = site_in(tmp_path)
    (tmp_path / "gpfs" / "proj" / "runs").write_text("")
    (reason,) = reasons(planned(make_project, site))
    path = tmp_path / "gpfs" / "proj" / "runs"
    assert reason.message == f"run_root {path} can't be written: {path} is not a folder"
    assert (reason.file, reason.key) == ("sites/tiny.yaml", "paths.run_root")


def test_a_local_site_is_probed_too(make_project: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    site = (Path(__file__).resolve().parents[2] / "sites" / "local.yaml").read_text(encoding="utf-8")
    files = {"sites/local.yaml": site, "campaign.yaml": f"paths: {{local: {{run_root: {tmp_path}/file/runs}}}}\n"}
    study = changed(STUDY, ("nodes: [1, 2, 4]", "nodes: [1]"))
    plan = build_plan(make_project(study=study, files=files), ["local"], ["sweep"])
    (reason,) = reasons(plan)
    assert reason.message == f"run_root {tmp_path}/file/runs can't be written: {tmp_path}/file is not a folder"


@needs("tmpfs")
def test_a_read_only_file_system_is_found_even_by_root(make_project: Make, tmp_path: Path) -> None:
    """os.access would say yes to root; only a real try says no."""
    mount = tmp_path / "gpfs"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(mount)], check=True)
    try:
        site = site_in(tmp_path)
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        (reason,) = reasons(planned(make_project, site))
    finally:
        subprocess.run(["umount", str(mount)], check=True)
    assert reason.message == (f"run_root {mount}/proj/runs can't be written: {mount}/proj: {os.strerror(30)}")
