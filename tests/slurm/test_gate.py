"""The gate on a real cluster: a typo costs one job, and every message says what to type next."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.conftest import Cli, Result
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

NEEDS_A_FILE = "import os, sys; open('tally', 'a').write(os.environ['WORLD_SIZE'] + '\\n'); os.stat('mended')"


def states(cli: Cli, project: Path) -> dict[str, int]:
    groups = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]["groups"]
    return {name: count for name, count in groups[0]["states"].items() if count}


def commands_in(result: Result) -> list[list[str]]:
    """The commands that the output names in back quotes, as words after `campaign`."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(campaign [^`]+)`", result.stderr)]


@needs("slurm")
def test_the_rest_waits_for_the_smallest_point(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Three points; the gate has one rank and fails. What the messages say is typed, and all three are done."""
    axes = {"nodes": [4, 2, 1], "ranks_per_node": [1]}
    gated = study(["python", "-c", NEEDS_A_FILE], axes=axes, gate=True, repeats=1)
    project = make_project(shared / "p", cluster.name, studies={"g": gated})
    cli("plan", cluster.name, "--study", "g", cwd=project, code=0)
    first = cli("submit", cwd=project, code=0)
    assert "1 run queued" in first.stdout
    assert re.search(r"^g on juwels: 2 runs waiting for the gate run \w+ \(queued\)", first.stderr, re.MULTILINE)
    assert "warning" not in first.stderr
    assert ["submit"] in commands_in(first)
    wait_for(lambda: states(cli, project) == {"failed": 1, "planned": 2}, what=lambda: str(states(cli, project)))
    held = cli("submit", cwd=project, code=0)
    assert "ended as failed; 2 runs held" in held.stderr
    show, *onwards = commands_in(held)
    assert "No such file or directory: 'mended'" in cli(*show, cwd=project, code=0).stdout
    (project / "mended").touch()
    for command in onwards:
        cli(*command, cwd=project, code=0)
    wait_for(lambda: states(cli, project) == {"done": 1, "planned": 2}, what=lambda: str(states(cli, project)))
    cli("submit", cwd=project, code=0)
    wait_for(lambda: states(cli, project) == {"done": 3}, what=lambda: str(states(cli, project)))
    # the gate's two attempts, then two and four ranks
    assert sorted((project / "tally").read_text().split()) == ["1", "1", "2", "2", "4", "4", "4", "4"]
