"""`pack: serial`: one allocation, the same nodes, repeats ABCABC, priced as what it is."""

from __future__ import annotations

import pytest

from campaign.plan.build import build_plan
from campaign.submit.batch import Item, make_batches
from tests.plan.conftest import SITE, STUDY, Make, changed

SERIAL = changed(STUDY, ("[ddp, fsdp2]", "[ddp]")) + "pack: serial\n"


def test_all_sizes_share_the_allocation_of_the_largest(make_project: Make) -> None:
    plan = build_plan(make_project(study=SERIAL), ["tiny"])
    assert [(run.nodes, run.repeat) for run in plan.runs] == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]
    assert {(run.ladder, run.allocation_nodes, run.partition) for run in plan.runs} == {(0, 4, "batch")}
    # half an hour of 4 nodes with 4 GPUs each, whatever the run uses
    assert {(run.price.gpu_h, run.price.node_h) for run in plan.runs} == {(8.0, 2.0)}
    assert [run.gate for run in plan.runs] == [True, False, False, False, False, False]
    assert not any(run.gated for run in plan.runs)


def test_a_ladder_is_one_job_with_the_sum_of_the_walltimes(make_project: Make) -> None:
    project = make_project(study=SERIAL)
    plan = build_plan(project, ["tiny"])
    (batch,) = make_batches(project, project.load_site("tiny"), [Item(run, 1) for run in plan.runs])
    (element,) = batch.elements
    assert [(item.run.nodes, item.run.repeat) for item in element] == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]
    assert batch.nodes == 4
    assert batch.walltime_s == 6 * 1800 + 60


@pytest.mark.parametrize(
    ("limit", "lengths"),
    [
        ("02:00:00", [3, 3]),  # between repeats
        ("01:10:00", [2, 2, 2]),  # not even one repeat fits: in order
        ("24:00:00", [6]),
    ],
)
def test_a_ladder_that_is_too_long_is_cut(make_project: Make, limit: str, lengths: list[int]) -> None:
    site = changed(SITE, ('max_time: "24:00:00"', f'max_time: "{limit}"'))
    plan = build_plan(make_project(site, SERIAL), ["tiny"])
    numbers = [run.ladder for run in plan.runs]
    assert [numbers.count(number) for number in dict.fromkeys(numbers)] == lengths
    assert [run.nodes for run in plan.runs] == [1, 2, 4] * 2
    assert sum(run.gate for run in plan.runs) == len(lengths), "the first of every ladder opens it"
    assert all(run.can_run for run in plan.runs)


def test_a_run_that_fits_no_partition_is_left_out_of_the_ladder(make_project: Make) -> None:
    plan = build_plan(make_project(study=SERIAL), ["tiny"], overrides={"nodes": [1, 2, 64]})
    able = [run for run in plan.runs if run.can_run]
    assert {run.allocation_nodes for run in able} == {2}
    assert {run.nodes for run in plan.runs if not run.can_run} == {64}


def test_a_ladder_longer_than_every_limit_says_so(make_project: Make) -> None:
    site = changed(SITE, ('max_time: "24:00:00"', 'max_time: "00:30:00"'))
    plan = build_plan(make_project(site, SERIAL), ["tiny"], overrides={"partition": "batch", "nodes": [1, 2]})
    assert not any(run.can_run for run in plan.runs)
    (problem,) = {problem for run in plan.runs for problem in run.problems}
    assert "a ladder of 1 runs on 2 nodes takes 00:31:00" in problem.message
    assert problem.allowed == "batch: at most 00:30:00"


def test_every_strategy_is_on_the_ladder_and_each_repeat_before_the_next(make_project: Make) -> None:
    plan = build_plan(make_project(study=STUDY + "pack: serial\n"), ["tiny"])
    order = [(run.repeat, run.nodes, run.strategy) for run in plan.runs]
    assert order == [(r, n, s) for r in (1, 2) for n in (1, 2, 4) for s in ("ddp", "fsdp2")]


def test_a_ladder_has_the_qos_of_its_largest_run(make_project: Make) -> None:
    """Alone the sizes would go to two QOS; a ladder is one job, so one QOS takes it all."""
    qos = "qos: {normal: {max_nodes: 2}, large: {min_nodes: 3, max_nodes: 8}}, qos_by_size: [normal, large]"
    site = changed(
        SITE,
        ('qos: {short: {max_time: "20", max_nodes: 4}}', qos),
        ("partition_by_size: [devel, batch, large]", "partition_by_size: [batch]"),
    )
    alone = build_plan(make_project(site), ["tiny"])
    assert {run.nodes: run.qos for run in alone.runs} == {1: "normal", 2: "normal", 4: "large"}
    packed = build_plan(make_project(site, SERIAL), ["tiny"])
    assert {(run.ladder, run.qos, run.allocation_nodes, run.can_run) for run in packed.runs} == {(0, "large", 4, True)}
