"""Projects made of a few lines of YAML."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.project import Project

ROOT = Path(__file__).resolve().parents[2]

SITE = """\
schema: 1
name: tiny
account: budget
project: proj
studies: {sweep: {}}
scheduler: {kind: slurm, gpu_request: gres}
default_partition: batch
partition_by_size: [devel, batch, large]
partitions:
  devel: {node: fat, max_nodes: 2, max_time: "02:00:00"}
  batch: {node: fat, min_nodes: 1, max_nodes: 8, max_time: "24:00:00", qos: {short: {max_time: "20", max_nodes: 4}}}
  large: {node: fat, min_nodes: 9, down: true}
  shared: {node: fat, max_nodes: 4, exclusive: false}
nodes:
  fat: {gpu: a100, gpus: 4, cores: 48, threads_per_core: 2, memory_bytes: 512e9, usable_bytes: 480e9}
gpus:
  a100: {vendor: nvidia, memory_bytes: 40e9}
filesystems:
  scratch: {path: "/nowhere/{project}", kind: gpfs, shared: true, on_compute: true}
paths: {run_root: "scratch:runs", node_local: /dev/shm/me, data: "scratch:data"}
billing: {unit: core-h, whole_nodes: true}
"""

STUDY = """\
schema: 1
name: sweep
command: [python, train.py, --lr, "{lr}"]
params: {global_batch: 256, lr: 1e-3, hidden: 64}
scaling: strong
axes:
  nodes: [1, 2, 4]
  strategy: [ddp, fsdp2]
repeats: 2
walltime: "00:30:00"
"""

Make = Callable[..., Project]


@pytest.fixture
def make_project(tmp_path: Path) -> Make:
    """make_project(site=TEXT, study=TEXT, files={path: text}): a project of one site and one study, or of more."""

    def make(site: str = SITE, study: str = STUDY, files: dict[str, str] | None = None) -> Project:
        texts = {"sites/tiny.yaml": site, "studies/sweep.yaml": study, **(files or {})}
        for name, text in texts.items():
            path = tmp_path / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return Project(tmp_path / "project")

    return make


def changed(text: str, *changes: tuple[str, str]) -> str:
    """The text with each (old, new) replaced; each must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def mounted(site: str, folder: Path) -> str:
    """The site with its file system at `folder`, of the kind that findmnt says: this machine is the site then."""
    ask = ["findmnt", "-n", "-o", "FSTYPE", "-T", str(folder)]
    kind = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    return changed(site, ('"/nowhere/{project}", kind: gpfs', f'"{folder}", kind: {kind}'))


def points_of(plan: Any) -> list[dict[str, Any]]:
    """Axis values of a plan's runs, each point once, in order."""
    seen: list[dict[str, Any]] = []
    for run in plan.runs:
        if run.axes not in seen:
            seen.append(run.axes)
    return seen
