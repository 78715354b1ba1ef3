"""Putting a figure together so that nothing touches: title on top, panels, legend, notes, provenance.

Every text is measured before it is placed, and the height of the sheet follows from what stands on it. Lengths are
inches unless the name says otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis import style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

MARGIN = 0.14
GAP = 0.09
LINE = 1.32
"""Line spacing, as a multiple of the font size."""
ELLIPSIS = "…"


class Sheet:
    """A figure under construction. Use inside `style.look()`; `finish` last."""

    def __init__(self, width: float, rows: int, columns: int, *, row_heights: Sequence[float], widths: Any = None):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width = width
        self.panels_height = sum(row_heights)
        self.figure: Figure = Figure(figsize=(width, self.panels_height), dpi=style.DPI)
        self.renderer: Any = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        grid = self.figure.add_gridspec(rows, columns, height_ratios=row_heights, width_ratios=widths)
        self.axes: list[list[Axes]] = [
            [self.figure.add_subplot(grid[row, column]) for column in range(columns)] for row in range(rows)
        ]

    def text_width(self, text: str, points: float, weight: str = "normal") -> float:
        """Width of one line of text."""
        from matplotlib.font_manager import FontProperties

        properties = FontProperties(size=points, weight=weight)
        pixels, _, _ = self.renderer.get_text_width_height_descent(text, properties, False)
        return float(pixels) / self.figure.dpi

    def wrap(self, text: str, points: float, width: float, weight: str = "normal") -> list[str]:
        """The text in lines no wider than `width`; a word wider than that is cut with an ellipsis."""
        lines, line = list[str](), ""
        for word in drawable(text).split():
            longer = f"{line} {word}" if line else word
            if self.text_width(longer, points, weight) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            line = self.shorten(word, points, width, weight)
        return [*lines, line] if line else lines

    def shorten(self, text: str, points: float, width: float, weight: str = "normal") -> str:
        """The text, its middle replaced by an ellipsis when wider than `width`: both ends tell names apart."""
        text = drawable(text)
        if self.text_width(text, points, weight) <= width:
            return text
        keep = len(text) - 1
        while keep > 1:
            cut = text[: (keep + 1) // 2] + ELLIPSIS + text[len(text) - keep // 2 :]
            if self.text_width(cut, points, weight) <= width:
                return cut
            keep -= 1
        return ELLIPSIS

    def y_label(self, panel: Axes, label: str, height: float) -> None:
        """A y label in as many lines as it needs beside a panel of that height."""
        panel.set_ylabel("\n".join(self.wrap(label, style.TEXT_PT, height)))

    def row_title(self, row: int, text: str) -> None:
        """A heading above one row of panels, over its full width."""
        usable = self.width - 4 * MARGIN
        points = style.TEXT_PT + 0.5
        self.axes[row][0].set_title(self.shorten(text, points, usable, "bold"))

    def finish(
        self,
        *,
        title: str,
        subtitle: str,
        legends: Sequence[Sequence[tuple[Artist, str]]],
        notes: Sequence[str],
        provenance: str,
    ) -> Figure:
        """Place the texts, size the sheet, settle the panels and thin the tick labels."""
        head = self._block(((title, style.TITLE_PT, "bold", style.INK), (subtitle, style.TEXT_PT, "normal", "#595959")))
        foot = self._block([(note, style.SMALL_PT + 0.5, "normal", style.INK) for note in notes])
        source = self._block(((provenance, style.SMALL_PT - 0.5, "normal", "#6B6B6B"),))
        boxes = [self._legend(entries) for entries in legends if entries]
        heights = [box.get_window_extent(self.renderer).height / self.figure.dpi + GAP for box in boxes]
        notes_top = MARGIN + _height(source) + GAP / 2 + _height(foot)
        below = notes_top + sum(heights) + GAP
        above = MARGIN + _height(head) + GAP
        height = above + self.panels_height + below
        self.figure.set_size_inches(self.width, height)
        self._write(head, top=height - MARGIN)
        self._write(foot, top=notes_top)
        self._write(source, top=MARGIN + _height(source))
        for index, box in enumerate(boxes):  # each hangs from its upper left corner
            top = (below - GAP - sum(heights[:index])) / height
            box.set_bbox_to_anchor((MARGIN / self.width, top), transform=self.figure.transFigure)
        self._settle(below / height, self.panels_height / height)
        return self.figure

    def _block(self, texts: Sequence[tuple[str, float, str, str]]) -> list[tuple[str, float, str, str]]:
        usable = self.width - 2 * MARGIN
        return [
            (line, points, weight, colour)
            for text, points, weight, colour in texts
            for line in self.wrap(text, points, usable * 0.985, weight)
        ]

    def _write(self, block: list[tuple[str, float, str, str]], top: float) -> None:
        height = float(self.figure.get_size_inches()[1])
        for line, points, weight, colour in block:
            step = points * LINE / 72
            text = self.figure.text(MARGIN / self.width, (top - step * 0.78) / height, line, va="baseline", ha="left")
            text.set(fontsize=points, fontweight=weight, color=colour, in_layout=False)
            top -= step

    def _legend(self, entries: Sequence[tuple[Artist, str]]) -> Legend:
        """In as many columns as fit the width of the sheet, read row by row; never over data."""
        usable = self.width - 2 * MARGIN
        label_width = usable - 0.7
        for columns in range(min(len(entries), 6), 0, -1):
            # matplotlib fills column by column
            ordered = [entry for column in range(columns) for entry in entries[column::columns]]
            legend = self.figure.legend(
                [handle for handle, _ in ordered],
                # a leading underscore would hide the entry
                [
                    self.shorten(f" {label}" if label[:1] == "_" else label, style.TEXT_PT, label_width)
                    for _, label in ordered
                ],
                ncols=columns,
                loc="upper left",
                borderaxespad=0,
                borderpad=0.1,
                handlelength=2.6,
                columnspacing=1.6,
            )
            legend.set_in_layout(False)
            if columns == 1 or legend.get_window_extent(self.renderer).width <= usable * self.figure.dpi:
                return legend
            legend.remove()
        raise AssertionError("unreachable: one column is always taken")

    def _settle(self, below: float, share: float) -> None:
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.transforms import Bbox

        side = MARGIN * 0.6 / self.width
        engine = ConstrainedLayoutEngine(
            rect=(side, below, 1 - 2 * side, share), w_pad=0.06, h_pad=0.05, wspace=0.04, hspace=0.05
        )
        self.figure.set_layout_engine(engine)
        self.figure.align_ylabels()
        engine.execute(self.figure)
        # frozen here, so that PNG and SVG, which are drawn at different resolutions, are the same picture
        self.figure.set_layout_engine("none")
        for panel in self.figure.axes:
            # the layout's solver adds up in an order that isn't always the same: its last digits are noise
            panel.set_position(Bbox.from_extents(*(round(float(value), 6) for value in panel.get_position().extents)))
            thin_tick_labels(panel, self)


def drawable(text: str) -> str:
    """The text with characters that the font lacks as escapes (a box would say nothing)."""
    from matplotlib import font_manager

    font = font_manager.get_font(font_manager.findfont(style.FONT))
    return "".join(
        char if char.isspace() or font.get_char_index(ord(char)) else char.encode("unicode_escape").decode()
        for char in text
    )


def _height(block: list[tuple[str, float, str, str]]) -> float:
    return sum(points * LINE / 72 for _, points, _, _ in block)


def thin_tick_labels(panel: Axes, sheet: Sheet) -> None:
    """Blank x tick labels that would touch their neighbours; ticks stay. Powers of two stay before others."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    locator = panel.xaxis.get_major_locator()
    if not isinstance(locator, FixedLocator):
        return
    ticks = [float(value) for value in locator()]
    labels = [text.get_text() for text in panel.get_xticklabels()]
    places = [float(panel.transData.transform((value, 1))[0]) / sheet.figure.dpi for value in ticks]
    points = panel.xaxis.get_ticklabels()[0].get_fontsize() if ticks else style.TEXT_PT
    widths = [sheet.text_width(label, float(points)) for label in labels]
    powers = [label.isdigit() and int(label).bit_count() == 1 for label in labels]
    kept = kept_labels(places, widths, powers, gap=0.045)
    panel.xaxis.set_major_formatter(FixedFormatter([text if i in kept else "" for i, text in enumerate(labels)]))


def kept_labels(places: Sequence[float], widths: Sequence[float], preferred: Sequence[bool], gap: float) -> set[int]:
    """Indices of labels, centred on `places` (ascending), that can stand side by side with `gap` between them.

    Evenly spaced labels are thinned in even steps, counted from the last. Others: the last, the first, the preferred
    ones, then each that still fits between those kept.
    """

    def apart(left: int, right: int) -> bool:
        left, right = min(left, right), max(left, right)
        return places[right] - places[left] >= (widths[left] + widths[right]) / 2 + gap

    count = len(places)
    if count < 2:
        return set(range(count))
    steps = [right - left for left, right in itertools.pairwise(places)]
    if max(steps) <= 1.05 * min(steps):
        for step in range(1, count):
            chosen = list(range(count - 1, -1, -step))
            if all(apart(left, right) for left, right in itertools.pairwise(chosen)):
                return set(chosen)
    kept = [count - 1]
    kept += [0] if apart(0, count - 1) else []
    for index in sorted(range(1, count - 1), key=lambda index: (not preferred[index], index)):
        if all(apart(index, other) for other in kept):
            kept.append(index)
    return set(kept)


def empty_note(panel: Axes, text: str) -> Text:
    """A sentence in the middle of a panel that has nothing to show."""
    return panel.text(
        0.5,
        0.5,
        text,
        transform=panel.transAxes,
        ha="center",
        va="center",
        color="#595959",
        fontsize=style.SMALL_PT + 0.5,
    )
