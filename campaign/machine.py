"""What this process may use of the machine it runs on (Linux)."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Cores this process may run on: its affinity, cut to the CPU quota of its control group (containers)."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def nvidia_gpus() -> int:
    """NVIDIA devices, counted from what the driver shows; 0 without a driver."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
