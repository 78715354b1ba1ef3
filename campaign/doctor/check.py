"""One finding, and the lines that install what is missing."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BASE = "every command"
OS_RELEASE = Path("/etc/os-release")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    area: str
    name: str
    ok: bool | None
    """False: missing or broken. None: a fact that is neither good nor bad."""
    found: str
    needed_by: tuple[str, ...] = ()
    """What doesn't work without it."""
    install: str | None = None
    """The line that installs or mends it."""
    required: bool = False
    """True when campaign itself or one of the project's sites needs it: then a failure makes doctor exit with 1."""

    @property
    def failed(self) -> bool:
        """True when something that is needed here doesn't work."""
        return self.required and self.ok is False

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self) | {"needed_by": list(self.needed_by)}


@dataclass(frozen=True, slots=True)
class Need:
    """What the project's sites and studies use; decides which findings are `required`."""

    sites: tuple[str, ...] = ()
    slurm: bool = False
    accounting: bool = False
    training: bool = False
    container: str | None = None
    cluster_name: str | None = None
    folders: tuple[Path, ...] = ()
    """Where the project writes: its own folder, run roots, data."""


def pip_install(extra: str) -> str:
    """The line that adds an extra to this installation of campaign."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    clone = editable_clone()
    return f"cd {shlex.quote(str(clone))} && {pip} -e '.[{extra}]'" if clone else f"{pip} 'campaign[{extra}]'"


def editable_clone() -> Path | None:
    """The clone that an editable installation points to, else None."""
    try:
        text = metadata.distribution("campaign").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def system_install(debian: str, redhat: str, otherwise: str) -> str:
    """The line of this Linux distribution's package manager."""
    family = _os_family()
    if family & {"debian", "ubuntu"}:
        return f"sudo apt-get install {debian}"
    if family & {"rhel", "fedora", "centos"}:
        return f"sudo dnf install {redhat}"
    return otherwise


def _os_family() -> set[str]:
    try:
        lines = OS_RELEASE.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return {word for key in ("ID", "ID_LIKE") for word in values.get(key, "").strip("\"'").split()}


def human_bytes(number: float) -> str:
    """Bytes with a decimal unit, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def exit_is_bad(checks: Iterable[Check]) -> bool:
    """True when something needed here is missing."""
    return any(check.failed for check in checks)
