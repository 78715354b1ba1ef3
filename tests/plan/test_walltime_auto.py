"""`walltime: auto`: pilot time x scaling model + start-up + margin, shown; nothing is guessed without a pilot."""

from __future__ import annotations

import pytest

from campaign.plan.build import build_plan
from campaign.plan.walltime import WAITS, Pilot, estimate, fit
from tests.plan.conftest import SITE, STUDY, Make, changed

AUTO = changed(STUDY, ('"00:30:00"', "auto"))


def pilot(ranks: int, work_s: float, startup_s: float = 0.0) -> Pilot:
    return Pilot(f"run{ranks}", ranks // 4 or 1, ranks, startup_s, work_s)


def test_without_a_pilot_the_smallest_point_of_each_series_is_planned(make_project: Make) -> None:
    plan = build_plan(make_project(study=AUTO), ["tiny"])
    able = [run for run in plan.runs if run.can_run]
    assert {(run.nodes, run.strategy) for run in able} == {(1, "ddp"), (1, "fsdp2")}
    assert {run.walltime_s for run in able} == {1800}
    assert all("pilot" in (run.walltime_why or "") for run in able)
    waiting = {problem for run in plan.runs for problem in run.problems}
    (problem,) = waiting
    assert problem.message == WAITS
    assert (problem.file, problem.line, problem.key) == ("studies/sweep.yaml", 10, "walltime")
    assert "campaign submit" in (problem.hint or "")


def test_the_pilot_takes_the_default_time_of_its_partition(make_project: Make) -> None:
    site = changed(
        SITE, ('max_nodes: 8, max_time: "24:00:00"', 'max_nodes: 8, max_time: "24:00:00", default_time: "50"')
    )
    plan = build_plan(make_project(site, AUTO), ["tiny"])
    assert {run.walltime_s for run in plan.runs if run.can_run} == {3000}


def test_pilots_give_every_size_its_walltime_and_the_reasoning(make_project: Make) -> None:
    measured = [pilot(4, 3600.0, 60.0)]
    plan = build_plan(make_project(study=AUTO), ["tiny"], pilots=lambda site, series: measured)
    assert all(run.can_run for run in plan.runs)
    walltimes = {run.nodes: run.walltime_s for run in plan.runs}
    # by hand: x1.5 + 120 s, up to the next 5 minutes; start-up 60, 75, 90 s; work 3600 x (0.1 + 0.9/n)
    assert walltimes == {1: 5700, 2: 3300, 4: 2100}
    why = {run.nodes: run.walltime_why for run in plan.runs}
    assert why[4] == "1 pilot: start-up 90 s + work 1170 s (3600 s at 4 ranks, 10% serial), x 1.5 + 120 s"
    # the partition follows the walltime: 01:35:00 fits devel, which takes 2 nodes at most
    assert {run.nodes: run.partition for run in plan.runs} == {1: "devel", 2: "devel", 4: "batch"}


def test_two_sizes_are_fitted() -> None:
    assert fit({4: 1100.0, 8: 600.0}) == (pytest.approx(100), pytest.approx(4000))
    found = estimate([pilot(4, 1100), pilot(8, 600)], nodes=8, world_size=32, scales=True)
    assert found.work_s == pytest.approx(225)  # 100 + 4000 / 32


def test_more_ranks_that_took_longer_share_nothing() -> None:
    assert fit({4: 100.0, 8: 200.0}) == (150.0, 0.0)


def test_a_superlinear_pair_has_no_negative_part() -> None:
    constant, divided = fit({1: 100.0, 2: 40.0})
    assert constant == 0
    assert divided == pytest.approx((100 + 20) / 1.25)  # least squares of y = b x over x = 1, 1/2


def test_the_measured_size_is_never_given_less_than_its_slowest_run() -> None:
    found = estimate([pilot(4, 100), pilot(4, 900)], nodes=1, world_size=4, scales=True)
    assert found.work_s == 900


def test_work_that_does_not_scale_stays() -> None:
    assert estimate([pilot(4, 1000)], nodes=8, world_size=32, scales=False).work_s == 1000


def test_a_smaller_run_takes_longer() -> None:
    assert estimate([pilot(8, 1000)], nodes=1, world_size=4, scales=True).work_s == 2000


def test_a_walltime_beyond_the_partition_is_refused_like_any_other(make_project: Make) -> None:
    measured = [pilot(4, 90_000.0)]
    plan = build_plan(make_project(study=AUTO), ["tiny"], pilots=lambda site, series: measured)
    reasons = {run.nodes: run.problems[0].message for run in plan.runs if not run.can_run}
    assert "no partition of tiny admits 1 nodes for 1-13:35:00" in reasons[1]
