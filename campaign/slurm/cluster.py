"""A cluster as scontrol and sacctmgr describe it: partitions, nodes, QOS, associations, reservations.

Pure: text in, dataclasses out. `None` is "not said"; a limit that Slurm calls UNLIMITED is `math.inf`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from campaign.slurm.durations import parse_duration

MIB = 2**20
QOS_FIELDS = "Name,MaxWall,MinTRES,MaxTRES,MaxJobsPU,MaxSubmitPU,Flags"
ASSOC_FIELDS = "Cluster,Account,User,Partition,QOS,DefaultQOS,MaxJobs,MaxSubmitJobs"

# a key starts a field; values may hold blanks (OS=Linux 6.1 #1 SMP) and further = signs (TRES=cpu=4,mem=1G)
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w/:.-]*)=")
_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})
_GRES = re.compile(r"gpu(?::(?P<type>[^:(,]+(?=:\d)))?(?::(?P<count>\d+))?(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of `scontrol show partition`."""

    name: str
    state: str
    """UP, DOWN, DRAIN or INACTIVE."""
    default: bool
    """True for the partition of jobs that name none."""
    qos: str | None
    """The partition's own QOS, whose limits hold for all its jobs."""
    default_time_s: float | None
    """None: the maximum time is the default."""
    max_time_s: float | None
    min_nodes: int | None
    max_nodes: float | None
    oversubscribe: str | None
    nodes: str
    """Node list."""
    node_count: int | None
    allow_accounts: tuple[str, ...] | None
    """None: all."""
    allow_qos: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node of `scontrol show node`."""

    name: str
    state: str
    arch: str | None
    cores: int | None
    """Physical cores that jobs may use: without those that the site reserves (CoreSpecCount)."""
    threads_per_core: int | None
    cpus: int | None
    """What Slurm counts as CPUs (CPUTot): cores or hardware threads."""
    memory_bytes: int | None
    """RealMemory: what jobs may ask for, MemSpecLimit taken off."""
    disk_bytes: int | None
    """TmpDisk; None when Slurm says 0, its default."""
    gpus: int
    gpu_type: str | None
    features: tuple[str, ...]
    sockets: int | None


@dataclass(frozen=True, slots=True)
class Qos:
    """Limits of one QOS; None is "no limit"."""

    name: str
    max_time_s: float | None
    min_nodes: int | None
    max_nodes: int | None
    """Per job."""
    running_jobs: int | None
    """Per user, as `submit_jobs`."""
    submit_jobs: int | None
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Association:
    """What a user may charge, and with which QOS; None is "no limit"."""

    cluster: str
    account: str
    partition: str | None
    qos: tuple[str, ...]
    default_qos: str | None
    running_jobs: int | None
    submit_jobs: int | None


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation of `scontrol show reservation`."""

    name: str
    state: str
    """ACTIVE or INACTIVE."""
    node_count: int | None
    partition: str | None
    users: tuple[str, ...]
    accounts: tuple[str, ...]


def fields(text: str) -> dict[str, str]:
    """One entry of `scontrol show`, on one line or several; of a key that comes twice the first counts."""
    starts = list(_FIELD.finditer(text))
    ends = [*(match.start() for match in starts), len(text)][1:]
    found: dict[str, str] = {}
    for match, end in zip(starts, ends, strict=True):
        found.setdefault(match[1], text[match.end() : end].strip())
    return found


def parse_partitions(text: str) -> list[Partition]:
    """Lines of `scontrol --oneliner show partition`, in their order."""
    return [_partition(entry) for entry in _entries(text, "PartitionName")]


def _partition(entry: dict[str, str]) -> Partition:
    return Partition(
        name=entry["PartitionName"],
        state=entry.get("State", ""),
        default=entry.get("Default") == "YES",
        qos=_text(entry, "QoS"),
        default_time_s=_time(entry.get("DefaultTime")),
        max_time_s=_time(entry.get("MaxTime")),
        min_nodes=_integer(entry.get("MinNodes")),
        max_nodes=math.inf if entry.get("MaxNodes") == "UNLIMITED" else _integer(entry.get("MaxNodes")),
        oversubscribe=_text(entry, "OverSubscribe"),
        nodes=_text(entry, "Nodes") or "",
        node_count=_integer(entry.get("TotalNodes")),
        allow_accounts=_allowed(entry.get("AllowAccounts")),
        allow_qos=_allowed(entry.get("AllowQos")),
    )


def parse_nodes(text: str) -> list[Node]:
    """Lines of `scontrol --oneliner show node`, in their order."""
    return [_node(entry) for entry in _entries(text, "NodeName")]


def _node(entry: dict[str, str]) -> Node:
    sockets, per_socket = _integer(entry.get("Sockets")), _integer(entry.get("CoresPerSocket"))
    cores = sockets * per_socket if sockets and per_socket else None
    memory_mib = _integer(entry.get("RealMemory"))
    disk_mib = _integer(entry.get("TmpDisk"))
    gpus, gpu_type = parse_gpus(entry.get("Gres", ""))
    return Node(
        name=entry["NodeName"],
        # flags after it (IDLE+DRAIN, MIXED*) are states of the moment; the words matter
        state=entry.get("State", ""),
        arch=_text(entry, "Arch"),
        cores=None if cores is None else cores - (_integer(entry.get("CoreSpecCount")) or 0),
        threads_per_core=_integer(entry.get("ThreadsPerCore")),
        cpus=_integer(entry.get("CPUTot")),
        memory_bytes=None if memory_mib is None else (memory_mib - (_integer(entry.get("MemSpecLimit")) or 0)) * MIB,
        disk_bytes=disk_mib * MIB if disk_mib else None,
        gpus=gpus,
        gpu_type=gpu_type,
        features=_list(entry.get("AvailableFeatures", entry.get("ActiveFeatures", ""))),
        sockets=sockets,
    )


def parse_gpus(gres: str) -> tuple[int, str | None]:
    """(number, type) of the GPUs in a node's `Gres=`: `gpu:a100:4(S:0-1),tmpdisk:800`. No type, or several: None."""
    total, types = 0, set()
    # a comma inside brackets belongs to the socket list
    for part in re.split(r",(?![^(]*\))", gres):
        match = _GRES.fullmatch(part.strip())
        if match:
            total += int(match["count"] or 1)
            types.add(match["type"])
    return total, types.pop() if len(types) == 1 else None


def parse_qos(text: str) -> list[Qos]:
    """Rows of `sacctmgr -nP show qos format=QOS_FIELDS`."""
    found = []
    for parts in _rows(text, 7):
        name, wall, low, high, running, submit, flags = parts
        found.append(
            Qos(name, _time(wall), _tres_nodes(low), _tres_nodes(high), _integer(running), _integer(submit),
                _list(flags))
        )  # fmt: skip
    return found


def parse_associations(text: str) -> list[Association]:
    """Rows of `sacctmgr -nP show assoc format=ASSOC_FIELDS`; those of accounts as a whole (no user) are left out."""
    found = []
    for parts in _rows(text, 8):
        cluster, account, user, partition, qos, default_qos, running, submit = parts
        if user:
            found.append(
                Association(cluster, account, partition or None, _list(qos), default_qos or None, _integer(running),
                            _integer(submit))
            )  # fmt: skip
    return found


def parse_reservations(text: str) -> list[Reservation]:
    """Lines of `scontrol --oneliner show reservation`; `No reservations in the system` gives []."""
    return [
        Reservation(
            name=entry["ReservationName"],
            state=entry.get("State", ""),
            node_count=_integer(entry.get("NodeCnt")),
            partition=_text(entry, "PartitionName"),
            users=_list(entry.get("Users", "")),
            accounts=_list(entry.get("Accounts", "")),
        )
        for entry in _entries(text, "ReservationName")
    ]


def _entries(text: str, first_key: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        entry = fields(line)
        if first_key in entry:
            yield entry


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == width and parts[0]:
            yield parts


def _text(entry: dict[str, str], key: str) -> str | None:
    value = entry.get(key, "")
    return None if value in _NOTHING else value


def _list(text: str) -> tuple[str, ...]:
    return () if text in _NOTHING else tuple(part for part in text.split(",") if part)


def _allowed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None or text in _NOTHING or text == "ALL" else _list(text)


def _integer(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match[0]) if match else None


def _time(text: str | None) -> float | None:
    if text is None or text in _NOTHING:
        return None
    try:
        return parse_duration(text, unlimited=True)
    except ValueError:
        return None


def _tres_nodes(text: str) -> int | None:
    """The number of nodes in `cpu=128,node=4`."""
    match = re.search(r"(?:^|,)node=(\d+)", text)
    return int(match[1]) if match else None
