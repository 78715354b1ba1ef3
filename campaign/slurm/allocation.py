"""What `scontrol -d show job` says of a running allocation. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from campaign.slurm.cluster import fields, parse_gpus
from campaign.slurm.nodelist import expand


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes and limits of one job. What Slurm doesn't say is None."""

    job_id: str
    state: str
    user: str
    uid: int | None
    gid: int | None
    account: str | None
    partition: str | None
    qos: str | None
    reservation: str | None
    nodes: tuple[str, ...]
    """In Slurm's order: a step on fewer nodes takes the first ones."""
    cpus: dict[str, int]
    """Hardware threads or cores, as this Slurm numbers them, by node."""
    gpus: dict[str, int]
    """By node; a node without an entry has none that Slurm knows of."""
    one_thread: bool
    """The job may use one thread of each core only (`--hint=nomultithread`); `cpus` still counts all of them."""
    end: datetime | None
    cluster: str | None = None
    """Whose it is; scontrol doesn't say, so whoever asked it fills this in."""

    def left_s(self, now: datetime | None = None) -> float | None:
        """Seconds until its time limit; None: no limit is known."""
        return None if self.end is None else (self.end - (now or datetime.now(UTC))).total_seconds()


_PLACE = re.compile(r"^\s*Nodes=(\S+) CPU_IDs=(\S*) .*?GRES=(\S*)", re.MULTILINE)
_THREADS = re.compile(r"ReqB:S:C:T=[^\s:]*:[^\s:]*:[^\s:]*:1\s")


def parse_allocation(text: str) -> Allocation | None:
    """The job of `scontrol -d show job ID`, asked for with TZ=UTC; None when there is none in `text`."""
    found = fields(text)
    if "JobId" not in found:
        return None
    user, uid = _who(found.get("UserId", ""))
    _, gid = _who(found.get("GroupId", ""))
    nodes = found.get("NodeList", "")
    cpus: dict[str, int] = {}
    gpus: dict[str, int] = {}
    for names, ids, gres in _PLACE.findall(text):
        for node in expand(names):
            cpus[node] = _count(ids)
            gpus[node], _ = parse_gpus(gres)
    return Allocation(
        job_id=found["JobId"],
        state=found.get("JobState", ""),
        user=user,
        uid=uid,
        gid=gid,
        account=_said(found.get("Account")),
        partition=_said(found.get("Partition")),
        qos=_said(found.get("QOS")),
        reservation=_said(found.get("Reservation")),
        nodes=tuple(expand(nodes)) if _said(nodes) else (),
        cpus=cpus,
        gpus=gpus,
        one_thread=_THREADS.search(text) is not None,
        end=_time(found.get("EndTime", "")),
    )


def _who(text: str) -> tuple[str, int | None]:
    """`alice(1001)`."""
    match = re.fullmatch(r"(.*)\((\d+)\)", text)
    return (match[1], int(match[2])) if match else (text, None)


def _said(text: str | None) -> str | None:
    return None if text in (None, "", "(null)", "N/A", "None") else text


def _count(ids: str) -> int:
    """How many numbers `0-3,8` names."""
    total = 0
    for part in filter(None, ids.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total


def _time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
