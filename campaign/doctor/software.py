"""Python, packages, torch and its GPUs, container tools. Nothing heavy is imported into this process."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata, util

from campaign import vendors
from campaign.doctor.check import BASE, Check, Need, pip_install, system_install

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)

BASE_PACKAGES = {
    "click": "click",
    "rich": "rich",
    "ruamel.yaml": "ruamel.yaml",
    "pydantic": "pydantic",
    "submitit": "submitit",
    "duckdb": "duckdb",
    "pyarrow": "pyarrow",
}
"""Distribution -> module."""

OPTIONAL_PACKAGES = {
    # distribution: (module, extra, what needs it)
    "torch": ("torch", "train", ("runs of training.* workloads",)),
    "zarr": ("zarr", "train", ("campaign data prepare", "runs of training.* workloads")),
    "iris-sample-data": ("iris_sample_data", "train", ("campaign data prepare hydrology",)),
    "netCDF4": ("netCDF4", "train", ("campaign data prepare hydrology",)),
    "matplotlib": ("matplotlib", "plots", ("campaign plot",)),
    "h5py": ("h5py", "io", ("io_bench studies on HDF5",)),
    "mlflow": ("mlflow", "mlflow", ("campaign export mlflow",)),
    "deepspeed": ("deepspeed", "deepspeed", ("strategies zero0 to zero3",)),
    "horovod": ("horovod", "horovod", ("strategy horovod",)),
}
OWN_WAY = {"horovod": "scripts/build_horovod.sh PYTHON, from a clone (no package of it fits today's torch)"}
"""What pip can't install."""

TORCH_DEADLINE_S = 60.0
TORCH_PROBE = """
import json, torch, torch.distributed as dist
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "gpus": gpus,
                  "backends": [b for b in ("gloo", "nccl", "mpi") if getattr(dist, f"is_{b}_available")()]}))
"""


def look(need: Need) -> Iterator[Check]:
    """All findings about software."""
    yield from _python()
    for name, module in BASE_PACKAGES.items():
        found = _version(name, module)
        yield Check("base", name, found is not None, found or "missing", (BASE,),
                    f"{sys.executable} -m pip install {name}", required=True)  # fmt: skip
    for name, (module, extra, users) in OPTIONAL_PACKAGES.items():
        found = _version(name, module)
        wanted = need.training and extra == "train"
        ok = found is not None if wanted or found else None
        way = None if found else OWN_WAY.get(name) or pip_install(extra)
        yield Check(extra, name, ok, found or "missing", users, way, wanted)
    if _version("torch", "torch"):
        yield _torch(need)
    yield from _containers(need)


def _python() -> Iterator[Check]:
    version = sys.version.split()[0]
    yield Check("base", "python", sys.version_info[:2] >= OLDEST_PYTHON, f"{version}  {sys.executable}", (BASE,),
                "install Python 3.11 or newer (on a cluster: module avail Python)", required=True)  # fmt: skip
    in_venv = sys.prefix != sys.base_prefix
    yield Check("base", "environment", None, f"virtual environment {sys.prefix}" if in_venv else f"prefix {sys.prefix}")
    number = tuple(int(part) for part in sqlite3.sqlite_version.split("."))
    yield Check("base", "sqlite", number >= OLDEST_SQLITE, sqlite3.sqlite_version, ("the ledger",),
                f"a Python linked with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer", required=True)  # fmt: skip


def _version(name: str, module: str) -> str | None:
    """Version of a distribution whose module can be found, without importing it."""
    try:
        if util.find_spec(module) is None:
            return None
        return metadata.version(name)
    except (ImportError, ValueError):  # PackageNotFoundError is an ImportError: a module without a distribution
        return None


def _torch(need: Need) -> Check:
    """Which build, which GPUs, which communication backends: asked in a process of its own, with a deadline."""
    users = ("runs of training.* workloads",)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TORCH_PROBE],
            capture_output=True,
            text=True,
            timeout=TORCH_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check("train", "torch build", None, f"import torch gave no answer in {TORCH_DEADLINE_S:.0f} s", users)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Check("train", "torch build", False, f"import torch fails: {reason}", users,
                     f"{sys.executable} -m pip install --force-reinstall torch", need.training)  # fmt: skip
    facts = json.loads(done.stdout.splitlines()[-1])
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else f"ROCm {facts['hip']}" if facts["hip"] else "CPU build"
    gpus = facts["gpus"]
    count = f"{len(gpus)} x {gpus[0]}" if gpus else "no GPU seen"
    found = f"{build}, {count}, backends {' '.join(facts['backends'])}"
    if not gpus and (drivers := vendors.loaded()):
        names = " and ".join(vendor.name.upper() for vendor in drivers)
        found += f"; this machine has a driver of {names}, but this torch sees no GPU"
    return Check("train", "torch build", True, found, users)


def _containers(need: Need) -> Iterator[Check]:
    users = ("sites with container.runtime",)
    for runtime in ("apptainer", "singularity"):
        path = shutil.which(runtime)
        wanted = need.container == runtime
        if path is None and runtime == "singularity" and not wanted:
            continue  # the older name: worth a line only where it is there or asked for
        yield Check("container", runtime, path is not None if wanted or path else None, path or "missing", users,
                    None if path else "on a cluster: module load " + runtime, wanted)  # fmt: skip
    for tool in ("squashfuse", "mksquashfs"):
        path = shutil.which(tool)
        package = "squashfuse" if tool == "squashfuse" else "squashfs-tools"
        install = system_install(package, package, f"install the package {package}")
        yield Check("container", tool, True if path else None, path or "missing", ("staging: image",),
                    None if path else install)  # fmt: skip
