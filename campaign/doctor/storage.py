"""File systems: what kind, how full, and whether locks work, which SQLite and DuckDB rest on."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign.doctor.check import Check, Need, human_bytes

LOCK_DEADLINE_S = 15.0
SMALL_SHM_BYTES = 1e9

# holds a lock and lets a second process try for it; exit 0: refused, as it must be; 4: granted twice; 5: no locks here
LOCK_PROBE = """
import fcntl, subprocess, sys
try:
    held = open(sys.argv[1], "r+b")
    fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if len(sys.argv) == 2:
        second = subprocess.run([sys.executable, "-c", sys.orig_argv[2], sys.argv[1], "second"])
        sys.exit({0: 4, 6: 0}.get(second.returncode, 5))
except BlockingIOError:
    sys.exit(6)
except OSError as error:
    print(error.strerror, file=sys.stderr)
    sys.exit(5)
"""


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system under a path."""

    point: str
    kind: str
    options: frozenset[str]


def look(need: Need) -> Iterator[Check]:
    """All findings about storage."""
    for folder in need.folders:
        yield from _folder(folder)
    yield _shm()
    home = Path.home()
    if home.is_dir():
        yield _space(home, "HOME", _quota_command(mount_of(home).kind, home))


def mounts(mountinfo: str | None = None) -> Iterator[Mount]:
    """Everything that is mounted, by /proc/self/mountinfo (`mountinfo`: its text, for tests)."""
    own = Path("/proc/self/mountinfo")
    text = own.read_text(encoding="utf-8", errors="replace") if mountinfo is None else mountinfo
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        if len(fields) < 6 or len(after) < 2:
            continue
        # blanks in a path are written as \040
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        options = {*fields[5].split(","), *(after[2].split(",") if len(after) > 2 else ())}
        yield Mount(point, after[0], frozenset(options))


def mount_of(path: Path, mountinfo: str | None = None) -> Mount:
    """The mount that holds `path`; the last of several on one place hides the others."""
    resolved = path.resolve()
    best = Mount("/", "unknown", frozenset())
    for mount in mounts(mountinfo):
        if resolved.is_relative_to(mount.point) and len(mount.point) >= len(best.point):
            best = mount
    return best


def kind_of(mount_kind: str) -> str:
    """One name for the forms of a kind of file system: nfs4 is nfs, fuse.ceph is ceph."""
    kind = mount_kind.removeprefix("fuse.").removeprefix("fuseblk.")
    return {"nfs4": "nfs", "ceph-fuse": "ceph", "mmfs": "gpfs"}.get(kind, kind)


def locks_work(folder: Path) -> tuple[bool, str]:
    """(works, what was found) for POSIX locks between two processes of this host, within a deadline."""
    try:
        handle, name = tempfile.mkstemp(prefix=".campaign-doctor-", dir=folder)
    except OSError as error:
        return False, f"can't be written: {error.strerror}"
    os.close(handle)
    probe = subprocess.Popen(
        [sys.executable, "-c", LOCK_PROBE, name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, stderr = probe.communicate(timeout=LOCK_DEADLINE_S)
    except subprocess.TimeoutExpired:
        probe.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            probe.wait(1.0)  # no longer: a process that hangs in a file system may never end
        return False, f"a lock gave no answer in {LOCK_DEADLINE_S:.0f} s"
    finally:
        if probe.stderr is not None:
            probe.stderr.close()
        Path(name).unlink(missing_ok=True)
    if probe.returncode == 0:
        return True, "locks work"
    granted = "a lock was granted to two processes at once"
    return False, granted if probe.returncode == 4 else f"no locks: {stderr.strip() or 'no message'}"


def _folder(folder: Path) -> Iterator[Check]:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    mount = mount_of(existing)
    yield _space(existing, str(folder), _quota_command(mount.kind, existing))
    works, found = locks_work(existing)
    if works and "localflock" in mount.options:
        works, found = False, "locks hold on one node only (Lustre mounted with localflock)"
    move = "move the project (ledger and store) to another file system, or remount it with locks (Lustre: -o flock)"
    yield Check("storage", f"locks in {folder}", works, f"{mount.kind}: {found}", ("the ledger", "the store"),
                None if works else move, required=True)  # fmt: skip


def _space(path: Path, name: str, quota: str) -> Check:
    stat = os.statvfs(path)
    free, inodes = stat.f_bavail * stat.f_frsize, stat.f_favail
    files = f"{inodes:,} inodes" if stat.f_files else "inodes unknown"
    kind = mount_of(path).kind
    return Check("storage", name, None, f"{kind}, {human_bytes(free)} and {files} free; your quota: {quota}")


def _quota_command(kind: str, path: Path) -> str:
    where = shlex.quote(str(path))
    return {
        "lustre": f"lfs quota -h -u $USER {where}",
        "gpfs": f"mmlsquota --block-size auto; on JSC's machines: jutil user dataquota ({where})",
        "beegfs": "beegfs-ctl --getquota --uid $USER",
    }.get(kind, "quota -s")


def _shm() -> Check:
    path = Path("/dev/shm")
    users = ("node_local: shm:...", "loader workers")
    if not path.is_dir() or not os.access(path, os.W_OK):
        return Check("storage", "/dev/shm", None, "missing or not writable", users)
    stat = os.statvfs(path)
    size = stat.f_blocks * stat.f_frsize
    small = " (small: torch's loader workers may die of it)" if size < SMALL_SHM_BYTES else ""
    return Check("storage", "/dev/shm", True, f"{human_bytes(size)}{small}", users)
