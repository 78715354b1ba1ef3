"""The scaling table: what `campaign run` prints at the end. Needs neither matplotlib nor NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.captions import SPREADS
from analysis.fits import karp_flatt
from analysis.names import line_names
from analysis.numbers import significant
from analysis.rows import ScalingRow

if TYPE_CHECKING:
    from rich.table import Table

MISSING = "–"  # noqa: RUF001 - an en dash: "not measured"


def scaling_table(rows: Sequence[ScalingRow]) -> list[dict[str, Any]]:
    """One dict per point, in the order of `rows`; numbers as in the view, None where not measured.

    Adds `line` (the shortest name that tells the series of a study and site apart) and `karp_flatt` (serial fraction,
    dimensionless; None at the baseline).
    """
    names = line_names([(row.site, row.study, row.series, row.strategy) for row in rows], keep_strategy=True)
    return [
        {
            "site": row.site,
            "study": row.study,
            "strategy": row.strategy,
            "series": row.series,
            "line": names[row.site, row.study, row.series, row.strategy],
            "world_size": row.world_size,
            "n": row.n,
            "n_excluded": row.n_excluded,
            "epoch_time_s": row.epoch_time_s,
            "epoch_time_lo_s": row.epoch_time_lo_s,
            "epoch_time_hi_s": row.epoch_time_hi_s,
            "spread_kind": row.spread_kind if row.n > 1 else None,
            "throughput_per_s": row.throughput_per_s,
            "throughput_unit": row.throughput_unit,
            "speedup": row.speedup,
            "efficiency": row.efficiency,
            "base_world_size": row.base_world_size,
            "karp_flatt": _karp_flatt(row),
        }
        for row in rows
    ]


def _karp_flatt(row: ScalingRow) -> float | None:
    if row.base_world_size is None:
        return None
    return karp_flatt(row.speedup, row.world_size / row.base_world_size)


def render_scaling_table(rows: Sequence[ScalingRow], title: str | None = None) -> Table:
    """The same as a rich table, units in the head; print it with a rich console."""
    from rich.table import Table

    points = scaling_table(rows)
    units = sorted({point["throughput_unit"] or "samples/s" for point in points})
    table = Table(title=title, title_justify="left", caption=_caption(points), caption_justify="left")
    named = all(point["line"] == point["strategy"] for point in points)
    for head in ("site", "study", "strategy" if named else "series"):
        table.add_column(head, overflow="fold")
    one_unit = len(units) == 1
    throughput = f"throughput\n({units[0]})" if one_unit else "throughput"
    heads = ("world size\n(ranks)", "n\n(runs)", "epoch time, lo to hi\n(s)", throughput)
    for head in (*heads, "speedup\n(×)", "efficiency\n(1 = ideal)", "Karp-Flatt\nserial share"):  # noqa: RUF001
        table.add_column(head, justify="right", no_wrap=True)
    previous = None
    for point in points:
        line = (point["site"], point["study"], point["line"])
        if previous not in (None, line):
            table.add_section()
        previous = line
        table.add_row(*line, *_cells(point, one_unit))
    return table


def _cells(point: dict[str, Any], one_unit: bool) -> tuple[str, ...]:
    excluded = f" (+{point['n_excluded']} not valid)" if point["n_excluded"] else ""
    throughput = _number(point["throughput_per_s"])
    if not one_unit and point["throughput_per_s"] is not None:
        throughput += f" {point['throughput_unit'] or 'samples/s'}"
    return (
        str(point["world_size"]),
        f"{point['n']}{excluded}",
        _spread(point["epoch_time_s"], point["epoch_time_lo_s"], point["epoch_time_hi_s"], point["n"]),
        throughput,
        _number(point["speedup"]),
        _number(point["efficiency"]),
        _number(point["karp_flatt"], digits=2),
    )


def _spread(value: float | None, low: float | None, high: float | None, n: int) -> str:
    if value is None or low is None or high is None or n < 2:
        return _number(value)
    return f"{_number(value)}  ({_number(low)}–{_number(high)})"  # noqa: RUF001


def _number(value: float | None, digits: int = 3) -> str:
    return MISSING if value is None else significant(value, digits)


def _caption(points: list[dict[str, Any]]) -> str:
    kinds = sorted({point["spread_kind"] for point in points if point["spread_kind"]})
    parts = ["Median over valid runs"]
    if kinds:
        parts.append(f"lo to hi: {', '.join(SPREADS.get(kind, kind) for kind in kinds)}")
    if any(point["n"] == 1 for point in points):
        parts.append("n = 1: no repeats, spread unknown")
    if any(point["speedup"] is None and point["n"] for point in points):
        parts.append(f"{MISSING}: not measured, or no baseline point")
    return "; ".join(parts) + "."
