"""What `campaign run` says at the end: the scaling table and every figure that has data.

Both open the store read-only for as long as they need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.choice import Choice
from analysis.figures import KINDS, Plotted, plot
from analysis.queries import NoData, scaling_rows
from analysis.tables import render_scaling_table
from campaign.errors import BadInput, Problem
from campaign.store.db import open_store


def scaling_text(
    store: Path, *, sites: Sequence[str] = (), studies: Sequence[str] = (), width: int = 160, colour: bool = False
) -> str:
    """The scaling table of the chosen sites and studies (all when empty) as text; empty when nothing was measured."""
    from rich.console import Console

    with open_store(store, write=False) as connection:
        rows = scaling_rows(connection, Choice(sites=tuple(sites), studies=tuple(studies)))
    if not rows:
        return ""
    console = Console(width=width, highlight=False, no_color=not colour, force_terminal=colour)
    with console.capture() as capture:
        console.print(render_scaling_table(rows))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def draw_all(
    store: Path,
    folder: Path,
    *,
    sites: Sequence[str] = (),
    studies: Sequence[str] = (),
    formats: Sequence[str] = ("png", "svg"),
    warn: Callable[[Problem], None] = lambda _: None,
) -> list[Plotted]:
    """Every figure that has something to draw, written to `folder`; those without data are left out.

    `warn` is called for a figure that has data but can't be drawn, such as one with too many lines.

    `cross-site` compares the chosen sites with all others in the store that ran the same studies.
    """
    drawn = []
    with open_store(store, write=False) as connection:
        for name in KINDS:
            chosen = () if name == "cross-site" else tuple(sites)
            try:
                choice = Choice(sites=chosen, studies=tuple(studies))
                drawn.append(plot(name, connection, choice, folder=folder, formats=formats))
            except NoData:
                continue
            except BadInput as error:
                for problem in error.problems:
                    warn(problem)
    return drawn


def draw(store: Path, folder: Path, *, sites: Sequence[str] = (), studies: Sequence[str] = ()) -> list[Path]:
    """Paths of the files that `draw_all` writes."""
    return [path for plotted in draw_all(store, folder, sites=sites, studies=studies) for path in plotted.files]
