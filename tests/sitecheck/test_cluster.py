"""What scontrol and sacctmgr print, as values; the expected ones are read off the text by hand."""

from __future__ import annotations

import math

import pytest

from campaign.sitecheck.picture import Picture
from campaign.slurm.cluster import fields, parse_gpus, parse_reservations


def test_partitions(picture: Picture) -> None:
    assert picture.partitions is not None
    assert list(picture.partitions) == ["gpu", "cpu", "big", "empty"]
    gpu, cpu, big = (picture.partitions[name] for name in ("gpu", "cpu", "big"))
    assert (gpu.state, gpu.default, gpu.qos) == ("UP", True, "part_gpu")
    assert (gpu.max_time_s, gpu.default_time_s, gpu.min_nodes, gpu.max_nodes) == (2 * 86400, 1800, 0, 4)
    assert (gpu.oversubscribe, gpu.nodes, gpu.node_count) == ("EXCLUSIVE", "g[001-003,010],h[1-2]", 6)
    assert (gpu.allow_accounts, gpu.allow_qos) == (None, None)
    assert (cpu.qos, cpu.default_time_s, cpu.max_time_s, cpu.max_nodes) == (None, None, math.inf, math.inf)
    assert (cpu.allow_accounts, cpu.allow_qos) == (("proj1", "proj2"), ("normal",))
    assert big.state == "DOWN"


def test_nodes_of_a_host_list_in_its_order(picture: Picture) -> None:
    assert picture.partitions is not None
    nodes = picture.nodes_of(picture.partitions["gpu"])
    assert nodes is not None
    assert [node.name for node in nodes] == ["g001", "g002", "g003", "g010", "h1", "h2"]
    assert picture.nodes_of(picture.partitions["empty"]) == []


def test_what_the_site_reserves_is_not_for_jobs(picture: Picture) -> None:
    """2 x 32 cores less CoreSpecCount 8; 257000 MiB less MemSpecLimit 1000."""
    assert picture.nodes is not None
    node = picture.nodes["g001"]
    assert (node.cores, node.threads_per_core, node.cpus) == (56, 2, 128)
    assert node.memory_bytes == 256000 * 1024 * 1024
    assert (node.gpus, node.gpu_type, node.disk_bytes) == (4, "nvidia_a100", None)


def test_a_reason_that_looks_like_fields_changes_nothing(picture: Picture) -> None:
    assert picture.nodes is not None
    node = picture.nodes["g010"]
    assert (node.state, node.gpus, node.arch) == ("IDLE+DRAIN", 4, "x86_64")
    line = "NodeName=a OS=Linux 5.14 #1 SMP State=IDLE Reason=disk State=bad Gres=gpu:9 [root@2026]"
    assert fields(line) == {"NodeName": "a", "OS": "Linux 5.14 #1 SMP", "State": "IDLE", "Reason": "disk",
                            "Gres": "gpu:9 [root@2026]"}  # fmt: skip


def test_nodes_without_gpus(picture: Picture) -> None:
    assert picture.nodes is not None
    node = picture.nodes["c02"]
    assert (node.cores, node.gpus, node.gpu_type, node.features) == (128, 0, None, ())
    assert node.disk_bytes == 900_000 * 1024 * 1024


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:h100:8(S:0,1),tmpdisk:100", (8, "h100")),
        ("gpu:4", (4, None)),
        ("gpu", (1, None)),
        ("gpu:a100:2,gpu:v100:2", (4, None)),
        ("gpu:a100_3g.20gb:2(S:0),shard:8", (2, "a100_3g.20gb")),
        ("gpumem:80G,craynetwork:4", (0, None)),
        ("(null)", (0, None)),
        ("", (0, None)),
    ],
)
def test_gpus_of_a_node(gres: str, gpus: tuple[int, str | None]) -> None:
    assert parse_gpus(gres) == gpus


def test_qos(picture: Picture) -> None:
    assert picture.qos is not None
    short, part = picture.qos["short"], picture.qos["part_gpu"]
    assert (short.max_time_s, short.min_nodes, short.max_nodes) == (3600, 2, None)
    assert (short.running_jobs, short.submit_jobs) == (4, 10)
    assert (part.max_time_s, part.max_nodes, part.flags) == (86400, 3, ("DenyOnLimit",))


def test_associations_are_those_of_the_user_on_this_cluster(picture: Picture) -> None:
    """Not the account as a whole (no user), nor what the user may do elsewhere."""
    assert picture.associations is not None
    rows = [(one.account, one.qos, one.running_jobs, one.submit_jobs) for one in picture.associations]
    assert rows == [("proj1", ("normal", "short"), 8, 20), ("proj3", ("normal",), None, None)]


def test_reservations(picture: Picture) -> None:
    assert picture.reservations is not None
    (school,) = picture.reservations.values()
    assert (school.state, school.node_count, school.partition) == ("ACTIVE", 2, "gpu")
    assert (school.users, school.accounts) == ((), ("proj1",))
    assert parse_reservations("No reservations in the system\n") == []


def test_configuration(picture: Picture) -> None:
    config = picture.config
    assert (config.name, config.max_array_size, config.kill_wait_s) == ("mixed1", 501, 30)
    assert (config.accounting, config.version) == (True, "24.05.4")


def test_a_failed_question_is_not_an_empty_answer(picture: Picture) -> None:
    texts = {key: text for key, text in picture.texts.items() if key != "qos"}
    assert Picture(texts, {"qos": "connection refused"}).qos is None
    assert Picture({**texts, "qos": ""}).qos == {}
