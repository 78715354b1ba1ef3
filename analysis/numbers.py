"""How numbers are written, in tables and on axes. Plain text: no mathtext, so a `$` in a name stays a `$`."""

from __future__ import annotations

import math

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LARGE, SMALL = 1e6, 1e-3
"""From LARGE on, and below SMALL, powers of ten are used."""


def significant(value: float, digits: int = 3) -> str:
    """`value` with that many significant digits, trailing zeros of fractions kept: 0.500, 12.3, 1234, 1.20×10⁷."""  # noqa: RUF002
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    power = int(exponent)
    if not SMALL <= abs(float(f"{mantissa}e{exponent}")) < LARGE:
        return f"{mantissa}×10{str(power).translate(_SUPERSCRIPT)}"  # noqa: RUF001
    return f"{value:.{max(0, digits - 1 - power)}f}"


def tick(value: float) -> str:
    """A tick label: as short as exactly possible to 3 digits: 0.5, 20, 1500, 10⁶, 2×10⁷."""  # noqa: RUF002
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    power = int(exponent)
    if SMALL <= abs(value) < LARGE:
        text = f"{value:.{max(0, 2 - power)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa = mantissa.rstrip("0").rstrip(".")
    raised = f"10{str(power).translate(_SUPERSCRIPT)}"
    return raised if mantissa == "1" else f"{mantissa}×{raised}"  # noqa: RUF001


def percent(share: float) -> str:
    """A share as a percentage with two significant digits: 0.034 is `3.4 %`, 0.00021 is `0.021 %`."""
    value = 100 * share
    if 0 < value < 0.005:
        return "<0.01 %"
    return f"{significant(value, 2)} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def span(values: list[int]) -> str:
    """`3`, or `1 to 3` when they differ."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
