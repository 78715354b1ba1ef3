"""Over all shapes of results: no two texts touch, none leaves the canvas, every axis has a unit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis import style
from analysis.figures import KINDS
from campaign.errors import BadInput
from tests.analysis.conftest import Drawn
from tests.analysis.figure_checks import drawn_texts, faults
from tests.analysis.shapes import SHAPES

SCALING_ONLY = {
    "missing baseline", "baseline not valid", "hardly any difference", "superlinear", "not sharded",
    "no samples counted",
}  # fmt: skip
"""Shapes that make no difference to start-up and steps."""
SAME_STARTUP = {"two points", "no repeats", "huge values", "tiny values", "hostile names"}
"""Shapes whose start-up is that of others."""
ONE_SITE = {shape for shape, runs in SHAPES.items() if len({run.site for run in runs()}) == 1}
CROWDED = {("seven strategies on two sites", "startup"), ("seven strategies on two sites", "steps")}
"""Nobody could read these."""
PAIRS = [
    (shape, name)
    for shape in SHAPES
    for name in KINDS
    if not (name == "cross-site" and shape in ONE_SITE)
    and not (name in ("startup", "steps") and shape in SCALING_ONLY)
    and not (name == "startup" and shape in SAME_STARTUP)
    and (shape, name) not in {*CROWDED, ("epoch sums only", "startup"), ("whole steps only", "startup")}
]


@pytest.mark.parametrize(("shape", "name"), PAIRS)
def test_nothing_touches_and_every_axis_has_a_unit(drawn: Drawn, name: str, shape: str) -> None:
    with style.look():
        assert faults(drawn(name, shape).figure) == []


@pytest.mark.parametrize(("shape", "name"), sorted(CROWDED))
def test_crowds_are_refused_with_a_way_out(drawn: Drawn, name: str, shape: str) -> None:
    with pytest.raises(BadInput, match=r"14 .* can't be read[\s\S]*--series"):
        drawn(name, shape)


@pytest.mark.parametrize("name", KINDS)
def test_every_figure_says_n_spread_and_provenance(drawn: Drawn, name: str) -> None:
    texts = " ".join(text.get_text() for text in drawn_texts(drawn(name, "two sites").figure))
    for part in ("n = 3 runs", "smallest to largest run", "valid runs", "commit", "UTC", "juwels", "strong_scaling"):
        if (name, part) != ("startup", "smallest to largest run"):
            assert part in texts
    assert "excluded" in texts


def make(edit: Callable[[Figure], None] | None = None) -> Figure:
    """A small sound figure, then `edit`ed."""
    figure = Figure(figsize=(4, 3), dpi=100)
    FigureCanvasAgg(figure)
    panel = figure.add_axes((0.2, 0.25, 0.7, 0.55))
    panel.plot([1, 2], [3, 4])
    panel.set(xlabel="world size (ranks)", ylabel="epoch time (s)", xticks=[1, 2], yticks=[3, 4])
    figure.text(0.5, 0.93, "title")
    if edit is not None:
        edit(figure)
    return figure


def test_the_checker_passes_a_sound_figure() -> None:
    assert faults(make()) == []


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda figure: figure.text(0.5, 0.94, "again"), "overlap: 'title' and 'again'"),
        (lambda figure: figure.text(0.99, 0.93, "far out"), "off the canvas: 'far out'"),
        (lambda figure: figure.text(-0.01, 0.93, "left"), "off the canvas: 'left'"),
        (lambda figure: figure.axes[0].set_xlabel("world size"), "no unit: 'world size'"),
        (lambda figure: figure.axes[0].set_ylabel(""), "no unit: ''"),
        (lambda figure: figure.axes[0].set_ylabel("epoch time (much)"), "no unit: 'epoch time (much)'"),
        (lambda figure: figure.axes[0].set_xticks([1, 1.01, 2]), "overlap: '1.00' and '1.01'"),
        (lambda figure: figure.text(0.5, 0.5, "note"), "text 'note' covers panel 'epoch time (s)'"),
        (lambda figure: figure.legend(figure.axes[0].lines, ["x"], loc=10), "a legend covers panel 'epoch time (s)'"),
        (lambda figure: figure.text(0.1, 0.93, "tiny", fontsize=3), "too small to read: 'tiny' at 3.0 pt"),
    ],
)  # fmt: skip
def test_the_checker_finds_planted_faults(edit: Callable[[Figure], None], fault: str) -> None:
    assert fault in faults(make(edit))


def test_the_checker_ignores_what_is_not_drawn() -> None:
    def hide(figure: Figure) -> None:
        figure.text(0.5, 0.93, "hidden").set_visible(False)
        figure.axes[0].set_xlim(1.5, 2.5)  # the tick at 1 is outside now

    figure = make(hide)
    assert faults(figure) == []
    assert "hidden" not in [text.get_text() for text in drawn_texts(figure)]
