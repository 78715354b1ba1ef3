"""What a node is, read from /proc and /sys: for the record's `host` and for messages."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from campaign.vendors import AMD, NVIDIA


def node_name(node_rank: int) -> str:
    """This node as the scheduler names it; several agents of a local run on one machine get different names."""
    name = os.environ.get("SLURMD_NODENAME")
    if name:
        return name
    return socket.gethostname() + (f".{node_rank}" if node_rank else "")


def cpu_model() -> str:
    """The processor's name; the machine type where the kernel doesn't say (aarch64)."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.machine()


def memory_bytes() -> int | None:
    """Memory of the node."""
    with contextlib.suppress(OSError):
        found = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    return None


def gpus() -> list[str]:
    """Names of the GPUs that the drivers show (NVIDIA by /proc, AMD by its kernel topology)."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with contextlib.suppress(OSError):
            found = re.search(r"^Model:\s*(.+)$", information.read_text(encoding="utf-8"), re.MULTILINE)
            names.append(found[1].strip() if found else "NVIDIA GPU")
    for properties in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        with contextlib.suppress(OSError):
            found = re.search(r"^simd_count (\d+)$", properties.read_text(encoding="utf-8"), re.MULTILINE)
            if found and int(found[1]) > 0:
                name = (properties.parent / "name").read_text(encoding="utf-8").strip()
                names.append(name or "AMD GPU")
    return names


def gpu_driver() -> str | None:
    """Version of the GPU driver; None without one."""
    with contextlib.suppress(OSError):
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", Path(NVIDIA.driver_version).read_text(encoding="utf-8"))
        if found:
            return found[1]
    with contextlib.suppress(OSError):
        return Path(AMD.driver_version).read_text(encoding="utf-8").strip()
    return None


def host() -> dict[str, Any]:
    """{cpu, cores, memory_bytes, gpu, driver} of this node; cores: logical CPUs this process may use."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes(),
        "gpu": gpus(),
        "driver": gpu_driver(),
    }


def ranges(cpus: set[int]) -> str:
    """`0-3,8` for {0, 1, 2, 3, 8}."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
