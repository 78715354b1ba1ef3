"""The pieces of layout: which tick labels stay, which ticks a logarithmic axis gets, how text is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import style
from analysis.axes import log_ticks, time_unit
from analysis.layout import Sheet, kept_labels


@given(
    places=st.lists(st.floats(0, 10), min_size=1, max_size=30, unique=True).map(sorted),
    width=st.floats(0.01, 3),
    preferred=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_kept_labels_never_touch_and_the_last_stays(places: list[float], width: float, preferred: list[bool]) -> None:
    widths = [width * (1 + index / 10) for index in range(len(places))]
    kept = sorted(kept_labels(places, widths, preferred, gap=0.05))
    assert len(places) - 1 in kept
    for one, other in itertools.pairwise(kept):
        assert places[other] - places[one] >= (widths[one] + widths[other]) / 2 + 0.05


def test_labels_that_fit_all_stay() -> None:
    assert kept_labels([0, 1, 2, 5], [0.5] * 4, [False] * 4, gap=0.1) == {0, 1, 2, 3}


def test_even_labels_are_thinned_evenly_and_others_keep_powers_of_two() -> None:
    assert kept_labels([0, 1, 2, 3, 4], [1.5] * 5, [True] * 5, gap=0.1) == {0, 2, 4}
    assert kept_labels([0, 1.0, 1.4, 5], [0.5] * 4, [False, False, True, False], gap=0.1) == {0, 2, 3}


@given(low=st.floats(1e-9, 1e9), ratio=st.floats(2, 1e9))
def test_log_axes_get_two_to_eleven_ticks_inside(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 11
    assert all(low <= value <= low * ratio for value in ticks)
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(("largest", "unit"), [(90, "s"), (1, "s"), (0.5, "ms"), (2e-4, "µs"), (1e-9, "ns")])
def test_time_unit(largest: float, unit: str) -> None:
    assert time_unit(largest)[0] == unit


def test_text_is_wrapped_and_cut_to_its_width() -> None:
    with style.look():
        sheet = Sheet(4, 1, 1, row_heights=[1])
        lines = sheet.wrap("one two three " * 9 + "x" * 200, 8, 2.0)
        assert len(lines) > 3
        assert all(sheet.text_width(line, 8) <= 2.0 for line in lines)
        assert "…" in lines[-1]
        assert sheet.shorten("abcdefghij" * 9, 8, 1.0).startswith("abc")
        assert sheet.shorten("abcdefghij" * 9, 8, 1.0).endswith("hij")
        assert sheet.shorten("short", 8, 1.0) == "short"
        assert sheet.shorten("\u6f22\u5b57", 8, 2.0) == "\\u6f22\\u5b57"
