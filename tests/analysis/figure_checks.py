"""What every figure must satisfy, checked on what was really drawn: no text on another or off the canvas, units."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING
from unittest import mock

from matplotlib.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

UNIT = re.compile(r"\((s|ms|µs|ns|ranks|GPUs|nodes|×|%|[a-z]+/s|1 = ideal|name)\)$")  # noqa: RUF001
"""Label ends: a unit, or the mark of a dimensionless ratio or of a list of names."""
TOLERANCE_PX = 0.5
SMALLEST_PT = 6.0


def drawn_texts(figure: Figure) -> list[Text]:
    """Every text that a draw of the figure paints, in the order of painting."""
    drawn: list[Text] = []
    original = Text.draw

    def note(self: Text, renderer: object, *args: object, **kwargs: object) -> object:
        if self.get_visible() and self.get_text().strip():
            drawn.append(self)
        return original(self, renderer, *args, **kwargs)

    with mock.patch.object(Text, "draw", note):
        figure.draw_without_rendering()
    return list(dict.fromkeys(drawn))


def faults(figure: Figure) -> list[str]:
    """Everything that is wrong with the figure, in words; empty when it may be published."""
    texts = drawn_texts(figure)
    extents = [text.get_window_extent() for text in texts]
    found = [*_overlaps(texts, extents), *_overflows(figure, texts, extents), *_unitless(figure)]
    found += [
        f"too small to read: {text.get_text()!r} at {text.get_fontsize()} pt"
        for text in texts
        if float(text.get_fontsize()) < SMALLEST_PT
    ]
    return found + _covered_panels(figure)


def _overlaps(texts: list[Text], extents: list[Bbox]) -> list[str]:
    return [
        f"overlap: {texts[one].get_text()!r} and {texts[other].get_text()!r}"
        for one, other in itertools.combinations(range(len(texts)), 2)
        if _touch(extents[one], extents[other])
    ]


def _touch(one: Bbox, other: Bbox) -> bool:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(width > TOLERANCE_PX and height > TOLERANCE_PX)


def _overflows(figure: Figure, texts: list[Text], extents: list[Bbox]) -> list[str]:
    canvas = figure.bbox
    return [
        f"off the canvas: {text.get_text()!r}"
        for text, box in zip(texts, extents, strict=True)
        if box.x0 < canvas.x0 or box.y0 < canvas.y0 or box.x1 > canvas.x1 or box.y1 > canvas.y1
    ]


def _unitless(figure: Figure) -> list[str]:
    return [
        f"no unit: {label!r}"
        for panel in figure.axes
        for label in (panel.get_xlabel(), panel.get_ylabel())
        if not UNIT.search(" ".join(label.split()))
    ]


def _covered_panels(figure: Figure) -> list[str]:
    """Legends, title, notes and provenance must stay off the panels, and panels off each other."""
    panels = [(f"panel {panel.get_ylabel()!r}", panel.get_window_extent()) for panel in figure.axes]
    sheet = [(f"text {text.get_text()!r}", text.get_window_extent()) for text in figure.texts]
    sheet += [("a legend", legend.get_window_extent()) for legend in figure.legends]
    pairs = [*itertools.product(sheet, panels), *itertools.combinations(panels, 2)]
    return [f"{one} covers {other}" for (one, box), (other, area) in pairs if _touch(box, area)]
