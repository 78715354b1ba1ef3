"""Rounds: ask the schedulers, judge what ended, plan some of it again, queue what fits; once, or to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from campaign.errors import NotNow, Problem
from campaign.submit.ledger import Ledger
from campaign.submit.limits import NO_CAPS, Caps
from campaign.submit.overview import Overview, overview
from campaign.submit.refresh import refresh
from campaign.submit.report import SubmitReport
from campaign.submit.retry import retry_by_class
from campaign.submit.select import Explored, leave_out_explored
from campaign.submit.submit import submit
from campaign.submit.turn import turn

if TYPE_CHECKING:
    from campaign.project import Project

PAUSE_S = 1.0
"""Between two looks at the ledger; the schedulers themselves are asked every `poll_interval_s`."""
OTHERS_S = 5.0
"""So long another command that queues is waited for in one turn."""
LIMIT_PAUSE_S = 30.0
"""A site whose submit limit was met is tried again when a run has ended, or after so long."""


@dataclass
class Round:
    """What one round did."""

    report: SubmitReport
    retried: list[str] = field(default_factory=list)
    """Runs that were planned again by themselves."""
    explored: Explored | None = None
    """What was left out, as only older plans made with `--set` have it."""


def one_round(
    project: Project,
    ledger: Ledger,
    run_ids: Sequence[str],
    *,
    command: str,
    caps: Caps,
    named: Collection[str] | None,
    everything: bool,
    note: Callable[[str], None],
    warn: Callable[[Problem], None],
) -> Round:
    """One round over `run_ids`, as `submit` and `status --advance` make it. Raises NotNow when it isn't our turn.

    `named`, `caps`: as of `submit`. `everything`: also runs that only older plans made with `--set` have.
    """
    with turn(project.ledger_path, command, note=note):
        for warning in refresh(project, ledger, force=True).warnings:
            warn(warning)
        retried = retry_by_class(project, ledger, run_ids, note)
        ids, explored = (list(run_ids), None) if everything else leave_out_explored(ledger, run_ids)
        report = submit(project, ledger, ids, note=note, named=named, caps=caps)
    return Round(report, retried, explored)


def follow(
    project: Project,
    ledger: Ledger,
    run_ids: Sequence[str],
    *,
    note: Callable[[str], None],
    show: Callable[[Overview], None],
    warn: Callable[[Problem], None],
    caps: Caps = NO_CAPS,
) -> SubmitReport:
    """Submit `run_ids` and follow them until no job is left and nothing more can be queued.

    `show` is called with the counts after every look. Gives what holds back or refuses runs that remain planned.
    Interrupting it loses nothing: jobs go on, and the same call picks them up.
    """
    warned: set[str] = set()
    total, report = SubmitReport(), SubmitReport()
    full: dict[str, tuple[float, int]] = {}
    away: dict[str, float] = {}
    view = overview(ledger, run_ids)
    seen: tuple[int, int] | None = None
    again_at = 0.0
    while True:
        for warning in refresh(project, ledger).warnings:
            if warning.message not in warned:
                warned.add(warning.message)
                warn(warning)
        view = overview(ledger, run_ids)
        ended = view.total - view.active - view.count("planned")
        waiting = {site for site, (until, was) in full.items() if time.monotonic() < until and ended == was}
        # a controller that is away is asked again now and then, as long as others run
        silent = {site for site, until in away.items() if time.monotonic() < until}
        taken = False
        # nothing can be queued or planned again before a run has ended or was planned, or the next look at limits
        if seen != (ended, view.count("planned")) or time.monotonic() >= again_at:
            wanted = [run_id for run_id in run_ids if run_id not in total.not_again]
            try:
                with turn(project.ledger_path, "run", note=note, wait_s=OTHERS_S):
                    retry_by_class(project, ledger, run_ids, note)
                    report = submit(project, ledger, wanted, note=note, skip=waiting | silent, caps=caps)
            except NotNow as error:
                # what runs is followed all the same; another command that queues may queue ours, too
                report, taken = SubmitReport(uncertain=list(error.problems)), True
            full.update({site: (time.monotonic() + LIMIT_PAUSE_S, ended) for site in report.full_sites})
            away.update({site: time.monotonic() + LIMIT_PAUSE_S for site in report.away})
            if silent:
                report.uncertain = report.uncertain or total.uncertain
            _remember(total, report)
            view = overview(ledger, run_ids)
            seen = None if taken else (ended, view.count("planned"))
            again_at = time.monotonic() + LIMIT_PAUSE_S
        show(view)
        if not (view.active or report.queued or waiting or taken):
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
