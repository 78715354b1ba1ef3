"""A real slurmctld that has one site's partitions, limits and nodes: as many of them as the site's file says.

The nodes are CLOUD nodes, which a controller takes as available before any slurmd has spoken for them. So
`sbatch --test-only` allocates thousands of nodes of the site's own hardware within a second, and nothing ever runs.
Without a `SiteDbd` there is no accounting: accounts and QOS are then accepted whatever they are.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign.site import Node, Partition, Site
from tests.slurm.sitedbd import SiteDbd
from tests.slurm.testbed.services import search_path
from tests.waiting import wait_for

UNKNOWN_NODES = 64
"""Nodes of a partition of which the file says neither how many there are nor how many one job may have."""
UNKNOWN_CORES = 64
START_S = 60.0
NO_ACCOUNTING = "ClusterName={name}\nAccountingStorageType=accounting_storage/none\n"


@dataclass(frozen=True, slots=True)
class SiteBed:
    """A running controller."""

    site: Site
    slurm_conf: Path

    def run(self, *argv: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """One of Slurm's programs against this controller."""
        env = {"SLURM_CONF": str(self.slurm_conf), "PATH": search_path(), "TZ": "UTC"}
        return subprocess.run(argv, input=stdin, env=env, capture_output=True, text=True, timeout=60, check=False)

    def refusal(self, script: str, *options: str) -> str | None:
        """What `sbatch --test-only` has against a script; None when the job could start."""
        answer = self.run("sbatch", "--test-only", *options, stdin=script)
        return None if answer.returncode == 0 else answer.stderr.strip()


@contextlib.contextmanager
def site_bed(site: Site, *, max_array_size: int = 1001, dbd: SiteDbd | None = None) -> Iterator[SiteBed]:
    """Start a controller with this site's partitions (with a `dbd` that knows it, its QOS); it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"sitebed-{site.name}-", dir="/tmp"))
    try:
        with _controller(site, folder, max_array_size, dbd) as bed:
            yield bed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _controller(site: Site, folder: Path, max_array_size: int, dbd: SiteDbd | None) -> Iterator[SiteBed]:
    conf = folder / "slurm.conf"
    accounting = dbd.slurm_conf if dbd is not None else NO_ACCOUNTING.format(name=site.name)
    conf.write_text(_slurm_conf(site, folder, free_port(), max_array_size, accounting), encoding="utf-8")
    (folder / "gres.conf").touch()
    for name in ("state", "spool"):
        (folder / name).mkdir()
    env = {"PATH": search_path(), "LANG": "C.UTF-8"}
    log = (folder / "slurmctld.out").open("w")
    with log, subprocess.Popen(["slurmctld", "-D", "-f", str(conf)], env=env, stdout=log, stderr=log) as controller:
        bed = SiteBed(site, conf)
        try:
            wait_for(lambda: _answers(bed, controller), START_S, what=lambda: (folder / "log").read_text()[-3000:])
            yield bed
        finally:
            controller.terminate()
            try:
                controller.wait(20)
            except subprocess.TimeoutExpired:
                controller.kill()


def _answers(bed: SiteBed, controller: subprocess.Popen[bytes]) -> bool:
    assert controller.poll() is None, (bed.slurm_conf.parent / "log").read_text()[-3000:]
    answer = bed.run("scontrol", "ping")
    return answer.returncode == 0 and "UP" in answer.stdout


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _slurm_conf(site: Site, folder: Path, port: int, max_array_size: int, accounting: str) -> str:
    user = pwd.getpwuid(os.geteuid()).pw_name
    head = f"""\
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder / "state"}
SlurmdSpoolDir={folder / "spool"}
SlurmctldPidFile={folder / "pid"}
SlurmctldLogFile={folder / "log"}
MaxArraySize={max_array_size}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
{accounting}JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
PriorityType=priority/basic
EnforcePartLimits=ALL
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600
"""
    nodes = [_node_line(site, name, node) for name, node in site.nodes.items()]
    partitions = [_partition_line(name, partition, site) for name, partition in site.partitions.items()]
    return head + "\n".join([*nodes, *partitions]) + "\n"


def _prefix(node: str) -> str:
    return "n-" + node.replace(".", "-") + "-"


def nodes_of(site: Site, partition: Partition) -> int:
    """How many nodes the bed gives a partition: its own number, else all nodes of its type that the file knows of."""
    if partition.nodes is not None:
        return partition.nodes
    alike = [other for other in site.partitions.values() if other.node == partition.node]
    known = [limit for other in alike for limit in (other.nodes, other.max_nodes) if limit is not None]
    return max(known, default=UNKNOWN_NODES)


def _names(node: str, count: int) -> str:
    return f"{_prefix(node)}[00001-{count:05d}]"


def _node_line(site: Site, name: str, node: Node) -> str:
    count = max((nodes_of(site, part) for part in site.partitions.values() if part.node == name), default=1)
    memory = node.usable_bytes or node.memory_bytes or 256 << 30
    gres = f" Gres=gpu:{node.gpus}" if node.gpus else ""
    feature = f" Feature={site.constraint}" if site.constraint else ""
    return (
        f"NodeName={_names(name, count)} Sockets=1 CoresPerSocket={node.cores or UNKNOWN_CORES} "
        f"ThreadsPerCore={node.threads_per_core} RealMemory={memory >> 20}{gres}{feature} State=CLOUD"
    )


def _partition_line(name: str, partition: Partition, site: Site) -> str:
    limits = [
        f"MinNodes={partition.min_nodes}" if partition.min_nodes else "",
        f"MaxNodes={partition.max_nodes}" if partition.max_nodes else "",
        f"MaxTime={math.floor(partition.max_time / 60)}"
        if partition.max_time and partition.max_time < math.inf
        else "",
        f"DefaultTime={math.ceil(partition.default_time / 60)}" if partition.default_time else "",
        "OverSubscribe=EXCLUSIVE" if partition.exclusive else "",
        "Default=YES" if name == site.default_partition else "",
        "State=INACTIVE" if partition.down else "State=UP",
    ]
    names = _names(partition.node, nodes_of(site, partition))
    return " ".join(part for part in (f"PartitionName={name} Nodes={names}", *limits) if part)
