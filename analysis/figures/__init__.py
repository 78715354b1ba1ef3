"""The figures: what each shows, what it needs, how it is drawn and written.

`KINDS` can be read without matplotlib. `plot` is what `campaign plot` and `campaign run` call.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.figure import Figure

    from analysis.choice import Choice
    from analysis.rows import Provenance

FORMATS = ("png", "svg", "pdf")


class Kind(NamedTuple):
    """One figure: the module that draws it, what it shows and what it needs."""

    module: str
    shows: str
    needs: str


KINDS: dict[str, Kind] = {
    "scaling": Kind(
        "analysis.figures.scaling",
        "Epoch time with the ideal line, speedup, efficiency beside absolute throughput; a row per study.",
        "a run, valid or not, that recorded the time of an epoch (`epoch_time_s`)",
    ),
    "cross-site": Kind(
        "analysis.figures.cross_site",
        "The same four panels with one line per site, and whether the sites did the same work.",
        "one study (and strategy) measured on two or more sites",
    ),
    "startup": Kind(
        "analysis.figures.startup",
        "Where start-up time goes: each phase up to the first step, with minimum, median and maximum over ranks.",
        "runs that recorded start-up phases",
    ),
    "steps": Kind(
        "analysis.figures.steps",
        "Parts of a training step by world size: data wait, copy, forward, backward, exposed communication, optimizer.",
        "runs that recorded step times (the Recorder's `step`)",
    ),
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure, not yet written."""

    figure: Figure
    title: str
    notes: tuple[str, ...]
    """The caption's sentences, as they stand under the figure."""
    provenance: Provenance


@dataclass(frozen=True)
class Plotted:
    """A figure on disk."""

    name: str
    title: str
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    provenance: Provenance

    def to_json(self) -> dict[str, Any]:
        """The object of `campaign plot --json` (docs/schema/plot.json)."""
        source = self.provenance
        return {
            "name": self.name,
            "title": self.title,
            "files": [str(path.absolute()) for path in self.files],
            "notes": list(self.notes),
            "runs": source.runs,
            "excluded": source.excluded,
            "sites": list(source.sites),
            "studies": list(source.studies),
            "commits": list(source.commits),
            "newest": None if source.newest is None else f"{source.newest:%Y-%m-%dT%H:%M:%SZ}",
        }


def _require_matplotlib() -> None:
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise BadInput(Problem(f"figures need matplotlib: {error}", hint="pip install 'campaign[plots]'")) from error


def kind_of(name: str) -> Kind:
    """The figure of that name. Raises `BadInput` with the names there are."""
    if name in KINDS:
        return KINDS[name]
    close = difflib.get_close_matches(name, KINDS, n=1)
    hint = f"campaign plot {close[0]}" if close else "campaign plot list"
    raise BadInput(Problem("no figure has this name", key="NAME", value=name, allowed=", ".join(KINDS), hint=hint))


def draw(name: str, connection: DuckDBPyConnection, choice: Choice, title: str | None = None) -> Drawing:
    """Draw one figure from the views. Call inside `style.look()`.

    Raises `BadInput` when the name is unknown or there is nothing to draw, with what to type next.
    """
    kind = kind_of(name)
    drawing: Drawing = importlib.import_module(kind.module).draw(connection, choice, title)
    return drawing


def plot(
    name: str,
    connection: DuckDBPyConnection,
    choice: Choice,
    *,
    folder: Path,
    formats: Sequence[str] = ("png", "svg"),
    title: str | None = None,
) -> Plotted:
    """Draw one figure and write `<folder>/<name>.<format>`, each by a temporary name and rename.

    The same rows give the same bytes. Raises `BadInput` as `draw` does, and when the folder can't be written.
    """
    _require_matplotlib()
    from analysis import style
    from analysis.write import write_figure

    with style.look():
        drawing = draw(name, connection, choice, title)
        files = tuple(write_figure(drawing.figure, folder / f"{name}.{suffix}") for suffix in formats)
    return Plotted(name, drawing.title, files, drawing.notes, drawing.provenance)
