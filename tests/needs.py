"""What a test needs beyond Python, and why it may be missing here.

    from tests.needs import needs

    @needs("slurm")
    def test_...

A missing need skips the test with the reason. When $CAMPAIGN_REQUIRE (comma list) names the need, the test fails
instead. This is the suite's only way to skip. A new need is a function here, returning None or the reason.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

needs = pytest.mark.needs


def _module(name: str, extra: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return f"Python module {name} is missing: pip install 'campaign[{extra}]'"
    return None


def _root() -> str | None:
    return None if os.geteuid() == 0 else "runs only as root (sudo)"


def _tries(*argv: str) -> str | None:
    """None when the command succeeds, else what it said."""
    program = shutil.which(argv[0])
    if program is None:
        return f"{argv[0]} is missing"
    answer = subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode == 0:
        return None
    return f"{' '.join(argv[:3])} fails: {(answer.stderr or answer.stdout).strip() or f'exit {answer.returncode}'}"


def _strace() -> str | None:
    return _tries("strace", "-f", "-o", os.devnull, "true")


def _tmpfs() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return _root() or _tries("unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", folder)


def _network_namespaces() -> str | None:
    return _root() or _tries("unshare", "-n", "ip", "link", "set", "lo", "up")


def _slurm() -> str | None:
    from tests.slurm.testbed.bed import Testbed
    from tests.slurm.testbed.services import missing_packages

    if platform.system() != "Linux":
        return "the Slurm test bed runs on Linux only"
    if packages := missing_packages():
        return f"not installed: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0:
        return None if Testbed().complete else "needs root to start the test bed (sudo make testbed starts one by hand)"
    script = "mount -t tmpfs none /tmp && ip link add br9 type bridge && ip link add ve8 type veth peer name ve9"
    return _tries("unshare", "-m", "-u", "-i", "-p", "-n", "-f", "--mount-proc", "sh", "-c", script)


def _memory_cgroup() -> str | None:
    from tests.slurm.testbed import memory

    return memory.missing()


def _fuse() -> str | None:
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "no permission for /dev/fuse"


def _horovod() -> str | None:
    return None if importlib.util.find_spec("horovod") else "Horovod is missing: make horovod"


PROBES: dict[str, Callable[[], str | None]] = {
    "slurm": _slurm,
    "memory-cgroup": _memory_cgroup,
    "root": _root,
    "strace": _strace,
    "tmpfs": _tmpfs,
    "network-namespaces": _network_namespaces,
    "fuse": _fuse,
    "torch": functools.partial(_module, "torch", "train"),
    "deepspeed": functools.partial(_module, "deepspeed", "deepspeed"),
    "horovod": _horovod,
    "zarr": functools.partial(_module, "zarr", "train"),
    "h5py": functools.partial(_module, "h5py", "io"),
    "netCDF4": functools.partial(_module, "netCDF4", "train"),
    "mlflow": functools.partial(_module, "mlflow", "mlflow"),
    "matplotlib": functools.partial(_module, "matplotlib", "plots"),
}


@functools.cache
def missing(name: str) -> str | None:
    """Why the need `name` isn't met here, or None when it is. Raises KeyError for a name that no probe has."""
    return PROBES[name]()


def required() -> frozenset[str]:
    """The names in $CAMPAIGN_REQUIRE. Raises pytest.UsageError for one that no probe has."""
    names = frozenset(name.strip() for name in os.environ.get("CAMPAIGN_REQUIRE", "").split(",") if name.strip())
    check_names(names, "$CAMPAIGN_REQUIRE")
    return names


def check_names(names: frozenset[str] | tuple[str, ...], where: str) -> None:
    """Raise pytest.UsageError when a name isn't a need."""
    unknown = sorted(set(names) - set(PROBES))
    if unknown:
        raise pytest.UsageError(f"{where}: unknown need {', '.join(unknown)}; there are {', '.join(sorted(PROBES))}")


def enforce(item: pytest.Item, require: frozenset[str]) -> None:
    """Skip or fail `item` when one of its needs isn't met."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            reason = missing(name)
            if reason is None:
                continue
            if name in require:
                pytest.fail(f"CAMPAIGN_REQUIRE names {name!r}, but: {reason}", pytrace=False)
            pytest.skip(f"needs {name}: {reason}")


if __name__ == "__main__":
    # `python -m tests.needs`: what would be skipped here
    for need in PROBES:
        print(f"{need:20} {missing(need) or 'ok'}")
    sys.exit(any(missing(name) for name in required()))
