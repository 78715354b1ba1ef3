"""Queue planned runs: exactly as planned, each once.

Order of every submission: the intent in the ledger, the specs on disk, sbatch, the answer in the ledger. Whatever is
killed in between is found again by its tag (`refresh`).
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import BadInput, CampaignError, Problem
from campaign.slurm import commands
from campaign.submit import states
from campaign.submit.batch import Batch, Item, make_batches, write_specs
from campaign.submit.executors import Refused, Uncertain, sbatch, script_text, start_local_queue
from campaign.submit.gate import Held, hold_gated
from campaign.submit.ledger import Ledger
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site


@dataclass
class SubmitReport:
    """What one `submit` did. Counts are runs unless said otherwise."""

    queued: int = 0
    batches: int = 0
    """sbatch calls that were answered with a job id (local: queues started)."""
    held: list[Held] = field(default_factory=list)
    changed: list[Problem] = field(default_factory=list)
    """Runs refused because their site or study file has changed since the plan."""
    refused: list[Problem] = field(default_factory=list)
    limited: list[Problem] = field(default_factory=list)
    """Submit limits met: the rest stays planned."""
    uncertain: list[Problem] = field(default_factory=list)
    jobs: list[dict[str, object]] = field(default_factory=list)
    """{site, tag, job_id, runs} of each batch that was queued."""


def submit(
    project: Project, ledger: Ledger, run_ids: Iterable[str], *, note: Callable[[str], None] = lambda _: None
) -> SubmitReport:
    """Queue those of `run_ids` that are planned and not held back by a gate.

    Raises BadInput for a wrong cluster. Refusals of sbatch are in the report, not raised: other batches go on.
    """
    report = SubmitReport()
    rows = [row for row in ledger.run_rows(run_ids) if row["state"] == "planned" and row["superseded_by"] is None]
    rows = _unchanged(project, rows, report)
    rows, report.held = hold_gated(ledger, rows)
    for name in dict.fromkeys(row["site"] for row in rows):
        site = project.load_site(name)
        mine = [row for row in rows if row["site"] == name]
        guard_cluster(site)
        for batch in _batches(project, ledger, site, mine, report):
            if not _submit_one(project, ledger, site, batch, report, note):
                break
    return report


def guard_cluster(site: Site) -> None:
    """Raise BadInput when the Slurm that answers here isn't the site's cluster; a controller that is away passes."""
    if site.transport.kind != "here":
        raise BadInput(
            site.problem(
                ("transport", "kind"),
                f"site {site.name} is to be reached over {site.transport.kind}; this version submits where it runs",
                allowed="here",
                hint=f"install campaign on {site.transport.host or 'the site'} and submit there; "
                "the stores of several sites can be compared on one figure",
            )
        )
    if site.scheduler.kind != "slurm" or not site.cluster_name:
        return
    config = commands.show_config(site.name)
    if isinstance(config, commands.Answer) or config.name in (None, site.cluster_name):
        return
    raise BadInput(
        Problem(
            f"this is cluster {config.name!r}, site {site.name} is {site.cluster_name!r}",
            key="cluster_name",
            value=site.cluster_name,
            allowed=f"what `scontrol show config` says here: {config.name}",
            hint="log in where the site's Slurm answers, or set "
            f"CAMPAIGN_SLURM_CONF_{site.name.upper().replace('-', '_')} to its slurm.conf",
        )
    )


def _unchanged(project: Project, rows: list[Row], report: SubmitReport) -> list[Row]:
    """Rows whose site and study file are what they were when the run was planned."""
    hashes: dict[tuple[str, str], str] = {}

    def current(kind: str, name: str) -> str:
        if (kind, name) not in hashes:
            path = project.site_path(name) if kind == "site" else project.study_path(name)
            hashes[kind, name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
        return hashes[kind, name]

    kept = []
    stale: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for kind in ("site", "study"):
            if current(kind, row[kind]) != row[f"{kind}_sha256"]:
                key = (kind, row[kind], row["site"])
                stale[key] = stale.get(key, 0) + 1
                break
        else:
            kept.append(row)
    for (kind, name, site), count in stale.items():
        path = project.site_path(name) if kind == "site" else project.study_path(name)
        report.changed.append(
            Problem(
                f"{kind} {name} has changed since the plan: {number(count, 'run')} not submitted",
                str(path),
                hint=f"campaign plan {site} && campaign submit",
            )
        )
    return kept


def _batches(project: Project, ledger: Ledger, site: Site, rows: Sequence[Row], report: SubmitReport) -> list[Batch]:
    """The rows as batches, no more than the site's submit limit leaves room for."""
    room = site.scheduler.limits.submit_jobs
    if room is not None and site.scheduler.kind == "slurm":
        active = ledger.query(
            "SELECT count(*) FROM (SELECT DISTINCT tag, array_index FROM jobs WHERE site = ? AND state IN "
            "('submitting', 'queued', 'running', 'unknown'))",
            (site.name,),
        )[0][0]
        left = max(0, room - active)
        if len(rows) > left:
            report.limited.append(
                Problem(
                    f"{site.name} allows {number(room, 'job')} at once, {active} are there: "
                    f"{number(len(rows) - left, 'run')} stay planned",
                    key="scheduler.limits.submit_jobs",
                    value=room,
                    hint="campaign submit  (again, when jobs have ended)",
                )
            )
            rows = rows[:left]
    planned = ledger.planned_runs(row["run_id"] for row in rows)
    items = [
        Item(planned[row["run_id"]], row["attempts"] + 1, _tries(ledger, row["run_id"], row["attempts"] + 1))
        for row in rows
    ]
    return make_batches(site, project.site_paths(site), items)


def _tries(ledger: Ledger, run_id: str, attempt: int) -> int:
    return int(ledger.query("SELECT count(*) FROM jobs WHERE run_id = ? AND attempt = ?", (run_id, attempt))[0][0])


def _submit_one(
    project: Project, ledger: Ledger, site: Site, batch: Batch, report: SubmitReport, note: Callable[[str], None]
) -> bool:
    """Queue one batch. False when further batches for this site make no sense now."""
    count = sum(len(items) for items in batch.elements)
    try:
        states.take_intent(ledger, batch, site.scheduler.kind)
    except states.TakenByAnother:
        note(f"{site.name}: runs of this batch were taken by another campaign command")
        return True
    try:
        write_specs(batch, site, project.site_paths(site), project)
        if site.scheduler.kind == "local":
            job_id = start_local_queue(batch, site)
            states.note_queued(ledger, site.name, batch.tag, job_id=job_id, host=socket.gethostname())
        else:
            digest = hashlib.sha256(script_text(batch, site).encode()).hexdigest()
            job_id = sbatch(batch, site)
            states.note_queued(ledger, site.name, batch.tag, job_id=job_id, script_sha256=digest)
    except Uncertain as error:
        report.uncertain.extend(error.problems)
        return False
    except (Refused, OSError) as error:
        problems = error.problems if isinstance(error, CampaignError) else [_write_problem(batch, error)]
        states.give_back(ledger, site.name, batch.tag, problems[0].message)
        limit = isinstance(error, Refused) and error.limit
        (report.limited if limit else report.refused).extend(problems)
        return False
    report.queued += count
    report.batches += 1
    report.jobs.append({"site": site.name, "tag": batch.tag, "job_id": job_id, "runs": count})
    what = "local queue" if site.scheduler.kind == "local" else "job"
    note(f"{site.name}: {number(count, 'run')} queued as {what} {job_id}")
    return True


def _write_problem(batch: Batch, error: OSError) -> Problem:
    return Problem(
        f"the submit folder can't be written: {error.strerror}",
        str(batch.submit_dir),
        key="paths.run_root",
        hint="make room or set paths.run_root in campaign.yaml to a folder you may write",
    )


def preview(project: Project, ledger: Ledger, run_ids: Iterable[str]) -> list[dict[str, str]]:
    """The scripts that `submit` would send now for `run_ids`: {site, tag, text} each; local queues have none."""
    report = SubmitReport()
    rows = [row for row in ledger.run_rows(run_ids) if row["state"] == "planned" and row["superseded_by"] is None]
    rows, _ = hold_gated(ledger, rows)
    scripts = []
    for name in dict.fromkeys(row["site"] for row in rows):
        site = project.load_site(name)
        for batch in _batches(project, ledger, site, [row for row in rows if row["site"] == name], report):
            local = site.scheduler.kind == "local"
            text = f"# local queue: {batch.submit_dir}" if local else script_text(batch, site)
            scripts.append({"site": name, "tag": batch.tag, "text": text})
    return scripts
