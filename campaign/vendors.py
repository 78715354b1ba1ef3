"""What all machines of one GPU vendor share, one row each. Standard library only: ranks and the record import it.

A site file says which vendor its GPUs are of; everything that follows from that is here and in no site file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

VendorName = Literal["nvidia", "amd"]


@dataclass(frozen=True, slots=True)
class Cache:
    """Where a vendor's software keeps compiled kernels, and the variable that moves it."""

    variable: str
    folder: str
    """Below the node-local folder of the run."""
    holds: str


@dataclass(frozen=True, slots=True)
class PowerSource:
    """One way to read power. Scopes are never added: a module's power contains its GPU's."""

    name: str
    scope: Literal["gpu", "module"]
    reads: str


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor of GPUs."""

    name: VendorName
    visible_devices: str
    """The variable that says which GPUs a process may see, by number: `0,1,2,3`."""
    container_flag: str
    """Of Apptainer and Singularity: brings the host's driver into the container."""
    collectives: str
    """The collective library behind PyTorch's backend `nccl`."""
    collective_variables: tuple[str, ...]
    """Prefixes of its environment variables."""
    caches: tuple[Cache, ...]
    power: tuple[PowerSource, ...]
    """By preference: the first that a node has is used, one of each scope at most."""
    devices: tuple[str, ...]
    """Device files that a container or a job step must have, as glob patterns."""
    driver_version: str
    """The file that exists when the driver is loaded, and names its version."""

    def visible(self, gpus: int) -> dict[str, str]:
        """The environment that shows a process all `gpus` devices of its node; empty for none."""
        return {self.visible_devices: ",".join(map(str, range(gpus)))} if gpus > 0 else {}


NVIDIA = Vendor(
    name="nvidia",
    visible_devices="CUDA_VISIBLE_DEVICES",
    container_flag="--nv",
    collectives="nccl",
    collective_variables=("NCCL_",),
    caches=(
        Cache("CUDA_CACHE_PATH", "c/cuda", "the driver's compiled kernels, else ~/.nv"),
        Cache("TRITON_CACHE_DIR", "c/triton", "Triton's kernels, else ~/.triton"),
        Cache("CUPY_CACHE_DIR", "c/cupy", "CuPy's kernels, else ~/.cupy"),
    ),
    power=(
        PowerSource("nvml", "gpu", "nvmlDeviceGetPowerUsage; energy counter nvmlDeviceGetTotalEnergyConsumption"),
        # GH200: NVML shows the GPU alone, the module's power (GPU, CPU, memory) is a sensor of the board
        PowerSource(
            "hwmon",
            "module",
            "/sys/class/hwmon/hwmon*/device/power1_average where power1_oem_info says 'Module Power Socket'",
        ),
    ),
    devices=("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm"),
    driver_version="/proc/driver/nvidia/version",
)

AMD = Vendor(
    name="amd",
    # the lowest layer: HIP, OpenCL and RCCL number what ROCR leaves, so HIP_VISIBLE_DEVICES would count twice
    visible_devices="ROCR_VISIBLE_DEVICES",
    container_flag="--rocm",
    collectives="rccl",
    # RCCL reads NCCL's names; RCCL_ are its own additions
    collective_variables=("NCCL_", "RCCL_"),
    caches=(
        Cache("MIOPEN_USER_DB_PATH", "c/miopen", "MIOpen's tuning results, else ~/.config"),
        Cache("MIOPEN_CUSTOM_CACHE_DIR", "c/miopen", "MIOpen's kernels, else ~/.cache"),
        Cache("TRITON_CACHE_DIR", "c/triton", "Triton's kernels, else ~/.triton"),
        Cache("CUPY_CACHE_DIR", "c/cupy", "CuPy's kernels, else ~/.cupy"),
    ),
    # a counter that reads 0 is not a measurement (on an MI250X probably that of a package's second die)
    power=(PowerSource("rocm", "gpu", "amdsmi or rocm_smi: average power and energy counter of the package"),),
    devices=("/dev/kfd", "/dev/dri/renderD*"),
    driver_version="/sys/module/amdgpu/version",
)

VENDORS: Mapping[str, Vendor] = MappingProxyType({vendor.name: vendor for vendor in (NVIDIA, AMD)})


def caches() -> list[Cache]:
    """The caches of all vendors, each variable once, in the order of the table."""
    return list({cache.variable: cache for vendor in VENDORS.values() for cache in vendor.caches}.values())


def loaded(vendors: Iterable[Vendor] = VENDORS.values()) -> list[Vendor]:
    """The vendors whose driver is loaded on this machine."""
    return [vendor for vendor in vendors if Path(vendor.driver_version).exists()]
