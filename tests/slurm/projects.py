"""Projects for the test bed: the real site files with only account, paths and modules replaced."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.conftest import Cli
from tests.slurm.testbed.settings import REPOSITORY

POLL_S = 1


def make_project(folder: Path, *sites: str, studies: dict[str, dict[str, Any]]) -> Path:
    """A project in `folder` with these sites' files and these studies (YAML is a superset of JSON).

    Replaced: modules (none here), account and paths (in campaign.yaml), and how often Slurm is asked.
    """
    (folder / "sites").mkdir(parents=True)
    (folder / "studies").mkdir()
    for site in sites:
        text = (REPOSITORY / "sites" / f"{site}.yaml").read_text()
        text, count = re.subn(r"modules: \[[^\]]*\]", "modules: []", text)
        assert count == 1, f"sites/{site}.yaml: no modules to replace"
        text, count = re.subn(r"poll_interval_s: \d+", f"poll_interval_s: {POLL_S}", text)
        assert count == 1
        (folder / "sites" / f"{site}.yaml").write_text(text)
    for name, study in studies.items():
        whole = {"schema": 1, "name": name, "kind": "sweep", "scaling": "none", "params": {}, **study}
        (folder / "studies" / f"{name}.yaml").write_text(json.dumps(whole, indent=1))
    paths = {"run_root": str(folder / "runs"), "node_local": "/dev/shm/campaign", "data": str(folder / "data")}
    config = {
        "schema": 1,
        "accounts": dict.fromkeys(sites, "demo"),
        "projects": dict.fromkeys(sites, "demo"),
        "paths": dict.fromkeys(sites, paths),
    }
    (folder / "campaign.yaml").write_text(json.dumps(config, indent=1))
    return folder


def study(command: list[str], **more: Any) -> dict[str, Any]:
    """A `command:` study of one 1-node, 1-rank run; keyword arguments add or replace keys."""
    return {"command": command, "axes": {"nodes": [1], "ranks_per_node": [1]}, "repeats": 1,
            "walltime": "00:05:00", "gate": False, **more}  # fmt: skip


TALLY = "import os; open('tally', 'a').write(os.environ['CAMPAIGN_RUN_ID'] + '\\n')"
"""A program that appends the id of its run to the file `tally`."""


def tally(project: Path) -> list[str]:
    """Run ids that TALLY has written, in order."""
    path = project / "tally"
    return path.read_text().splitlines() if path.exists() else []


def counts(cli: Cli, project: Path) -> dict[str, int]:
    """Runs by state, of a project of one study on one site, after asking Slurm."""
    status = cli("status", "--force", "--json", cwd=project, code=0).json()["data"]
    return {name: count for name, count in status["groups"][0]["states"].items() if count}
