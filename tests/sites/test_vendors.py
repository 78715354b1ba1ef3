"""One row per vendor, read by all who need it, cheap to import."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.redirect import REDIRECTIONS
from campaign.site import load_site
from campaign.vendors import AMD, NVIDIA, VENDORS, Vendor, caches, loaded
from tests.sites.sent import ROOT, SITES


def test_the_table_says_what_vendors_document() -> None:
    said = {
        name: (row.visible_devices, row.container_flag, row.collectives, row.collective_variables)
        for name, row in VENDORS.items()
    }
    assert said == {
        "nvidia": ("CUDA_VISIBLE_DEVICES", "--nv", "nccl", ("NCCL_",)),
        "amd": ("ROCR_VISIBLE_DEVICES", "--rocm", "rccl", ("NCCL_", "RCCL_")),
    }
    assert {cache.variable for cache in NVIDIA.caches} >= {"CUDA_CACHE_PATH", "TRITON_CACHE_DIR"}
    assert {cache.variable for cache in AMD.caches} >= {"MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"}
    assert [(source.name, source.scope) for source in NVIDIA.power] == [("nvml", "gpu"), ("hwmon", "module")]
    assert [(source.name, source.scope) for source in AMD.power] == [("rocm", "gpu")]
    assert "/dev/kfd" in AMD.devices


def test_rows_cant_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        NVIDIA.container_flag = "--rocm"  # type: ignore[misc]
    with pytest.raises(TypeError):
        VENDORS["nvidia"] = AMD  # type: ignore[index]


@pytest.mark.parametrize(
    ("gpus", "variables"),
    [(0, {}), (1, {"CUDA_VISIBLE_DEVICES": "0"}), (4, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})],
)
def test_all_devices_of_a_node_are_named(gpus: int, variables: dict[str, str]) -> None:
    assert NVIDIA.visible(gpus) == variables


def test_the_caches_of_all_vendors_are_redirected_once() -> None:
    moved = [row.variable for row in REDIRECTIONS if row.access == "written"]
    assert {cache.variable for cache in caches()} <= set(moved)
    assert len(moved) == len(set(moved))
    assert [cache.variable for cache in caches()].count("TRITON_CACHE_DIR") == 1


def test_a_driver_that_is_loaded_is_found(tmp_path: Path) -> None:
    nvidia, amd = (dataclasses.replace(row, driver_version=str(tmp_path / row.name)) for row in (NVIDIA, AMD))
    assert loaded([nvidia, amd]) == []
    (tmp_path / "amd").write_text("6.3.6\n")
    assert loaded([nvidia, amd]) == [amd]


def test_the_table_needs_the_standard_library_only() -> None:
    heavy = ("pydantic", "ruamel", "duckdb", "torch", "click")
    code = f"import sys, campaign.vendors; print([name for name in sys.modules if name.split('.')[0] in {heavy}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_no_site_file_repeats_the_table() -> None:
    words = {row.container_flag for row in VENDORS.values()} | {row.visible_devices for row in VENDORS.values()}
    for path in SITES:
        site = load_site(path)
        assert not words & {*site.container.args, *site.env}, path


def test_the_vendors_flag_comes_before_the_sites_own_arguments() -> None:
    expected = {
        "jupiter": ["--nv", "--writable-tmpfs"],  # OELLM
        "juwels": ["--nv"],
        "lumi": [],  # OELLM and the user guide start containers without --rocm
    }
    for name, arguments in expected.items():
        site = load_site(ROOT / "sites" / f"{name}.yaml")
        assert site.container_args(site.default_partition) == arguments


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=lambda vendor: vendor.name)
def test_the_documents_show_the_table(vendor: Vendor) -> None:
    document = (ROOT / "docs" / "sites.md").read_text(encoding="utf-8")
    lines = document.split("## GPU vendors\n", 1)[1].split("\n#", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    column = rows[0].index({"nvidia": "NVIDIA", "amd": "AMD"}[vendor.name])
    shown = {word for row in rows[1:] for word in re.findall(r"`([^`]+)`", row[column])}
    needed = {
        vendor.name,
        vendor.visible_devices,
        vendor.container_flag,
        *(cache.variable for cache in vendor.caches),
        *(f"{prefix}*" for prefix in vendor.collective_variables),
        *(source.scope for source in vendor.power),
    }
    assert needed <= shown
