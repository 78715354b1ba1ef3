"""Where this machine is no login node: nothing is queued, nothing is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from campaign.slurm.queries import classify_refusal, no_cluster_here
from tests.conftest import Cli
from tests.slurm.projects import make_project, study


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One run planned for juwels, whose run root is on a file system that isn't here."""
    folder = make_project(tmp_path / "p", "juwels", studies={"t": study(["true"])})
    site = folder / "sites" / "juwels.yaml"
    site.write_text(site.read_text().replace('"/p/scratch/{project}"', f'"{tmp_path}/scratch/{{project}}"'))
    config = json.loads((folder / "campaign.yaml").read_text())
    del config["paths"]["juwels"]["run_root"]
    (folder / "campaign.yaml").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("words", [("submit",), ("submit", "--site", "juwels"), ("run", "juwels", "--study", "t"),
                                   ("try", "t", "juwels")])  # fmt: skip
def test_without_slurm_nothing_is_queued_and_nothing_written(
    project: Path, tmp_path: Path, cli: Cli, words: tuple[str, ...]
) -> None:
    cli("plan", "juwels", "--study", "t", cwd=project, code=0)
    before = {path for path in tmp_path.rglob("*") if ".campaign" not in path.parts}
    (tmp_path / "empty").mkdir()
    answer = cli(*words, cwd=project, env={"PATH": str(tmp_path / "empty")}, code=3)
    assert "this is no login node of juwels (no sbatch here)" in answer.stderr
    after = {path for path in tmp_path.rglob("*") if ".campaign" not in path.parts}
    assert after - before <= {tmp_path / "empty", project / "campaign.duckdb"}
    assert not (tmp_path / "scratch").exists()
    (group,) = cli("status", "--json", cwd=project, code=0).json()["data"]["groups"]
    assert group["states"]["planned"] == 1


def test_programs_without_a_cluster_are_no_login_node(project: Path, tmp_path: Path, cli: Cli) -> None:
    """What Slurm 23.11 prints on a machine that has its programs and no configuration."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sbatch", "scontrol"):
        said = (
            f"{name}: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\\n{name}: error: "
            f"fetch_config: DNS SRV lookup failed\\n{name}: fatal: Could not establish a configuration source\\n"
        )
        (programs / name).write_text(f"#!/bin/sh\nprintf '{said}' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    cli("plan", "juwels", "--study", "t", cwd=project, code=0)
    answer = cli("submit", cwd=project, env={"PATH": f"{programs}:{os.environ['PATH']}"}, code=3)
    assert "no login node of juwels" in answer.stderr
    assert "Could not establish a configuration source" in answer.stderr
    assert not (tmp_path / "scratch").exists()


def test_what_sbatch_says_without_a_cluster_is_no_refusal() -> None:
    texts = (
        "sbatch: fatal: Could not establish a configuration source",
        "sbatch: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory\n"
        "sbatch: error: ClusterName needs to be specified\nsbatch: fatal: Unable to process configuration file",
    )
    for text in texts:
        assert no_cluster_here(text)
        assert classify_refusal(text) == "no cluster"
    assert classify_refusal("sbatch: error: Batch job submission failed: Invalid account") == "refused"
    assert not no_cluster_here("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)")
