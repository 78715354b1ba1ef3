"""Whether the kernel has killed in this job for want of memory: counters of its memory control groups (v1 and v2)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """Where a part of a cgroup hierarchy is mounted."""

    root: str
    """The group, as /proc/PID/cgroup names it, that `point` shows."""
    point: Path
    unified: bool
    """Cgroup v2."""


def oom_kills(proc: Path = Path("/proc/self")) -> int | None:
    """A count that rises when the kernel kills for memory within this job's control groups; None when unknown."""
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8")
        mounts = list(_mounts((proc / "mountinfo").read_text(encoding="utf-8")))
    except OSError:
        return None
    counts = [count for folder in _folders(groups, mounts) if (count := _count(folder)) is not None]
    return sum(counts) if counts else None


def _mounts(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(" "), right.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            yield Mount(_plain(fields[3]), Path(_plain(fields[4])), kind == "cgroup2")


def _plain(text: str) -> str:
    """mountinfo writes blanks and the like as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _folders(groups: str, mounts: list[Mount]) -> Iterator[Path]:
    """Folders of this process's memory groups: its own and those above it, up to the job's."""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            if mount.unified != (controllers == ""):
                continue
            root = Path(mount.root)
            # a container or a node of a test bed sees a part of the hierarchy only
            if root in (Path(path), *Path(path).parents):
                chain = [mount.point / inner for inner in _up(Path(path).relative_to(root))]
                # Slurm: .../job_N/step_M/user/task_0. Above the job are the jobs of others.
                job = next((place for place, folder in enumerate(chain) if folder.name.startswith("job_")), 0)
                yield from chain[: job + 1]
                break


def _up(path: Path) -> list[Path]:
    return [path, *path.parents]


def _count(group: Path) -> int | None:
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in (group / name).read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
    return None
