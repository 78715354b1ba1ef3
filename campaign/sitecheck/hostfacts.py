"""What this host shows of its site: file systems, interface, GPU driver, container runtime."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from campaign import vendors
from campaign.doctor.storage import kind_of, mount_of, mounts
from campaign.job.network import interface_address
from campaign.sitecheck.host import NETWORK_KINDS
from campaign.vendors import VendorName

FOLDER_VARIABLES = ("SCRATCH", "FSCRATCH", "WORK", "FASTDATA", "PROJECT", "DATA", "STORE", "HOME")
"""In which sites say where their file systems are; the first ones are where runs belong."""
FAST = ("hsn0", "ib0", "ib", "hsn", "opa", "roce")
"""Names of fast interfaces, the usual choice first."""


@dataclass(frozen=True, slots=True)
class FoundFilesystem:
    """One file system that hosts share, with the user's name in its path as `{user}`."""

    name: str
    path: str
    kind: str
    writable: bool


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What `discover` takes from this host."""

    filesystems: tuple[FoundFilesystem, ...] = ()
    interface: str | None = None
    vendor: VendorName | None = None
    container_runtime: str | None = None


def look(user: str) -> HostFacts:
    """Ask this host."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    runtime = next((name for name in ("apptainer", "singularity") if shutil.which(name)), None)
    drivers = vendors.loaded()
    return HostFacts(
        filesystems=shared_filesystems(text, os.environ, user),
        interface=_interface(sorted(path.name for path in Path("/sys/class/net").iterdir())),
        vendor=drivers[0].name if drivers else None,
        container_runtime=runtime,
    )


def shared_filesystems(mountinfo: str, environ: Mapping[str, str], user: str) -> tuple[FoundFilesystem, ...]:
    """Folders that the site's own variables name, then mounts, as far as a network file system is under them."""
    found: dict[str, FoundFilesystem] = {}
    covered: set[str] = set()
    for variable in FOLDER_VARIABLES:
        folder = environ.get(variable, "")
        if not folder.startswith("/"):
            continue
        mount = mount_of(Path(folder), mountinfo)
        if kind_of(mount.kind) in NETWORK_KINDS:
            path = _placeholder(folder.rstrip("/"), user)
            found.setdefault(path, FoundFilesystem(variable.lower(), path, kind_of(mount.kind),
                                                   os.access(folder, os.W_OK)))  # fmt: skip
            covered.add(mount.point)
    for mount in mounts(mountinfo):
        kind, point = kind_of(mount.kind), mount.point
        if kind in NETWORK_KINDS - {"cvmfs", "9p"} and point not in covered:
            name = _name(point, {one.name for one in found.values()})
            found.setdefault(point, FoundFilesystem(name, point, kind, os.access(point, os.W_OK)))
    return tuple(found.values())


def _placeholder(path: str, user: str) -> str:
    return "/".join("{user}" if part == user else part.replace("{", "{{").replace("}", "}}")
                    for part in path.split("/"))  # fmt: skip


def _name(point: str, taken: set[str]) -> str:
    word = re.sub(r"[^a-z0-9]+", "_", point.lower()).strip("_") or "root"
    return word if word not in taken and re.match(r"[a-z]", word) else f"fs_{word}"


def _interface(names: list[str]) -> str | None:
    candidates = [name for start in FAST for name in names if name.startswith(start)]
    return next((name for name in candidates if interface_address(name)), None)
