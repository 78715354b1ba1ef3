"""Can compute nodes see what a run needs, and can its record be written? Each path against the site's file systems."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.errors import Problem
from campaign.plan.ground import UNKNOWN, Findings, Ground, Mount, nearest_folder
from campaign.study import Study

Say = Callable[..., Problem]
"""(message, **more) -> a problem at the key that sets the path."""

_PSEUDO = ("/proc", "/sys", "/dev")
_SHM = "/dev/shm"
_KEYS = ("run_root", "node_local", "data")


def malformed(ground: Ground) -> Iterator[Problem]:
    """Paths of campaign.yaml and of $CAMPAIGN_DATA that are empty or relative: errors of the input."""
    allowed = f"FILESYSTEM:FOLDER (file systems: {', '.join(ground.site.filesystems) or 'none'}) or an absolute path"
    for key in _KEYS:
        text = ground.own(key)
        if text is not None and _relative(text):
            message = f"{key} is empty" if not text.strip() else f"{key} is a relative path"
            yield ground.problem(key, message, allowed=allowed)
    text = os.environ.get("CAMPAIGN_DATA") or ""
    if text and not ground.own("data") and not ground.site.paths.data and _relative(text):
        message = "the data folder is a relative path"
        yield Problem(message, "$CAMPAIGN_DATA", value=text, allowed="an absolute path", key="data")


def _relative(text: str) -> bool:
    return not text.startswith(("/", "~")) and ":" not in text


def check_site(ground: Ground) -> Findings:
    """What all runs on this site need: the run root, node-local storage, the project folder, interpreter, image."""
    found = Findings()
    looks = _Look(ground, found)
    run_root = ground.paths.run_root
    named = ground.own("run_root") or ground.site.paths.run_root
    if named or ground.site.local:
        looks.shared("run_root", run_root, lambda message, **more: ground.problem("run_root", message, **more))
    if not ground.site.local:
        if "%" in str(run_root):
            message = f"run_root {run_root}: Slurm and submitit expand % in the paths of job logs"
            hint = looks.hint("run_root")
            found.problems.append(ground.problem("run_root", message, allowed="a path without %", hint=hint))
        looks.node_local()
        looks.own_folders()
        looks.image()
    if not found.problems:
        looks.writable(run_root)
    return found


def check_study(ground: Ground, study: Study) -> Findings:
    """What one study needs beside: its data folder and its program."""
    found = Findings()
    looks = _Look(ground, found)
    if study.data is not None:
        looks.shared("data", ground.paths.data, lambda message, **more: ground.problem("data", message, **more))
    for index, word in enumerate(study.command or ()):
        if word.startswith("/") and "{" not in word:
            looks.word(study, index, Path(word))
    return found


@dataclass(slots=True)
class _Look:
    """One look at a site's places."""

    ground: Ground
    found: Findings

    def shared(
        self, key: str, path: Path, say: Say, *, what: str | None = None, hint: str | None = None, quiet: bool = False
    ) -> None:
        """A path that every compute node must see. `quiet`: not a word when nobody knows."""
        site, what = self.ground.site, what or key
        if _is_pseudo(path):
            self.found.problems.append(say(f"{what} {path}: the kernel's own files are no storage", hint=hint))
            return
        if site.local:
            return
        mount = self.ground.mount_of(path)
        if mount is None and path.is_relative_to(_SHM):
            self.found.problems.append(say(f"{what} {path} is in each node's own memory", allowed=self._good()))
        elif mount is None:
            message = f"{what} {path} is on no file system that {site.name}'s file lists: if nodes see it is {UNKNOWN}"
            self.found.warnings += [] if quiet else [say(message)]
        elif reason := _unseen(mount):
            allowed = f"{self._good()} ({self.ground.place_of(mount)})"
            message = f"{what} {path} is on file system `{mount.name}`, which {reason}"
            self.found.problems.append(say(message, allowed=allowed, hint=hint or self.hint(key)))

    def _good(self) -> str:
        return self.ground.usable()

    def hint(self, key: str) -> str | None:
        """What to type for a path of this kind on a file system that all nodes share."""
        good = [m.name for m in self.ground.mounts if m.filesystem.shared and m.filesystem.on_compute]
        folder = "campaign" if key == "run_root" else key
        setting = f"paths: {{{self.ground.site.name}: {{{key}: "
        return f'{setting}"{good[0]}:{folder}"}}}} in campaign.yaml' if good and key in _KEYS else None

    def node_local(self) -> None:
        """Where ranks write during a run: on a shared file system their files would meet."""
        path = self.ground.paths.node_local
        mount = self.ground.mount_of(path)
        if _is_pseudo(path) and not path.is_relative_to(_SHM):
            message = f"node_local {path}: the kernel's own files are no storage"
            self.found.problems.append(self.ground.problem("node_local", message, hint="/dev/shm/campaign-{user}"))
        elif mount is not None and mount.filesystem.shared:
            message = f"node_local {path} is on file system `{mount.name}`, which nodes share"
            allowed = f"storage of each node's own ({self.ground.place_of(mount)})"
            self.found.problems.append(
                self.ground.problem("node_local", message, allowed=allowed, hint="/dev/shm/campaign-{user}")
            )

    def own_folders(self) -> None:
        """The project folder (ranks start in it) and the interpreter. Both are those of the machine that submits."""
        site, root = self.ground.site, self.ground.project.root
        named = site.software.python

        def say(message: str, **more: Any) -> Problem:
            return site.problem(("filesystems",), message, value=None, **more)

        if named is not None:
            self.shared("python", Path(named), lambda m, **more: site.problem(("software", "python"), m, **more),
                        what="the interpreter", hint="an interpreter on one of these file systems")  # fmt: skip
        if not self.ground.here:
            what = "project folder" if named else "project folder and interpreter"
            where = "none of its file systems is on this machine"
            self.found.warnings.append(say(f"{site.name} is elsewhere ({where}): its {what} are {UNKNOWN}"))
            return
        self.shared("project", root, say, what="the project folder", hint="campaign init FOLDER  on one of these")
        if named is None:
            hint = "python3 -m venv FOLDER  on one of these, and campaign installed there; or software.python"
            self.shared("python", Path(sys.prefix), say, what="the interpreter", hint=hint)
            # a virtual environment's python is a link; what it leads to is often the system's own, which nodes have too
            base = Path(sys.executable).resolve()
            self.shared("python", base, say, what="the interpreter behind it", hint=hint, quiet=True)

    def image(self) -> None:
        """The container image, where it is a file."""
        image = self.ground.site.container.image
        if image is not None and "://" not in image:
            path = ("container", "image")
            site = self.ground.site
            if not image.startswith("/"):
                message = f"container image {image} is a relative path"
                self.found.problems.append(site.problem(path, message, allowed="an absolute path, or docker://NAME"))
                return
            self.shared("image", Path(image), lambda m, **more: site.problem(path, m, **more), what="container image")

    def word(self, study: Study, index: int, path: Path) -> None:
        """A word of a command that is an absolute path: the program itself must be there, others are worth a word."""
        mount = self.ground.mount_of(path)
        reason = None if mount is None or self.ground.site.local else _unseen(mount)
        if mount is None or reason is None:
            return
        message = f"{path} is on file system `{mount.name}`, which {reason}"
        allowed = f"{self._good()} ({self.ground.place_of(mount)})"
        problem = study.problem(("command", index), message, allowed=allowed)
        (self.found.problems if index == 0 and not mount.filesystem.on_compute else self.found.warnings).append(problem)

    def writable(self, path: Path) -> None:
        """Can files be made here? Tried where this machine is the site, with a file that never has a name."""
        if not (self.ground.here or Path(*path.parts[:3]).is_dir()):
            return
        reason = unwritable(path)
        if reason is not None:
            message = f"run_root {path} can't be written: {reason}"
            self.found.problems.append(self.ground.problem("run_root", message, hint=self.hint("run_root")))


def _is_pseudo(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _PSEUDO) and not path.is_relative_to(_SHM)


def _unseen(mount: Mount) -> str | None:
    """Why what lies on it can't be shared by all nodes of a job; None when it can."""
    if not mount.filesystem.on_compute:
        return "compute nodes don't mount"
    return None if mount.filesystem.shared else "each node has for itself"


def unwritable(path: Path) -> str | None:
    """Why no file can be made at or below `path` by this user on this machine; None when one can. Leaves nothing."""
    folder = nearest_folder(path)
    if not folder.is_dir():
        return f"{folder} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
