"""A cluster of several kinds of nodes, as scontrol and sacctmgr of Slurm 24.05 print it, and a site file of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.site import Site, load_site
from campaign.sitecheck.picture import Picture, read

ANSWERS = Path(__file__).with_name("mixed.json")

SITE = """\
schema: 1
name: mixed
arch: x86_64
account: proj1
scheduler:
  kind: slurm
  limits: {array_size: 501, submit_jobs: 20, running_jobs: 8}
cluster_name: mixed1
qos: null
cpu_unit: thread
default_partition: gpu
partitions:
  gpu: {node: a100x4, nodes: 6, min_nodes: 1, max_nodes: 3, max_time: "24:00:00", default_time: "00:30:00"}
  cpu: {node: thin, nodes: 3, min_nodes: 2, max_nodes: null, max_time: UNLIMITED, exclusive: false}
nodes:
  a100x4: {gpu: a100-80, gpus: 4, cores: 56, threads_per_core: 2, memory_bytes: 256e9, usable_bytes: 250e9}
  thin: {gpus: 0, cores: 128, memory_bytes: 512e9, usable_bytes: 500e9, disk_bytes: 943718400000}
gpus:
  a100-80: {vendor: nvidia}
network: {interface: ib0, master_addr_suffix: i}
filesystems:
  scratch: {path: "/p/scratch/{project}", kind: gpfs, shared: true, on_compute: true}
  login: {path: /login, kind: nfs, shared: true, on_compute: false}
  shm: {path: /dev/shm, kind: tmpfs, shared: false, on_compute: true}
paths: {run_root: "scratch:runs", node_local: "shm:me", data: null}
container: {runtime: apptainer}
"""


@pytest.fixture
def picture() -> Picture:
    """What the cluster said."""
    return read(ANSWERS)


@pytest.fixture
def make_site(tmp_path: Path) -> Callable[..., Site]:
    """The site file, with (old, new) pieces of text replaced."""

    def make(*changes: tuple[str, str]) -> Site:
        text = SITE
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
            text = text.replace(old, new)
        path = tmp_path / "mixed.yaml"
        path.write_text(text)
        return load_site(path, shown="mixed.yaml")

    return make


def by_verdict(findings: list[Any], *verdicts: str) -> set[tuple[str, int | None, Any]]:
    """(key, line, what was found) of the findings with these verdicts."""
    return {(finding.key, finding.line, finding.found) for finding in findings if finding.verdict in verdicts}
