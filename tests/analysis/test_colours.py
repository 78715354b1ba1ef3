"""Colours can be told apart with normal, red-blind and green-blind vision, and styles without any colour."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from analysis import style

# G. Machado, M. Oliveira, L. Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency,
# IEEE TVCG 15(6), 2009, severity 1.0; for linear RGB
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
# linear sRGB to XYZ, and the white point, D65 (IEC 61966-2-1)
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = XYZ.sum(axis=1)
LEAST_DIFFERENCE = 12.0
"""CIE 1976 colour difference; 2.3 is just noticeable side by side, thin lines apart need several times that."""


def lab(colour: str, vision: str) -> NDArray[np.float64]:
    """CIELAB of a colour as someone with that vision sees it."""
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    t = XYZ @ seen / WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def differences(colours: list[str], vision: str) -> dict[tuple[str, str], float]:
    return {
        (one, other): float(np.linalg.norm(lab(one, vision) - lab(other, vision)))
        for one, other in itertools.combinations(colours, 2)
    }


@pytest.mark.parametrize("vision", VISION)
def test_line_colours_differ(vision: str) -> None:
    found = differences([*style.LINE_COLOURS, "#FFFFFF"], vision)
    assert min(found.values()) > LEAST_DIFFERENCE, min(found.items(), key=lambda item: item[1])


@pytest.mark.parametrize("fills", [style.STEP_FILLS, style.PHASE_FILLS], ids=["steps", "phases"])
@pytest.mark.parametrize("vision", VISION)
def test_neighbouring_fills_differ(fills: dict[str, style.Fill], vision: str) -> None:
    for one, other in itertools.combinations(fills.values(), 2):
        difference = float(np.linalg.norm(lab(one.colour, vision) - lab(other.colour, vision)))
        assert difference > LEAST_DIFFERENCE, (one, other)
    for one, other in itertools.pairwise(fills.values()):
        # in grey: another hatch or clearly another lightness
        lighter = abs(lab(one.colour, "normal")[0] - lab(other.colour, "normal")[0])
        assert one.hatch != other.hatch or lighter > 15, (one, other)


@pytest.mark.parametrize("fills", [style.STEP_FILLS, style.PHASE_FILLS], ids=["steps", "phases"])
def test_edges_and_hatches_show_on_every_fill(fills: dict[str, style.Fill]) -> None:
    """Both are drawn in ink: a fill that is as dark swallows them."""
    ink = lab(style.INK, "normal")[0]
    assert min(lab(fill.colour, "normal")[0] - ink for fill in fills.values()) > 25


def test_the_measure_finds_red_and_green_alike() -> None:
    red, green = "#C00000", "#4F6F00"
    assert differences([red, green], "normal")[red, green] > 60
    assert differences([red, green], "deuteranopia")[red, green] < 25


def test_lines_differ_without_colour() -> None:
    styles = list(style.line_styles([str(number) for number in range(style.MAX_LINES)]).values())
    assert len({(look.marker, str(look.dash)) for look in styles}) == style.MAX_LINES
    first = styles[: len(style.LINE_COLOURS)]
    assert len({look.colour for look in first}) == len({look.marker for look in first}) == len(first)
