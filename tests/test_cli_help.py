"""`campaign --help` is light and true."""

from __future__ import annotations

import subprocess
import sys


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from campaign.cli import cli; print(sorted(m for m in sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("torch", "duckdb", "pyarrow", "matplotlib", "mlflow", "pydantic", "rich", "submitit", "ruamel"):
        assert f"'{heavy}'" not in modules


def test_help_lists_the_commands() -> None:
    result = subprocess.run([sys.executable, "-m", "campaign", "--help"], capture_output=True, text=True, check=True)
    for command in ("plan", "submit", "run", "status", "sql", "plot"):
        assert f"\n  {command} " in result.stdout
