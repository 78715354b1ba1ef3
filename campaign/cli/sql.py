"""`campaign sql`: ask the store in SQL."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.collect import gather, wait_option
from campaign.cli.common import Context, flags
from campaign.errors import BadInput, NotNow, Problem

if TYPE_CHECKING:
    from campaign.store.query import Answer

FORMATS = ("auto", "table", "expanded", "csv", "jsonl", "markdown")
ROWS_SHOWN = 1000
ROWS_IN_JSON = 100_000

EXAMPLES = """\b
Examples:
  campaign sql "SELECT site, world_size, epoch_time_s, speedup, efficiency FROM scaling"
  campaign sql "FROM docs"                     every view and column, with unit and meaning
  campaign sql "FROM runs WHERE NOT valid"     what is left out of scaling, and why
  campaign sql "FROM scaling" > scaling.csv    CSV when it isn't a terminal
  campaign sql -o steps.parquet "FROM steps"   .parquet, .csv or .jsonl, of any size
  echo "FROM runs LIMIT 3" | campaign sql -

New records are collected first. The store is only read: statements that write are refused. SQL is DuckDB's.
"""


@click.command(epilog=EXAMPLES)
@flags
@click.argument("query", required=False)
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="auto", show_default=True,
              help="auto: a table on a terminal (expanded when it is too wide), CSV elsewhere.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the answer to this file: .csv, .parquet or .jsonl.")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(min=0),
              help=f"0: all. Default: {ROWS_SHOWN} in tables, {ROWS_IN_JSON} with --json, else all.")  # fmt: skip
@click.option("--no-collect", is_flag=True, help="Ask the store as it is; don't collect first.")
@wait_option
def sql(
    context: Context,
    query: str | None,
    form: str,
    output: Path | None,
    max_rows: int | None,
    no_collect: bool,
    wait_s: float,
) -> None:
    """Ask the store in SQL."""
    text = _query_text(query)
    if not no_collect:
        _collect_first(context, wait_s)
    store = context.project.store_path
    if output is not None:
        from campaign.store.query import write_file

        rows = write_file(store, text, output, wait_s=wait_s, note=context.note)
        context.data = {"columns": [], "rows": [], "row_count": rows, "truncated": False, "output": str(output)}
        context.note(f"{rows:,} rows written to {output}")
        return
    from campaign.store.query import ask

    with ask(store, text, wait_s=wait_s, note=context.note) as answer:
        if context.as_json:
            _fill_data(context, answer, ROWS_IN_JSON if max_rows is None else max_rows)
        else:
            _print(context, answer, form, max_rows)


def _query_text(query: str | None) -> str:
    """The query as given, or from stdin for `-` and for a pipe without a query."""
    if query is not None and query != "-":
        return query
    if query is None and sys.stdin.isatty():
        raise BadInput(Problem("no query", key="QUERY", hint='campaign sql "FROM scaling"; campaign sql --help'))
    return sys.stdin.read()


def _collect_first(context: Context, wait_s: float) -> None:
    try:
        report = gather(context, wait_s=wait_s)
    except NotNow as error:
        raise NotNow(
            [
                Problem(problem.message, problem.file, hint="repeat it later; `campaign sql --no-collect` needs no "
                        "writing and works beside other readers")
                for problem in error.problems
            ]
        ) from error  # fmt: skip
    if report.rejects:
        count = len(report.rejects)
        context.warn(Problem(f"{count} record{'' if count == 1 else 's'} set aside",
                             hint='campaign sql "FROM rejects"   says which and why'))  # fmt: skip


def _fill_data(context: Context, answer: Answer, limit: int) -> None:
    from campaign.cli.rows import json_value

    rows, more = _taken(answer, limit)
    types = [column.type for column in answer.columns]
    context.data = {
        "columns": [{"name": column.name, "type": column.type} for column in answer.columns],
        "rows": [[json_value(value, type_) for value, type_ in zip(row, types, strict=True)] for row in rows],
        "row_count": len(rows),
        "truncated": more,
        "output": None,
    }
    if more:
        context.warn(Problem(f"only the first {limit} rows", hint="--max-rows 0 gives all; --output FILE any number"))


def _shown(form: str, answer: Answer, rows: list[tuple[Any, ...]], screen: int | None) -> str:
    """Rows for people; `auto` changes from a table to `expanded` when the table is wider than the screen."""
    from campaign.cli import rows as show

    if form == "markdown":
        return show.as_markdown(answer.columns, rows)
    if form == "expanded":
        return show.as_expanded(answer.columns, rows)
    narrow = show.as_table(answer.columns, rows, screen)
    if narrow is not None:
        return narrow
    if form == "auto":
        return show.as_expanded(answer.columns, rows)
    return show.as_table(answer.columns, rows) or ""


def _limited(answer: Answer, max_rows: int | None) -> Iterator[tuple[Any, ...]]:
    return islice(answer.rows, max_rows or None)


def _taken(answer: Answer, limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The first `limit` rows (0: all), and whether there are more."""
    if not limit:
        return list(answer.rows), False
    rows = list(islice(answer.rows, limit + 1))
    return rows[:limit], len(rows) > limit


def _print(context: Context, answer: Answer, form: str, max_rows: int | None) -> None:
    from campaign.cli import rows as show

    terminal = sys.stdout.isatty()
    if form == "csv" or (form == "auto" and not terminal):
        show.write_csv(answer.columns, _limited(answer, max_rows), sys.stdout)
        return
    if form == "jsonl":
        show.write_jsonl(answer.columns, _limited(answer, max_rows), sys.stdout)
        return
    limit = ROWS_SHOWN if max_rows is None else max_rows
    rows, more = _taken(answer, limit)
    context.say(_shown(form, answer, rows, shutil.get_terminal_size().columns if terminal else None))
    if not rows:
        context.say("(no rows)")
    if more:
        context.warn(Problem(f"only the first {limit} rows", hint="--max-rows 0 shows all; -o FILE writes all"))
