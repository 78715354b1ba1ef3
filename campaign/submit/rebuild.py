"""Make a lost or damaged ledger anew: plans from `.campaign/plans`, jobs from submit folders, states from claims,
records and the schedulers.

Planned runs that were cancelled are planned again, and `campaign cost` asks for charges again: neither is written
anywhere else.
"""

from __future__ import annotations

import contextlib
import json
import pwd
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, Problem
from campaign.job.spec import SPECS_FILE, RunSpec, run_folder
from campaign.plan.model import Plan
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project

_NAMED_BY_JOB = {"slurm": re.compile(r"(\d+)_submission\.sh"), "local": re.compile(r"(\d+)_0_log\.out")}
"""What submitit names after the job: the script once sbatch has answered, the log of a local queue."""


@dataclass
class RebuildReport:
    """What was found."""

    plans: int = 0
    runs: int = 0
    jobs: int = 0
    """Attempts at runs that were sent, several in one array."""
    strange: list[Problem] = field(default_factory=list)
    """Files that couldn't be read, and runs that no plan names: left as they are."""
    moved: Path | None = None
    """Where the old ledger is now."""


def rebuild(project: Project, *, force: bool, note: Callable[[str], None]) -> RebuildReport:
    """A new ledger in the place of the old one, which is kept beside it. Asks no scheduler: `refresh` does.

    Raises BadInput when there is a ledger that works, unless `force`; or no plan.
    """
    report = RebuildReport()
    plans = sorted(_plans(project, report), key=lambda plan: plan.created)
    if not plans:
        raise BadInput(
            Problem("there is no plan to make a ledger from", str(project.plans_dir),
                    hint="campaign plan SITE  first, with the files as they were: run ids come from them; then again")
        )  # fmt: skip
    if project.ledger_path.exists():
        report.moved = _put_aside(project.ledger_path, force=force)
    with Ledger.open(project.ledger_path, new=True) as ledger:
        for plan in plans:
            ledger.add_plan(plan)
        report.plans = len(plans)
        report.runs = int(ledger.query("SELECT count(*) FROM runs")[0][0])
        note(f"{number(report.plans, 'plan')} with {number(report.runs, 'run')}; reading the submit folders")
        _add_jobs(ledger, list(_sent(project, report)), report)
    return report


def _put_aside(path: Path, *, force: bool) -> Path:
    """Move the old ledger (and its journal: it belongs to it) away."""
    if not force:
        works = False  # an empty one doesn't: some command made it after the old one was lost
        with contextlib.suppress(BadInput), Ledger.open(path, write=False) as ledger:
            works = bool(ledger.query("SELECT count(*) FROM plans")[0][0])
        if works:
            raise BadInput(
                Problem("there is a ledger that works", str(path), hint="--force puts it aside all the same")
            )
    aside = path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists():
        journal.rename(aside.with_name(f"{aside.name}-journal"))
    path.rename(aside)
    return aside


def _plans(project: Project, report: RebuildReport) -> Iterator[Plan]:
    for path in sorted(project.plans_dir.glob("*.json")) if project.plans_dir.is_dir() else []:
        try:
            yield Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            report.strange.append(Problem(f"not a plan: {error}", project.shown(path)))


@dataclass(frozen=True, slots=True)
class _Sent:
    """One attempt that a submit folder tells of."""

    spec: RunSpec
    folder: Path
    job_id: str | None
    moment: str
    user: str
    claim: dict[str, Any]


def _sent(project: Project, report: RebuildReport) -> Iterator[_Sent]:
    """Attempts of this project's runs, from the submit folders of its run roots."""
    for name, root in project.run_roots().items():
        for path in sorted((root / "submit").glob(f"*/{SPECS_FILE}")):
            try:
                specs = [
                    RunSpec.from_line(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
                ]
                about = path.stat()
            except (OSError, ValueError, TypeError) as error:
                report.strange.append(Problem(f"specs can't be read: {error}", str(path)))
                continue
            moment = datetime.fromtimestamp(about.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            user = str(about.st_uid)
            with contextlib.suppress(KeyError):
                user = pwd.getpwuid(about.st_uid).pw_name
            for spec in specs:
                # several projects may share a run root
                if spec.site == name and spec.project_dir == str(project.root):
                    yield _Sent(spec, path.parent, _job_id(path.parent, spec), moment, user, _claim(root, spec))


def _job_id(folder: Path, spec: RunSpec) -> str | None:
    """The job behind a submit folder, from the name of a file in it."""
    ids = (_NAMED_BY_JOB[spec.scheduler].fullmatch(path.name) for path in folder.iterdir())
    return next((match[1] for match in ids if match), None)


def _claim(root: Path, spec: RunSpec) -> dict[str, Any]:
    """The claim of this attempt, if it is this job's; empty else."""
    with contextlib.suppress(OSError, ValueError):
        path = run_folder(root, spec.run_id) / f"claim.a{spec.attempt}"
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("tag") == spec.tag:
            return data
    return {}


def _add_jobs(ledger: Ledger, sent: list[_Sent], report: RebuildReport) -> None:
    """Rows of jobs, and runs set to their newest attempt. Which of them live or how they ended is asked later."""
    planned = ledger.planned_runs({one.spec.run_id for one in sent})
    sure = {(one.spec.run_id, one.spec.attempt) for one in sent if one.job_id or one.claim}
    with ledger.transaction() as db:
        for one in sent:
            spec = one.spec
            run = planned.get(spec.run_id)
            if run is None:
                report.strange.append(Problem(f"run {spec.run_id} is in no plan", str(one.folder)))
                continue
            known = bool(one.job_id or one.claim)
            # of two tags of one attempt the one without a sign of a job was refused, or given back
            state = "queued" if known else "refused" if (spec.run_id, spec.attempt) in sure else "submitting"
            job_id = one.job_id
            if job_id is None and spec.scheduler == "slurm":
                job_id = str(one.claim.get("job", "")).partition("_")[0] or None
            db.execute(
                "INSERT INTO jobs (site, tag, array_index, run_id, attempt, scheduler, job_id, user, host, partition, "
                "account, state, intent_at, submitted_at, submit_dir, walltime_s) VALUES "
                "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (spec.site, spec.tag, spec.array_index, spec.run_id, spec.attempt, spec.scheduler, job_id, one.user,
                 one.claim.get("host") if spec.scheduler == "local" and one.claim else socket.gethostname(),
                 run.partition, run.account, state, one.moment, one.moment if known else None, str(one.folder),
                 int(spec.walltime_s)),
            )  # fmt: skip
            report.jobs += 1
            if state != "refused":
                db.execute(
                    "UPDATE runs SET state = ?1, attempts = ?2, run_root = ?3, changed = ?4, superseded_by = NULL "
                    "WHERE run_id = ?5 AND (attempts < ?2 OR attempts = ?2 AND state = 'submitting')",
                    (state, spec.attempt, spec.run_root, one.moment, spec.run_id),
                )
