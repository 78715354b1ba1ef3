"""Take runs to their end: submit, wait, release gates, retry what the infrastructure broke, until nothing is left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from campaign.errors import Problem
from campaign.submit import states
from campaign.submit.ledger import Ledger
from campaign.submit.overview import Overview, overview
from campaign.submit.refresh import refresh
from campaign.submit.submit import SubmitReport, submit

if TYPE_CHECKING:
    from campaign.project import Project

INFRASTRUCTURE = ("node", "fabric", "preempted")
PAUSE_S = 1.0
"""Between two looks at the ledger; the schedulers themselves are asked every `poll_interval_s`."""
LIMIT_PAUSE_S = 30.0
"""A site whose submit limit was met is tried again when a run has ended, or after so long."""


def follow(
    project: Project,
    ledger: Ledger,
    run_ids: Sequence[str],
    *,
    note: Callable[[str], None],
    show: Callable[[Overview], None],
    warn: Callable[[Problem], None],
) -> SubmitReport:
    """Submit `run_ids` and follow them until no job is left and nothing more can be queued.

    `show` is called with the counts after every look. Gives what holds back or refuses runs that remain planned.
    Interrupting it loses nothing: jobs go on, and the same call picks them up.
    """
    warned: set[str] = set()
    total = SubmitReport()
    full: dict[str, tuple[float, int]] = {}
    away: dict[str, float] = {}
    view = overview(ledger, run_ids)
    while True:
        for warning in refresh(project, ledger).warnings:
            if warning.message not in warned:
                warned.add(warning.message)
                warn(warning)
        retry_infrastructure(ledger, run_ids, note)
        ended = view.total - view.active - view.count("planned")
        waiting = {site for site, (until, was) in full.items() if time.monotonic() < until and ended == was}
        wanted = [run_id for run_id in run_ids if run_id not in total.not_again]
        # a controller that is away is asked again now and then, as long as others run
        silent = {site for site, until in away.items() if time.monotonic() < until}
        report = submit(project, ledger, wanted, note=note, skip=waiting | silent)
        full.update({site: (time.monotonic() + LIMIT_PAUSE_S, ended) for site in report.full_sites})
        away.update({site: time.monotonic() + LIMIT_PAUSE_S for site in report.away})
        if silent:
            report.uncertain = report.uncertain or total.uncertain
        _remember(total, report)
        view = overview(ledger, run_ids)
        show(view)
        if not view.active and not report.queued and not waiting:
            return total
        time.sleep(PAUSE_S)


def _remember(total: SubmitReport, report: SubmitReport) -> None:
    """Refusals add up; what is held, limited or uncertain is as the last submission saw it."""
    total.queued += report.queued
    total.batches += report.batches
    total.refused += report.refused
    total.changed += report.changed
    total.not_again |= report.not_again
    total.advice += [line for line in report.advice if line not in total.advice]
    total.held, total.limited, total.uncertain = report.held, report.limited, report.uncertain


def retry_infrastructure(ledger: Ledger, run_ids: Sequence[str], note: Callable[[str], None]) -> int:
    """Plan again what nodes, fabric or preemption broke, as often as the study's `retry.infrastructure` allows.

    Out of memory, configuration and user errors are never tried again by themselves.
    """
    again = []
    for row in ledger.run_rows(run_ids):
        if row["fail_class"] not in INFRASTRUCTURE or row["state"] not in ("failed", "interrupted", "timeout"):
            continue
        allowed = int((json.loads(row["spec"]).get("retry") or {}).get("infrastructure") or 0)
        if row["attempts"] <= allowed:
            again.append(row["run_id"])
            note(f"{row['run_id']}: {row['fail_class']} failure, attempt {row['attempts'] + 1} is planned")
    return states.plan_again(ledger, again) if again else 0
