"""What stands under a figure: n, spread, what was left out, and where the numbers come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from analysis import numbers
from analysis.fits import AmdahlFit
from analysis.rows import Provenance, RunPoint, ScalingRow

SPREADS = {"minmax": "smallest to largest run", "bootstrap95": "95 % bootstrap interval of the median"}
"""What `scaling.spread_kind` means, in words."""


def has_spread(row: ScalingRow) -> bool:
    """True when the row has repeats, so that an error bar may be drawn."""
    return row.n > 1 and row.epoch_time_lo_s is not None and row.epoch_time_hi_s is not None


def spread_note(rows: Sequence[ScalingRow]) -> str:
    """`Points: median of n = 3 runs. Bars: smallest to largest run.`, or that there are no repeats."""
    counts = [row.n for row in rows if row.n]
    if not counts:
        return "No valid run: nothing but hollow points."
    if max(counts) == 1:
        return "Points: n = 1 run each. No repeats, so no error bars: the spread is unknown."
    kinds = dict.fromkeys(row.spread_kind for row in rows if has_spread(row) and row.spread_kind)
    bars = "; ".join(SPREADS.get(kind, kind) for kind in kinds) or "lo to hi as in the view scaling"
    alone = " Points with n = 1 have no bar: spread unknown." if min(counts) == 1 else ""
    return f"Points: median of n = {numbers.span(counts)} runs. Bars: {bars}.{alone}"


def invalid_note(points: Iterable[RunPoint], drawn: int) -> str | None:
    """How many runs are not valid and why; None when all are."""
    invalid = [point for point in points if not point.valid]
    if not invalid:
        return None
    reasons = Counter(point.why_invalid or "no reason recorded" for point in invalid)
    listed = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:4])
    more = f", and {len(reasons) - 4} more reasons" if len(reasons) > 4 else ""
    shown = f" Hollow: the {drawn} that measured an epoch." if drawn else " None of them measured an epoch."
    return f"Not valid, so in no line, median or fit: {_count(len(invalid), 'run')} ({listed}{more}).{shown}"


def amdahl_notes(fits: Sequence[tuple[str, AmdahlFit]]) -> list[str]:
    """One sentence for all (name, fit) of one way of resampling: the serial share with its interval."""
    notes = []
    for method, over in (("runs", "runs"), ("residuals", "residuals, for want of repeats")):
        shares = [
            f"{name} {numbers.percent(fit.serial_share)} "
            f"({numbers.percent(fit.share_lo)} to {numbers.percent(fit.share_hi)})"
            for name, fit in fits
            if fit.method == method
        ]
        if shares:
            notes.append(
                "Amdahl fit T = a + b/q, serial share a/(a + b) with 95 % interval "
                f"(bootstrap over {over}): {'; '.join(shares)}."
            )
    return notes


def duplication_note(rows: Iterable[ScalingRow], limit: float = 1.1) -> str | None:
    """Where ranks read the same samples: the mark of a data set that isn't sharded. None when nowhere."""
    read = [
        (row.samples_per_epoch / row.samples_unique, row)
        for row in rows
        if row.samples_per_epoch and row.samples_unique
    ]
    worst, row = max(read, key=lambda item: item[0], default=(1.0, None))
    if row is None or worst < limit:
        return None
    return (
        f"Samples are read {numbers.significant(worst, 2)} times per epoch at world size {row.world_size} "
        f"({row.study} on {row.site}): the data set isn't sharded over the ranks. Throughput counts distinct samples."
    )


def quantisation_note(rows: Iterable[ScalingRow], limit: float = 0.9) -> str | None:
    """Where rounding the steps of an epoch up costs more than a tenth; None when nowhere."""
    worst = min((row for row in rows if row.quantisation), key=lambda row: row.quantisation or 1, default=None)
    if worst is None or worst.quantisation is None or worst.quantisation >= limit:
        return None
    return (
        f"Whole steps alone cap the efficiency at {numbers.significant(worst.quantisation, 2)} at world size "
        f"{worst.world_size} ({worst.study} on {worst.site}): the last step of the epoch is only partly filled."
    )


def provenance_line(source: Provenance, version: str) -> str:
    """Tool version, runs, sites, studies, commit, newest run."""
    parts = [f"campaign {version}", _count(source.runs, "valid run")]
    parts.append(f"{source.excluded} excluded")
    parts.append(_named("site", source.sites))
    parts.append(_named("study", source.studies, "studies"))
    if len(source.commits) == 1:
        parts.append(f"commit {source.commits[0][:12]}{' (with local changes)' if source.dirty else ''}")
    elif source.commits:
        parts.append(f"{len(source.commits)} commits{' (some with local changes)' if source.dirty else ''}")
    else:
        parts.append("commit unknown")
    newest = "date unknown" if source.newest is None else f"newest run {source.newest:%Y-%m-%d %H:%M} UTC"
    return " · ".join([*parts, newest])


def _named(word: str, names: Sequence[str], plural: str | None = None) -> str:
    label = word if len(names) == 1 else plural or f"{word}s"
    shown = ", ".join(names[:6]) or "none"
    return f"{label} {shown}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
