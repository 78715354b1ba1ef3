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
LOCAL_PAUSE_S = 0.5
SLURM_PAUSE_S = 2.0


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

    `show` is called with the counts after every look. Gives the last submission's report: what it holds back or
    refuses is why planned runs remain. Interrupting it loses nothing: jobs go on, and the same call picks them up.
    """
    warned: set[str] = set()
    pause = _pause(project, ledger, run_ids)
    while True:
        for warning in refresh(project, ledger).warnings:
            if warning.message not in warned:
                warned.add(warning.message)
                warn(warning)
        retry_infrastructure(ledger, run_ids, note)
        report = submit(project, ledger, run_ids, note=note)
        view = overview(ledger, run_ids)
        show(view)
        if not view.active and not report.queued:
            return report
        time.sleep(pause)


def _pause(project: Project, ledger: Ledger, run_ids: Sequence[str]) -> float:
    """Seconds between two looks at the ledger; the schedulers themselves are asked every `poll_interval_s`."""
    sites = {row["site"] for row in ledger.run_rows(run_ids)}
    local = all(project.load_site(site).scheduler.kind == "local" for site in sites)
    return LOCAL_PAUSE_S if local else SLURM_PAUSE_S


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
