"""What Slurm answers about a site's jobs, and what may be concluded from it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.slurm import commands
from campaign.slurm.queries import JobReport
from campaign.slurm.states import FINAL, run_state

if TYPE_CHECKING:
    from campaign.site import Site

CLOCK_MARGIN = timedelta(hours=1)
"""Login node and database may disagree about the time; sacct is asked for this much more."""

NAMES_THAT_LAG = frozenset({"allocation"})
"""For some seconds sacct may name a job so, when slurmdbd hears of a step before it hears of the job."""

Reports = dict[tuple[str, int | None], JobReport]


@dataclass
class Answers:
    """What squeue and sacct said, by (job id or tag, array index)."""

    site: str
    queued: Reports | None
    """None: squeue failed."""
    accounted: Reports | None
    """None: the site has no accounting, or sacct failed."""
    error: str | None
    """Why a query failed; None when all were answered."""

    def find(self, job: Row) -> JobReport | None:
        """The newest word on one array element: squeue on what lives, sacct on what has ended.

        None when neither knows it. A job that only sacct calls alive is not known: after a crash of the controller its
        row stays open for ever.
        """
        live = _look(self.queued or {}, job)
        ended = _look(self.accounted or {}, job)
        if ended is not None and run_state(ended.slurm_state)[0] not in FINAL:
            ended = None
        if live is not None and (ended is None or run_state(live.slurm_state)[0] not in FINAL):
            return live
        return ended or live

    def absence_counts(self, job: Row) -> bool:
        """True when a job that wasn't found isn't there: all queries were answered, about this user's jobs, and by the
        cluster that the job was sent to. Asks the cluster's name when it comes to that, once."""
        if self.error is not None or job["user"] != commands.user_name():
            return False
        return job["cluster"] in (None, self.cluster)

    def elsewhere(self, jobs: Iterable[Row], site_cluster: str | None) -> str | None:
        """Why these answers say nothing of jobs that are neither queued nor ended here: it is another cluster's shell.

        site_cluster: the site file's, for jobs of which only that is known. The cluster that answers is asked its name
        only when a job is missed.
        """
        wanted = ((job["cluster"] or site_cluster) for job in jobs if self.find(job) is None)
        theirs = next(filter(None, wanted), None)
        if theirs is None or self.error is not None or self.cluster in (None, theirs):
            return None
        return f"this is cluster `{self.cluster}`, and the jobs are on `{theirs}`"

    def knows_array(self, job: Row) -> bool:
        """True when some element of the job's array is known: after a crash a controller hands out its id again, to a
        job of another name."""
        return (job["job_id"], job["tag"]) in self._arrays

    @functools.cached_property
    def _arrays(self) -> set[tuple[str, str]]:
        known = (reports.values() for reports in (self.queued, self.accounted) if reports is not None)
        return {(report.job_id, report.name) for reports in known for report in reports}

    @functools.cached_property
    def cluster(self) -> str | None:
        """What the controller that answers here calls itself; None when it doesn't say."""
        config = commands.show_config(self.site)
        return None if isinstance(config, commands.Answer) else config.name


def ask(site: Site, jobs: Sequence[Row]) -> Answers:
    """One squeue and, where there is accounting, one sacct call about the users of `jobs`."""
    users = sorted({job["user"] for job in jobs})
    queued = commands.squeue(site.name, users)
    if isinstance(queued, commands.Answer):
        return Answers(site.name, None, None, f"Slurm didn't answer: {queued.stderr}")
    if not site.accounting:
        return Answers(site.name, _by_place(queued), None, None)
    accounted = commands.sacct(site.name, users, since(jobs))
    if isinstance(accounted, commands.Answer):
        return Answers(site.name, _by_place(queued), None, f"accounting didn't answer: {accounted.stderr}")
    return Answers(site.name, _by_place(queued), _by_place(accounted), None)


def since(jobs: Iterable[Row]) -> str:
    """From when on accounting is asked about these jobs: UTC, ISO 8601, before the first of them was sent."""
    oldest = min(job["intent_at"] for job in jobs)
    return (datetime.fromisoformat(oldest.replace("Z", "+00:00")) - CLOCK_MARGIN).strftime("%Y-%m-%dT%H:%M:%S")


def _by_place(reports: Iterable[JobReport]) -> Reports:
    """Reports by job id and by tag; of several jobs of one tag the first that was queued counts."""
    places: Reports = {}
    rows = list(reports)
    if len({report.job_id for report in rows}) > 1:
        rows.sort(key=lambda report: int(report.job_id))
    for report in rows:
        places[report.job_id, report.array_index] = report
        places.setdefault((report.name, report.array_index), report)
    return places


def _look(reports: Reports, job: Row) -> JobReport | None:
    """By job id once it is known, else by tag. A job id that was handed out again has another name: not found."""
    name = job["job_id"] or job["tag"]
    found = reports.get((name, job["array_index"])) or reports.get((name, None))
    if found is None or found.name == job["tag"] or found.name in NAMES_THAT_LAG:
        return found
    return None
