"""The QOS by size, a site's own rate per node-hour, and ranks that begin next to their GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from campaign.job.rankenv import core_slices
from campaign.plan.build import build_plan
from campaign.plan.model import PlannedRun
from campaign.project import Project

SITE = """\
schema: 1
name: tiny
account: budget
scheduler: {kind: slurm}
default_partition: boost
partition_by_size: [boost, long]
partitions:
  boost:
    node: fat
    max_time: "2-00:00:00"
    qos: {normal: {max_nodes: 8, max_time: "24:00:00"}, big: {min_nodes: 9, max_nodes: 32}, debug: {max_nodes: 2}}
    qos_by_size: [normal, big]
  long: {node: fat, max_nodes: 4, max_time: "4-00:00:00"}
nodes:
  fat: {gpu: gcd, gpus: 8, cores: 56}
gpus:
  gcd: {vendor: amd}
billing: {unit: gpu-h, whole_nodes: true, per_node_hour: 4}
"""
STUDY = """\
schema: 1
name: sweep
command: [python, train.py]
axes: {nodes: [1]}
walltime: "00:10:00"
"""


def plan_of(folder: Path, nodes: int, walltime: str, **more: str) -> PlannedRun:
    """The one run of the study with this size."""
    for name, text in (("sites/tiny.yaml", SITE), ("studies/sweep.yaml", STUDY)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (run,) = build_plan(Project(folder), ["tiny"], ["sweep"], {"nodes": [nodes], "walltime": walltime, **more}).runs
    return run


@pytest.mark.parametrize(
    ("nodes", "walltime", "partition", "qos"),
    [
        (1, "01:00:00", "boost", "normal"),
        (8, "24:00:00", "boost", "normal"),
        (9, "01:00:00", "boost", "big"),
        (32, "2-00:00:00", "boost", "big"),  # big has no time limit of its own
        (4, "25:00:00", "long", None),  # normal is too short, big too large: the next partition, which has no QOS
    ],
)
def test_the_first_qos_that_admits_size_and_walltime(
    tmp_path: Path, nodes: int, walltime: str, partition: str, qos: str | None
) -> None:
    run = plan_of(tmp_path, nodes, walltime)
    assert (run.can_run, run.partition, run.qos) == (True, partition, qos)


def test_a_qos_that_is_named_wins(tmp_path: Path) -> None:
    run = plan_of(tmp_path, 2, "01:00:00", qos="debug")
    assert (run.can_run, run.qos) == (True, "debug")
    refused = plan_of(tmp_path, 4, "01:00:00", qos="debug")
    assert [problem.message for problem in refused.problems] == ["4 nodes don't fit QOS debug of tiny"]


def test_no_qos_that_admits_it_is_one_problem_with_all_limits(tmp_path: Path) -> None:
    (problem,) = plan_of(tmp_path, 33, "01:00:00").problems
    assert problem.message == "no partition of tiny admits 33 nodes for 01:00:00"
    assert problem.allowed == "boost: QOS normal at most 8 nodes, QOS big at most 32 nodes; long: at most 4 nodes"


def test_the_same_for_a_partition_that_is_named(tmp_path: Path) -> None:
    (problem,) = plan_of(tmp_path, 33, "01:00:00", partition="boost").problems
    assert problem.message == "no QOS of partition boost of tiny admits 33 nodes for 01:00:00"
    assert problem.allowed == "QOS normal at most 8 nodes; QOS big at most 32 nodes"
    reasons = plan_of(tmp_path, 33, "3-00:00:00", partition="boost").problems
    assert "a walltime of 3-00:00:00 is too long for partition boost of tiny" in [reason.message for reason in reasons]


def test_a_sites_rate_is_what_a_node_hour_costs(tmp_path: Path) -> None:
    price = plan_of(tmp_path, 2, "00:30:00").price
    # 2 nodes x half an hour = 1 node-hour; the 8 dies of a node are 4 of the site's GPU-hours
    assert (price.node_h, price.gpu_h, price.site_units, price.site_unit) == (1.0, 8.0, 4.0, "gpu-h")


def test_a_ladder_is_cut_where_its_qos_ends(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "studies").mkdir()
    (tmp_path / "sites" / "tiny.yaml").write_text(SITE.replace("[boost, long]", "[boost]"), encoding="utf-8")
    study = STUDY.replace("[1]", "[1, 2]") + "pack: serial\nrepeats: 3\norder: interleave\n"
    (tmp_path / "studies" / "sweep.yaml").write_text(study.replace("00:10:00", "05:00:00"), encoding="utf-8")
    runs = build_plan(Project(tmp_path), ["tiny"], ["sweep"], {}).runs
    assert {(run.partition, run.qos, run.can_run) for run in runs} == {("boost", "normal", True)}
    # a repeat is 2 x 5 h: two of them fit the 24 h of QOS normal, three don't, though the partition would give 48 h
    assert sorted(Counter(run.ladder for run in runs).values()) == [2, 4]


# 56 of 64 cores: the first of each group of eight is kept from jobs; hardware threads 64 above
LUMI_CORES = [[cpu, cpu + 64] for cpu in range(64) if cpu % 8]
LUMI_FIRST = [49, 57, 17, 25, 1, 9, 33, 41]


def test_ranks_begin_where_the_site_says() -> None:
    slices = core_slices(LUMI_CORES, 8, 7, LUMI_FIRST)
    assert slices is not None
    assert [min(cpus) for cpus in slices] == LUMI_FIRST
    assert slices[0] == {*range(49, 56), *range(113, 120)}
    assert slices[4] == {*range(1, 8), *range(65, 72)}
    assert sum(map(len, slices)) == len(set().union(*slices)) == 112


def test_fewer_ranks_stay_next_to_their_gpus() -> None:
    # each as far as the next one's begin, not 28 cores
    assert core_slices(LUMI_CORES, 2, 28, LUMI_FIRST) == [
        {*range(49, 56), *range(113, 120)},
        {*range(57, 64), *range(121, 128)},
    ]


@pytest.mark.parametrize(
    ("first", "why"),
    [(None, "nothing is said"), ([2], "fewer than ranks"), ([2, 30], "not allowed"), ([2, 10], "one core twice")],
)
def test_without_a_usable_place_ranks_go_in_order(first: list[int] | None, why: str) -> None:
    cores = [[cpu, cpu + 8] for cpu in range(4)]
    assert core_slices(cores, 2, 2, first) == [{0, 8, 1, 9}, {2, 10, 3, 11}], why


def test_the_second_thread_of_a_core_names_it_too() -> None:
    cores = [[cpu, cpu + 8] for cpu in range(4)]
    assert core_slices(cores, 2, 1, [10, 0]) == [{2, 10}, {0, 8}]
