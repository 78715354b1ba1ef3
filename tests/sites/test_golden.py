"""The scripts of a fixed plan on each Slurm site, byte by byte: golden/<site>.sh.

After a wanted change:  UPDATE_GOLDEN=1 pytest tests/sites/test_golden.py, then read the difference. What must be in a
script is asserted apart from these files, by test_checklist.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from campaign.project import Project
from tests.sites.sent import SLURM_SITES, sent

GOLDEN = Path(__file__).parent / "golden"

SIZES = {
    "juwels": (1, 8, 512),
    "vega": (1, 4),
    "jupiter": (1, 8),
    "lumi": (1, 8),
    "leonardo": (1, 128),
    "marenostrum5": (1, 64),
    "karolina": (1, 32),
    "meluxina": (1, 8),
}
"""Nodes, one script each: on both sides of what changes with size."""


def scripts(project: Project, site: str) -> str:
    """The scripts of a site, one below the other."""
    parts = [f"##### {site}, nodes: {nodes}\n{sent(project, site, nodes).text.rstrip()}\n" for nodes in SIZES[site]]
    return "\n".join(parts)


def test_every_slurm_site_has_golden_scripts() -> None:
    assert sorted(SIZES) == sorted(SLURM_SITES)
    assert sorted(path.stem for path in GOLDEN.glob("*.sh")) == sorted(SLURM_SITES)


@pytest.mark.parametrize("site", SIZES)
def test_a_sites_scripts_are_the_golden_ones(shipped: Project, site: str) -> None:
    path, made = GOLDEN / f"{site}.sh", scripts(shipped, site)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    golden = path.read_bytes()
    assert made.encode() == golden, "wanted? UPDATE_GOLDEN=1 pytest tests/sites/test_golden.py"


@pytest.mark.parametrize("site", SIZES)
def test_bash_reads_the_golden_scripts(site: str) -> None:
    done = subprocess.run(["bash", "-n", str(GOLDEN / f"{site}.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
