"""What doesn't fit a site is said with its reason and the line that forbids it; the rest is planned."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.errors import Problem
from campaign.plan.build import build_plan
from campaign.plan.model import Plan
from tests.plan.conftest import SITE, STUDY, Make, changed

# a batch that every number of ranks here divides
BATCH = {"global_batch": 80640}


def refused(plan: Plan) -> dict[int, Problem]:
    """The one reason of each run that can't run, by its nodes."""
    reasons: dict[int, Problem] = {}
    for run in plan.runs:
        if not run.can_run:
            (reasons[run.nodes],) = run.problems
    return reasons


def partitions(plan: Plan) -> dict[int, str | None]:
    """Partition by nodes, of the runs that can run."""
    return {run.nodes: run.partition for run in plan.runs if run.can_run}


def test_the_first_partition_that_admits_the_size_is_taken(make_project: Make) -> None:
    plan = build_plan(make_project(), ["tiny"], overrides={**BATCH, "nodes": [1, 2, 3, 8]})
    assert partitions(plan) == {1: "devel", 2: "devel", 3: "batch", 8: "batch"}


def test_a_walltime_that_devel_refuses_moves_on(make_project: Make) -> None:
    plan = build_plan(make_project(), ["tiny"], overrides={"walltime": "02:00:01"})
    assert set(partitions(plan).values()) == {"batch"}


def test_a_size_that_no_partition_admits_is_refused_with_every_partition_s_reason(make_project: Make) -> None:
    plan = build_plan(make_project(), ["tiny"], overrides={"nodes": [1, 64]})
    assert partitions(plan) == {1: "devel"}
    reason = refused(plan)[64]
    assert "no partition of tiny admits 64 nodes for 00:30:00" in reason.message
    assert reason.allowed == "devel: at most 2 nodes; batch: at most 8 nodes; large: down"


def test_the_number_of_nodes_is_a_limit_too(make_project: Make) -> None:
    site = changed(SITE, ("max_nodes: 8,", "nodes: 6, max_nodes: null,"))
    plan = build_plan(make_project(site), ["tiny"], overrides={**BATCH, "nodes": [6, 7]})
    assert partitions(plan) == {6: "batch"}
    assert set(refused(plan)) == {7}


# overrides -> (file:line of the study's key or None, key, words of the message, words of what is allowed)
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "nodes of a named partition": (
        {"partition": "devel", "nodes": [3]}, "axes.nodes", "3 nodes don't fit partition devel",
        "at most 2 nodes (sites/tiny.yaml:10)",
    ),
    "walltime of a named partition": (
        {"partition": "devel", "nodes": [1], "walltime": "02:30:00"}, "walltime", "02:30:00 is too long",
        "at most 02:00:00 (sites/tiny.yaml:10)",
    ),
    "walltime of all partitions": (
        {"nodes": [1], "walltime": "1-00:00:01"}, "axes.nodes", "admits 1 nodes for 1-00:00:01",
        "batch: at most 1-00:00:00",
    ),
    "partition that is down": (
        {"partition": "large", "nodes": [9]}, "resources.partition", "is down", "(sites/tiny.yaml:12)",
    ),
    "unknown partition": ({"partition": "bach", "nodes": [1]}, "resources.partition", "no partition `bach`", "batch"),
    "unknown QOS": (
        {"partition": "batch", "qos": "long", "nodes": [1]}, "resources.qos", "no QOS `long`",
        "short (sites/tiny.yaml:11)",
    ),
    "nodes of a QOS": (
        {"partition": "batch", "qos": "short", "nodes": [5], "walltime": "10"}, "axes.nodes",
        "5 nodes don't fit QOS short", "at most 4 nodes",
    ),
    "walltime of a QOS": (
        {"partition": "batch", "qos": "short", "nodes": [1]}, "walltime", "too long for QOS short", "at most 00:20:00",
    ),
    "GPUs": (
        {"gpus_per_rank": 2, "nodes": [1]}, "resources.gpus_per_rank", "4 ranks x 2 GPUs are 8 GPUs on a node",
        "at most 4 GPUs a node (sites/tiny.yaml:15)",
    ),
    "ranks of a GPU each": (
        {"ranks_per_node": 5, "nodes": [1]}, "resources.ranks_per_node", "5 ranks x 1 GPUs", "at most 4 GPUs",
    ),
    "cores": (
        {"cpus_per_rank": 13, "nodes": [1]}, "resources.cpus_per_rank", "52 cores on a node", "at most 48 cores a node",
    ),
    "ranks without a GPU": (
        {"ranks_per_node": 49, "gpus_per_rank": 0, "nodes": [1], "global_batch": 4900}, "resources.ranks_per_node",
        "49 ranks x 1 cores", "48",
    ),
    "memory": ({"memory": "480G", "nodes": [1]}, "resources.memory", "480G of memory", "at most 447G"),
    "batch": (
        {"global_batch": 258, "nodes": [1]}, "params.global_batch", "258 can't be divided over 4 ranks",
        "multiples of 4",
    ),
    "batch of text": ({"global_batch": "many", "nodes": [1]}, "params.global_batch", "positive integer", ""),
    "nodes from an expression": (
        {"nodes": [1], "ranks_per_node": "nodes - 1"}, "resources.ranks_per_node", "would be 0", "1 or more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_doesnt_fit_is_a_reason_and_not_an_error(make_project: Make, name: str) -> None:
    overrides, key, message, allowed = CASES[name]
    plan = build_plan(make_project(), ["tiny"], overrides={**BATCH, **overrides})
    assert len(plan.runs) == 4
    for run in plan.runs:
        (problem,) = run.problems
        assert problem.key == key
        assert problem.file == ("--set" if key.split(".")[-1] in overrides else "studies/sweep.yaml")
        assert message in problem.message
        assert allowed in (problem.allowed or "")


# overrides -> what to type instead
HINTS = [
    ({"nodes": [3], "partition": "devel"}, "--set partition=batch"),
    ({"nodes": [64], "partition": "devel"}, "--set nodes=2"),
    ({"nodes": [64]}, "--set nodes=8"),
    ({"nodes": [1], "walltime": "3:0:0", "partition": "devel"}, "--set partition=batch"),
    ({"nodes": [1], "walltime": "2-0", "partition": "batch"}, "--set partition=shared"),
    ({"nodes": [8], "walltime": "2-0"}, "--set walltime=1-00:00:00"),
    ({"nodes": [5], "partition": "batch", "qos": "short", "walltime": "10"}, "--set nodes=4"),
    ({"nodes": [1], "partition": "batch", "qos": "short", "walltime": "30"}, "--set walltime=00:20:00"),
    ({"nodes": [1], "partition": "batch", "qos": "other", "walltime": "10"}, "--set qos=short"),
    ({"nodes": [1], "gpus_per_rank": 2}, "--set gpus_per_rank=1"),
    ({"nodes": [1], "ranks_per_node": 5, "gpus_per_rank": 1}, "--set ranks_per_node=4"),
    ({"nodes": [1], "cpus_per_rank": 13}, "--set cpus_per_rank=12"),
    ({"nodes": [1], "memory": "480G"}, "--set memory=447G"),
]


@pytest.mark.parametrize(("overrides", "hint"), HINTS)
def test_what_to_type_instead_runs(make_project: Make, overrides: dict[str, Any], hint: str) -> None:
    project = make_project()
    plan = build_plan(project, ["tiny"], overrides={**BATCH, **overrides})
    (problem,) = {run.problems for run in plan.runs}.pop()
    assert problem.hint == hint
    key, value = hint.removeprefix("--set ").split("=")
    mended = {key: [int(value)] if key == "nodes" else int(value) if value.isdigit() else value}
    assert all(run.can_run for run in build_plan(project, ["tiny"], overrides={**BATCH, **overrides, **mended}).runs)


def test_a_reason_names_the_line_of_the_study(make_project: Make) -> None:
    study = changed(STUDY, ("[1, 2, 4]", "[1, 64]"))
    reason = refused(build_plan(make_project(study=study), ["tiny"]))[64]
    assert (reason.file, reason.line, reason.key, reason.value) == ("studies/sweep.yaml", 7, "axes.nodes", 64)


def test_several_reasons_come_at_once(make_project: Make) -> None:
    overrides = {"partition": "devel", "nodes": [3], "walltime": "3:0:0", "cpus_per_rank": 20, "gpus_per_rank": 2}
    (reasons,) = {run.problems for run in build_plan(make_project(), ["tiny"], overrides=overrides).runs}
    assert [problem.key for problem in reasons] == [
        "axes.nodes", "walltime", "resources.gpus_per_rank", "resources.cpus_per_rank", "params.global_batch",
    ]  # fmt: skip


def test_a_size_that_no_partition_admits_and_a_node_that_has_too_little_come_at_once(make_project: Make) -> None:
    """All partitions have the same nodes, so the GPUs can be judged although no partition was found."""
    overrides = {"nodes": [64], "gpus_per_rank": 2, "cpus_per_rank": 20, "memory": "480G", "global_batch": 256}
    (reasons,) = {run.problems for run in build_plan(make_project(), ["tiny"], overrides=overrides).runs}
    assert [problem.key for problem in reasons] == [
        "axes.nodes", "resources.gpus_per_rank", "resources.cpus_per_rank", "resources.memory",
    ]  # fmt: skip
    # with nodes of another kind in one partition nobody knows which would have been meant
    site = changed(SITE, ("shared: {node: fat", "shared: {node: thin"), ("  fat: {", "  thin: {cores: 8}\n  fat: {"))
    (reasons,) = {run.problems for run in build_plan(make_project(site), ["tiny"], overrides=overrides).runs}
    assert [problem.key for problem in reasons] == ["axes.nodes"]


def test_a_qos_can_be_too_large_too(make_project: Make) -> None:
    site = changed(SITE, ('short: {max_time: "20", max_nodes: 4}', "wide: {min_nodes: 3}"))
    overrides = {"partition": "batch", "qos": "wide", "nodes": [2, 3], "global_batch": 240}
    plan = build_plan(make_project(site), ["tiny"], overrides=overrides)
    assert {run.nodes for run in plan.runs if run.can_run} == {3}
    reason = refused(plan)[2]
    assert (reason.message, reason.allowed) == (
        "2 nodes don't fit QOS wide of tiny", "at least 3 nodes (sites/tiny.yaml:11)",
    )  # fmt: skip


def test_where_nobody_knows_what_jobs_may_ask_for_it_is_at_most_the_memory_that_is_there(make_project: Make) -> None:
    site = changed(SITE, (", usable_bytes: 480e9", ""))
    # 512e9 bytes are 476.8 GiB
    for memory, fits in (("476G", True), ("477G", False)):
        plan = build_plan(make_project(site), ["tiny"], overrides={"memory": memory, "nodes": [1]})
        assert all(run.can_run for run in plan.runs) is fits
    (reason,) = plan.runs[0].problems
    assert (reason.message, reason.allowed) == (
        "477G of memory a node, a job on fat may ask for less", "at most 476G (sites/tiny.yaml:15)",
    )  # fmt: skip
    assert ("nodes.fat.usable_bytes", 15) in unknown(
        build_plan(make_project(site), ["tiny"], overrides={"memory": "1G"})
    )


# -- what nobody knows -----------------------------------------------------------------------------------------------


def unknown(plan: Plan) -> list[tuple[str | None, int | None]]:
    """Keys and lines of limits that are printed as unknown (the site's file systems are on no test machine)."""
    unknown = [p for p in plan.warnings if p.message.endswith("unknown, not checked")]
    return [(p.key, p.line) for p in unknown if p.key != "filesystems"]


def test_an_unknown_limit_admits_and_is_said(make_project: Make) -> None:
    site = changed(SITE, ("{node: fat, min_nodes: 9, down: true}", "{node: fat}"))
    plan = build_plan(make_project(site), ["tiny"], overrides={"nodes": [1, 500], "global_batch": 2000})
    assert partitions(plan) == {1: "devel", 500: "large"}
    assert unknown(plan) == [("partitions.large.max_nodes", 12), ("partitions.large.max_time", 12)]


def test_only_what_runs_would_have_been_held_against_is_said(make_project: Make) -> None:
    site = changed(SITE, ("{node: fat, min_nodes: 9, down: true}", "{node: fat}"))
    assert unknown(build_plan(make_project(site), ["tiny"])) == []


def test_unknown_cores_ask_for_a_number(make_project: Make) -> None:
    site = changed(SITE, ("cores: 48, ", ""))
    plan = build_plan(make_project(site), ["tiny"])
    assert {run.problems[0].key for run in plan.runs} == {"resources.cpus_per_rank"}
    plan = build_plan(make_project(site), ["tiny"], overrides={"cpus_per_rank": 12})
    assert all(run.can_run for run in plan.runs)
    assert ("nodes.fat.cores", 15) in unknown(plan)


# -- shapes ----------------------------------------------------------------------------------------------------------


def shapes(plan: Plan) -> set[tuple[int, int, int, int | None]]:
    """(ranks, cores, GPUs, memory) of the runs."""
    return {(run.ranks_per_node, run.cpus_per_rank, run.gpus_per_rank, run.memory_bytes) for run in plan.runs}


def test_a_site_gives_one_rank_a_gpu_and_shares_the_cores(make_project: Make) -> None:
    assert shapes(build_plan(make_project(), ["tiny"])) == {(4, 12, 1, None)}


def test_a_site_without_gpus_gives_one_rank_all_cores(make_project: Make) -> None:
    site = changed(SITE, ("gpu: a100, gpus: 4", "gpu: null, gpus: 0"))
    assert shapes(build_plan(make_project(site), ["tiny"])) == {(1, 48, 0, None)}


@pytest.mark.parametrize(
    ("ranks", "cores", "share"), [(4, 12, 1.0), (2, 24, 1.0), (1, 12, 0.25), (2, 12, 0.5), (1, 6, 0.25)]
)
def test_a_shared_node_gives_memory_by_the_larger_of_cores_and_gpus(
    make_project: Make, ranks: int, cores: int, share: float
) -> None:
    overrides = {"partition": "shared", "ranks_per_node": ranks, "cpus_per_rank": cores}
    (memory,) = {run.memory_bytes for run in build_plan(make_project(), ["tiny"], overrides=overrides).runs}
    assert memory is not None
    assert 0 <= 480e9 * share - memory < 1 << 20
    assert memory % (1 << 20) == 0


def test_memory_of_the_site_is_all_that_a_job_may_ask_for(make_project: Make) -> None:
    assert shapes(build_plan(make_project(), ["tiny"], overrides={"memory": "site"})) == {(4, 12, 1, 480 * 10**9)}


@pytest.mark.parametrize(
    ("scaling", "params", "seen"),
    [
        ("strong", "global_batch: 256", {1: (64, 256), 4: (16, 256)}),
        ("weak", "local_batch: 64", {1: (64, 256), 4: (64, 1024)}),
        ("none", "local_batch: 64", {1: (64, 256), 4: (64, 1024)}),
        ("none", "global_batch: 100", {1: (25, 100), 4: (None, 100)}),
        ("none", "other: 1", {1: (None, None), 4: (None, None)}),
    ],
)
def test_batches_follow_the_scaling(make_project: Make, scaling: str, params: str, seen: Any) -> None:
    study = changed(STUDY, ("global_batch: 256", params), ("scaling: strong", f"scaling: {scaling}"))
    plan = build_plan(make_project(study=study), ["tiny"], overrides={"nodes": [1, 4]})
    assert {run.nodes: (run.local_batch, run.global_batch) for run in plan.runs} == seen
    assert all(run.can_run for run in plan.runs)


# -- prices ----------------------------------------------------------------------------------------------------------


def test_a_whole_node_is_charged_whatever_is_asked(make_project: Make) -> None:
    plan = build_plan(make_project(), ["tiny"], overrides={"nodes": [4], "ranks_per_node": 1})
    price = plan.runs[0].price
    # half an hour of 4 nodes with 4 GPUs and 48 cores each
    assert (price.gpu_h, price.node_h, price.site_units, price.site_unit) == (8.0, 2.0, 96.0, "core-h")
    assert price.ops_shared is None, "not measured"


def test_a_shared_node_is_charged_by_its_share(make_project: Make) -> None:
    site = changed(SITE, ("whole_nodes: true", "whole_nodes: false"))
    overrides = {"nodes": [2], "ranks_per_node": 1, "cpus_per_rank": 6, "partition": "shared"}
    price = build_plan(make_project(site), ["tiny"], overrides=overrides).runs[0].price
    # one GPU of four on 2 nodes for half an hour
    assert (price.gpu_h, price.node_h, price.site_units) == (1.0, 0.25, 12.0)
