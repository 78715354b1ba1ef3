"""What is queued when not all fits: the most useful first, within every limit that is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.errors import Problem
from campaign.submit.batch import Item
from campaign.submit.limits import Limit, fit
from campaign.submit.order import elements
from tests.submit.make import make_run


def item(number: int, **changes: Any) -> Item:
    run = {"nodes": 1, "world_size": changes.get("nodes", 1), "order": number, "repeat": 1, **changes}
    return Item(make_run(f"{number:016x}", **run), 1)


def orders(items: list[Item]) -> list[int]:
    return [one.run.order for one in items]


def limit(most: int, there: int = 0, qos: str | None = None) -> Limit:
    return Limit(most, there, Problem(f"{qos or 'the site'} allows {most}"), qos)


def test_base_points_of_all_curves_come_first_then_small_runs() -> None:
    items = [
        item(0, nodes=8, series="a"), item(1, nodes=2, series="a"), item(2, nodes=4, series="b"),
        item(3, nodes=16, series="b"), item(4, nodes=2, series="a", repeat=2), item(5, nodes=8, series="b"),
    ]  # fmt: skip
    assert orders([one for element in elements(items) for one in element]) == [1, 2, 4, 0, 5, 3]


def test_a_named_baseline_is_the_base_point() -> None:
    baseline = {"nodes": 4}
    items = [item(n, nodes=nodes, axes={"nodes": nodes}, baseline=baseline) for n, nodes in enumerate((1, 2, 4, 8))]
    assert orders([one for element in elements(items) for one in element]) == [2, 0, 1, 3]


def test_a_ladder_is_one_job_in_its_own_order() -> None:
    ladder = [item(n, nodes=nodes, pack="serial", ladder=0) for n, nodes in enumerate((4, 1, 4, 1))]
    single = item(9, nodes=2, series="y")
    kept, met = fit([*ladder, single], [limit(1)])
    assert orders(kept) == [0, 1, 2, 3]
    assert [problem.message for problem in met] == ["the site allows 1: 1 job stays planned"]


@pytest.mark.parametrize(
    ("limits", "kept", "said"),
    [
        ([], 6, []),
        ([limit(10, 4)], 6, []),
        ([limit(10, 5)], 5, ["the site allows 10: 1 job stays planned"]),
        ([limit(3, 9)], 0, ["the site allows 3: 6 jobs stay planned"]),
        ([limit(5), limit(2, 1, "devel")], 4, ["devel allows 2: 2 jobs stay planned"]),
        ([limit(3), limit(9, 0, "devel")], 3, ["the site allows 3: 3 jobs stay planned"]),
    ],
)
def test_the_tightest_limit_holds_and_is_named(limits: list[Limit], kept: int, said: list[str]) -> None:
    items = [item(n, qos="devel" if n < 3 else None) for n in range(6)]
    found, met = fit(items, limits)
    assert len(found) == kept
    assert [problem.message for problem in met] == said


@given(
    wanted=st.lists(st.sampled_from(["a", "b", None]), max_size=30),
    most=st.dictionaries(st.sampled_from(["a", "b", None]), st.integers(0, 12)),
)
def test_no_limit_is_passed_and_no_room_is_left(wanted: list[str | None], most: dict[str | None, int]) -> None:
    items = [item(n, qos=qos) for n, qos in enumerate(wanted)]
    kept, met = fit(items, [limit(number, qos=qos) for qos, number in most.items()])

    def count(qos: str | None, among: list[Item]) -> int:
        return sum(qos in (None, one.run.qos) for one in among)

    for qos, number in most.items():
        assert count(qos, kept) <= number
    for left in set(orders(items)) - set(orders(kept)):
        qos = items[left].run.qos
        assert any(count(name, kept) == number for name, number in most.items() if name in (None, qos))
    assert bool(met) is (len(kept) < len(items))
