"""`@needs(...)` skips with a reason, fails when the need is required, and knows its names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import PROBES, missing

REPOSITORY = Path(__file__).resolve().parents[1]
TEST = """
from pathlib import Path
from tests.needs import needs

@needs({need!r})
def test_it():
    Path("ran").touch()
"""


def run(folder: Path, need: str, *, require: str = "", path: str | None = None) -> tuple[int, str]:
    """Exit code and output of pytest over one test that has one need."""
    (folder / "test_it.py").write_text(TEST.format(need=need))
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "--strict-markers", "-rs"]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY), "CAMPAIGN_REQUIRE": require, "COLUMNS": "200"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # faster
    if path is not None:
        env["PATH"] = path
    answer = subprocess.run(
        [*argv, f"--rootdir={folder}", "-c", os.devnull, "test_it.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode, answer.stdout + answer.stderr


def test_a_need_that_is_met_lets_the_test_run(tmp_path: Path) -> None:
    met = [name for name in PROBES if missing(name) is None]
    assert met, "no need is met here"
    code, output = run(tmp_path, met[-1], require=met[-1])
    assert code == pytest.ExitCode.OK, output
    assert (tmp_path / "ran").exists()


def test_a_missing_need_skips_with_the_reason(tmp_path: Path) -> None:
    code, output = run(tmp_path, "strace", path=str(tmp_path))
    assert code == pytest.ExitCode.OK, output
    assert "1 skipped" in output
    assert "needs strace: strace is missing" in output
    assert not (tmp_path / "ran").exists()


def test_a_required_need_that_is_missing_fails(tmp_path: Path) -> None:
    code, output = run(tmp_path, "strace", require="root,strace", path=str(tmp_path))
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "CAMPAIGN_REQUIRE names 'strace', but: strace is missing" in output
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("need", "require", "where"), [("slrum", "", "test_it.py::test_it"), ("root", "slurm,slrum", "$CAMPAIGN_REQUIRE")]
)
def test_an_unknown_name_is_an_error(tmp_path: Path, need: str, require: str, where: str) -> None:
    code, output = run(tmp_path, need, require=require)
    assert code == pytest.ExitCode.USAGE_ERROR, output
    assert f"{where}: unknown need slrum; there are" in output
