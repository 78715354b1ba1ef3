"""The files that Slurm reads, as text. Pure: settings, network and layout in, text out."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.testbed.clusters import ClusterSpec
from tests.slurm.testbed.network import Network
from tests.slurm.testbed.settings import Settings


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things lie below a bed's root."""

    root: Path

    @property
    def state_file(self) -> Path:
        """What the bed is, for the next process that asks."""
        return self.root / "testbed.json"

    @property
    def shared(self) -> Path:
        """The parallel file system: the same on the login side and on every node."""
        return self.root / "shared"

    @property
    def run(self) -> Path:
        """Pid files."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """Log of every daemon."""
        return self.root / "log"

    @property
    def database(self) -> Path:
        """MariaDB's data; a tmpfs that only mariadbd sees is mounted here."""
        return self.root / "db"

    @property
    def mysql_socket(self) -> Path:
        """How slurmdbd reaches MariaDB."""
        return self.root / "run" / "mysql.sock"

    @property
    def munge_socket(self) -> Path:
        """The bed's own munged."""
        return self.root / "munge" / "socket"

    @property
    def dbd_conf(self) -> Path:
        """slurmdbd looks for this name beside $SLURM_CONF."""
        return self.root / "etc" / "slurmdbd.conf"

    def slurm_conf(self, cluster: str) -> Path:
        """What SLURM_CONF must be to talk to `cluster`."""
        return self.root / "etc" / cluster / "slurm.conf"

    def spool(self, cluster: str, node: str) -> Path:
        """slurmd's own folder."""
        return self.root / "spool" / cluster / node

    def make(self, clusters: tuple[str, ...]) -> None:
        """Create the folders."""
        for name in ("run", "log", "db", "stage", "shared", "dev", "munge"):
            (self.root / name).mkdir(parents=True)
        for cluster in clusters:
            (self.root / "etc" / cluster).mkdir(parents=True)
            (self.root / "state" / cluster).mkdir(parents=True)
        self.root.chmod(0o755)
        self.shared.chmod(0o1777)
        (self.root / "munge").chmod(0o711)


def slurmdbd_conf(layout: Layout, network: Network) -> str:
    """slurmdbd.conf (must have mode 0600)."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
DbdHost=localhost
DbdAddr={network.login}
DbdPort={network.dbd_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
LogFile={layout.logs / "slurmdbd.log"}
PidFile={layout.root / "state" / "slurmdbd.pid"}
DebugLevel=info
"""


def slurm_conf(spec: ClusterSpec, settings: Settings, network: Network, *, memory_limits: bool) -> str:
    """slurm.conf of one cluster.

    AccountingStoreFlags is left out on purpose: many sites have none, so that sacct shows no --comment there.
    """
    layout = Layout(settings.root)
    accounting = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={network.login}
AccountingStoragePort={network.dbd_port}
AccountingStoragePass={layout.munge_socket}
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
"""
    if spec.name in settings.without_accounting:
        accounting = "AccountingStorageType=accounting_storage/none\n"
    head = f"""\
ClusterName={spec.name}
SlurmctldHost=localhost({network.login})
SlurmctldPort={network.ctld_port(spec.number)}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a requeued job waits for the credential to expire: 120 s by default
AuthInfo=socket={layout.munge_socket},cred_expire=5
CredType=cred/munge
StateSaveLocation={layout.root / "state" / spec.name}
SlurmdSpoolDir={layout.root / "spool" / spec.name / "%n"}
SlurmctldPidFile={layout.root / "state" / f"slurmctld-{spec.name}.pid"}
SlurmdPidFile={layout.root / "spool" / spec.name / "%n" / "slurmd.pid"}
SlurmctldLogFile={layout.logs / f"slurmctld-{spec.name}.log"}
SlurmdLogFile={layout.logs / "slurmd-%n.log"}
SlurmctldDebug=info
SlurmdDebug=info
FirstJobId={spec.number}000000
MaxArraySize={settings.max_array_size}
MaxJobCount={max(20_000, 2 * settings.max_array_size)}
MinJobAge=300
JobRequeue=1
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin={"task/cgroup" if memory_limits else "task/none"}
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
{accounting}JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0,defer_batch
PriorityType=priority/multifactor
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
EnforcePartLimits=ALL
GresTypes=gpu
# lets a small machine claim the site's cores and memory
SlurmdParameters=config_overrides
SlurmdTimeout={settings.slurmd_timeout_s}
SlurmctldTimeout=10
MessageTimeout=10
TCPTimeout=5
BatchStartTimeout=30
KillWait={settings.kill_wait_s}
InactiveLimit=0
CompleteWait=0
"""
    nodes = [
        f"NodeName={node} NodeAddr={network.address(spec.number, number)} {spec.hardware} State=UNKNOWN"
        for number, node in enumerate(spec.nodes(settings.nodes_per_cluster), start=1)
    ]
    return head + "\n".join([*nodes, *(f"PartitionName={line}" for line in spec.partitions)]) + "\n"


def gres_conf(spec: ClusterSpec, settings: Settings) -> str:
    """gres.conf: four GPUs a node. A count without File= would make the nodes invalid."""
    files = settings.root / "dev" / "gpu[0-3]"
    nodes = spec.nodes(settings.nodes_per_cluster)
    return "".join(f"NodeName={node} Name=gpu Type={spec.gpu} File={files}\n" for node in nodes)


def cgroup_conf() -> str:
    """cgroup.conf: job memory, nothing else."""
    return """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainCores=no
ConstrainDevices=no
"""


def hosts(settings: Settings, network: Network, specs: list[ClusterSpec]) -> str:
    """/etc/hosts of every node: the names that the sites' own settings for MASTER_ADDR use."""
    lines = ["127.0.0.1 localhost", f"{network.login} login {socket.gethostname()}"]
    for spec in specs:
        for number, node in enumerate(spec.nodes(settings.nodes_per_cluster), start=1):
            address = network.address(spec.number, number)
            if spec.fabric_suffix:
                fabric = node + spec.fabric_suffix
                lines.append(f"{address} {fabric}{spec.domain} {fabric}")
                address = network.management_address(spec.number, number)
            lines.append(f"{address} {node}{spec.domain}" + (f" {node}" if spec.domain else ""))
    return "\n".join(lines) + "\n"
