"""The first site file of a cluster: loads, says what the cluster says, and is true by `check`'s own measure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from campaign.site import Site, load_site
from campaign.sitecheck.compare import compare
from campaign.sitecheck.discover import site_file, site_name
from campaign.sitecheck.hostfacts import FoundFilesystem, HostFacts, shared_filesystems
from campaign.sitecheck.picture import Picture
from campaign.yamlfile import load
from tests.conftest import Cli
from tests.sitecheck.conftest import ANSWERS, by_verdict

NOTHING = HostFacts()


def loaded(folder: Path, text: str) -> Site:
    path = folder / "mixed.yaml"
    path.write_text(text)
    return load_site(path, shown="mixed.yaml")


def test_it_says_what_the_cluster_says(picture: Picture, tmp_path: Path) -> None:
    site = loaded(tmp_path, site_file(picture, NOTHING, "mixed"))
    assert (site.name, site.cluster_name, site.arch, site.account) == ("mixed", "mixed1", "x86_64", None)
    assert (site.default_partition, site.partition_by_size) == ("gpu", ["gpu"])  # big is down
    assert list(site.partitions) == ["gpu", "cpu", "big"]  # nothing can run in `empty`
    gpu, cpu, big = site.partitions.values()
    # the shorter of MaxTime 2 days and the QOS's 1 day; the smaller of MaxNodes 4 and the QOS's 3
    assert (gpu.max_time, gpu.max_nodes, gpu.nodes, gpu.default_time) == (86400, 3, 6, 1800)
    assert (cpu.max_time, cpu.max_nodes, cpu.min_nodes, cpu.exclusive) == (float("inf"), None, 2, False)
    assert (big.down, gpu.down) == (True, False)
    assert (list(gpu.qos), list(cpu.qos)) == (["normal", "short"], ["normal"])
    assert (gpu.qos["short"].max_time, gpu.qos["short"].min_nodes) == (3600, 2)
    limits = site.scheduler.limits
    assert (limits.array_size, limits.submit_jobs, limits.running_jobs) == (501, 20, 8)
    assert (site.cpu_unit, site.visible_gpus, site.scheduler.gpu_request) == ("thread", "slurm", "gres")


def test_several_types_of_nodes(picture: Picture, tmp_path: Path) -> None:
    text = site_file(picture, NOTHING, "mixed")
    site = loaded(tmp_path, text)
    assert list(site.nodes) == ["nvidia_a100x4", "h100x8", "cpu128"]
    assert (site.partitions["gpu"].node, site.partitions["cpu"].node) == ("nvidia_a100x4", "cpu128")
    a100, h100, thin = site.nodes.values()
    assert (a100.gpus, a100.cores, a100.threads_per_core, a100.usable_bytes) == (4, 56, 2, 256000 * 2**20)
    assert (h100.gpus, h100.cores, h100.threads_per_core, h100.usable_bytes) == (8, 96, 1, 2_000_000 * 2**20)
    assert (thin.gpu, thin.gpus, thin.cores, thin.disk_bytes) == (None, 0, 128, 900_000 * 2**20)
    assert "2 of the nodes are h100x8" in next(line for line in text.splitlines() if line.startswith("  gpu:"))


def test_check_finds_nothing_wrong_with_it(picture: Picture, tmp_path: Path) -> None:
    findings = compare(loaded(tmp_path, site_file(picture, NOTHING, "mixed")), picture, "proj1")
    assert by_verdict(findings, "wrong", "missing", "unknown") == set()


def test_every_entry_says_where_it_comes_from(picture: Picture, tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(site_file(picture, NOTHING, "mixed"))
    document = load(path)
    lines = path.read_text().splitlines()
    entries = [(section, name) for section in ("partitions", "nodes", "gpus", "filesystems")
               for name in document.data[section]]  # fmt: skip
    assert len(entries) == 3 + 3 + 2 + 1
    for entry in entries:
        line = lines[document.line_of(entry) - 1]
        assert re.search(r"# \[M 2026-11-30 (scontrol|mounts)[^\]]*\]$", line), line


def test_what_this_host_shows(picture: Picture, tmp_path: Path) -> None:
    host = HostFacts(
        filesystems=(FoundFilesystem("scratch", "/p/scratch/{user}", "gpfs", True),
                     FoundFilesystem("home", "/p/home/{user}", "nfs", True)),
        interface="ib0", vendor="amd", container_runtime="apptainer",
    )  # fmt: skip
    site = loaded(tmp_path, site_file(picture, host, "mixed"))
    assert list(site.filesystems) == ["scratch", "home", "shm"]
    assert (site.filesystems["scratch"].path, site.filesystems["scratch"].kind) == ("/p/scratch/{user}", "gpfs")
    assert (site.paths.run_root, site.paths.node_local) == ("scratch:campaign", "shm:campaign-{user}")
    assert (site.network.interface, site.container.runtime) == ("ib0", "apptainer")
    assert {gpu.vendor for gpu in site.gpus.values()} == {"amd"}


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw
30 22 0:40 / /p/scratch rw,relatime shared:2 - gpfs scratch rw
31 22 0:41 / /p/home rw,relatime shared:3 - nfs4 server:/home rw
32 22 0:42 / /p/big\\040store rw,relatime shared:4 - lustre mds@o2ib:/big rw
33 22 0:43 / /dev/shm rw,nosuid shared:5 - tmpfs tmpfs rw
34 22 0:44 / /cvmfs/x rw,nosuid shared:6 - fuse.cvmfs cvmfs rw
"""


def test_shared_file_systems_of_a_login_node() -> None:
    environ = {"SCRATCH": "/p/scratch/proj/ada", "HOME": "/p/home/ada", "DATA": "/local/data", "WORK": "relative"}
    found = shared_filesystems(MOUNTS, environ, "ada")
    assert [(one.name, one.path, one.kind) for one in found] == [
        ("scratch", "/p/scratch/proj/{user}", "gpfs"),
        ("home", "/p/home/{user}", "nfs"),
        ("p_big_store", "/p/big store", "lustre"),
    ]


@pytest.mark.parametrize(
    ("cluster", "name"),
    [("juwels", "juwels"), ("LUMI", "lumi"), ("My Cluster!", "my-cluster"), ("2big", "site-2big"), (None, "site")],
)
def test_the_name_of_a_site(cluster: str | None, name: str) -> None:
    assert site_name(cluster) == name


def test_a_cluster_that_shows_no_nodes(picture: Picture) -> None:
    texts = {key: text for key, text in picture.texts.items() if key != "nodes"}
    with pytest.raises(ValueError, match="access denied"):
        site_file(Picture(texts, {"nodes": "access denied"}, "ada", "2026-11-30"), NOTHING, "mixed")


def test_names_that_yaml_would_take_for_something_else(picture: Picture, tmp_path: Path) -> None:
    partitions = picture.texts["partitions"].replace("PartitionName=gpu", "PartitionName=1gpu")
    partitions = partitions.replace("PartitionName=big", "PartitionName=on")
    changed = Picture({**picture.texts, "partitions": partitions}, {}, "ada", picture.taken)
    site = loaded(tmp_path, site_file(changed, NOTHING, "mixed"))
    assert list(site.partitions) == ["1gpu", "cpu", "on"]


def test_a_file_that_is_there_is_never_overwritten(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "site.yaml"
    cli("site", "discover", "--from", ANSWERS, "--out", out, code=0)
    before = out.read_text()
    assert load_site(out).name == "mixed1"
    result = cli("site", "discover", "--from", ANSWERS, "--name", "other", "--out", out, code=2)
    assert "never overwritten" in result.stderr
    assert out.read_text() == before


def test_without_slurm_it_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    result = cli("site", "discover", cwd=tmp_path, env={"PATH": str(tmp_path)}, code=3)
    assert "scontrol: command not found" in result.stderr
    assert "--from FILE" in result.stderr


def test_a_file_outside_any_project_can_be_checked(cli: Cli, tmp_path: Path) -> None:
    cli("site", "discover", "--from", ANSWERS, "--out", "site.yaml", cwd=tmp_path, code=0)
    words = ("site", "check", "site.yaml", "--from", ANSWERS)
    cli(*words, "--account", "proj1", cwd=tmp_path, code=0)
    result = cli(*words, "--account", "proj2", "--json", cwd=tmp_path, code=1)
    (error,) = result.json()["errors"]
    assert (error["file"], error["key"], error["allowed"]) == (
        "site.yaml", "account", "proj1, proj3 (sacctmgr show assoc)")  # fmt: skip
