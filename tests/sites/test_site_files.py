"""The shipped sites are true to their sources; facts are written down here a second time, by hand."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from campaign.site import Site, load_site
from campaign.study import load_study
from tests.sites.sent import ROOT, SITES, SLURM_SITES

STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


@functools.cache
def of_file(name: str) -> Site:
    """A shipped site, read once."""
    return load_site(ROOT / "sites" / f"{name}.yaml")


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_a_starter_site_is_valid_and_named_like_its_file(path: Path) -> None:
    assert load_site(path).name == path.stem


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_starter_study_is_valid_and_named_like_its_file(path: Path) -> None:
    assert load_study(path).name == path.stem


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_a_starter_site_lists_studies_that_exist(path: Path) -> None:
    assert set(load_site(path).studies) <= {study.stem for study in STUDIES}


# facts of the sites' documents, written down here a second time by hand
FACTS: dict[str, dict[str, Any]] = {
    "juwels": {
        "arch": "x86_64",
        "partitions.booster.nodes": 936,
        "partitions.booster.max_nodes": 384,
        "partitions.booster.max_time": 24 * 3600,
        "partitions.develbooster.max_nodes": 4,
        "partitions.develbooster.max_time": 2 * 3600,
        "partitions.largebooster.max_nodes": None,
        "partitions.largebooster.max_time": None,
        "nodes.a100x4.cores": 48,
        "nodes.a100x4.threads_per_core": 2,
        "nodes.a100x4.gpus": 4,
        "nodes.a100x4.memory_bytes": 512_000_000_000,
        "gpus.a100-40.peak_flops.bf16": 312e12,
        "network.master_addr_suffix": "i",
        "network.interface": "ib0",
        "scheduler.sbatch_args.hint": "nomultithread",
        "scheduler.gpu_request": "gres",
        "visible_gpus": "all",
        "cpu_unit": "core",
        "env.GLOO_SOCKET_IFNAME": "ib0",
        "filesystems.scratch.quota_inodes": 4_000_000,
        "filesystems.project.quota_inodes": 3_000_000,
        "filesystems.scratch.purge_days": 90,
        "cluster_name": None,
        "compute_internet": False,
        "billing.unit": "node-h",
    },
    "vega": {
        "arch": "x86_64",
        "partitions.gpu.nodes": 60,
        "partitions.gpu.max_time": None,
        "partitions.gpu.exclusive": False,
        "nodes.a100x4.cores": 128,
        "nodes.a100x4.disk_bytes": 1_920_000_000_000,
        "nodes.a100x4.usable_bytes": 384 * 1024**3,
        "network.master_addr_suffix": "",
        "visible_gpus": "slurm",
        "cpu_unit": "thread",
        "filesystems.scratch.kind": "lustre",
        "filesystems.scratch.quota_bytes": None,
        "filesystems.scratch.purge_days": None,
        "compute_internet": None,
    },
    "jupiter": {
        "arch": "aarch64",
        "partitions.booster.max_time": 12 * 3600,
        "partitions.booster.default_time": 3600,
        "partitions.largebooster.down": True,
        "nodes.gh200x4.cores": 288,
        "nodes.gh200x4.threads_per_core": 1,
        "nodes.gh200x4.memory_bytes": 480_000_000_000,
        "gpus.gh200-96.memory_bytes": 96_000_000_000,
        "gpus.gh200-96.power_cap_w": 680,
        "network.master_addr_suffix": "",
        "network.resolve_ip": True,
        "visible_gpus": "all",
        "billing.unit": "core-h",
        "filesystems.fscratch.purge_days": 30,
        "filesystems.just.on_compute": False,
        "filesystems.scratch.quota_inodes": 8_000_000,
        "compute_internet": False,
    },
    "lumi": {
        "arch": "x86_64",
        "partitions.standard-g.max_nodes": 1024,
        "partitions.standard-g.max_time": 2 * 86400,
        "partitions.small-g.max_nodes": 4,
        "partitions.small-g.max_time": 3 * 86400,
        "partitions.small-g.exclusive": False,
        "partitions.dev-g.max_nodes": 32,
        "partitions.dev-g.max_time": 3 * 3600,
        "nodes.mi250x4.gpus": 8,
        "nodes.mi250x4.cores": 56,
        "nodes.mi250x4.memory_bytes": 512 * 1024**3,
        "nodes.mi250x4.usable_bytes": 480 * 1024**3,
        "nodes.mi250x4.disk_bytes": 0,
        "gpus.mi250x-gcd.vendor": "amd",
        "gpus.mi250x-gcd.memory_bytes": 64_000_000_000,
        "gpus.mi250x-gcd.peak_flops.bf16": 383e12 / 2,
        "scheduler.limits.running_jobs": 200,
        "filesystems.scratch.quota_inodes": 2_000_000,
        "filesystems.flash.quota_bytes": 2_000_000_000_000,
        "filesystems.project.quota_inodes": 100_000,
        "container.runtime": "singularity",
        "compute_internet": True,
    },
    "leonardo": {
        "partitions.boost_usr_prod.nodes": 3456,
        "partitions.boost_usr_prod.qos.normal.max_nodes": 64,
        "partitions.boost_usr_prod.qos.normal.max_time": 86400,
        "partitions.boost_usr_prod.qos.boost_qos_bprod.min_nodes": 65,
        "partitions.boost_usr_prod.qos.boost_qos_bprod.max_nodes": 256,
        "partitions.boost_usr_prod.qos.boost_qos_lprod.max_time": 4 * 86400,
        "partitions.boost_usr_prod.qos.boost_qos_dbg.max_time": 1800,
        "nodes.a100x4.cores": 32,
        "nodes.a100x4.disk_bytes": 0,
        "gpus.a100-64.memory_bytes": 64_000_000_000,
        "filesystems.scratch.purge_days": 40,
        "filesystems.work.quota_bytes": 1_000_000_000_000,
        "filesystems.home.quota_bytes": 50_000_000_000,
        "compute_internet": False,
    },
    "marenostrum5": {
        "partitions.acc.nodes": 1120,
        "partitions.acc.qos.acc_ehpc.max_nodes": 8000 // 80,
        "partitions.acc.qos.acc_ehpc.max_time": 72 * 3600,
        "partitions.acc.qos.acc_debug.max_nodes": 640 // 80,
        "partitions.acc.qos.acc_debug.max_time": 2 * 3600,
        "nodes.h100x4.cores": 80,
        "nodes.h100x4.threads_per_core": 2,
        "nodes.h100x4.usable_bytes": None,
        "gpus.h100-64.memory_bytes": 64_000_000_000,
        "filesystems.scratch.purge_days": None,
        "compute_internet": False,
    },
    "karolina": {
        "partitions.qgpu.nodes": 72,
        "partitions.qgpu.max_time": 48 * 3600,
        "partitions.qgpu.default_time": 24 * 3600,
        "partitions.qgpu_big.min_nodes": 17,
        "partitions.qgpu_exp.max_time": 3600,
        "nodes.a100x8.gpus": 8,
        "nodes.a100x8.cores": 128,
        "nodes.a100x8.memory_bytes": 1_000_000_000_000,
        "gpus.a100-40.memory_bytes": 40_000_000_000,
        "filesystems.scratch.quota_bytes": None,
        "filesystems.scratch.purge_days": 90,
        "billing.unit": "node-h",
        "billing.whole_nodes": False,
        "compute_internet": False,
    },
    "meluxina": {
        "partitions.gpu.nodes": 200,
        "partitions.gpu.qos.default.max_time": 48 * 3600,
        "partitions.gpu.qos.long.max_time": 144 * 3600,
        "partitions.gpu.qos.test.max_time": 1800,
        "nodes.a100x4.cores": 64,
        "nodes.a100x4.threads_per_core": 2,
        "nodes.a100x4.disk_bytes": 1_920_000_000_000,
        "gpus.a100-40.memory_bytes": 40_000_000_000,
        "filesystems.project.kind": "lustre",
        "compute_internet": None,
    },
}


@pytest.mark.parametrize(("site", "key"), [(site, key) for site, facts in FACTS.items() for key in facts], ids=str)
def test_a_fact_of_the_site_is_in_its_file(site: str, key: str) -> None:
    value: Any = of_file(site)
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert value == FACTS[site][key]


def test_the_facts_are_of_every_slurm_site() -> None:
    assert sorted(FACTS) == sorted(SLURM_SITES)


def test_no_account_is_shipped() -> None:
    assert [site.account for site in map(load_site, SITES)] == [None] * len(SITES)


def test_threads_are_counted_where_the_site_counts_threads() -> None:
    assert load_site(ROOT / "sites/vega.yaml").slurm_cpus("gpu", 32) == 64
    assert load_site(ROOT / "sites/juwels.yaml").slurm_cpus("booster", 12) == 12


def test_a_local_site_has_the_cores_of_this_process() -> None:
    node = load_site(ROOT / "sites/local.yaml").node_of("local")
    allowed = len(os.sched_getaffinity(0))
    assert node.cores is not None
    assert 1 <= node.cores <= allowed
    assert node.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    quota = Path("/sys/fs/cgroup/cpu.max")
    if not quota.exists() or quota.read_text().startswith("max"):
        assert node.cores == allowed
