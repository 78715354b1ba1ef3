"""Queue planned runs: exactly as planned, each once.

Order of every submission: the intent in the ledger, the specs on disk, sbatch, the answer in the ledger. Whatever is
killed in between is found again by its tag (`refresh`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import CampaignError, NotNow, Problem
from campaign.submit import states
from campaign.submit.batch import Batch, Item, cut, make_batches, write_specs
from campaign.submit.executors import Refused, Uncertain, sbatch, script_text, start_local_queue
from campaign.submit.gate import Held, hold_gated
from campaign.submit.guard import (
    NoClusterHere,
    NotMounted,
    WrongCluster,
    guard_cluster,
    guard_run_root,
    is_sure,
    known_clusters,
)
from campaign.submit.ledger import Ledger
from campaign.submit.limits import room, within_cap
from campaign.submit.origin import note_origin, provenance
from campaign.words import amount
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
    not_again: set[str] = field(default_factory=set)
    """Runs that were refused: trying them again changes nothing."""
    full_sites: set[str] = field(default_factory=set)
    """Sites whose submit limit was met."""
    away: set[str] = field(default_factory=set)
    """Sites whose cluster gave no answer."""
    elsewhere: list[Elsewhere] = field(default_factory=list)
    """Sites nobody named, whose cluster isn't the one here."""
    advice: list[str] = field(default_factory=list)
    """What would make the next submission surer."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Runs of a site that isn't here: they stay planned."""

    site: str
    count: int
    problem: Problem

    @property
    def message(self) -> str:
        """Why they stay, and where they can be queued."""
        runs = f"{number(self.count, 'run')} {'stays' if self.count == 1 else 'stay'} planned"
        return f"{self.site}: {runs}: {self.problem.message}; submit on {self.site}'s login node"


@dataclass(frozen=True, slots=True)
class _Place:
    """A site that may be submitted to from here."""

    site: Site
    cluster: str | None
    rows: list[Row]
    sure: bool


Note = Callable[[str], None]


def submit(
    project: Project,
    ledger: Ledger,
    run_ids: Iterable[str],
    *,
    note: Note = lambda _: None,
    skip: Collection[str] = (),
    named: Collection[str] | None = None,
) -> SubmitReport:
    """Queue those of `run_ids` that are planned and not held back by a gate; none on the sites in `skip`.

    `named`: sites that the user asked for by name; None: all. Runs of others stay planned, without an error, where
    another cluster answers. Nothing is written for a site before its cluster has answered. Refusals (of sbatch, of a
    wrong cluster) are in the report, not raised: other batches and sites go on.
    """
    report = SubmitReport()
    by_site: dict[str, list[Row]] = {}
    for row in _ready(project, ledger, run_ids, report):
        if row["site"] not in skip:
            by_site.setdefault(row["site"], []).append(row)
    places = [_place(project, ledger, name, mine, report, named) for name, mine in by_site.items()]
    for place in _affordable(project, ledger, _unmistaken([place for place in places if place], report, named), report):
        if place.cluster is not None and place.site.cluster_name is None:
            file = place.site.source.place(("cluster_name",))[0]
            said = f"{file} names no cluster; the one that answers here is `{place.cluster}`"
            report.advice.append(f"{said}: cluster_name: {place.cluster}")
        if _submit_rows(project, ledger, place.site, place.rows, report, note, place.cluster):
            # another command took some runs of a batch meanwhile: once more for those that are left
            left = _submittable(project, ledger, [row["run_id"] for row in place.rows], SubmitReport())
            _submit_rows(project, ledger, place.site, left, report, note, place.cluster)
    report.held = [held.as_of(ledger) for held in report.held]
    return report


def _place(
    project: Project,
    ledger: Ledger,
    name: str,
    rows: list[Row],
    report: SubmitReport,
    named: Collection[str] | None,
) -> _Place | None:
    """The site as it can be submitted to from here; None when it can't: the report says why. Writes nothing."""
    free = named is not None and name not in named
    try:
        site = project.load_site(name)
        known = known_clusters(project, ledger, site)
        cluster = guard_cluster(site, known)
        sure = cluster is None or is_sure(site, cluster, known)
        guard_run_root(project, site)
    except NotMounted as error:
        if free and not sure:
            report.elsewhere.append(Elsewhere(name, len(rows), error.problems[0]))
            return None
        report.refused.extend(error.problems)
    except (WrongCluster, NoClusterHere) as error:
        if free:
            report.elsewhere.append(Elsewhere(name, len(rows), error.problems[0]))
            return None
        (report.uncertain if isinstance(error, NotNow) else report.refused).extend(error.problems)
    except NotNow as error:
        report.uncertain.extend(error.problems)
        report.away.add(name)
        return None
    except CampaignError as error:
        report.refused.extend(error.problems)
    else:
        return _Place(site, cluster, rows, sure)
    report.not_again.update(row["run_id"] for row in rows)
    return None


def _unmistaken(places: list[_Place], report: SubmitReport, named: Collection[str] | None) -> list[_Place]:
    """Without those that nobody named and of which more than one could be the cluster that answers here."""
    unsure = [place for place in places if not place.sure and named is not None and place.site.name not in named]
    clusters = [place.cluster for place in unsure]
    doubtful = [place for place in unsure if clusters.count(place.cluster) > 1]
    for place in doubtful:
        names = " or ".join(other.site.name for other in doubtful if other.cluster == place.cluster)
        problem = Problem(f"this is cluster `{place.cluster}`, which may be {names}; if it is {place.site.name}: "
                          f"campaign submit --site {place.site.name}")  # fmt: skip
        report.elsewhere.append(Elsewhere(place.site.name, len(place.rows), problem))
    return [place for place in places if place not in doubtful]


def _affordable(project: Project, ledger: Ledger, places: list[_Place], report: SubmitReport) -> list[_Place]:
    """The places with those of their rows that the project's cap leaves room for; what is elsewhere takes none."""
    kept, over = within_cap(project.config, ledger, [row for place in places for row in place.rows])
    if over is None:
        return places
    report.limited.append(over)
    ids = {row["run_id"] for row in kept}
    # asked again when a run has ended, not at every look: room comes from nothing else
    report.full_sites |= {place.site.name for place in places if any(row["run_id"] not in ids for row in place.rows)}
    cut_down = [
        dataclasses.replace(place, rows=[row for row in place.rows if row["run_id"] in ids]) for place in places
    ]
    return [place for place in cut_down if place.rows]


def preview(project: Project, ledger: Ledger, run_ids: Iterable[str]) -> list[dict[str, str]]:
    """The scripts that `submit` would send now for `run_ids`: {site, tag, text} each; local queues have none."""
    report = SubmitReport()
    rows = _submittable(project, ledger, run_ids, report)
    scripts = []
    for name in dict.fromkeys(row["site"] for row in rows):
        site = project.load_site(name)
        for batch in _batches(project, ledger, site, [row for row in rows if row["site"] == name], report):
            local = site.scheduler.kind == "local"
            text = f"# local queue: {batch.submit_dir}" if local else script_text(batch, site)
            scripts.append({"site": name, "tag": batch.tag, "text": text})
    return scripts


def _submittable(project: Project, ledger: Ledger, run_ids: Iterable[str], report: SubmitReport) -> list[Row]:
    """Rows that may be queued now, as far as the project's cap goes; the report says which are held back."""
    rows, over = within_cap(project.config, ledger, _ready(project, ledger, run_ids, report))
    if over is not None:
        report.limited.append(over)
    return rows


def _ready(project: Project, ledger: Ledger, run_ids: Iterable[str], report: SubmitReport) -> list[Row]:
    """Planned rows; the report says which are held back or have changed files."""
    rows = [row for row in ledger.run_rows(run_ids) if row["state"] == "planned" and row["superseded_by"] is None]
    rows, report.held = hold_gated(ledger, _unchanged(project, rows, report))
    return rows


def _unchanged(project: Project, rows: list[Row], report: SubmitReport) -> list[Row]:
    """Rows whose site and study file are what they were when the run was planned."""
    hashes: dict[tuple[str, str], str] = {}

    def current(kind: str, name: str) -> str:
        if (kind, name) not in hashes:
            try:
                path = project.site_path(name) if kind == "site" else project.study_path(name)
                hashes[kind, name] = hashlib.sha256(path.read_bytes()).hexdigest()
            except (CampaignError, OSError):
                hashes[kind, name] = "gone"
        return hashes[kind, name]

    kept = []
    stale: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for kind in ("site", "study"):
            if current(kind, row[kind]) != row[f"{kind}_sha256"]:
                key = (kind, row[kind], row["site"])
                stale[key] = stale.get(key, 0) + 1
                report.not_again.add(row["run_id"])
                break
        else:
            kept.append(row)
    for (kind, name, site), count in stale.items():
        what = "is gone" if hashes[kind, name] == "gone" else "has changed since the plan"
        report.changed.append(
            Problem(
                f"{kind} {name} {what}: {number(count, 'run')} not submitted",
                f"{'sites' if kind == 'site' else 'studies'}/{name}.yaml",
                hint=_changed_hint(kind, name, site, gone=hashes[kind, name] == "gone"),
            )
        )
    return kept


def _changed_hint(kind: str, name: str, site: str, *, gone: bool) -> str:
    """What helps: planning anew where the file is there, else taking the runs out."""
    if gone:
        return f"campaign cancel --{kind} {name}  takes its planned runs out; or put the file back as it was"
    return f"campaign plan {site} && campaign submit"


def _batches(project: Project, ledger: Ledger, site: Site, rows: Sequence[Row], report: SubmitReport) -> list[Batch]:
    """The rows as batches, no more jobs than the site's submit limit leaves room for."""
    batches = make_batches(project, site, next_items(ledger, rows))
    free = room(project.config, ledger, site)
    wanted = sum(len(batch.elements) for batch in batches)
    if free is None or wanted <= free.left:
        return batches
    report.full_sites.add(site.name)
    report.limited.append(free.problem(wanted))
    return cut(project, site, batches, free.left)


def next_items(ledger: Ledger, rows: Sequence[Row]) -> list[Item]:
    """The next attempt at each of these runs. Earlier intents of it that came to nothing are part of its tag."""
    planned = ledger.planned_runs(row["run_id"] for row in rows)
    tries = {
        row["run_id"]: int(row["n"])
        for row in ledger.query(
            "SELECT run_id, count(*) AS n FROM jobs JOIN runs USING (run_id) "
            "WHERE jobs.attempt = runs.attempts + 1 GROUP BY 1"
        )
    }
    return [Item(planned[row["run_id"]], row["attempts"] + 1, tries.get(row["run_id"], 0)) for row in rows]


def _submit_rows(
    project: Project,
    ledger: Ledger,
    site: Site,
    rows: Sequence[Row],
    report: SubmitReport,
    note: Note,
    cluster: str | None,
) -> bool:
    """Queue the rows of one site. True when another command was quicker with some of them."""
    quicker = False
    batches = _batches(project, ledger, site, rows, report)
    if not batches:
        return False
    note(_at_most(site, batches))
    origin = provenance(project.root)
    for batch in batches:
        try:
            states.take_intent(ledger, batch, site.scheduler.kind, cluster)
        except states.TakenByAnother:
            quicker = True
            continue
        if not _send(project, ledger, site, batch, origin, report, note):
            break
    return quicker


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


def _send(
    project: Project,
    ledger: Ledger,
    site: Site,
    batch: Batch,
    origin: Mapping[str, Any],
    report: SubmitReport,
    note: Note,
) -> bool:
    """Queue one batch whose intent is noted. False when further batches for this site make no sense now."""
    local = site.scheduler.kind == "local"
    try:
        write_specs(batch, site, project.site_paths(site), project, origin)
        note_origin(ledger, site.name, batch.tag, origin)
        if local:
            job_id, digest = start_local_queue(batch, site), None
        else:
            digest = hashlib.sha256(script_text(batch, site).encode()).hexdigest()
            job_id = sbatch(batch, site)
    except Uncertain as error:
        report.uncertain.extend(error.problems)
        return False
    except (Refused, OSError) as error:
        problems = error.problems if isinstance(error, CampaignError) else [_write_problem(batch, error)]
        states.give_back(ledger, site.name, batch.tag, problems[0].message)
        if isinstance(error, Refused) and error.limit:
            report.limited.extend(problems)
            report.full_sites.add(site.name)
            return False
        report.refused.extend(problems)
        report.not_again.update(item.run.run_id for _, item in batch.placed())
        return True
    states.note_queued(ledger, site.name, batch.tag, job_id=job_id, script_sha256=digest)
    count = sum(len(items) for items in batch.elements)
    report.queued += count
    report.batches += 1
    report.jobs.append({"site": site.name, "tag": batch.tag, "job_id": job_id, "runs": count})
    note(f"{site.name}: {number(count, 'run')} queued as {'local queue' if local else 'job'} {job_id}")
    return True


def _write_problem(batch: Batch, error: OSError) -> Problem:
    return Problem(
        f"the submit folder can't be written: {error.strerror}",
        str(batch.submit_dir),
        key="paths.run_root",
        hint="make room or set paths.run_root in campaign.yaml to a folder you may write",
    )
