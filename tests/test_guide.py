"""The study guide's examples, run as they stand in studies/README.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaign.study import load_study
from tests.conftest import Cli

GUIDE = (Path(__file__).resolve().parent.parent / "studies" / "README.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    """A fenced example of the guide."""
    found = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(found[number])


def test_the_first_study_and_its_script_measure_a_curve(tmp_path: Path, cli: Cli) -> None:
    project = tmp_path / "p"
    cli("init", project, code=0)
    (project / "studies" / "my_scaling.yaml").write_text(block("yaml"))
    (project / "train.py").write_text(block("python"))
    here = ["--set", "nodes=1", "--set", "ranks_per_node=1,2", "--set", "repeats=1"]
    cli("run", "local", "--study", "my_scaling", *here, "--no-plots", cwd=project, code=0)
    sql = "SELECT world_size, n, samples_unique FROM scaling ORDER BY world_size"
    rows = cli("sql", sql, "--json", cwd=project, code=0).json()["data"]["rows"]
    # 100 steps of 64 samples on each rank
    assert [list(row.values()) if isinstance(row, dict) else row for row in rows] == [[1, 1, 6400], [2, 1, 12800]]


ROWS = re.findall(r"^\| `([a-z]+: .*?)` \|", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row.partition(":")[0] for row in ROWS])
def test_every_key_of_the_table_is_one(tmp_path: Path, row: str) -> None:
    """Each line of the table is valid in a study that has the axes it speaks of."""
    given = {
        "command": "command: [python, train.py]",
        "params": "params: {local_batch: 8, precision: fp32}",
        "axes": "axes: {nodes: [1, 2, 8], ranks_per_node: [1], strategy: [ddp, horovod, zero3]}",
        "walltime": 'walltime: "10"',
    }
    given.pop("command" if row.startswith("workload") else row.partition(":")[0], None)
    if row.startswith("zip"):
        given["params"] = "params: {}"
    path = tmp_path / "s.yaml"
    path.write_text("\n".join(["schema: 1", "name: s", *given.values(), row]) + "\n")
    load_study(path)
