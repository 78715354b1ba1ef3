"""Which runs a figure or table is about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Choice:
    """Which runs a figure or table is about: all conditions must hold, empty means all."""

    sites: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    """Whole series, a strategy, or a part of the series' text such as `hidden=128`."""
    runs: tuple[str, ...] = ()
    """Run ids or their first letters."""
    where: str | None = None
    """SQL condition on the view `runs`."""
    ids: tuple[str, ...] | None = None
    """Exactly these runs; None: no such condition. How `ids` was chosen is said by `chosen_by`."""
    chosen_by: str = ""

    def sql(self) -> tuple[str, list[Any]]:
        """A condition on the columns of `runs`, and its parameters."""
        conditions, parameters = ["true"], list[Any]()
        for column, values in (("site", self.sites), ("study", self.studies)):
            if values:
                conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
                parameters.extend(values)
        if self.ids is not None:
            conditions.append("list_contains(?, run_id)")
            parameters.append(list(self.ids))
        if self.series:
            conditions.append(_any_of("(series = ? OR strategy = ? OR contains(series, ?))", self.series))
            parameters.extend(text for value in self.series for text in (value,) * 3)
        if self.runs:
            conditions.append(_any_of("starts_with(run_id, ?)", self.runs))
            parameters.extend(self.runs)
        if self.where is not None:
            conditions.append(f"({self.where}\n)")
        return " AND ".join(conditions), parameters

    def words(self) -> str:
        """The choice as the user typed it; empty when everything is meant."""
        flags: list[tuple[str, tuple[str, ...]]] = [("--site", self.sites), ("--study", self.studies)]
        flags += [("--series", self.series), ("--run", self.runs), ("--where", (self.where,) if self.where else ())]
        words = [f"{flag} {shlex.quote(value)}" for flag, values in flags for value in values]
        return " ".join([self.chosen_by, *words] if self.chosen_by else words)


def _any_of(condition: str, values: Sequence[str]) -> str:
    return "(" + " OR ".join([condition] * len(values)) + ")"


EVERYTHING = Choice()
