"""`python -m benchmarks [NAME...]`: runs benchmarks/bench_*.py, prints one table, writes benchmarks/results.json.

Exit code 1 when a bound is missed or a benchmark breaks; with names (`startup`) only these run and nothing is written.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import traceback
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
VERSIONS = ("click", "duckdb", "pyarrow", "submitit", "numpy", "torch")


def discover() -> list[str]:
    """Names of the benchmarks, sorted: `startup` for bench_startup.py."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def run_one(name: str, console: Console) -> list[dict[str, Any]]:
    """The rows of one benchmark; a benchmark that breaks is a row that isn't ok."""
    console.print(f"benchmarks/bench_{name}.py ...")
    try:
        rows: list[dict[str, Any]] = importlib.import_module(f"benchmarks.bench_{name}").run()
    except Exception as error:
        traceback.print_exc()
        broken = f"{type(error).__name__}: {error}".splitlines()[0]
        return [{"name": name, "value": None, "unit": "", "bound": None, "kind": "max", "ok": False, "detail": broken}]
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """What a person reads."""
    made = Table(title="campaign against its bounds")
    for column, justify in (("benchmark", "left"), ("median", "right"), ("min … max", "right"), ("n", "right"),
                            ("bound", "right"), ("", "left"), ("detail", "left")):  # fmt: skip
        made.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        spread = f"{_number(row['min'])} … {_number(row['max'])}" if "min" in row else ""
        sign = "≤" if row["kind"] == "max" else "≥"
        bound = "" if row["bound"] is None else f"{sign} {_number(row['bound'])}"
        made.add_row(
            row["name"], f"{_number(row['value'])} {row['unit']}", spread, str(row.get("n", "")), bound,
            "[green]held[/]" if row["ok"] else "[bold red]MISSED[/]", row["detail"],
        )  # fmt: skip
    return made


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def host() -> dict[str, Any]:
    """Where and with what the figures were made."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    versions = {}
    for package in VERSIONS:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": git.stdout.strip() or None,
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    known = discover()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    progress, console = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 160)
    about = host()
    rows = [row for name in names or known for row in run_one(name, progress)]
    console.print(table(rows))
    if not names:
        RESULTS.write_text(json.dumps({"schema": 1, **about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        progress.print(f"written: {RESULTS.relative_to(HERE.parent)}")
    return 0 if rows and all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
