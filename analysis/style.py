"""How every figure looks: fonts, colours, markers, fills. One look, independent of a user's matplotlibrc.

Colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008), and for one fill the sand of P. Tol, "Colour
Schemes" (SRON/EPS/TN/09-002). Every line has its own marker and dash, and every fill its own hatch, so that figures can
be read in grey too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, YELLOW, BLACK = "#CC79A7", "#56B4E9", "#F0E442", "#000000"
SAND = "#DDCC77"
GREY, LIGHT, INK = "#8C8C8C", "#E4E4E4", "#262626"

LINE_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MAX_LINES = 21
"""Lines of one panel beyond which no reader can follow them."""

FONT = "DejaVu Sans"
"""Comes with matplotlib, so the same everywhere."""
DPI = 200
TITLE_PT, TEXT_PT, SMALL_PT = 11.0, 8.5, 7.0


class LineStyle(NamedTuple):
    """What tells a line from the others."""

    colour: str
    marker: str
    dash: Any

    @property
    def size(self) -> float:
        """Marker size in points; crosses look smaller than they are."""
        return 6.8 if self.marker in "PX" else 5.2


class Fill(NamedTuple):
    """What tells a bar segment from the others."""

    colour: str
    hatch: str


def line_styles(names: list[str]) -> dict[str, LineStyle]:
    """A style per name, in their order; no two are the same up to 385 names."""
    return {
        name: LineStyle(
            LINE_COLOURS[index % len(LINE_COLOURS)], MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
        )
        for index, name in enumerate(names)
    }


WHOLE_STEP = "step, parts not recorded"
STEP_FILLS = {
    "data wait": Fill(VERMILLION, ""),
    "copy to device": Fill(YELLOW, "..."),
    "forward": Fill(SKY, ""),
    "backward": Fill(BLUE, "///"),
    "exposed communication": Fill(ORANGE, "xxx"),
    "optimizer": Fill(GREEN, "\\\\\\"),
    "other": Fill("#BFBFBF", ""),
    WHOLE_STEP: Fill(PURPLE, "--"),
}

PHASE_FILLS = {
    "staged": Fill(SAND, "++"),
    "agents_up": Fill(SKY, ""),
    "launched": Fill(BLUE, "///"),
    "python_up": Fill(YELLOW, ""),
    "imports_done": Fill(ORANGE, "xxx"),
    "pg_ready": Fill(GREEN, ""),
    "first_collective": Fill(PURPLE, "\\\\\\"),
    "first_batch": Fill(VERMILLION, ""),
    "first_step": Fill("#BFBFBF", ".."),
}


def fill_arguments(fill: Fill, valid: bool) -> dict[str, Any]:
    """Arguments of a bar or patch; without a valid run it is hollow: edge and hatch in the colour, no face."""
    if valid:
        return {"facecolor": fill.colour, "edgecolor": INK, "hatch": fill.hatch, "linewidth": 0.4}
    return {"facecolor": "none", "edgecolor": fill.colour, "hatch": fill.hatch, "linewidth": 1.2}


RC: dict[str, Any] = {
    "font.family": [FONT],
    "font.size": TEXT_PT,
    "text.parse_math": False,  # a `$` in a user's parameter is a `$`
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#595959",
    "axes.linewidth": 0.7,
    "axes.labelsize": TEXT_PT,
    "axes.titlesize": TEXT_PT + 0.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "xtick.labelsize": TEXT_PT - 0.5,
    "ytick.labelsize": TEXT_PT - 0.5,
    "xtick.color": "#595959",
    "ytick.color": "#595959",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LIGHT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "legend.fontsize": TEXT_PT,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "svg.fonttype": "path",  # glyphs travel with the figure
    "svg.hashsalt": "campaign",  # ids depend on the content alone
    "pdf.fonttype": 42,
}


@contextmanager
def look() -> Iterator[None]:
    """matplotlib with our settings and nobody else's, while the block runs. Build and save figures inside."""
    from matplotlib import style

    with style.context(["default", RC]):
        yield
