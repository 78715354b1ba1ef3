"""Queue the rows of one site: batches within the limits, each noted, written and sent, in this order."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import CampaignError, Problem
from campaign.slurm.durations import format_duration
from campaign.submit import states
from campaign.submit.attempts import next_items
from campaign.submit.batch import Batch, Item, make_batches, tidy, write_specs
from campaign.submit.executors import Refused, Uncertain, sbatch, script_text, start_local_queue
from campaign.submit.learned import learn_limit
from campaign.submit.ledger import Ledger
from campaign.submit.limits import NO_CAPS, Caps, Limit, fit, job_limits
from campaign.submit.origin import note_origin, provenance
from campaign.submit.report import SubmitReport
from campaign.words import amount
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site

Note = Callable[[str], None]
TOO_FEW_NODES = "Requested node configuration is not available"


@dataclass
class Sender:
    """Queues runs of one site."""

    project: Project
    ledger: Ledger
    site: Site
    cluster: str | None
    report: SubmitReport
    note: Note
    caps: Caps = NO_CAPS
    met: list[Problem] = field(default_factory=list)
    """Limits that the last look met: earlier looks at the same runs are overtaken by it."""

    def queue(self, rows: Sequence[Row]) -> bool:
        """Queue these planned rows as far as limits allow. True when another command was quicker with some of them."""
        quicker = False
        waiting = self.batches(next_items(self.ledger, rows))
        if waiting:
            self.note(_at_most(self.site, waiting))
        while waiting:
            batch, *waiting = waiting
            try:
                states.take_intent(self.ledger, batch, self.site.scheduler.kind, self.cluster)
            except states.TakenByAnother:
                quicker = True
                continue
            waiting = self._send(batch, waiting)
        self.report.limited.extend(self.met)
        return quicker

    def batches(self, items: Iterable[Item]) -> list[Batch]:
        """The items as batches, no more jobs than the limits leave room for."""
        limits = job_limits(self.project.config, self.ledger, self.site, self.caps)
        kept, self.met = fit(items, limits)
        if self.met:
            self.report.full_sites.add(self.site.name)
        return make_batches(self.project, self.site, kept)

    @cached_property
    def _origin(self) -> Mapping[str, Any]:
        return provenance(self.project.root)

    def _send(self, batch: Batch, waiting: list[Batch]) -> list[Batch]:
        """Queue one batch whose intent is noted; what is to be sent next."""
        try:
            job_id, digest = self._call(batch)
        except Uncertain as error:
            self.report.uncertain.extend(error.problems)
            return []
        except (Refused, OSError) as error:
            problems = error.problems if isinstance(error, CampaignError) else [_write_problem(batch, error)]
            with contextlib.suppress(OSError):  # the very folder may be what can't be written
                tidy(batch.submit_dir)
            states.give_back(self.ledger, self.site.name, batch.tag, problems[0].message)
            return self._refused(batch, waiting, problems, error)
        states.note_queued(self.ledger, self.site.name, batch.tag, job_id=job_id, script_sha256=digest)
        count = sum(len(items) for items in batch.elements)
        self.report.queued += count
        self.report.batches += 1
        self.report.jobs.append({"site": self.site.name, "tag": batch.tag, "job_id": job_id, "runs": count})
        self.note(f"{self.site.name}: {number(count, 'run')} queued as {'local queue' if self.site.local else 'job'} "
                  f"{job_id}")  # fmt: skip
        return waiting

    def _call(self, batch: Batch) -> tuple[str, str | None]:
        """(job id, SHA-256 of the script) of the batch, now queued."""
        write_specs(batch, self.site, self.project.site_paths(self.site), self.project, self._origin)
        note_origin(self.ledger, self.site.name, batch.tag, self._origin)
        if self.site.local:
            return start_local_queue(batch, self.site), None
        digest = hashlib.sha256(script_text(batch, self.site).encode()).hexdigest()
        return sbatch(batch, self.site), digest

    def _refused(
        self, batch: Batch, waiting: list[Batch], problems: Sequence[Problem], error: Exception
    ) -> list[Batch]:
        """What is sent next after a refusal."""
        if isinstance(error, Refused) and error.limit:
            self.report.full_sites.add(self.site.name)
            if error.whole_site or len(batch.elements) == 1:
                self.report.limited.extend(problems)
                return []
            return self._narrowed(batch)
        if any(item.avoid for _, item in batch.placed()) and TOO_FEW_NODES in problems[0].message:
            self.note(f"{self.site.name}: too few nodes without the suspects, so they are allowed again")
            rows = self.ledger.run_rows(item.run.run_id for _, item in batch.placed())
            return [*self.batches(next_items(self.ledger, rows, avoid=False)), *waiting]
        self.report.refused.extend(self._with_walltime(batch, problem) for problem in problems)
        self.report.not_again.update(item.run.run_id for _, item in batch.placed())
        return waiting

    def _with_walltime(self, batch: Batch, problem: Problem) -> Problem:
        """A refusal of attempts that asked for another walltime than planned says so, and how to ask for a third."""
        ids = [item.run.run_id for _, item in batch.placed()]
        longer = [row["run_id"] for row in self.ledger.run_rows(ids) if row["walltime_s"] is not None]
        if not longer:
            return problem
        asked = f"they ask for {format_duration(batch.walltime_s)}"
        command = f"campaign retry --run {longer[0]} --walltime TIME"
        return dataclasses.replace(problem, hint=f"{asked}: {command}  asks for another; or {problem.hint}")

    def _narrowed(self, batch: Batch) -> list[Batch]:
        """What to try in place of a batch that met a limit nobody had written down: what accounting says fits, else
        half of it. Nothing but this batch: who is full takes no others now."""
        tried = len(batch.elements)
        items = next_items(self.ledger, self.ledger.run_rows(item.run.run_id for _, item in batch.placed()))
        if learn_limit(self.ledger, self.site, batch.first.qos, batch.first.account):
            smaller = self.batches(items)
            if sum(len(other.elements) for other in smaller) < tried:
                return smaller
        message = f"{self.site.name}: a submit limit that nobody wrote down was met with {number(tried, 'job')}"
        kept, self.met = fit(items, [Limit(tried // 2, 0, Problem(message))])
        return make_batches(self.project, self.site, kept)


def _at_most(site: Site, batches: Sequence[Batch]) -> str:
    """What is about to be queued, and what it may cost at most: every run with its whole walltime."""
    runs = [item.run for batch in batches for _, item in batch.placed()]
    jobs = "" if site.local else f" in {number(sum(len(batch.elements) for batch in batches), 'job')}"
    node_h = [run.price.node_h for run in runs]
    gpu_h = [run.price.gpu_h for run in runs]
    costs = [
        f"{amount(sum(known))} {unit}"
        for unit, hours in (("GPU-h", gpu_h), ("node-h", node_h))
        if len(known := [value for value in hours if value is not None]) == len(hours)
    ]
    cost = f"at most {' or '.join(costs)}" if costs else "cost unknown"
    return f"{site.name}: {number(len(runs), 'run')}{jobs}, {cost}"


def _write_problem(batch: Batch, error: OSError) -> Problem:
    return Problem(
        f"the submit folder can't be written: {error.strerror}",
        str(batch.submit_dir),
        key="paths.run_root",
        hint="make room or set paths.run_root in campaign.yaml to a folder you may write",
    )
