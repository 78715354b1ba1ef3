"""`campaign status`: where every run stands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, cap_flags, flags, require, selection_flags
from campaign.cli.render import duration, state, table
from campaign.errors import EXIT_NOT_NOW, Problem
from campaign.slurm.states import RUN_STATES
from campaign.submit.ledger import Ledger
from campaign.submit.overview import Overview, overview

if TYPE_CHECKING:
    from campaign.submit.follow import Round
    from campaign.submit.limits import Caps
    from campaign.submit.select import Selection

EXAMPLES = """\b
Examples:
  campaign status                        counts by site and study
  campaign status --watch                until nothing is queued or running
  campaign status --advance              go on: queue what fits now
  campaign status -v --where "state = 'failed'"
  campaign status --json | jq .data.groups
"""


@click.command(epilog=EXAMPLES)
@flags
@selection_flags
@click.option(
    "--watch",
    is_flag=True,
    help="Show again whenever something changes, until no job is left; with --json: wait, then print once.",
)
@click.option("--refresh/--no-refresh", default=True, help="Ask the schedulers (at most every poll_interval_s).")
@click.option("--force", is_flag=True, help="Ask the schedulers now, however short ago they were asked.")
@click.option("--advance", is_flag=True, help="Then go on: queue what fits now, and again what may be tried again.")
@cap_flags
def status(context: Context, selection: Selection, watch: bool, refresh: bool, force: bool, advance: bool,
           caps: Caps) -> None:  # fmt: skip
    """Show where every run stands.

    With --advance it also does what `campaign submit` does, so that repeated calls (by hand, by cron, by a timer: see
    `campaign timer`) bring a campaign to its end.
    """
    require(not (watch and advance), Problem("--watch only looks; --advance goes one step on",
                                             hint="campaign run SITE...  does both"))  # fmt: skip
    capped = caps.queued is not None or caps.gpu_hours is not None
    require(advance or not capped, Problem("caps are about --advance, which queues", hint="campaign status --advance"))
    with Ledger.open(context.project.ledger_path) as ledger:
        ids = None if selection.empty else _select(ledger, selection)
        done = _advance(context, ledger, selection, caps) if advance else None
        if refresh and not advance:
            _refresh(context, ledger, force)
        view = overview(ledger, ids)
        if watch:
            view = _watch(context, ledger, ids, view, ask=refresh)
            if not context.as_json:
                return
        runs = _runs(ledger, ids) if context.verbose or not selection.empty else None
        context.data = _data(view, runs)
        if done is None or not context.quiet:
            _print(context, view, runs)
    if done is not None:
        from campaign.cli.submit import round_data, tell_round

        context.data["advance"] = round_data(done)
        if context.quiet:  # a timer's log: one dated line each time
            states = ", ".join(f"{view.count(name)} {name}" for name in RUN_STATES if view.count(name))
            context.say(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {states or 'nothing planned'}")
        tell_round(context, done)


def _advance(context: Context, ledger: Ledger, selection: Selection, caps: Caps) -> Round:
    from campaign.submit.follow import one_round
    from campaign.submit.select import select_runs

    return one_round(
        context.project, ledger, select_runs(ledger, selection), command="status --advance", caps=caps,
        named=selection.sites, everything=selection.names_runs, note=context.note, warn=context.warn,
    )  # fmt: skip


def _select(ledger: Ledger, selection: Selection) -> list[str]:
    from campaign.submit.select import select_runs

    return select_runs(ledger, selection)


def _refresh(context: Context, ledger: Ledger, force: bool) -> None:
    # sites are read (a slow import) only when a job may still exist
    if not ledger.query("SELECT 1 FROM jobs WHERE state IN ('submitting', 'queued', 'running', 'unknown') LIMIT 1"):
        return
    from campaign.submit.refresh import refresh

    for warning in refresh(context.project, ledger, force=force).warnings:
        if force:
            context.fail(warning, exit_code=EXIT_NOT_NOW)
        else:
            context.warn(warning)


def _runs(ledger: Ledger, ids: list[str] | None) -> list[dict[str, Any]]:
    if ids is None:
        rows = ledger.query("SELECT * FROM runs WHERE superseded_by IS NULL ORDER BY site, study, ord")
    else:
        rows = ledger.run_rows(ids)
    columns = ("run_id", "site", "study", "nodes", "world_size", "strategy", "repeat", "state", "fail_class", "reason",
               "valid", "why_invalid", "attempts", "plan_id", "changed")  # fmt: skip
    runs = [{name: row[name] for name in columns} for row in rows]
    for run in runs:
        run["valid"] = None if run["valid"] is None else bool(run["valid"])
    return runs


def _data(view: Overview, runs: list[dict[str, Any]] | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "total": view.total,
        "active": view.active,
        "groups": [
            {"site": g.site, "study": g.study, "total": g.total, "superseded": g.superseded, "gpu_h": g.gpu_h,
             "node_h": g.node_h, "states": {name: g.counts.get(name, 0) for name in RUN_STATES}}
            for g in view.groups
        ],
        "sites": [{"site": p.site, "age_s": p.age_s, "error": p.error} for p in view.polls],
        "pending": view.pending,
    }  # fmt: skip
    if runs is not None:
        data["runs"] = runs
    return data


def _print(context: Context, view: Overview, runs: list[dict[str, Any]] | None) -> None:
    if not view.groups:
        context.say("no runs match" if runs is not None else "nothing has been planned yet; try: campaign plan SITE")
        return
    used = [name for name in RUN_STATES if view.count(name)]
    rows = [
        [group.site, group.study, str(group.total), *[str(group.counts.get(name) or "·") for name in used],
         f"{group.node_h:.2f}", f"{group.gpu_h:.2f}"]
        for group in view.groups
    ]  # fmt: skip
    header = ["site", "study", "runs", *used, "node-h", "GPU-h"]
    context.say(table(header, rows, right=range(2, len(header))))
    for row in view.pending:
        context.say(_waiting(row))
    for poll in view.polls:
        if poll.age_s is not None and view.active:
            failed = f"; the last question failed: {poll.error}" if poll.error else ""
            context.say(click.style(f"{poll.site}: as of {duration(poll.age_s)} ago{failed}", dim=not failed))
    if runs is not None:
        _print_runs(context, runs)
    _print_next(context, view)


def _waiting(row: dict[str, Any]) -> str:
    """`juwels: 12 waiting for nodes (Resources), the first expected at 2026-01-01 12:00 UTC`."""
    text = f"{row['site']}: {row['count']} pending"
    if row["words"]:
        text += f": {row['words']} ({row['reason']})"
    elif row["reason"]:
        text += f": {row['reason']}"
    if row["expected_start"]:
        text += f"; first expected to start {row['expected_start'][:16].replace('T', ' ')} UTC"
    return text


def _print_runs(context: Context, runs: list[dict[str, Any]]) -> None:
    header = ["run", "site", "study", "nodes", "ranks", "repeat", "state", "try", "why"]
    rows = [
        [run["run_id"], run["site"], run["study"], str(run["nodes"]), str(run["world_size"]), str(run["repeat"]),
         state(run["state"]), str(run["attempts"]), (run["reason"] or run["why_invalid"] or "")[:70]]
        for run in runs
    ]  # fmt: skip
    context.say("")
    context.say(table(header, rows, right=(3, 4, 5, 7)))


def _print_next(context: Context, view: Overview) -> None:
    if view.count("submitting"):
        context.say(f"{view.count('submitting')} submitting: being sent right now, or sbatch gave no clear answer; "
                    "`campaign submit` asks Slurm for them again")  # fmt: skip
    bad = view.count("failed", "timeout", "lost", "interrupted")
    if bad:
        context.say(f'{bad} ended badly: `campaign status -v --where "valid = false"`, `campaign show RUN`')
    elif view.count("planned") and not view.active:
        context.say(f"{view.count('planned')} planned: `campaign submit`")
    elif view.count("done") == view.total:
        context.say('all done: `campaign sql "FROM scaling"`, `campaign plot scaling`')


def _watch(context: Context, ledger: Ledger, ids: list[str] | None, view: Overview, *, ask: bool) -> Overview:
    """Print the table again whenever a count changes; ends when no job is left, and gives the last look."""
    last: list[Any] = []
    while True:
        counts = [(group.site, group.study, group.counts) for group in view.groups]
        if counts != last:
            context.say(click.style(time.strftime("%H:%M:%S"), dim=True))
            _print(context, view, None)
            last = counts
        if not view.active:
            return view
        time.sleep(1.0)
        if ask:
            _refresh(context, ledger, force=False)
        view = overview(ledger, ids)
