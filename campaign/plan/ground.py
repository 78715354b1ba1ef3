"""What is known of the ground that a plan stands on: a site's file systems by its file, and as this machine shows them.

A plan is made on a login node of its site, or on a laptop where none of the site's file systems is mounted. What can
only be seen on the site is looked at there and is "unknown, not checked" anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.doctor.storage import kind_of, mount_of
from campaign.errors import Problem
from campaign.project import Project, SitePaths, user_name
from campaign.site import Filesystem, Site

UNKNOWN = "unknown, not checked"

_PLACEHOLDER = re.compile(r"\{(project|user)\}")
_EVERYWHERE = ("/home", "/dev")
"""Folders that any machine has: their presence doesn't make it the site."""


@dataclass(slots=True)
class Findings:
    """What was found of one study on one site. `problems` make all of its runs impossible; `warnings` don't."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def add(self, *others: Findings) -> Findings:
        """Take over what others found; gives itself back."""
        for other in others:
            self.problems += other.problems
            self.warnings += other.warnings
        return self


@dataclass(frozen=True, slots=True)
class Mount:
    """One file system of a site."""

    name: str
    filesystem: Filesystem
    path: Path
    """With project and user filled in, where they are known."""
    pattern: re.Pattern[str]
    """Any project and any user: others' folders lie on the same file system."""
    literal: Path
    """What stands before the first placeholder."""


class Ground:
    """File systems, folders and the machine below one site's plan. Looks at the file system, never writes."""

    def __init__(self, project: Project, site: Site, paths: SitePaths) -> None:
        self.project, self.site, self.paths = project, site, paths
        known = {"project": project.config.projects.get(site.name) or site.project, "user": user_name()}
        self.mounts = [_mount(name, filesystem, known) for name, filesystem in site.filesystems.items()]
        self.here = site.local or (site.transport.kind == "here" and any(map(_is_here, self.mounts)))
        """True when this machine is the site: what it shows is what the site's login nodes show."""

    def mount_of(self, path: Path) -> Mount | None:
        """The file system of the site that holds this path, by the longest prefix; None: on none that is listed."""
        found = [(len(match[0]), mount) for mount in self.mounts if (match := mount.pattern.match(str(path)))]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def shows(self, path: Path) -> bool:
        """True when this machine shows what compute nodes will find under this path."""
        if self.site.local:
            return True
        mount = self.mount_of(path)
        return self.here and mount is not None and mount.filesystem.shared and _mounted(mount)

    def place_of(self, mount: Mount) -> str:
        """`file:line` of a file system in the site's file."""
        file, line = self.site.source.place(("filesystems", mount.name))
        return f"{file}:{line}" if line else file

    def usable(self) -> str:
        """Shared file systems that compute nodes see, as a message lists them."""
        good = [mount for mount in self.mounts if mount.filesystem.shared and mount.filesystem.on_compute]
        return ", ".join(f"{mount.name} ({mount.path})" for mount in good) or "a file system that compute nodes see"

    def own(self, key: str) -> str | None:
        """What campaign.yaml says for this site's path `key`; None when it says nothing."""
        paths = self.project.config.paths.get(self.site.name)
        value: str | None = getattr(paths, key, None)
        return value

    def problem(self, key: str, message: str, **more: Any) -> Problem:
        """A problem of the path `key`, at the line that sets it: in campaign.yaml, else in the site's file."""
        if self.own(key) is not None:
            return self.project.config.problem(("paths", self.site.name, key), message, **more)
        return self.site.problem(("paths", key), message, **more)


def _mount(name: str, filesystem: Filesystem, known: dict[str, str | None]) -> Mount:
    text = filesystem.path.rstrip("/") or "/"
    filled = _PLACEHOLDER.sub(lambda match: known[match[1]] or match[0], text)
    words = [re.escape(part) for part in _PLACEHOLDER.split(text)[::2]]
    pattern = re.compile("[^/]+".join(words) + ("" if text == "/" else "(?=/|$)"))
    # of /data/u{user} the folder above
    folder = Path(text) if "{" not in text else Path(text[: text.index("{")] + "x").parent
    return Mount(name, filesystem, Path(filled), pattern, folder)


def _mounted(mount: Mount) -> bool:
    return mount.path.is_dir() or mount.literal.is_dir()


def _is_here(mount: Mount) -> bool:
    """True when this machine has the file system: a mount of its kind, and not just a folder of that name."""
    if not mount.filesystem.shared or _below(mount.path, _EVERYWHERE):
        return False
    there = next((path for path in (mount.path, mount.literal) if path.is_dir() and path != Path("/")), None)
    return there is not None and kind_of(mount_of(there).kind) == mount.filesystem.kind


def _below(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def nearest_folder(path: Path) -> Path:
    """The nearest of the path and the folders above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists() or folder == Path("/"))
