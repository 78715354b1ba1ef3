"""Which runs a command means: plan, sites, studies, run ids, and a condition in SQL."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.submit.ledger import Ledger
from campaign.words import count as number


@dataclass(frozen=True, slots=True)
class Selection:
    """Which runs a command means (contract section 1): all conditions must hold; empty means all."""

    plan: str | None = None
    sites: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    where: str | None = None

    @property
    def names_runs(self) -> bool:
        """True when plan, runs or a condition are given: which runs, and not only where and of which study."""
        return bool(self.plan or self.runs or self.where)

    @property
    def empty(self) -> bool:
        """True when the user named nothing, so every run is meant."""
        return not (self.plan or self.sites or self.studies or self.runs or self.where)


def select_runs(ledger: Ledger, selection: Selection) -> list[str]:
    """Ids of the runs that `selection` means, in no particular order. Raises BadInput for names nobody knows."""
    _check_names(ledger, selection)
    conditions: list[str] = []
    values: list[Any] = []
    if selection.plan:
        conditions.append("run_id IN (SELECT run_id FROM plan_runs WHERE plan_id = ?)")
        values.append(selection.plan)
    for column, names in (("site", selection.sites), ("study", selection.studies)):
        if names:
            conditions.append(f"{column} IN ({','.join('?' * len(names))})")
            values.extend(names)
    if selection.runs:
        conditions.append("(" + " OR ".join(["run_id LIKE ?"] * len(selection.runs)) + ")")
        values.extend(f"{prefix}%" for prefix in selection.runs)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    ids = [row["run_id"] for row in ledger.query(f"SELECT run_id FROM runs{where}", values)]
    return _filter(ledger, ids, selection.where) if selection.where else ids


@dataclass(frozen=True, slots=True)
class Explored:
    """Planned runs of older plans made with `--set`, which `submit` leaves out unless they are asked for."""

    runs: int
    plans: tuple[str, ...]
    """Newest first."""

    @property
    def message(self) -> str:
        """What stays, and what takes it."""
        what = number(len(self.plans), "older plan")
        stay = "stays" if self.runs == 1 else "stay"
        shown = ", ".join(self.plans[:3]) + (", ..." if len(self.plans) > 3 else "")
        return (
            f"{number(self.runs, 'run')} of {what} made with --set {stay} planned ({shown}): "
            "--plan ID takes one, --all takes them"
        )


_MEANT = (
    "attempts > 0 OR run_id IN (SELECT run_id FROM plan_runs JOIN plans USING (plan_id) WHERE overrides = '{}' "
    "OR plan_id = (SELECT plan_id FROM plans ORDER BY created DESC, seq DESC LIMIT 1))"
)
"""Runs that a plain `submit` means: of plans made without --set, of the newest plan, and those to be tried again."""


def leave_out_explored(ledger: Ledger, ids: Sequence[str]) -> tuple[list[str], Explored | None]:
    """Split off the planned runs that only older plans made with `--set` have: points that somebody looked at."""
    wanted = set(ids)
    left = [
        row
        for row in ledger.query(
            "SELECT run_id, plan_id FROM runs JOIN plans USING (plan_id) WHERE state = 'planned' AND superseded_by "
            f"IS NULL AND NOT ({_MEANT}) ORDER BY created DESC, seq DESC"
        )
        if row["run_id"] in wanted
    ]
    if not left:
        return list(ids), None
    out = {row["run_id"] for row in left}
    plans = tuple(dict.fromkeys(row["plan_id"] for row in left))
    return [run_id for run_id in ids if run_id not in out], Explored(len(left), plans)


def _check_names(ledger: Ledger, selection: Selection) -> None:
    for kind, column, names in (("site", "site", selection.sites), ("study", "study", selection.studies)):
        if not names:
            continue
        known = [row[0] for row in ledger.query(f"SELECT DISTINCT {column} FROM runs ORDER BY 1")]
        for name in names:
            if name not in known:
                raise BadInput(_unknown(kind, name, known))
    if selection.plan:
        plans = [row[0] for row in ledger.query("SELECT plan_id FROM plans ORDER BY seq DESC")]
        if selection.plan not in plans:
            raise BadInput(_unknown("plan", selection.plan, plans[:10]))
    for prefix in selection.runs:
        if not prefix.isalnum():
            raise BadInput(Problem("not a run id", key="--run", value=prefix, allowed="hexadecimal digits"))
        found = ledger.query("SELECT run_id FROM runs WHERE run_id LIKE ? LIMIT 1", (f"{prefix}%",))
        if not found:
            raise BadInput(Problem("no run has this id", key="--run", value=prefix, hint="campaign status -v"))


def _unknown(kind: str, name: str, known: Sequence[str]) -> Problem:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"--{kind} {close[0]}" if close else "campaign plan SITE..."
    allowed = ", ".join(known) or "nothing has been planned yet"
    return Problem(f"no planned run has this {kind}", key=f"--{kind}", value=name, allowed=allowed, hint=hint)


def one_run(ledger: Ledger, prefix: str) -> str:
    """The one run whose id begins with `prefix`. Raises BadInput when there is none, or more than one."""
    if not prefix.isalnum():
        raise BadInput(Problem("not a run id", key="RUN", value=prefix, allowed="hexadecimal digits"))
    rows = ledger.query("SELECT run_id, site, study FROM runs WHERE run_id LIKE ? LIMIT 6", (f"{prefix}%",))
    if not rows:
        raise BadInput(Problem("no run has this id", key="RUN", value=prefix, hint="campaign status -v  lists them"))
    if len(rows) > 1:
        names = ", ".join(row["run_id"] for row in rows)
        raise BadInput(Problem("several runs begin like this", key="RUN", value=prefix, allowed=names))
    return str(rows[0]["run_id"])


def _filter(ledger: Ledger, ids: Sequence[str], where: str) -> list[str]:
    """Those of `ids` for which the condition holds, asked of an in-memory DuckDB: an open store blocks nothing."""
    import duckdb
    import pyarrow as pa

    wanted = set(ids)
    rows = [row for row in ledger.query("SELECT * FROM runs") if row["run_id"] in wanted]
    if not rows:
        return []
    names = [name for name in rows[0].keys() if name not in ("spec", "site_sha256", "study_sha256")]  # noqa: SIM118
    table = pa.table({name: [row[name] for row in rows] for name in names})
    connection = duckdb.connect()
    connection.register("ledger_runs", table)
    booleans = ("valid", "oversubscribed", "gate", "gated")
    replaced = ", ".join(f"CAST({name} AS BOOLEAN) AS {name}" for name in booleans)
    connection.execute(
        f"CREATE TABLE runs AS SELECT * REPLACE ({replaced}, CAST(params AS JSON) AS params) FROM ledger_runs"
    )
    query = f"SELECT run_id FROM runs WHERE ({where}\n)"
    try:
        statements = duckdb.extract_statements(query)
        if len(statements) != 1:
            raise BadInput(Problem("one condition, not several statements", key="--where", value=where))
        return [row[0] for row in connection.execute(query).fetchall()]
    except duckdb.Error as error:
        message = str(error).split("\n\nLINE")[0]
        hint = "--where \"state = 'failed' AND world_size >= 8\""
        columns = ", ".join(names)
        raise BadInput(Problem(message, key="--where", value=where, allowed=f"columns {columns}", hint=hint)) from error
