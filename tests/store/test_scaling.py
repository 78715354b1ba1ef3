"""The view `scaling` against numbers worked out by hand and against SciPy."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from campaign.store.collect import collect
from campaign.store.db import open_store
from tests.store.world import World, epoch_rows

Point = dict[str, Any]


def scaling(world: World, where: str = "true") -> list[Point]:
    """Rows of the view, after a collect."""
    report = collect(world, world.store)
    assert report.rejects == []
    with open_store(world.store, write=False) as connection:
        cursor = connection.execute(f"SELECT * FROM scaling WHERE {where}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def by_world(points: list[Point]) -> dict[int, Point]:
    """Points by world size, which must be unique."""
    assert len({point["world_size"] for point in points}) == len(points)
    return {point["world_size"]: point for point in points}


def test_strong_scaling_by_hand(world: World) -> None:
    # unique samples 6000, global batch 256: 23.4375 steps in 24
    for world_size, times in {1: (60.0, 62.0, 61.0), 2: (33.0, 31.0, 32.0), 4: (20.0, 19.0, 25.0)}.items():
        for repeat, time in enumerate(times):
            # warm-up epoch far off; the median of two epochs is their mean
            world.measured(f"{world_size}-{repeat}", [500.0, time - 1, time + 1], nodes=world_size, repeat=repeat,
                           gpus_per_rank=1, global_batch=256)  # fmt: skip
    points = by_world(scaling(world))
    assert list(points) == [1, 2, 4]
    four = points[4]
    assert (four["n"], four["n_excluded"], four["spread_kind"], four["scaling"]) == (3, 0, "minmax", "strong")
    assert (four["epoch_time_s"], four["epoch_time_lo_s"], four["epoch_time_hi_s"]) == (20.0, 19.0, 25.0)
    assert four["throughput_per_s"] == 6000 / 20
    assert (four["throughput_lo"], four["throughput_hi"]) == (6000 / 25, 6000 / 19)
    assert four["throughput_unit"] == "samples/s"
    assert four["speedup"] == pytest.approx(61 / 20)
    assert four["efficiency"] == pytest.approx(61 / 20 / 4)
    assert four["efficiency_lo"] == pytest.approx(61 / 25 / 4)
    assert four["efficiency_hi"] == pytest.approx(61 / 19 / 4)
    assert (four["base_world_size"], four["samples_per_epoch"], four["samples_unique"]) == (1, 6000, 6000)
    assert four["quantisation"] == pytest.approx(23.4375 / 24)
    assert (four["nodes"], four["gpus"]) == (4, 4)
    assert four["gpu_h_per_epoch"] == pytest.approx(4 * 20 / 3600)
    assert (points[1]["speedup"], points[1]["efficiency"]) == (1.0, 1.0)
    assert four["fraction_of_peak"] is None


def test_weak_scaling_keeps_the_local_batch_and_uses_the_same_formula(world: World) -> None:
    for world_size, time in {1: 80.0, 4: 25.0}.items():
        world.measured(f"w{world_size}", [99.0, time], nodes=world_size, scaling="weak", study="weak",
                       local_batch=64, global_batch=64 * world_size)  # fmt: skip
    points = by_world(scaling(world))
    assert points[4]["speedup"] == pytest.approx(3.2)
    assert points[4]["efficiency"] == pytest.approx(0.8)
    assert points[4]["quantisation"] == pytest.approx((6000 / 256) / 24)
    assert points[4]["spread_kind"] == "none"
    assert points[4]["epoch_time_lo_s"] is points[4]["throughput_hi"] is points[4]["efficiency_lo"] is None


def test_unsharded_data_gains_nothing(world: World) -> None:
    """Every rank reads everything: four times the samples in the same time is no speedup."""
    for world_size in (1, 4):
        run_id = world.plan_run(f"u{world_size}", nodes=world_size)
        world.queue(run_id)
        rows = [row | {"samples_seen": 6000 * world_size} for row in epoch_rows([70.0, 60.0])]
        world.record(run_id, tables={"epochs": rows})
    points = by_world(scaling(world))
    assert points[4]["samples_per_epoch"] == 24_000
    assert points[4]["samples_unique"] == 6000
    assert points[4]["speedup"] == pytest.approx(1.0)
    assert points[4]["efficiency"] == pytest.approx(0.25)


def test_the_bootstrap_interval_is_scipys(world: World) -> None:
    """SciPy draws 20,000 resamples; ours is the limit of infinitely many, so the ends agree to its noise."""
    samples = {}
    for n in range(5, 13):
        numbers = random.Random(n)
        samples[f"n{n}"] = [round(numbers.gammavariate(8, 1), 3) for _ in range(n)]
        for repeat, time in enumerate(samples[f"n{n}"]):
            world.measured(f"{n}-{repeat}", [99.0, time], repeat=repeat, study=f"n{n}")
    points = scaling(world)
    assert len(points) == len(samples)
    for point in points:
        _compare_with_scipy(point, samples[point["study"]])


def _compare_with_scipy(point: Point, times: list[float]) -> None:
    assert point["spread_kind"] == "bootstrap95"
    assert point["epoch_time_s"] == pytest.approx(statistics.median(times))
    result = stats.bootstrap((np.array(times),), np.median, method="percentile", n_resamples=20_000, rng=len(times))
    ends = (point["epoch_time_lo_s"], point["epoch_time_hi_s"])
    draws = np.sort(result.bootstrap_distribution)
    for end, level in zip(ends, (0.025, 0.975), strict=True):
        # the end is the quantile: no more than `level` of the draws lie below it, and no less at or below it
        assert np.mean(draws < end - 1e-9) <= level + 0.005
        assert np.mean(draws <= end + 1e-9) >= level - 0.005
    # and the interval itself is SciPy's, unless a step of the distribution lies within the noise of a level
    if not any(_near_a_step(draws, level) for level in (0.025, 0.975)):
        assert ends == pytest.approx((result.confidence_interval.low, result.confidence_interval.high))


def _near_a_step(draws: np.ndarray[Any, Any], level: float, noise: float = 0.004) -> bool:
    """True when the quantile changes within the noise of the level."""
    return bool(np.quantile(draws, level - noise) != np.quantile(draws, level + noise))


def test_the_bootstrap_is_exact_for_five_runs(world: World) -> None:
    """P(median of 5 draws <= k-th value) = P(Binomial(5, k/5) >= 3): 0.058 for k = 1, 0.317, 0.683, 0.942, 1."""
    for repeat, time in enumerate((10.0, 11.0, 12.0, 13.0, 14.0)):
        world.measured(f"r{repeat}", [99.0, time], repeat=repeat)
    [point] = scaling(world)
    assert 1 - stats.binom.cdf(2, 5, 1 / 5) == pytest.approx(0.05792)
    assert (point["epoch_time_lo_s"], point["epoch_time_hi_s"]) == (10.0, 14.0)


def test_many_repeats_narrow_the_interval(world: World) -> None:
    for n in (6, 9, 30, 31):
        for repeat in range(n):
            world.measured(f"{n}-{repeat}", [99.0, 5.0 + repeat / 10], repeat=repeat, study=f"n{n}")
    points = {point["n"]: point for point in scaling(world)}
    assert set(points) == {6, 9, 30, 31}
    for n, point in points.items():
        lo, hi = point["epoch_time_lo_s"], point["epoch_time_hi_s"]
        assert 5.0 <= lo < point["epoch_time_s"] < hi <= 5.0 + (n - 1) / 10
    # about median +- 1.96 x the standard deviation of the median of a uniform sample, far from the extremes
    for n in (30, 31):
        assert 5.5 < points[n]["epoch_time_lo_s"] < points[n]["epoch_time_hi_s"] < 5.0 + (n - 6) / 10


def test_four_runs_have_a_range_and_five_an_interval(world: World) -> None:
    for repeat in range(4):
        world.measured(f"r{repeat}", [99.0, 5.0 + repeat], repeat=repeat)
    assert scaling(world)[0]["spread_kind"] == "minmax"
    world.measured("r4", [99.0, 9.0], repeat=4)
    assert scaling(world)[0]["spread_kind"] == "bootstrap95"


def test_invalid_runs_are_left_out_and_counted(world: World) -> None:
    for repeat in range(2):
        world.measured(f"good{repeat}", [9.0, 5.0], repeat=repeat)
    world.measured("packed", [9.0, 50.0], repeat=2, pack="concurrent")
    world.measured("many", [9.0, 50.0], repeat=3, record={"host": {"oversubscribed": True}})
    world.measured("failed", [9.0, 50.0], repeat=4, state="failed", record={"state": "failed"})
    world.plan_run("planned", repeat=5, state="planned", attempts=0)
    world.plan_run("running", repeat=6, state="running")
    [point] = scaling(world)
    assert (point["n"], point["n_excluded"], point["epoch_time_s"]) == (2, 3, 5.0)


def test_a_point_without_valid_runs_is_shown_empty(world: World) -> None:
    world.measured("one", [9.0, 8.0])
    world.measured("two", [9.0, 5.0], nodes=2, record={"host": {"oversubscribed": True}})
    two = by_world(scaling(world))[2]
    assert (two["n"], two["n_excluded"]) == (0, 1)
    assert two["epoch_time_s"] is two["speedup"] is two["efficiency"] is None
    assert two["spread_kind"] == "none"


def test_the_smallest_valid_point_is_the_baseline(world: World) -> None:
    world.measured("one", [9.0, 8.0], record={"host": {"oversubscribed": True}})
    world.measured("two", [9.0, 6.0], nodes=2)
    world.measured("four", [9.0, 4.0], nodes=4)
    points = by_world(scaling(world))
    assert points[4]["base_world_size"] == 2
    assert points[4]["speedup"] == pytest.approx(1.5)
    assert points[4]["efficiency"] == pytest.approx(0.75)


def test_the_studys_own_baseline(world: World) -> None:
    for nodes, time in {1: 10.0, 2: 6.0, 4: 4.0}.items():
        world.measured(f"r{nodes}", [99.0, time], nodes=nodes, baseline={"nodes": 2})
    points = by_world(scaling(world))
    assert {point["base_world_size"] for point in points.values()} == {2}
    assert points[1]["speedup"] == pytest.approx(0.6)
    assert points[4]["speedup"] == pytest.approx(1.5)


def test_a_baseline_that_no_point_is_gives_null(world: World) -> None:
    for strategy in ("ddp", "fsdp2"):
        params = json.dumps({"strategy": strategy, "lr": 0.001})
        world.measured(strategy, [99.0, 5.0], series=f"strategy={strategy}", strategy=strategy, params=params,
                       baseline={"strategy": "ddp"})  # fmt: skip
    points = {point["strategy"]: point for point in scaling(world)}
    assert points["ddp"]["speedup"] == 1.0
    assert points["fsdp2"]["speedup"] is None
    assert points["fsdp2"]["efficiency"] is None
    assert points["fsdp2"]["throughput_per_s"] == 1200


def test_sites_studies_and_series_have_baselines_of_their_own(world: World, tmp_path: Path) -> None:
    for site, factor in {"alpha": 1.0, "beta": 3.0}.items():
        for study in ("strong", "other"):
            for series in ("strategy=ddp", "strategy=zero1"):
                for nodes in (1, 2):
                    name = f"{site}{study}{series}{nodes}"
                    time = factor * (10.0 if nodes == 1 else 8.0 if series.endswith("ddp") else 5.0)
                    world.measured(name, [99.0, time], site=site, study=study, series=series, nodes=nodes)
    points = scaling(world, "world_size = 2")
    assert len(points) == 8
    for point in points:
        expected = 1.25 if point["series"].endswith("ddp") else 2.0
        assert point["speedup"] == pytest.approx(expected), point
    assert {point["epoch_time_s"] for point in points if point["site"] == "beta"} == {24.0, 15.0}


def test_two_batch_sizes_are_two_curves(world: World) -> None:
    """`series` leaves the batch out; a strong-scaling curve must still have one global batch."""
    for batch in (256, 512):
        for nodes in (1, 2):
            world.measured(f"b{batch}-{nodes}", [99.0, 1000 / batch / nodes], nodes=nodes, global_batch=batch)
    points = scaling(world)
    assert len(points) == 4
    assert {point["series"] for point in points} == {"strategy=ddp global_batch=256", "strategy=ddp global_batch=512"}
    assert {(point["n"], point["speedup"]) for point in points if point["world_size"] == 2} == {(1, 2.0)}


def test_two_placements_of_one_world_size_are_two_curves(world: World) -> None:
    for nodes, ranks in ((1, 2), (2, 1), (1, 1), (2, 2)):
        world.measured(f"{nodes}x{ranks}", [99.0, 4.0 / (nodes * ranks)], nodes=nodes, ranks_per_node=ranks)
    series = {(point["series"], point["world_size"]) for point in scaling(world)}
    assert series == {
        ("strategy=ddp ranks_per_node=1", 1), ("strategy=ddp ranks_per_node=1", 2),
        ("strategy=ddp ranks_per_node=2", 2), ("strategy=ddp ranks_per_node=2", 4),
    }  # fmt: skip


def test_growing_within_a_node_and_over_nodes_is_one_curve(world: World) -> None:
    """1x1, 1x2, 1x4, 2x4: no world size twice, so nothing has to be told apart."""
    for nodes, ranks in ((1, 1), (1, 2), (1, 4), (2, 4)):
        world.measured(f"{nodes}x{ranks}", [99.0, 8.0 / (nodes * ranks)], nodes=nodes, ranks_per_node=ranks)
    points = scaling(world)
    assert [(point["series"], point["world_size"]) for point in points] == [
        ("strategy=ddp", size) for size in (1, 2, 4, 8)
    ]
    assert all(math.isclose(point["efficiency"], 1) for point in points)


def test_a_repeat_measured_again_counts_once_and_the_newest_plan_wins(world: World) -> None:
    """`revision:` makes new runs; those of the old revision stay in the ledger."""
    for repeat in range(2):
        world.measured(f"old{repeat}", [99.0, 50.0], repeat=repeat, plan_id="p1")
        world.measured(f"new{repeat}", [99.0, 5.0], repeat=repeat, plan_id="p2")
    world.plan_run("planned", repeat=0, plan_id="p2", state="planned", attempts=0)
    [point] = scaling(world)
    assert (point["n"], point["epoch_time_s"]) == (2, 5.0)


def test_energy_of_one_scope_only(world: World) -> None:
    for repeat, energy in enumerate((10.0, 12.0, 14.0)):
        run_id = world.plan_run(f"e{repeat}", repeat=repeat)
        world.queue(run_id)
        rows = epoch_rows([9.0, 5.0], energy_wh=energy, energy_scope="gpu")
        world.record(run_id, tables={"epochs": rows})
    [point] = scaling(world)
    assert point["energy_wh_per_epoch"] == 12.0
    assert point["j_per_sample"] == pytest.approx(12 * 3600 / 6000)
    run_id = world.plan_run("node", repeat=3)
    world.queue(run_id)
    world.record(run_id, tables={"epochs": epoch_rows([9.0, 5.0], energy_wh=99.0, energy_scope="node")})
    [point] = scaling(world)
    assert point["energy_wh_per_epoch"] is point["j_per_sample"] is None


def test_warm_up_only_is_not_measured(world: World) -> None:
    run_id = world.plan_run("w")
    world.queue(run_id)
    world.record(run_id, tables={"epochs": epoch_rows([9.0], warmup=1)})
    assert scaling(world) == []


def test_a_study_without_epochs_has_no_scaling(world: World) -> None:
    run_id = world.plan_run("c", study="command")
    world.queue(run_id)
    world.record(run_id, tables={})
    assert scaling(world) == []


def test_a_cpu_run_costs_no_gpu_hours(world: World) -> None:
    world.measured("r")
    [point] = scaling(world)
    assert (point["gpus"], point["gpu_h_per_epoch"]) == (0, 0.0)
