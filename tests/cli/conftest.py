"""The `cli` fixture for fixtures that live as long as a module."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli, Result, campaign_command


@pytest.fixture(scope="module")
def module_cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """As `cli`, with a HOME of its own."""
    home = tmp_path_factory.mktemp("home")

    def run(*argv: str | Path, cwd: Path | None = None, code: int | None = None) -> Result:
        words = tuple(str(word) for word in argv)
        answer = subprocess.run(
            [campaign_command(), *words], cwd=cwd, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        result = Result(words, answer.returncode, answer.stdout, answer.stderr)
        if code is not None:
            assert result.code == code, str(result)
        return result

    return run
