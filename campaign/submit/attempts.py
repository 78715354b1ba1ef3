"""The next attempt at runs: as planned, but for what earlier attempts have taught."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from sqlite3 import Row

from campaign.submit.batch import Item
from campaign.submit.ledger import Ledger
from campaign.submit.retry import suspects


def _planned_as(row: Row, item: Item, avoid: Sequence[str]) -> Item:
    """The item as this attempt needs it: another walltime after a time limit, other nodes after a broken one.

    Nodes that the study names itself (`nodelist`) are its own choice: nothing is left out of them.
    """
    run = item.run if row["walltime_s"] is None else item.run.with_walltime(row["walltime_s"])
    if not avoid or run.nodelist:
        return dataclasses.replace(item, run=run)
    exclude = ",".join([*([run.exclude] if run.exclude else []), *avoid])
    return dataclasses.replace(item, run=dataclasses.replace(run, exclude=exclude), avoid=tuple(avoid))


def next_items(ledger: Ledger, rows: Sequence[Row], *, avoid: bool = True) -> list[Item]:
    """The next attempt at each of these runs. Earlier intents of it that came to nothing are part of its tag.

    `avoid`: second and later attempts leave out the nodes that a failure of the last day points to.
    """
    planned = ledger.planned_runs(row["run_id"] for row in rows)
    tries = {
        row["run_id"]: int(row["n"])
        for row in ledger.query(
            "SELECT run_id, count(*) AS n FROM jobs JOIN runs USING (run_id) "
            "WHERE jobs.attempt = runs.attempts + 1 GROUP BY 1"
        )
    }
    bad = {site: suspects(ledger, site) for site in {row["site"] for row in rows if row["attempts"] and avoid}}
    items = []
    for row in rows:
        item = Item(planned[row["run_id"]], row["attempts"] + 1, tries.get(row["run_id"], 0))
        items.append(_planned_as(row, item, bad.get(row["site"], ()) if row["attempts"] else ()))
    return items
