"""The three clusters, as far as Slurm shows them: node names, hardware, partitions, host names.

Facts are those of the site files (sites/*.yaml); only the number of nodes is smaller. The nodes claim their real
core and memory counts (SlurmdParameters=config_overrides), so that requests are accepted and refused as there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster. `number` keeps addresses, ports and job ids (from `number` million on) apart from the others'."""

    name: str
    number: int
    node_name: Callable[[int], str]
    domain: str
    """What a node's own host name carries after its Slurm name."""
    fabric_suffix: str
    """Letter after the Slurm name in the name of the address on ib0. When it is set, the plain name is an address
    that other nodes don't reach, as on JUWELS."""
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpu: str
    features: str
    partitions: tuple[str, ...]
    """Lines of slurm.conf after `PartitionName=`."""

    def nodes(self, count: int) -> tuple[str, ...]:
        """Slurm names of the first `count` nodes."""
        return tuple(self.node_name(number) for number in range(1, count + 1))

    @property
    def hardware(self) -> str:
        """The hardware part of a NodeName line."""
        return (
            f"Sockets={self.sockets} CoresPerSocket={self.cores_per_socket} ThreadsPerCore={self.threads_per_core} "
            f"RealMemory={self.memory_mib} Gres=gpu:{self.gpu}:4 Feature={self.features}"
        )


CLUSTERS = {
    spec.name: spec
    for spec in (
        ClusterSpec(
            name="juwels",
            number=1,
            node_name="jwb{:04d}".format,
            domain=".juwels",
            fabric_suffix="i",
            sockets=2,
            cores_per_socket=24,
            threads_per_core=2,
            memory_mib=488_281,  # 512 GB
            gpu="a100",
            features="gpu,a100",
            partitions=(
                "booster Nodes=ALL Default=YES MaxNodes=384 MaxTime=24:00:00 OverSubscribe=EXCLUSIVE State=UP",
                "develbooster Nodes=ALL MaxNodes=4 MaxTime=02:00:00 OverSubscribe=EXCLUSIVE State=UP",
                "largebooster Nodes=ALL MaxTime=24:00:00 OverSubscribe=EXCLUSIVE State=UP",
            ),
        ),
        ClusterSpec(
            name="vega",
            number=2,
            node_name="gn{:02d}".format,
            domain="",
            fabric_suffix="",
            sockets=2,
            cores_per_socket=64,
            threads_per_core=2,
            memory_mib=488_281,
            gpu="a100",
            features="gpu,a100,amd",
            # nodes are shared: a CPU (a thread) brings its share of the node's memory unless --mem says more
            partitions=(
                "gpu Nodes=ALL Default=YES MaxTime=4-00:00:00 OverSubscribe=NO DefMemPerCPU=1900 State=UP",
                "dev Nodes=ALL MaxNodes=1 MaxTime=00:30:00 OverSubscribe=NO DefMemPerCPU=1900 State=UP",
            ),
        ),
        ClusterSpec(
            name="jupiter",
            number=3,
            node_name="jpbo-001-{:02d}".format,
            domain=".jupiter.internal",
            fabric_suffix="",
            sockets=4,
            cores_per_socket=72,
            threads_per_core=1,
            memory_mib=878_535,
            gpu="gh200",
            features="rack001,dfpg01",
            # the 12 hours come from the partition's QOS, as `scontrol show partition` shows there
            partitions=(
                "booster Nodes=ALL Default=YES DefaultTime=01:00:00 QOS=part_booster OverSubscribe=EXCLUSIVE State=UP",
                "largebooster Nodes=ALL DefaultTime=01:00:00 QOS=part_largebooster OverSubscribe=EXCLUSIVE State=DOWN",
            ),
        ),
    )
}

QOS = (
    "devel MaxSubmitJobsPerUser=4 Priority=50",
    "low Priority=1",
    "high Priority=100 Preempt=low,normal",
    "capped GrpTRESMins=cpu=1 MaxTRESPerUser=node=1 Priority=1",
    "part_booster MaxWall=12:00:00 Flags=DenyOnLimit",
    "part_largebooster MaxWall=12:00:00 Flags=DenyOnLimit",
)
"""After `sacctmgr add qos`. Users may ask for the first four, besides normal."""
USER_QOS = ("normal", "devel", "low", "high", "capped")
ACCOUNTS = ("demo", "demo2")
