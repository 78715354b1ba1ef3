"""Axes become points: product in order, zip, exclude, when, and overrides by their rank."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput
from campaign.plan import expression
from campaign.plan.build import build_plan
from tests.plan.conftest import SITE, STUDY, Make, changed, points_of


def test_the_last_axis_varies_fastest(make_project: Make) -> None:
    plan = build_plan(make_project(), ["tiny"])
    expected = [{"nodes": n, "strategy": s} for n in (1, 2, 4) for s in ("ddp", "fsdp2")]
    assert points_of(plan) == expected


def test_zipped_axes_go_together(make_project: Make) -> None:
    study = changed(STUDY, ("  strategy: [ddp, fsdp2]\n", "")) + "zip: [{hidden: [16, 32], layers: [1, 2]}]\n"
    points = points_of(build_plan(make_project(study=study), ["tiny"]))
    assert points == [{"nodes": n, "hidden": h, "layers": y} for n in (1, 2, 4) for h, y in ((16, 1), (32, 2))]


def test_an_excluded_point_needs_all_its_keys_equal(make_project: Make) -> None:
    study = STUDY + "exclude: [{nodes: 4, strategy: fsdp2}, {nodes: 1, strategy: zero3}]\n"
    plan = build_plan(make_project(study=study), ["tiny"])
    assert {"nodes": 4, "strategy": "fsdp2"} not in points_of(plan)
    assert len(points_of(plan)) == 5
    assert plan.warnings == _unseen_only(plan.warnings)


def test_an_axis_value_without_a_point_is_warned_of(make_project: Make) -> None:
    plan = build_plan(make_project(study=STUDY + "exclude: [{nodes: 4}]\n"), ["tiny"])
    (warning,) = [problem for problem in plan.warnings if problem.key == "axes.nodes"]
    assert "4 makes no run" in warning.message
    assert (warning.file, warning.line) == ("studies/sweep.yaml", 7)


def test_conditional_values_apply_where_the_condition_holds(make_project: Make) -> None:
    study = STUDY + "when: [{if: {strategy: fsdp2}, set: {lr: 0.5}}, {if: {lr: 0.5, nodes: 4}, set: {hidden: 7}}]\n"
    plan = build_plan(make_project(study=study), ["tiny"])
    seen = {(run.axes["strategy"], run.nodes): (run.params["lr"], run.params["hidden"]) for run in plan.runs}
    assert seen["ddp", 4] == (0.001, 64)
    assert seen["fsdp2", 1] == (0.5, 64)
    assert seen["fsdp2", 4] == (0.5, 7), "rules apply in order, each to what those before it have set"


def test_a_placeholder_that_only_a_condition_sets_is_a_reason(make_project: Make) -> None:
    study = changed(STUDY, ('"{lr}"', '"{warm}"')) + "when: [{if: {strategy: ddp}, set: {warm: 3}}]\n"
    plan = build_plan(make_project(study=study), ["tiny"])
    assert {run.strategy for run in plan.runs if run.can_run} == {"ddp"}
    (problem,) = {problem for run in plan.runs for problem in run.problems}
    assert "{warm} has no value" in problem.message


OVERRIDES = {
    "study": ({}, {}, {}, [1, 2, 4]),
    "study's block for the site": ({"nodes": [2]}, {}, {}, [2]),
    "site's list beats the study's block": ({"nodes": [2]}, {"nodes": [4]}, {}, [4]),
    "--set beats both": ({"nodes": [2]}, {"nodes": [4]}, {"nodes": "1,4"}, [1, 4]),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_overrides_by_rank(make_project: Make, name: str) -> None:
    block, listed, given_values, expected = OVERRIDES[name]
    study = STUDY + (f"sites: {{tiny: {{axes: {block}}}}}\n" if block else "")
    site = changed(SITE, ("{sweep: {}}", f"{{sweep: {listed}}}"))
    plan = build_plan(make_project(site, study), ["tiny"], overrides=given_values)
    assert sorted({run.nodes for run in plan.runs}) == expected


def test_names_that_only_another_site_has_are_no_mistake_here(make_project: Make) -> None:
    study = changed(STUDY, ('"{lr}"', '"{lr} {extra}"'), ("hidden: 64", "hidden: 64, extra: 0")) + (
        "exclude: [{ranks_per_node: 2, nodes: 4}]\nbaseline: {ranks_per_node: 1}\n"
        "when: [{if: {ranks_per_node: 2}, set: {lr: 1}}]\n"
        "sites: {other: {axes: {ranks_per_node: [1, 2]}, params: {extra: 1}}}\n"
    )
    other = changed(SITE, ("name: tiny", "name: other"))
    plan = build_plan(make_project(study=study, files={"sites/other.yaml": other}), ["tiny", "other"])
    counts = {site: len([run for run in plan.runs if run.site == site]) for site in ("tiny", "other")}
    assert counts == {"tiny": 12, "other": 2 * (6 + 4)}
    assert all(run.can_run for run in plan.runs)


def test_a_block_for_a_site_changes_that_site_only(make_project: Make) -> None:
    study = STUDY + (
        "data: {name: d, options: {fraction: 0.5, kind: a}}\n"
        "sites:\n  tiny: {params: {lr: 0.1, extra: [1, 2]}, repeats: 1, walltime: '00:05:00', resources: {memory: 4G},"
        " data: {options: {fraction: 0.1}}, axes: {ranks_per_node: [1, 2]}}\n"
    )
    other = changed(SITE, ("name: tiny", "name: other"))
    plan = build_plan(make_project(study=study, files={"sites/other.yaml": other}), ["tiny", "other"])
    tiny = [run for run in plan.runs if run.site == "tiny"]
    rest = [run for run in plan.runs if run.site == "other"]
    assert (len(tiny), len(rest)) == (12, 12)
    assert {run.params["lr"] for run in tiny} == {0.1}
    assert {run.params["lr"] for run in rest} == {0.001}
    assert {run.walltime_s for run in tiny} == {300}
    assert {run.memory_bytes for run in tiny} == {4 << 30}
    assert {run.ranks_per_node for run in tiny} == {1, 2}
    assert tiny[0].data is not None
    assert tiny[0].data["options"] == {"fraction": 0.1, "kind": "a"}
    assert rest[0].data is not None
    assert rest[0].data["options"] == {"fraction": 0.5, "kind": "a"}


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("lr", "1e-2", lambda run: run.params["lr"] == 0.01),
        ("params.lr", "[1, 2]", lambda run: run.params["lr"] == [1, 2]),
        ("params.fresh", "text", lambda run: run.params["fresh"] == "text"),
        ("axes.fresh", "a", lambda run: run.axes["fresh"] == "a"),
        ("walltime", "10:00", lambda run: run.walltime_s == 600),
        ("walltime", "1-0", lambda run: run.walltime_s == 86400),
        ("reservation", "big-days", lambda run: run.reservation == "big-days"),
        ("partition", "shared", lambda run: run.partition == "shared"),
        ("resources.exclude", "n[1-3]", lambda run: run.exclude == "n[1-3]"),
        ("ranks_per_node", "2", lambda run: run.ranks_per_node == 2),
        ("memory", "16G", lambda run: run.memory_bytes == 16 << 30),
        ("revision", "2", lambda run: run.revision == 2),
        ("pack", "concurrent", lambda run: run.pack == "concurrent"),
        ("lr", 0.5, lambda run: run.params["lr"] == 0.5),
    ],
)
def test_set_reaches_what_it_names(make_project: Make, key: str, value: Any, seen: Any) -> None:
    plan = build_plan(make_project(), ["tiny"], overrides={key: value})
    assert all(seen(run) for run in plan.runs)
    assert plan.overrides == {key: value}


def test_a_zipped_axis_cant_be_set_alone(make_project: Make) -> None:
    study = STUDY + "zip: [{hidden: [16, 32], layers: [1, 2]}]\n"
    with pytest.raises(BadInput, match="zipped"):
        build_plan(make_project(study=study), ["tiny"], overrides={"layers": "3"})


_VALUES = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=_VALUES, b=_VALUES, pairs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=4))
def test_points_are_the_product_less_what_is_excluded(make_project: Make, a: Any, b: Any, pairs: Any) -> None:
    study = changed(STUDY, ("  nodes: [1, 2, 4]\n  strategy: [ddp, fsdp2]\n", f"  a: {a}\n  b: {b}\n"))
    study += f"exclude: {[{'a': x, 'b': y} for x, y in pairs]}\n".replace("'", "")
    expected = [{"a": x, "b": y} for x, y in itertools.product(a, b) if (x, y) not in pairs]
    project = make_project(study=study)
    if not expected:
        with pytest.raises(BadInput, match="leaves no point"):
            build_plan(project, ["tiny"])
    else:
        plan = build_plan(project, ["tiny"])
        assert points_of(plan) == expected
        assert len(plan.runs) == 2 * len(expected)


# -- expressions -----------------------------------------------------------------------------------------------------

EXPRESSIONS = {
    "4": 4, "gpus // 4": 2, "max(1, gpus // 16)": 1, "min(gpus, 3, 5)": 3, "-(-gpus // 3)": 3, "2 * (gpus + 1) - 3": 15,
    "gpus*gpus": 64, "max(7)": 7, "-gpus // 3": -3,
}  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_an_integer(text: str) -> None:
    assert expression.parse(text).value({"gpus": 8}) == EXPRESSIONS[text]


@pytest.mark.parametrize(
    "text",
    ["", "1.5", "gpus / 2", "gpus ** 9", "gpus % 2", "gpus.real", "gpus[0]", "open('x')", "min()", "max(*gpus)",
     "max(1, key=gpus)", "lambda: 1", "[1]", "'a'", "True", "1 if gpus else 2", "gpus and 1", "(gpus := 3)", "a b",
     "__import__('os')", "1 < 2", "not 1", "~1", "f'{1}'", "(" * 400 + "1" + ")" * 400, "1+" * 300 + "1", "min"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|unknown name"):
        expression.parse(text).value({"gpus": 8})


@pytest.mark.parametrize(
    ("text", "words"), [("1 // 0", "division by zero"), ("gpus * 99999999999999", "too large"),
                        ("nodes", "unknown name"),
                        ("lr + 1", "not an integer"), ("flag + 1", "not an integer")],
)  # fmt: skip
def test_a_value_that_cant_be_had_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expression.parse(text).value({"gpus": 8, "lr": 0.5, "flag": True})


_TREE = st.recursive(
    st.one_of(st.integers(0, 20).map(str), st.sampled_from(["a", "b"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(_TREE, st.integers(0, 9), st.integers(0, 9))
def test_python_agrees(text: str, a: int, b: int) -> None:
    try:
        expected = eval(text, {"__builtins__": {"min": min, "max": max}}, {"a": a, "b": b})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by zero"):
            expression.parse(text).value({"a": a, "b": b})
        return
    if len(text) <= expression.MAX_LENGTH:
        assert expression.parse(text).value({"a": a, "b": b}) == expected


@settings(deadline=None)
@given(st.text("ab1()+-*/, .minx'\"[]{}", max_size=30))
def test_any_text_is_an_expression_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(expression.parse(text).value({"a": 1, "b": 2}), int)


def test_resources_are_expressions_of_axes(make_project: Make) -> None:
    study = changed(STUDY, ("  nodes: [1, 2, 4]", "  gpus: [1, 2, 4, 8, 16]")) + (
        'resources: {nodes: "max(1, gpus // 4)", ranks_per_node: "min(gpus, 4)"}\n'
    )
    plan = build_plan(make_project(study=study), ["tiny"])
    assert sorted({(run.axes["gpus"], run.nodes, run.ranks_per_node) for run in plan.runs}) == [
        (1, 1, 1), (2, 1, 2), (4, 1, 4), (8, 2, 4), (16, 4, 4),
    ]  # fmt: skip
    assert {run.axes["gpus"] == run.world_size for run in plan.runs} == {True}


def test_an_axis_wins_over_the_resource_of_its_name(make_project: Make) -> None:
    plan = build_plan(make_project(study=STUDY + "resources: {nodes: 7}\n"), ["tiny"])
    assert {run.nodes for run in plan.runs} == {1, 2, 4}


def _unseen_only(warnings: Any) -> Any:
    return tuple(problem for problem in warnings if "not checked" in problem.message)
