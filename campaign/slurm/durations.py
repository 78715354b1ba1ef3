"""Durations and sizes in every form that Slurm takes, as pure functions.

Times: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
`days-hours:minutes:seconds`, and `UNLIMITED` or `INFINITE` (sbatch(1), option --time). Sizes: a number with K, M, G, T
or P, multiples of 1024 (sbatch(1), option --mem).
"""

from __future__ import annotations

import math
import re

TIME_FORMS = (
    '"minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or '
    '"days-hours:minutes:seconds"'
)
SIZE_FORMS = '"512M", "16G", "1.5T" (K, M, G, T, P: multiples of 1024)'

_TIME = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<first>\d{1,9})(?::(?P<second>\d{1,9}))?(?::(?P<third>\d{1,9}))?", re.A)
_UNLIMITED = {"unlimited", "infinite"}
_SIZE = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,15})?)(?P<unit>[KMGTP])B?", re.A | re.I)
_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_duration(text: str, *, unlimited: bool = False) -> float:
    """Seconds of a Slurm time; `math.inf` for UNLIMITED when that is allowed. Raises ValueError.

    Slurm reads one number as minutes and two as minutes:seconds; after `days-` they are hours and hours:minutes.
    """
    cleaned = text.strip()
    if cleaned.lower() in _UNLIMITED:
        if unlimited:
            return math.inf
        raise ValueError("an unlimited time is not allowed here")
    match = _TIME.fullmatch(cleaned)
    if match is None:
        raise ValueError(f"not a Slurm time: {text!r}")
    days, first, second, third = (match[name] for name in ("days", "first", "second", "third"))
    numbers = [int(part or 0) for part in (first, second, third)]
    if days is not None or third is not None:
        hours, minutes, seconds = numbers
        return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)
    return float(numbers[0] * 60 + numbers[1])


def format_duration(seconds: float) -> str:
    """Slurm's own output form: `HH:MM:SS` or `D-HH:MM:SS`; `UNLIMITED` for infinity. Fractions are rounded up."""
    if math.isinf(seconds):
        return "UNLIMITED"
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock


def parse_size(text: str) -> int:
    """Bytes of a Slurm size with a unit. Raises ValueError: a bare number too, which Slurm would take as megabytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size with a unit: {text!r}")
    whole, _, fraction = match["number"].partition(".")
    factor = 1 << 10 * _UNITS[match["unit"].upper()]
    # exact: floats would lose bytes above 2^53
    return int(whole) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)


def format_size(size_bytes: int) -> str:
    """The shortest exact form of a size with K, M, G or T; no whole number of kilobytes: rounded down."""
    kilobytes = size_bytes // 1024
    for unit, power in reversed(list(_UNITS.items())[:-1]):  # Slurm 22.05 refuses P
        factor = 1 << 10 * (power - 1)
        if kilobytes % factor == 0 and kilobytes:
            return f"{kilobytes // factor}{unit}"
    return "0K"
