"""What figures and tables ask the store's views: the only module of `analysis` that speaks SQL, beside `Choice`.

Times are seconds, throughput is unique samples (or another unit, named in the row) per second. A `Choice` says which
runs are meant; every query honours it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis.choice import EVERYTHING, Choice
from analysis.rows import PhaseRow, Provenance, RunPoint, ScalingRow, StepRow
from campaign.errors import BadInput, Problem
from campaign.tables import STEP_PARTS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class NoData(BadInput):
    """The chosen runs have recorded nothing that the figure could show. Exit code 2; says what to type next."""


def scaling_rows(connection: DuckDBPyConnection, choice: Choice = EVERYTHING) -> list[ScalingRow]:
    """Points of `scaling` that have a chosen run, ordered by site, study, series and world size.

    A point always stands for all its valid runs: a condition such as `repeat = 0` picks points, not repeats.
    """
    columns = [field.name for field in dataclasses.fields(ScalingRow)]
    condition, parameters = choice.sql()
    rows = _fetch(
        connection,
        f"SELECT {', '.join(f's.{column}' for column in columns)} FROM scaling s "
        f"SEMI JOIN (SELECT * FROM runs WHERE {condition}) r ON {_SAME_POINT} "
        "ORDER BY s.site, s.study, s.series, s.world_size",
        parameters,
        choice,
    )
    return [ScalingRow(**row) for row in rows]


def run_points(connection: DuckDBPyConnection, choice: Choice = EVERYTHING) -> list[RunPoint]:
    """Every ended run of the choice that has not been superseded, measured or not.

    Of one repeat measured several times (another revision or image) the newest counts, as in `scaling`.
    """
    condition, parameters = choice.sql()
    rows = _fetch(
        connection,
        f"""
        WITH {_CHOSEN.format(condition=condition)},
        measured AS (
            SELECT run_id, median(epoch_time_s) AS epoch_time_s, median(samples_unique) AS samples_unique
            FROM epochs SEMI JOIN ({_LAST.format(view="epochs")}) last USING (run_id, attempt)
            WHERE warmup IS NOT TRUE GROUP BY run_id
        ),
        submitted AS (SELECT run_id, max(submitted) AS submitted FROM jobs GROUP BY run_id)
        SELECT run_id, site, study, series, strategy, world_size, repeat, valid, why_invalid, workload,
               CAST(params AS VARCHAR) AS params, global_batch, local_batch, epoch_time_s,
               samples_unique / nullif(epoch_time_s, 0) AS throughput_per_s
        FROM chosen LEFT JOIN measured USING (run_id) LEFT JOIN submitted USING (run_id)
        QUALIFY row_number() OVER (
            PARTITION BY site, study, series, nodes, ranks_per_node, repeat
            ORDER BY submitted DESC NULLS LAST, run_id) = 1
        ORDER BY site, study, series, world_size, repeat, run_id
        """,
        parameters,
        choice,
    )
    return [RunPoint(**{**row, "params": json.loads(row["params"] or "{}")}) for row in rows]


_ENDED = "valid IS NOT NULL AND superseded_by IS NULL"
"""`valid` is NULL until a run has ended."""
_LAST = "SELECT run_id, max(attempt) AS attempt FROM {view} GROUP BY run_id"
# `scaling` appends the batch and ranks_per_node to the series of `runs` where one series holds several of them
_SUFFIXES = [
    batch + placement
    for batch in (
        "",
        " || ' batch=?'",
        " || ' global_batch=' || r.global_batch",
        " || ' local_batch=' || r.local_batch",
    )
    for placement in ("", " || ' ranks_per_node=' || r.ranks_per_node")
]
_SAME_POINT = (
    "r.site = s.site AND r.study = s.study AND r.world_size = s.world_size "
    f"AND s.series IN ({', '.join(f'r.series{suffix}' for suffix in _SUFFIXES)})"
)
_CHOSEN = f"""chosen AS (
    SELECT r.* REPLACE (coalesce(s.series, r.series) AS series)
    FROM (SELECT * FROM runs WHERE {{condition}} AND {_ENDED}) r LEFT JOIN scaling s ON {_SAME_POINT}
)"""


def phase_rows(connection: DuckDBPyConnection, choice: Choice = EVERYTHING) -> list[PhaseRow]:
    """Phases of every ended run of the choice."""
    condition, parameters = choice.sql()
    staging = "startup" in views(connection)
    rows = _fetch(
        connection,
        f"""
        WITH chosen AS (SELECT * FROM runs WHERE {condition} AND {_ENDED}),
        last AS ({_LAST.format(view="phases")})
        SELECT r.run_id, r.site, r.study, r.strategy, r.world_size, r.nodes,
               {"s.staging" if staging else "NULL"} AS staging,
               r.valid, p.phase, p.n, p.min_s, p.median_s, p.max_s
        FROM chosen r JOIN phases p USING (run_id) SEMI JOIN last ON last.run_id = r.run_id
             AND last.attempt = p.attempt
             {"LEFT JOIN startup s ON s.run_id = r.run_id AND s.attempt = p.attempt" if staging else ""}
        WHERE p.median_s IS NOT NULL ORDER BY r.site, r.study, r.world_size, r.run_id, p.median_s, p.phase
        """,
        parameters,
        choice,
    )
    return [PhaseRow(**row) for row in rows]


def step_rows(connection: DuckDBPyConnection, choice: Choice = EVERYTHING) -> list[StepRow]:
    """Step parts of every ended run of the choice; runs without windows fall back to what `epochs` says."""
    condition, parameters = choice.sql()
    rows = _fetch(
        connection,
        f"""
        WITH {_CHOSEN.format(condition=condition)},
        timed AS (
            SELECT run_id, epoch, steps, epoch_time_s, data_wait_s, comm_exposed_s
            FROM epochs SEMI JOIN ({_LAST.format(view="epochs")}) last USING (run_id, attempt)
            WHERE warmup IS NOT TRUE AND steps > 0
        ),
        from_windows AS (
            SELECT run_id, metric AS part, avg(median) AS seconds,
                   CASE WHEN run_id IN (SELECT run_id FROM epochs) THEN 'windows' ELSE 'all windows' END AS source
            FROM windows SEMI JOIN ({_LAST.format(view="windows")}) last USING (run_id, attempt)
            ANTI JOIN (SELECT run_id, attempt, epoch FROM epochs WHERE warmup) w USING (run_id, attempt, epoch)
            WHERE unit = 's' GROUP BY run_id, metric
        ),
        from_epochs AS (
            SELECT run_id, part, median(seconds) AS seconds, 'epochs' AS source FROM (
                SELECT run_id, 'step_s' AS part, epoch_time_s / steps AS seconds FROM timed
                UNION ALL SELECT run_id, 'data_wait_s', data_wait_s / steps FROM timed
                UNION ALL SELECT run_id, 'comm_exposed_s', comm_exposed_s / steps FROM timed
            ) ANTI JOIN from_windows USING (run_id) WHERE seconds IS NOT NULL GROUP BY run_id, part
        )
        SELECT r.run_id, r.site, r.study, r.series, r.strategy, r.world_size, r.valid,
               p.part, p.seconds, p.source
        FROM chosen r JOIN (FROM from_windows UNION ALL FROM from_epochs) p USING (run_id)
        WHERE p.seconds IS NOT NULL ORDER BY r.site, r.study, r.series, r.world_size, r.run_id, p.part
        """,
        parameters,
        choice,
    )
    return [StepRow(**row) for row in rows]


def provenance(connection: DuckDBPyConnection, run_ids: Iterable[str]) -> Provenance:
    """Counts, sites, studies, commits and newest date of these runs."""
    ids = sorted(set(run_ids))
    (runs,) = _fetch(
        connection,
        "SELECT count(*) FILTER (valid) AS valid, count(*) FILTER (valid IS NOT TRUE) AS excluded, "
        "list_sort(list(DISTINCT site)) AS sites, list_sort(list(DISTINCT study)) AS studies "
        "FROM runs WHERE list_contains(?, run_id)",
        [ids],
    )
    (jobs,) = _fetch(
        connection,
        "SELECT list_sort(list(DISTINCT commit) FILTER (commit IS NOT NULL)) AS commits, bool_or(dirty) AS dirty, "
        "max(ended) AS newest FROM jobs WHERE list_contains(?, run_id)",
        [ids],
    )
    return Provenance(
        runs=runs["valid"],
        excluded=runs["excluded"],
        sites=tuple(runs["sites"] or ()),
        studies=tuple(runs["studies"] or ()),
        commits=tuple(jobs["commits"] or ()),
        dirty=bool(jobs["dirty"]),
        newest=jobs["newest"],
    )


def views(connection: DuckDBPyConnection) -> set[str]:
    """Names of the tables and views that the store has."""
    return {name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}


def no_data(connection: DuckDBPyConnection, choice: Choice, figure: str, needs: str) -> NoData:
    """Why a figure has nothing to draw, and what to type next, as the exception to raise."""
    condition, parameters = choice.sql()
    (chosen,) = _fetch(
        connection,
        f"SELECT count(*) AS runs, count(*) FILTER ({_ENDED}) AS ended, count(*) FILTER (valid) AS valid "
        f"FROM runs WHERE {condition}",
        parameters,
        choice,
    )
    (total,) = _fetch(
        connection,
        "SELECT count(*) AS runs, list_sort(list(DISTINCT site)) AS sites, list_sort(list(DISTINCT study)) AS studies "
        "FROM runs",
        [],
    )
    message = f"no data for the figure `{figure}`: it needs {needs}"
    if not total["runs"]:
        return NoData(Problem(f"{message}; the store has no runs", hint="`campaign run SITE`, or `campaign collect`"))
    if not chosen["runs"]:
        known = f"sites: {', '.join(total['sites'])}; studies: {', '.join(total['studies'])}"
        return NoData(
            Problem(
                f"{message}; no run is chosen by {choice.words()}",
                allowed=known,
                hint='`campaign sql "SELECT DISTINCT site, study, series FROM runs"`',
            )
        )
    if not chosen["ended"]:
        return NoData(
            Problem(f"{message}; none of the {chosen['runs']} chosen runs has ended", hint="`campaign status`")
        )
    return NoData(
        Problem(
            f"{message}; of the {chosen['runs']} chosen runs {chosen['ended']} have ended and {chosen['valid']} are "
            f"valid, but none has recorded it{_instead(connection, choice, figure)}",
            hint="`campaign collect` brings records in, `campaign show RUN` says what a run recorded",
        )
    )


def _instead(connection: DuckDBPyConnection, choice: Choice, figure: str) -> str:
    """What the chosen ended runs did record of what the figure is about, as the end of a sentence; else empty."""
    condition, parameters = choice.sql()
    parts = ", ".join(f"{part} IS NOT NULL" for part in STEP_PARTS)
    (found,) = _fetch(
        connection,
        f"""
        WITH chosen AS (SELECT run_id FROM runs WHERE {condition} AND {_ENDED}),
        by_epochs AS (SELECT run_id, bool_or(epoch_time_s IS NOT NULL) AS timed FROM epochs GROUP BY run_id),
        by_steps AS (SELECT run_id, bool_or(list_bool_or([{parts}])) AS timed FROM steps GROUP BY run_id)
        SELECT count(e.timed) AS epochs, count(*) FILTER (e.timed) AS timed_epochs, count(s.timed) AS steps,
               count(*) FILTER (s.timed OR run_id IN (SELECT run_id FROM windows WHERE unit = 's')) AS timed_steps
        FROM chosen LEFT JOIN by_epochs e USING (run_id) LEFT JOIN by_steps s USING (run_id)
        """,
        parameters,
        choice,
    )
    if figure in ("scaling", "cross-site"):
        if found["timed_epochs"]:
            return f": {found['timed_epochs']} timed warm-up epochs alone; measure more epochs"
        if found["epochs"]:
            return (
                f": {found['epochs']} recorded epochs, but no epoch_time_s; the Recorder's `epoch` takes it, or a "
                "metric of that name"
            )
    if figure == "steps":
        if found["timed_steps"]:
            return f": {found['timed_steps']} timed steps in warm-up epochs alone; measure more epochs"
        if found["steps"]:
            return (
                f": {found['steps']} recorded steps, but neither step_s nor a part of it ({', '.join(STEP_PARTS[:-1])})"
            )
        if found["epochs"]:
            return (
                f": {found['epochs']} recorded epochs, but no steps; the Recorder's `step` takes step_s and its parts"
            )
    return ""


def _fetch(
    connection: DuckDBPyConnection, sql: str, parameters: Sequence[Any], choice: Choice | None = None
) -> Iterator[dict[str, Any]]:
    import duckdb

    try:
        cursor = connection.execute(sql, list(parameters))
    except (duckdb.ParserException, duckdb.BinderException, duckdb.ConversionException) as error:
        if choice is None or choice.where is None:
            raise
        columns = ", ".join(name for (name, *_) in connection.execute("DESCRIBE runs").fetchall())
        raise BadInput(
            Problem(
                f"--where is no SQL condition on the view `runs`: {str(error).splitlines()[0]}",
                key="--where",
                value=choice.where,
                allowed=f"a condition on {columns}",
                hint="--where \"nodes <= 4 AND strategy = 'ddp'\"",
            )
        ) from error
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
