"""A site file against a cluster's answers: the lies that were put in are found, each with its line, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from campaign.site import Site
from campaign.sitecheck.compare import compare
from campaign.sitecheck.picture import Picture
from tests.sitecheck.conftest import by_verdict

MakeSite = Callable[..., Site]


def test_a_true_file(make_site: MakeSite, picture: Picture) -> None:
    findings = compare(make_site(), picture, "proj1")
    assert by_verdict(findings, "wrong", "missing", "unknown") == set()
    notes = {finding.key for finding in findings if finding.verdict == "note"}
    assert notes == {"partitions", "partitions.gpu.node"}  # big and empty aren't described; h[1-2] are of another kind


LIES: dict[str, tuple[str, str, tuple[str, int, Any], str | None]] = {
    # what is replaced, by what, (key, line, what the cluster says), the line to type
    "array size": ("array_size: 501", "array_size: 1001", ("scheduler.limits.array_size", 7, "501"), "array_size: 501"),
    "max_time": ('"24:00:00"', '"48:00:00"', ("partitions.gpu.max_time", 13, "1-00:00:00"), 'max_time: "1-00:00:00"'),
    "unlimited": ("UNLIMITED", '"12:00:00"', ("partitions.cpu.max_time", 14, "UNLIMITED"), 'max_time: "UNLIMITED"'),
    "default_time": ('"00:30:00"', '"01:00:00"', ("partitions.gpu.default_time", 13, "00:30:00"),
                     'default_time: "00:30:00"'),
    "nodes": ("nodes: 6", "nodes: 7", ("partitions.gpu.nodes", 13, "6"), "nodes: 6"),
    "max_nodes": ("max_nodes: 3", "max_nodes: 4", ("partitions.gpu.max_nodes", 13, "3"), "max_nodes: 3"),
    "a maximum where there is none": ("max_nodes: null", "max_nodes: 2", ("partitions.cpu.max_nodes", 14, "UNLIMITED"),
                                      "max_nodes: null"),
    "min_nodes": ("min_nodes: 2", "min_nodes: 1", ("partitions.cpu.min_nodes", 14, "2"), "min_nodes: 2"),
    "exclusive": ("exclusive: false", "exclusive: true", ("partitions.cpu.exclusive", 14, "false"), "exclusive: false"),
    "down": ("exclusive: false", "exclusive: false, down: true", ("partitions.cpu.down", 14, "UP"), "down: false"),
    "cores": ("cores: 56", "cores: 64", ("nodes.a100x4.cores", 16, "56"), "cores: 56"),
    "threads": ("cores: 128", "cores: 128, threads_per_core: 2", ("nodes.thin.threads_per_core", 17, "1"),
                "threads_per_core: 1"),
    "GPUs": ("gpus: 4", "gpus: 8", ("nodes.a100x4.gpus", 16, "4"), "gpus: 4"),
    "too much usable memory": ("memory_bytes: 256e9, usable_bytes: 250e9", "memory_bytes: 275e9, usable_bytes: 270e9",
                               ("nodes.a100x4.usable_bytes", 16, 268435456000), "usable_bytes: 268435456000"),
    "memory": ("memory_bytes: 512e9", "memory_bytes: 768e9", ("nodes.thin.memory_bytes", 17, 524288000000),
               "memory_bytes: 524288000000"),
    "cpu_unit": ("cpu_unit: thread", "cpu_unit: core", ("cpu_unit", 10, "thread"), "cpu_unit: thread"),
    "architecture": ("arch: x86_64", "arch: aarch64", ("arch", 3, "x86_64"), "arch: x86_64"),
    "accounting": ("cpu_unit: thread", "cpu_unit: thread\naccounting: false", ("accounting", 11, "true"),
                   "accounting: true"),
    "QOS": ("qos: null", "qos: express", ("qos", 9, "normal, part_gpu, short, other"), None),
    "reservation": ("qos: null", "reservation: course", ("reservation", 9, "school"), "reservation: null"),
    "constraint": ("qos: null", "constraint: a100&nvme", ("constraint", 9, "a100, h100, ib"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_one_lie(make_site: MakeSite, picture: Picture, name: str) -> None:
    old, new, expected, write = LIES[name]
    findings = compare(make_site((old, new)), picture, "proj1")
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    assert [(finding.key, finding.line, finding.found) for finding in wrong] == [expected]
    assert wrong[0].write == write
    assert wrong[0].file == "mixed.yaml"


def test_another_type_of_gpu(make_site: MakeSite, picture: Picture) -> None:
    site = make_site(("gpu: a100-80,", "gpu: v100,"), ("  a100-80: {vendor", "  v100: {vendor"))
    findings = compare(site, picture, "proj1")
    assert by_verdict(findings, "wrong") == {("nodes.a100x4.gpu", 16, "nvidia_a100")}


def test_a_partition_that_is_not_there(make_site: MakeSite, picture: Picture) -> None:
    findings = compare(make_site(("  cpu: {node", "  cpus: {node")), picture, "proj1")
    assert by_verdict(findings, "wrong") == {("partitions.cpus", 14, "gpu, cpu, big, empty")}


def test_limits_of_a_qos(make_site: MakeSite, picture: Picture) -> None:
    """short: 1 h, at least 2 nodes, 4 running and 10 submitted jobs; at most the partition's 3 nodes."""
    qos = '{short: {max_time: "02:00:00", max_nodes: 8, submit_jobs: 10}}'
    site = make_site(("nodes: 6,", f"nodes: 6, qos: {qos},"))
    findings = compare(site, picture, "proj1")
    start = "partitions.gpu.qos.short"
    assert by_verdict(findings, "wrong") == {(f"{start}.max_time", 13, "01:00:00"),
                                             (f"{start}.max_nodes", 13, "3")}  # fmt: skip
    assert by_verdict(findings, "missing") == {(f"{start}.min_nodes", 13, "2"), (f"{start}.running_jobs", 13, "4")}


def test_limits_of_the_partition_hold_for_a_qos_without_its_own(make_site: MakeSite, picture: Picture) -> None:
    """gpu: at most 3 nodes (of its QOS) and 1 day; cpu: neither."""
    limits = 'max_nodes: 3, max_time: "24:00:00"'
    site = make_site(("nodes: 6,", f"nodes: 6, qos: {{normal: {{{limits}}}}},"),
                     ("exclusive: false", f"exclusive: false, qos: {{normal: {{{limits}}}}}"))  # fmt: skip
    findings = compare(site, picture, "proj1")
    start = "partitions.cpu.qos.normal"
    assert by_verdict(findings, "wrong") == {
        (f"{start}.max_time", 14, "no limit"),
        (f"{start}.max_nodes", 14, "no limit"),
    }


def test_a_qos_that_the_partition_does_not_admit(make_site: MakeSite, picture: Picture) -> None:
    limits = '{min_nodes: 2, max_time: "01:00:00", submit_jobs: 10, running_jobs: 4}'
    site = make_site(("exclusive: false", f"exclusive: false, qos: {{short: {limits}}}"))
    findings = compare(site, picture, "proj1")
    assert by_verdict(findings, "wrong") == {("partitions.cpu.qos.short", 14, "normal")}


def test_empty_answers_of_accounting_are_unknown(make_site: MakeSite, picture: Picture) -> None:
    changed = dataclasses.replace(picture, texts={**picture.texts, "associations": ""})
    findings = compare(make_site(), changed, "proj1")
    assert by_verdict(findings, "unknown") == {("account", 4, None)}
    assert by_verdict(findings, "wrong") == set()


def test_an_account_of_somebody_else(make_site: MakeSite, picture: Picture) -> None:
    findings = compare(make_site(("account: proj1", "account: proj2")), picture, "proj2")
    assert by_verdict(findings, "wrong") == {("account", 4, "proj1, proj3")}


def test_a_partition_that_does_not_admit_the_account(make_site: MakeSite, picture: Picture) -> None:
    findings = compare(make_site(), picture, "proj3")
    messages = [finding.message for finding in findings if finding.key == "partitions.cpu"]
    assert messages == ["partition cpu doesn't admit account proj3: only proj1, proj2"]


def test_a_smaller_limit_of_the_file_is_the_groups_own_choice(make_site: MakeSite, picture: Picture) -> None:
    findings = compare(make_site(("running_jobs: 8", "running_jobs: 2")), picture, "proj1")
    assert by_verdict(findings, "wrong") == set()
    assert ("scheduler.limits.running_jobs", 7, 8) in by_verdict(findings, "note")
    findings = compare(make_site(("running_jobs: 8", "running_jobs: 9")), picture, "proj1")
    assert by_verdict(findings, "wrong") == {("scheduler.limits.running_jobs", 7, "8")}


def test_what_the_file_leaves_open(make_site: MakeSite, picture: Picture) -> None:
    site = make_site(('max_time: "24:00:00"', "max_time: null"), ("cluster_name: mixed1", "cluster_name: null"),
                     ("cores: 56", "cores: null"))  # fmt: skip
    findings = compare(site, picture, "proj1")
    assert by_verdict(findings, "wrong") == set()
    assert by_verdict(findings, "missing") == {
        ("partitions.gpu.max_time", 13, "1-00:00:00"),
        ("cluster_name", 8, "mixed1"),
        ("nodes.a100x4.cores", 16, "56"),
    }


def test_another_cluster_is_the_only_finding(make_site: MakeSite, picture: Picture) -> None:
    site = make_site(("cluster_name: mixed1", "cluster_name: other"), ("nodes: 6", "nodes: 9"))
    findings = compare(site, picture, "proj1")
    assert [(finding.verdict, finding.key, finding.found) for finding in findings] == [
        ("wrong", "cluster_name", "mixed1")
    ]


def test_without_accounting_nothing_is_known_of_accounts(make_site: MakeSite, picture: Picture) -> None:
    """The partition's own limits (2 days, 4 nodes) aren't taken for the truth while its QOS isn't known."""
    texts = {key: text for key, text in picture.texts.items() if key not in ("qos", "associations")}
    failed = {"qos": "Connection refused", "associations": "Connection refused"}
    findings = compare(make_site(), dataclasses.replace(picture, texts=texts, failed=failed), "proj1")
    unknown = {finding.key for finding in findings if finding.verdict == "unknown"}
    assert unknown == {"account", "qos", "partitions.gpu.max_time", "partitions.gpu.max_nodes"}
    assert by_verdict(findings, "wrong") == set()


def test_gpu_memory_that_the_system_counts(make_site: MakeSite, picture: Picture) -> None:
    """200 GB and four GPUs of 16 GB: RealMemory of 268 GB is both."""
    site = make_site(("memory_bytes: 256e9, usable_bytes: 250e9", "memory_bytes: 200e9"),
                     ("vendor: nvidia}", "vendor: nvidia, memory_bytes: 16e9}"))  # fmt: skip
    findings = compare(site, picture, "proj1")
    assert by_verdict(findings, "wrong", "missing") == set()
    notes = {finding.key for finding in findings if finding.verdict == "note"}
    assert {"nodes.a100x4.memory_bytes", "nodes.a100x4.usable_bytes"} <= notes
