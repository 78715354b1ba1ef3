"""`campaign status` over a cold parallel file system: what it must not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_startup import make_project

HEAVY = {"duckdb", "matplotlib", "numpy", "pyarrow", "pydantic", "rich", "ruamel", "submitit", "torch", "zarr"}
STATUS = """
import json, sys
from campaign.cli import cli
try:
    cli.main(["status", "--json", "--project", sys.argv[1]], prog_name="campaign")
except SystemExit as end:
    print(json.dumps({"code": end.code, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def test_status_imports_nothing_heavy(tmp_path: Path) -> None:
    make_project(tmp_path, 100)
    done = subprocess.run([sys.executable, "-c", STATUS, tmp_path], capture_output=True, text=True, check=True)
    answer, end = (json.loads(line) for line in done.stdout.splitlines())
    assert end["code"] == 0, done.stderr
    assert answer["data"]["total"] == 100
    assert HEAVY & set(end["modules"]) == set()
