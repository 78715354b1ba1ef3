"""Queue planned runs: exactly as planned, each once.

Order of every submission: the intent in the ledger, the specs on disk, sbatch, the answer in the ledger. Whatever is
killed in between is found again by its tag (`refresh`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from sqlite3 import Row
from typing import TYPE_CHECKING

from campaign.errors import CampaignError, NotNow, Problem
from campaign.submit.attempts import next_items
from campaign.submit.executors import script_text
from campaign.submit.gate import hold_gated
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
from campaign.submit.limits import NO_CAPS, Caps, min_cap, within_cap
from campaign.submit.report import Elsewhere, SubmitReport
from campaign.submit.sending import Note, Sender
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site


@dataclass(frozen=True, slots=True)
class _Place:
    """A site that may be submitted to from here."""

    site: Site
    cluster: str | None
    rows: list[Row]
    sure: bool


def submit(
    project: Project,
    ledger: Ledger,
    run_ids: Iterable[str],
    *,
    note: Note = lambda _: None,
    skip: Collection[str] = (),
    named: Collection[str] | None = None,
    caps: Caps = NO_CAPS,
) -> SubmitReport:
    """Queue those of `run_ids` that are planned and not held back by a gate; none on the sites in `skip`.

    `named`: sites that the user asked for by name; None: all. Runs of others stay planned, without an error, where
    another cluster answers. `caps`: the command's own, beside those of campaign.yaml. Nothing is written for a site
    before its cluster has answered. Refusals (of sbatch, of a wrong cluster) are in the report, not raised: other
    batches and sites go on.
    """
    report = SubmitReport()
    by_site: dict[str, list[Row]] = {}
    for row in _ready(project, ledger, run_ids, report):
        if row["site"] not in skip:
            by_site.setdefault(row["site"], []).append(row)
    asked = [_place(project, ledger, name, mine, report, named) for name, mine in by_site.items()]
    places = _unmistaken([place for place in asked if place], report, named)
    for place in _affordable(project, ledger, places, report, caps):
        if place.cluster is not None and place.site.cluster_name is None:
            file = place.site.source.place(("cluster_name",))[0]
            said = f"{file} names no cluster; the one that answers here is `{place.cluster}`"
            report.advice.append(f"{said}: cluster_name: {place.cluster}")
        sender = Sender(project, ledger, place.site, place.cluster, report, note, caps)
        if sender.queue(place.rows):
            # another command took some runs of a batch meanwhile: once more for those that are left
            sender.queue(_submittable(project, ledger, [row["run_id"] for row in place.rows], SubmitReport(), caps))
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


def _affordable(
    project: Project, ledger: Ledger, places: list[_Place], report: SubmitReport, caps: Caps
) -> list[_Place]:
    """The places with those of their rows that the cap on GPU-hours leaves room for; what is elsewhere takes none."""
    ids = _within_cap(project, ledger, [row for place in places for row in place.rows], report, caps)
    if ids is None:
        return places
    # asked again when a run has ended, not at every look: room comes from nothing else
    report.full_sites |= {place.site.name for place in places if any(row["run_id"] not in ids for row in place.rows)}
    cut_down = [
        dataclasses.replace(place, rows=[row for row in place.rows if row["run_id"] in ids]) for place in places
    ]
    return [place for place in cut_down if place.rows]


def preview(
    project: Project, ledger: Ledger, run_ids: Iterable[str], caps: Caps = NO_CAPS
) -> tuple[list[dict[str, str]], SubmitReport]:
    """The scripts that `submit` would send now for `run_ids`, {site, tag, text} each (local queues have none), and what
    it would say of the other runs."""
    report = SubmitReport()
    rows = _submittable(project, ledger, run_ids, report, caps)
    scripts = []
    for name in dict.fromkeys(row["site"] for row in rows):
        site = project.load_site(name)
        sender = Sender(project, ledger, site, None, report, lambda _: None, caps)
        for batch in sender.batches(next_items(ledger, [row for row in rows if row["site"] == name])):
            local = site.scheduler.kind == "local"
            text = f"# local queue: {batch.submit_dir}" if local else script_text(batch, site)
            scripts.append({"site": name, "tag": batch.tag, "text": text})
        report.limited.extend(sender.met)
    return scripts, report


def _submittable(
    project: Project, ledger: Ledger, run_ids: Iterable[str], report: SubmitReport, caps: Caps
) -> list[Row]:
    """Rows that may be queued now, as far as the cap on GPU-hours goes; the report says which are held back."""
    rows = _ready(project, ledger, run_ids, report)
    ids = _within_cap(project, ledger, rows, report, caps)
    return rows if ids is None else [row for row in rows if row["run_id"] in ids]


def _within_cap(project: Project, ledger: Ledger, rows: list[Row], report: SubmitReport, caps: Caps) -> set[str] | None:
    """Runs that the cap on GPU-hours leaves room for; None: all, and the report has nothing to say."""
    if min_cap(project.config, caps) is None:
        return None
    kept, over = within_cap(project.config, ledger, next_items(ledger, rows), caps)
    if over is None:
        return None
    report.limited.append(over)
    return {item.run.run_id for item in kept}


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
