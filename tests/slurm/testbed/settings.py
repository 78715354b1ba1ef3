"""What one test bed is made of: settings, from the environment or given."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pwd
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slurm.testbed.clusters import CLUSTERS

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Settings:
    """One bed. Two beds on one machine differ in `root`; they find free networks and ports by themselves."""

    root: Path
    """Everything that the bed writes lies below it. At most 60 characters: unix sockets have short names."""
    clusters: tuple[str, ...] = tuple(CLUSTERS)
    nodes_per_cluster: int = 4
    users: tuple[str, ...] = ("root",)
    """Unix users that may submit to accounts demo and demo2."""
    keep: tuple[Path, ...] = ()
    """Folders that the nodes see although they lie below /tmp or /dev/shm, which are private to each node."""
    shm_mib: int = 2048
    """Size of a node's /dev/shm and of its /tmp, each a tmpfs."""
    kill_wait_s: int = 5
    slurmd_timeout_s: int = 10
    max_array_size: int = 1001
    """Slurm's MaxArraySize: one more than the largest array index, as an array's indices begin with 0."""
    without_accounting: tuple[str, ...] = ()
    """Clusters whose jobs nobody accounts for (AccountingStorageType=accounting_storage/none)."""
    memory_limits: bool = True
    """Use cgroup v1 for job memory where it is there; False: jobs may use what they like."""

    def __post_init__(self) -> None:
        if len(str(self.root)) > 60:
            raise ValueError(f"TESTBED_ROOT has {len(str(self.root))} characters, at most 60 fit: {self.root}")
        unknown = sorted(set(self.clusters) - set(CLUSTERS))
        if unknown or not self.clusters:
            raise ValueError(f"TESTBED_CLUSTERS: {unknown or 'nothing'} given, there are {', '.join(CLUSTERS)}")
        if not 1 <= self.nodes_per_cluster <= 9:
            raise ValueError(f"TESTBED_NODES = {self.nodes_per_cluster}: 1 to 9 nodes per cluster")
        if not 1 < self.max_array_size <= 4_000_001:
            raise ValueError(f"TESTBED_MAX_ARRAY_SIZE = {self.max_array_size}: slurmctld takes 2 to 4000001")

    @classmethod
    def from_environment(cls, **overrides: Any) -> Settings:
        """Defaults for this clone of the repository, changed by $TESTBED_*, changed by `overrides`."""
        env = os.environ
        settings: dict[str, Any] = {"root": default_root(), "users": default_users(), "keep": default_keep()}
        if "TESTBED_ROOT" in env:
            settings["root"] = Path(env["TESTBED_ROOT"]).resolve()
        if "TESTBED_CLUSTERS" in env:
            settings["clusters"] = tuple(env["TESTBED_CLUSTERS"].replace(",", " ").split())
        if "TESTBED_USERS" in env:
            settings["users"] += tuple(env["TESTBED_USERS"].replace(",", " ").split())
        if "TESTBED_KEEP" in env:
            settings["keep"] += tuple(Path(part).resolve() for part in env["TESTBED_KEEP"].split(":") if part)
        for name, key in _NUMBERS.items():
            if name in env:
                settings[key] = int(env[name])
        if "TESTBED_MEMORY_LIMITS" in env:
            settings["memory_limits"] = env["TESTBED_MEMORY_LIMITS"] not in ("0", "no", "")
        settings |= overrides
        settings["users"] = tuple(dict.fromkeys(settings["users"]))
        settings["keep"] = _outermost(settings["keep"])
        return cls(**settings)

    def to_json(self) -> dict[str, Any]:
        """For the bed's own state file."""
        return dataclasses.asdict(self) | {"root": str(self.root), "keep": [str(path) for path in self.keep]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        """The settings that `to_json` wrote."""
        paths = {"root": Path(data["root"]), "keep": tuple(Path(path) for path in data["keep"])}
        # a bed that runs may have been started before a setting was there
        tuples = {key: tuple(data.get(key, ())) for key in ("clusters", "users", "without_accounting")}
        return cls(**(data | tuples | paths))


_NUMBERS = {
    "TESTBED_NODES": "nodes_per_cluster",
    "TESTBED_SHM_MIB": "shm_mib",
    "TESTBED_KILL_WAIT": "kill_wait_s",
    "TESTBED_SLURMD_TIMEOUT": "slurmd_timeout_s",
    "TESTBED_MAX_ARRAY_SIZE": "max_array_size",
}


def default_root() -> Path:
    """/tmp/slurmtb-XXXXXX, its own for each clone of the repository (and so for a CI copy beside a working one)."""
    digest = hashlib.sha256(str(REPOSITORY).encode()).hexdigest()
    return Path("/tmp") / f"slurmtb-{digest[:6]}"


def default_users() -> tuple[str, ...]:
    """Root, and who called sudo."""
    names = ("root", os.environ.get("SUDO_USER", ""))
    known = {entry.pw_name for entry in pwd.getpwall()}
    return tuple(name for name in names if name in known)


def default_keep() -> tuple[Path, ...]:
    """What a job of this clone needs: the repository, the Python that runs us, the working directory."""
    python = Path(sys.executable)
    homes = [python.parent.parent]
    while python.is_symlink():
        # a venv's python is a chain of links, and each of them must lead somewhere on the nodes too
        python = python.parent / python.readlink()
        homes.append(python.parent.parent)
    paths = [REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path.cwd(), *homes]
    return tuple(form for path in paths for form in (path.absolute(), path.resolve()))


PRIVATE = (Path("/tmp"), Path("/dev/shm"))
"""Folders of which each node has its own."""


def _outermost(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Those that lie in a private folder, without those that lie in another one of them."""
    hidden = [path for path in dict.fromkeys(paths) if any(folder in path.parents for folder in PRIVATE)]
    return tuple(path for path in hidden if not any(other in path.parents for other in hidden))
