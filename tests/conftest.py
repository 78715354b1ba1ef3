"""Fixtures and rules of the whole suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import needs

_REQUIRED = pytest.StashKey[frozenset[str]]()

# what a user's shell may carry into a test and change its outcome
_FOREIGN = ("CAMPAIGN_", "SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "PMI_", "PMIX_", "SUBMITIT_", "XDG_")
# TORCHINDUCTOR_CACHE_DIR: torch sets it in the process that imports it, and so for tests that come after
_FOREIGN_NAMES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "NO_COLOR",
    "FORCE_COLOR",
    "CUDA_VISIBLE_DEVICES",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(name, ...): skip with the reason unless each is there; see tests/needs.py"
    )
    config.stash[_REQUIRED] = needs.required()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("needs"):
            needs.check_names(mark.args, item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.enforce(item, item.config.stash[_REQUIRED])


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test's own empty HOME."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def _matplotlib_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One font cache for the session: building it takes seconds, and each test has a new HOME."""
    return tmp_path_factory.mktemp("matplotlib")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, home: Path, _matplotlib_cache: Path) -> None:
    """No test sees the caller's HOME, campaign settings, or the job it may run in."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in _FOREIGN_NAMES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MPLCONFIGDIR", str(_matplotlib_cache))
    monkeypatch.setenv("TZ", "UTC")


@dataclass(frozen=True, slots=True)
class Result:
    """What one call of the `campaign` command did."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        """The `--json` envelope. Fails the test when stdout isn't exactly one JSON object."""
        try:
            answer = json.loads(self.stdout)
        except ValueError:
            pytest.fail(f"no JSON on stdout: {self}", pytrace=False)
        assert isinstance(answer, dict), self
        return answer

    def __str__(self) -> str:
        command = " ".join(("campaign", *self.argv))
        return f"`{command}` -> {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


Cli = Callable[..., Result]


@pytest.fixture
def cli() -> Cli:
    """The real `campaign` command in a process of its own.

        result = cli("plan", "sites/local.yaml", "--json", cwd=project)
        assert result.code == 0, result

    Keywords: cwd, env (added to the environment), input (text for stdin), timeout (s), code (when given, the exit code
    that the call must have).
    """

    def run(
        *argv: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float = 240,
        code: int | None = None,
    ) -> Result:
        words = tuple(str(word) for word in argv)
        answer = subprocess.run(
            [campaign_command(), *words],
            cwd=cwd,
            env=os.environ | dict(env or {}),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        result = Result(words, answer.returncode, answer.stdout, answer.stderr)
        if code is not None:
            assert result.code == code, str(result)
        return result

    return run


def campaign_command() -> str:
    """The installed `campaign` script of the Python that runs the tests."""
    script = Path(sys.executable).with_name("campaign")
    assert script.exists(), f"{script} is missing: pip install -e ."
    return str(script)
