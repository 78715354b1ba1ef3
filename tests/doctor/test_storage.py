"""File systems as doctor sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.doctor import storage

MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /p rw shared:2 - gpfs scratch rw,nomtime
31 30 0:27 / /p/scratch rw,noatime shared:3 - lustre 10.0.0.1@o2ib:/scratch rw,localflock
32 22 0:28 / /mnt/my\040disk rw shared:4 - nfs4 server:/export rw,vers=4.2
a line that the kernel would not write
"""


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/home/ada", "/", "ext4"),
        ("/p", "/p", "gpfs"),
        ("/p/scratch/demo/runs", "/p/scratch", "lustre"),
        ("/p/scratchy", "/p", "gpfs"),
        ("/mnt/my disk/data", "/mnt/my disk", "nfs4"),
    ],
)
def test_the_innermost_mount_holds_a_path(path: str, point: str, kind: str) -> None:
    mount = storage.mount_of(Path(path), MOUNTINFO)
    assert (mount.point, mount.kind) == (point, kind)


def test_options_of_mount_and_file_system_are_joined() -> None:
    assert {"noatime", "localflock"} <= storage.mount_of(Path("/p/scratch"), MOUNTINFO).options


def test_mounts_of_this_machine() -> None:
    assert storage.mount_of(Path("/proc/self")).kind == "proc"


def test_locks_work_here_and_leave_nothing(tmp_path: Path) -> None:
    assert storage.locks_work(tmp_path) == (True, "locks work")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there() -> None:
    works, found = storage.locks_work(Path("/proc/self/nowhere"))
    assert not works
    assert found.startswith("can't be written")


@pytest.mark.parametrize(
    ("replacement", "found"),
    [
        ("(lambda *_: None)(", "a lock was granted to two processes at once"),
        ("(_ for _ in ()).throw(OSError(37, 'No locks available')) or (", "no locks: No locks available"),
        ("__import__('time').sleep(60) or (", "a lock gave no answer in 0 s"),
    ],
)
def test_file_systems_without_working_locks(
    replacement: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe with a `lockf` as such file systems have it: nothing is kept, it fails, it hangs."""
    monkeypatch.setattr(storage, "LOCK_PROBE", storage.LOCK_PROBE.replace("fcntl.lockf(", replacement))
    if "sleep" in replacement:
        monkeypatch.setattr(storage, "LOCK_DEADLINE_S", 0.3)
    assert storage.locks_work(tmp_path) == (False, found)
    assert list(tmp_path.iterdir()) == []
