"""Do interpreter, image, program and workload fit the site? Asked of the files' own headers; nothing is run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from campaign.plan.ground import UNKNOWN, Findings, Ground
from campaign.study import Study
from campaign.validate import suggestion

HEADER_BYTES = 64
# System V ABI, e_machine; only what a supercomputer may meet
_ELF = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
# SIF 1.0: 32 bytes of launch script, "SIF_MAGIC\0", version (3 bytes), architecture (3 bytes)
_SIF_MAGIC = b"SIF_MAGIC\0"
_SIF = {"01": "i386", "02": "x86_64", "03": "arm", "04": "aarch64", "06": "ppc64le", "11": "s390x", "12": "riscv"}


def architecture_of(header: bytes) -> str | None:
    """Architecture of a program (ELF) or a container image (SIF) from its first bytes; None: it is neither."""
    if header[:4] == b"\x7fELF" and len(header) >= 20:
        order: Literal["big", "little"] = "big" if header[5] == 2 else "little"
        machine = int.from_bytes(header[18:20], order)
        return _ELF.get(machine, f"ELF machine {machine}")
    if header[32:42] == _SIF_MAGIC and len(header) >= 48:
        code = header[45:47].decode("ascii", "replace")
        return _SIF.get(code, f"SIF architecture {code}")
    return None


def _header(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return None


def check_site(ground: Ground) -> Findings:
    """The interpreter of ranks and the container image."""
    found = Findings()
    if not ground.site.local:
        _interpreter(ground, found)
        _image(ground, found)
    return found


def _interpreter(ground: Ground, found: Findings) -> None:
    site = ground.site
    if site.software.python is None:
        # this process's own; elsewhere another one will submit
        if ground.here:
            hint = f"plan and submit with an interpreter that is built for {site.arch}, on a login node of {site.name}"
            _fits(ground, found, Path(sys.executable), ("software", "python"), "the interpreter", hint)
        return
    path = Path(site.software.python)
    if not path.is_absolute():
        message = f"interpreter {path} is not an absolute path"
        found.problems.append(site.problem(("software", "python"), message, allowed="an absolute path, or null"))
    elif ground.shows(path):
        if not os.access(path, os.X_OK) or path.is_dir():
            message = f"interpreter {path} " + ("is no program" if path.exists() else "doesn't exist")
            found.problems.append(site.problem(("software", "python"), message, hint="null: the one that plans"))
        else:
            _fits(ground, found, path, ("software", "python"), "interpreter")


def _image(ground: Ground, found: Findings) -> None:
    site = ground.site
    image = site.container.image
    if image is None or "://" in image or not image.startswith("/"):
        return
    path = Path(image)
    if path.exists():
        if not path.is_dir():
            _fits(ground, found, path, ("container", "image"), "container image")
    elif ground.shows(path):
        message = f"container image {path} doesn't exist"
        hint = f"{site.container.runtime or 'apptainer'} pull {path} docker://NAME  on a login node"
        found.problems.append(site.problem(("container", "image"), message, hint=hint))


def _fits(
    ground: Ground, found: Findings, path: Path, key: tuple[str, str], what: str, hint: str | None = None
) -> None:
    """The file's architecture against the site's."""
    site = ground.site
    header = _header(path)
    built = None if header is None else architecture_of(header)
    if site.arch is None or built is None:
        unknown = f"architecture of {site.name}" if site.arch is None else f"architecture of {what} {path}"
        found.warnings.append(site.problem(("arch",) if site.arch is None else key, f"the {unknown} is {UNKNOWN}"))
    elif built != site.arch:
        file, line = site.source.place(("arch",))
        message = f"{what} {path} is built for {built}, compute nodes of {site.name} are {site.arch}"
        allowed = f"{site.arch} ({file}:{line})"
        hint = hint or f"one that is built for {site.arch}"
        found.problems.append(site.problem(key, message, value=str(path), allowed=allowed, hint=hint))


def check_study(ground: Ground, study: Study) -> Findings:
    """The workload's module, or the command's program; in a container both are the image's own."""
    found = Findings()
    if ground.site.container.image is not None:
        return found
    if study.workload is not None:
        _workload(ground, study, study.workload, found)
    elif study.command:
        _program(ground, study, study.command[0], found)
    return found


def _workload(ground: Ground, study: Study, entry: str, found: Findings) -> None:
    site = ground.site
    if site.software.python not in (None, sys.executable):
        return  # another interpreter has other modules
    module = entry.partition(":")[0]
    missing = missing_module(module, ground.project.root)
    if missing is None:
        return
    message = f"module `{missing}` is not to be found by {sys.executable} or in {ground.project.root}"
    hint = suggestion(module, _known_workloads()) or "install it into this interpreter, or mend the name"
    problem = study.problem(("workload",), message, value=entry, hint=hint)
    (found.problems if ground.here else found.warnings).append(problem)


def _known_workloads() -> list[str]:
    folder = _locations("training.workloads", None)
    names = {path.stem for place in folder or () for path in Path(place).glob("[a-z]*.py")}
    return sorted(f"training.workloads.{name}" for name in names)


def missing_module(name: str, project: Path) -> str | None:
    """The first part of a dotted name for which there is no module; None when all are there. Nothing is imported."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        if _locations(part, project) is None:
            return part
    return None


def _locations(name: str, project: Path | None) -> list[str] | None:
    """Where submodules of a module are ([] for a plain module); None: no such module.

    Finders are asked for one name at a time: `find_spec` of a dotted name would import the packages above it.
    """
    head, _, last = name.rpartition(".")
    if head:
        above = _locations(head, project)
        spec = PathFinder.find_spec(name, above) if above else None
    else:
        spec = PathFinder.find_spec(last, [str(project)]) if project is not None else None
        # a folder without __init__.py is a module for Python, but not the one that an installed package is
        if spec is None or spec.origin is None:
            with contextlib.suppress(ValueError):  # __main__ has none
                spec = importlib.util.find_spec(last) or spec
    return None if spec is None else list(spec.submodule_search_locations or ())


def _program(ground: Ground, study: Study, word: str, found: Findings) -> None:
    """A program that is named by a path must be there where its file system is; a bare name is looked up by nodes."""
    if "{" in word:
        return
    path = Path(word)
    if "/" not in word:
        if ground.site.local and shutil.which(word) is None:
            message = f"there is no program `{word}` on this machine's PATH"
            found.warnings.append(study.problem(("command", 0), message, hint=f"its path, as in /usr/bin/{word}"))
        return
    if not path.is_absolute():
        path = ground.project.root / path
        known = ground.here
    else:
        known = ground.shows(path)
    if not known:
        return
    reason = _no_program(path)
    if reason is not None:
        found.problems.append(study.problem(("command", 0), f"program {path} {reason}"))


def _no_program(path: Path) -> str | None:
    if not path.exists():
        return "doesn't exist"
    if path.is_dir():
        return "is a folder"
    return None if os.access(path, os.X_OK) else "is not executable"
