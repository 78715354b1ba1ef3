"""Job memory limits through cgroup v1, where this machine has its memory controller and lets us write it."""

from __future__ import annotations

from pathlib import Path

from tests.waiting import wait_for


def controller() -> Path | None:
    """Mount point of the v1 memory controller, or None."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(folder)
    return None


def missing() -> str | None:
    """Why there are no memory limits here, or None when there are."""
    folder = controller()
    if folder is None:
        return "no cgroup v1 memory controller is mounted (Slurm 22.05 without systemd needs v1)"
    probe = folder / "slurmtb-probe"
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        return f"can't make a memory cgroup: {error}"
    return None


def create(name: str) -> Path | None:
    """The bed's own cgroup, in which its nodes make theirs; None where there are no limits."""
    folder = controller()
    if folder is None or missing():
        return None
    cgroup = folder / name
    cgroup.mkdir(exist_ok=True)
    return cgroup


def remove(name: str) -> None:
    """Remove the bed's cgroup and all below it, once its last process has left."""
    folder = controller()
    if folder is not None and (folder / name).is_dir():
        wait_for(lambda: _removed(folder / name), 20, what=f"cgroup {folder / name} is still in use")


def _removed(cgroup: Path) -> bool:
    folders = sorted((path for path in cgroup.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
    for folder in [*folders, cgroup]:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
