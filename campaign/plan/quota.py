"""Is there room for what a campaign writes? Inodes and bytes of its records against quotas and free space."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from campaign.errors import Problem
from campaign.plan.ground import Findings, Ground, Mount, nearest_folder
from campaign.plan.price import FILES_PER_RUN
from campaign.words import count as number

FOLDERS_PER_RUN = 2
"""The run's own, and its attempt's."""
PREFIX_FOLDERS = 256
"""Folders above those of runs: `runs/00` to `runs/ff`."""
INODES_PER_SUBMISSION = 2
"""Submit folder and specs.jsonl; script and log are counted with the runs."""
LEAST_BYTES_PER_RUN = FILES_PER_RUN * 4096
"""A block each."""
MOST_BYTES_PER_RUN = 4 << 20
"""Logs are cut at 2 MiB (console.log and failed.log 1 MiB each); tables are taken to need no more than that."""
WARN_SHARE = 0.5
_SAME_QUOTA = 1.25
"""statvfs that reports about the quota's own total reports the quota: hard limits lie a tenth above soft ones."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a plan writes on one site. Bytes are bounds: from the smallest possible record to the largest usual one."""

    inodes: int
    least_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Room:
    """What is left. None: not known. `used_known`: what others have used is in it."""

    inodes: int | None
    bytes: int | None
    used_known: bool


def need(runs: int, submissions: int) -> Need:
    """Files and folders of so many runs, sent by so many sbatch calls; checkpoints and data sets are not in it."""
    folders = FOLDERS_PER_RUN * runs + min(PREFIX_FOLDERS, runs) + INODES_PER_SUBMISSION * submissions
    return Need(FILES_PER_RUN * runs + folders, LEAST_BYTES_PER_RUN * runs, MOST_BYTES_PER_RUN * runs)


def room(path: Path, mount: Mount | None, *, visible: bool) -> Room:
    """What is left where `path` lies: the smaller of the site's quota and, where it is visible, what statvfs says."""
    quota_inodes = None if mount is None else mount.filesystem.quota_inodes
    quota_bytes = None if mount is None else mount.filesystem.quota_bytes
    if not visible:
        return Room(quota_inodes, quota_bytes, used_known=False)
    try:
        answer = os.statvfs(nearest_folder(path))
    except OSError:
        return Room(quota_inodes, quota_bytes, used_known=False)
    # no total: the file system doesn't count (btrfs), or doesn't say
    inodes = (answer.f_files, answer.f_favail) if answer.f_files else None
    size = (answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize) if answer.f_blocks else None
    left_inodes, known_inodes = _left(quota_inodes, inodes)
    left_bytes, known_bytes = _left(quota_bytes, size)
    return Room(left_inodes, left_bytes, used_known=known_inodes and known_bytes)


def _left(quota: int | None, seen: tuple[int, int] | None) -> tuple[int | None, bool]:
    """(what is left, whether use is counted) of a quota and a file system's (total, available)."""
    if seen is None:
        return quota, quota is None
    total, available = seen
    if quota is None:
        return available, True
    shows_quota = quota / _SAME_QUOTA <= total <= quota * _SAME_QUOTA
    return min(quota, available), shows_quota


def check(ground: Ground, runs: int, submissions: int) -> Findings:
    """The plan's records on one site: above all that is left they can't run, above half of it that is said."""
    found = Findings()
    path = ground.paths.run_root
    mount = ground.mount_of(path)
    left, wanted = room(path, mount, visible=ground.shows(path)), need(runs, submissions)
    rows = (
        ("quota_inodes", wanted.inodes, wanted.inodes, left.inodes, _files),
        ("quota_bytes", wanted.least_bytes, wanted.most_bytes, left.bytes, _gigabytes),
    )
    for key, least, most, free, shown in rows:
        if free is None or most <= WARN_SHARE * free:
            continue
        amount = f"at least {shown(least)}" if least > free else f"up to {shown(most)}"
        use = "" if left.used_known else "; what is used now is not known"
        message = (
            f"the records of {number(runs, 'run')} on {ground.site.name} take {amount}, "
            f"and {path} has room for {shown(free)}{use}"
        )
        (found.problems if least > free else found.warnings).append(_problem(ground, mount, key, message))
    return found


def _files(inodes: int) -> str:
    return f"{inodes:,} files and folders"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"


def _problem(ground: Ground, mount: Mount | None, key: str, message: str) -> Problem:
    hint = "fewer points or repeats, or another run_root (campaign.yaml: paths)"
    quota: int | None = None if mount is None else getattr(mount.filesystem, key)
    if mount is not None and quota is not None:
        return ground.site.problem(("filesystems", mount.name, key), message, value=quota, hint=hint)
    return ground.problem("run_root", message, hint=hint, value=str(ground.paths.run_root))


def submissions(shapes: Iterable[int], array_size: int) -> int:
    """How many sbatch calls it takes to send so many runs of each shape, in arrays of at most `array_size`."""
    return sum(math.ceil(runs / array_size) for runs in shapes)
