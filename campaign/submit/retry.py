"""Which runs are tried again by themselves: one table from how an attempt ended to what is done.

node, fabric, preempted: again, at most `retry.infrastructure` times; node and fabric without the suspect nodes.
timeout: again where the workload can go on from a checkpoint and did progress; else once, with the walltime that it
would have needed. Out of memory, configuration, user errors, quota, hangs and what nobody knows: never by itself.
Each decision is kept with the attempt that it is about, so it is made once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.plan.model import PlannedRun
from campaign.plan.walltime import Estimate, Pilots, estimate
from campaign.slurm.durations import format_duration
from campaign.submit import states
from campaign.submit.ledger import Ledger
from campaign.submit.outcome import INFRASTRUCTURE, SUSPECT, run_dir
from campaign.submit.pilots import pilots
from campaign.submit.progress import progress

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site

SUSPECT_FOR_H = 24
MOST_AVOIDED = 8
"""Suspect nodes of a site that are kept out at once, the newest first: a long list would keep jobs from starting."""

NEVER = {
    "oom_host": "the memory of the node wouldn't be larger: fewer ranks or workers, or a smaller batch",
    "oom_gpu": "the memory of the GPU wouldn't be larger: a smaller local batch, or another strategy",
    "config": "it would fail the same way: mend the configuration",
    "user": "it would fail the same way: mend the program",
    "quota": "make room first",
    "hang": "find out first what it waited for",
    "unknown": "nobody knows why it ended",
}
"""Why a failure of this class isn't tried again by itself."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a decision about one ended attempt rests on."""

    state: str
    fail_class: str | None
    infrastructure: int
    """Attempts at this run that infrastructure has broken, this one included."""
    allowed: int
    """`retry.infrastructure` of the study."""
    timeout: str
    """`retry.timeout` of the study: resume | never."""
    resumes: bool = False
    """The workload handles the warning signal (`record.on_warning: signal`): it can go on from a checkpoint."""
    progressed: bool = True
    """This attempt came further than the one before it."""
    lengthened: bool = False
    """This attempt already had more than the planned walltime."""
    walltime_s: int = 0
    needed: Estimate | None = None
    """What the whole run would take; None: nobody knows."""
    limit_s: float = math.inf
    """Longest walltime where it runs."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a run is planned again."""

    again: bool
    why: str
    walltime_s: int | None = None
    """Of the next attempt; None: as before."""


def decide(ended: Ended) -> Decision:
    """The policy. Pure."""
    if ended.fail_class in INFRASTRUCTURE:
        if ended.infrastructure > ended.allowed:
            return Decision(False, f"{ended.fail_class} failure, tried again {ended.allowed} times already")
        return Decision(True, f"{ended.fail_class} failure {ended.infrastructure} of {ended.allowed} that are forgiven")
    if ended.state == "timeout":
        return _timeout(ended)
    return Decision(False, NEVER.get(ended.fail_class or "unknown", NEVER["unknown"]))


def _timeout(ended: Ended) -> Decision:
    if ended.timeout == "never":
        return Decision(False, "the study says retry.timeout: never")
    if ended.resumes and ended.progressed:
        return Decision(True, "goes on from its checkpoint")
    if ended.resumes:
        return Decision(False, "it got no further than the attempt before")
    return _longer(ended)


def _longer(ended: Ended) -> Decision:
    """After a time limit without a checkpoint: once with the walltime that the progress so far asks for."""
    if ended.lengthened:
        return Decision(False, "it needed more than the walltime that its progress had asked for")
    if ended.needed is None:
        return Decision(False, "how long it would have needed is unknown: campaign retry --walltime 02:00:00")
    # an estimate that the attempt had exceeded: it was disturbed, or stuck
    wanted = ended.needed.walltime_s
    if wanted <= ended.walltime_s:
        wanted = math.ceil(1.5 * ended.walltime_s / 300) * 300
    if wanted > ended.limit_s:
        needs = f"it would need {format_duration(wanted)} ({ended.needed.text})"
        return Decision(False, f"{needs}, and the partition allows {format_duration(ended.limit_s)}")
    return Decision(True, f"with {format_duration(wanted)}: {ended.needed.text}", wanted)


CANDIDATES = (
    "SELECT runs.*, jobs.site AS job_site, jobs.submit_dir, jobs.walltime_s AS asked_s, jobs.attempt FROM runs "
    "JOIN jobs ON jobs.run_id = runs.run_id AND jobs.attempt = runs.attempts "
    "WHERE runs.state IN ('failed', 'timeout', 'interrupted') AND runs.superseded_by IS NULL AND jobs.again IS NULL "
    "AND jobs.state IN ('failed', 'timeout', 'interrupted') ORDER BY runs.site, runs.ord"
)


def retry_by_class(
    project: Project, ledger: Ledger, run_ids: Sequence[str] | None, note: Callable[[str], None]
) -> list[str]:
    """Plan again those of the runs (None: of all) that the policy says; their ids. Every decision is made once."""
    decided = decisions(project, ledger, run_ids)
    if not decided:
        return []
    states.note_decision(ledger, [(row["run_id"], row["attempt"], _words(choice)) for row, choice in decided])
    again = [(row, choice) for row, choice in decided if choice.again]
    walltimes = {row["run_id"]: choice.walltime_s for row, choice in again if choice.walltime_s is not None}
    states.plan_again(ledger, [row["run_id"] for row, _ in again], walltimes=walltimes)
    for row, choice in again:
        note(f"{row['run_id']}: attempt {row['attempts'] + 1} is planned: {choice.why}")
    return [row["run_id"] for row, _ in again]


def decisions(project: Project, ledger: Ledger, run_ids: Sequence[str] | None) -> list[tuple[Row, Decision]]:
    """What the policy says of each ended attempt that it hasn't judged yet; changes nothing."""
    wanted = None if run_ids is None else set(run_ids)
    rows = [row for row in ledger.query(CANDIDATES) if wanted is None or row["run_id"] in wanted]
    if not rows:
        return []
    broken = _broken(ledger)
    look = pilots(ledger)
    sites: dict[str, Site] = {}
    decided: list[tuple[Row, Decision]] = []
    for row in rows:
        if row["site"] not in sites:
            sites[row["site"]] = project.load_site(row["site"])
        decided.append((row, decide(_ended(row, broken.get(row["run_id"], 0), sites[row["site"]], look))))
    return decided


def _words(choice: Decision) -> str:
    return ("again: " if choice.again else "not by itself: ") + choice.why


def _broken(ledger: Ledger) -> dict[str, int]:
    """Attempts that infrastructure broke, by run."""
    marks = ", ".join(f"'{name}'" for name in sorted(INFRASTRUCTURE))
    sql = f"SELECT run_id, count(DISTINCT attempt) AS n FROM jobs WHERE fail_class IN ({marks}) GROUP BY 1"
    return {row["run_id"]: int(row["n"]) for row in ledger.query(sql)}


def _ended(row: Row, broken: int, site: Site, look: Pilots) -> Ended:
    """The facts about one ended attempt. Records are read for time limits only."""
    run = PlannedRun.from_json(json.loads(row["spec"]))
    facts: dict[str, Any] = {
        "state": row["state"],
        "fail_class": row["fail_class"],
        "infrastructure": max(1, broken),
        "allowed": int(run.retry.get("infrastructure") or 0),
        "timeout": str(run.retry.get("timeout") or "never"),
    }
    if row["state"] != "timeout" or facts["timeout"] == "never":
        return Ended(**facts)
    folder = run_dir(row)
    reached = progress(folder, row["attempt"])
    before = progress(folder, row["attempt"] - 1) if row["attempt"] > 1 else None
    asked_s = int(row["asked_s"] or run.walltime_s)
    known = list(look(run.site, run.series))
    epochs = _count(run.params.get("epochs"))
    whole = reached.whole(run.run_id, run.nodes, run.world_size, epochs) if reached and epochs else None
    if whole is not None:
        needed: Estimate | None = estimate([whole], nodes=run.nodes, world_size=run.world_size, scales=False)
    else:
        scales = run.scaling in ("strong", "weak")
        needed = estimate(known, nodes=run.nodes, world_size=run.world_size, scales=scales) if known else None
    return Ended(
        **facts,
        resumes=run.record.get("on_warning") == "signal",
        progressed=reached is not None and _further(reached.last_epoch, before.last_epoch if before else None),
        lengthened=asked_s > run.walltime_s,
        walltime_s=asked_s,
        needed=needed,
        limit_s=limit_s(site, run),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _further(last: int | None, before: int | None) -> bool:
    return last is not None and (before is None or last > before)


def limit_s(site: Site, run: PlannedRun) -> float:
    """The longest walltime where this run is planned; infinite where nobody knows a limit."""
    partition = site.partitions.get(run.partition) if run.partition else None
    if partition is None:
        return math.inf
    qos = partition.qos.get(run.qos) if run.qos else None
    limits = (partition.max_time, None if qos is None else qos.max_time)
    return min((float(limit) for limit in limits if limit is not None), default=math.inf)


def suspects(ledger: Ledger, site: str) -> list[str]:
    """Nodes of a site that a failure of the last day points to, the newest first, at most `MOST_AVOIDED`."""
    marks = ", ".join(f"'{name}'" for name in sorted(SUSPECT))
    rows = ledger.query(
        f"SELECT failed_nodes FROM jobs WHERE site = ? AND fail_class IN ({marks}) AND failed_nodes IS NOT NULL "
        "AND julianday('now') - julianday(coalesce(over_since, state_seen_at, intent_at)) < ? "
        "ORDER BY coalesce(over_since, state_seen_at, intent_at) DESC",
        (site, SUSPECT_FOR_H / 24),
    )
    return list(dict.fromkeys(node for row in rows for node in row["failed_nodes"].split(",")))[:MOST_AVOIDED]
