"""`campaign doctor` in projects with and without what their sites need."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.doctor.check import system_install
from tests.conftest import Cli
from tests.needs import needs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The starter sites, and one study of a command, which needs no torch."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "sites", folder / "sites")
    (folder / "studies").mkdir()
    study = {"schema": 1, "name": "hello", "kind": "sweep", "command": ["true"], "scaling": "none"}
    (folder / "studies" / "hello.yaml").write_text(json.dumps(study))
    return folder


@pytest.fixture
def without_slurm(tmp_path: Path) -> dict[str, str]:
    """A PATH that has Python and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    return {"PATH": str(folder)}


def checks(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in answer["data"]["checks"]}


def test_local_site_needs_no_slurm(project: Path, without_slurm: dict[str, str], cli: Cli) -> None:
    answer = cli("doctor", "--json", cwd=project, env=without_slurm, code=0).json()
    assert answer["data"]["sites"] == ["local"]
    found = checks(answer)
    assert found["sbatch"]["ok"] is None
    assert found["duckdb"]["ok"] is True
    assert found[f"locks in {project}"]["ok"] is True


def test_slurm_site_without_slurm_is_told_what_to_do(project: Path, without_slurm: dict[str, str], cli: Cli) -> None:
    (project / "campaign.yaml").write_text("schema: 1\nsites: [vega]\nprojects: {vega: demo}\n")
    result = cli("doctor", cwd=project, env=without_slurm, code=1)
    assert "error: sbatch: missing; needed by sites with scheduler.kind slurm" in result.stderr
    assert "login node" in result.stderr
    assert "campaign itself" in result.stdout  # the whole picture is shown all the same
    named = cli("doctor", "--site", "local", cwd=project, env=without_slurm)
    assert named.code == 0, str(named)


def test_broken_site_file_is_a_warning(project: Path, cli: Cli) -> None:
    (project / "sites" / "torn.yaml").write_text("schema: 1\nname: torn\nscheduler: [\n")
    result = cli("doctor", cwd=project, code=0)
    assert "sites/torn.yaml:" in result.stderr
    assert "Traceback" not in result.stderr


@needs("torch")
def test_gpu_and_build_of_torch_are_told(project: Path, cli: Cli) -> None:
    import torch

    build = checks(cli("doctor", "--json", cwd=project, code=0).json())["torch build"]
    assert build["ok"] is True
    kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build" if not torch.version.hip else "ROCm"
    assert build["found"].startswith(kind)
    assert "gloo" in build["found"]


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ('ID=ubuntu\nID_LIKE="debian"\n', "sudo apt-get install slurm-client"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install slurm"),
        ("ID=arch\n", "by hand"),
    ],
)
def test_install_lines_are_those_of_the_distribution(
    release: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "os-release"
    file.write_text(release)
    monkeypatch.setattr("campaign.doctor.check.OS_RELEASE", file)
    assert system_install("slurm-client", "slurm", "by hand") == line


def test_home_that_does_not_exist(project: Path, cli: Cli) -> None:
    assert cli("doctor", cwd=project, env={"HOME": "/nonexistent"}).code == 0
