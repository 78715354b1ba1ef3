"""How much may be queued now: limits of site and QOS, the project's caps and the command's. The rest stays planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from campaign.errors import Problem
from campaign.submit.budget import Budget, budget
from campaign.submit.order import elements
from campaign.words import amount
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.config import Config
    from campaign.site import Site
    from campaign.submit.batch import Item
    from campaign.submit.ledger import Ledger

ACTIVE_ELEMENTS = (
    "SELECT site, qos, count(*) AS n FROM (SELECT DISTINCT jobs.site, tag, array_index, "
    "json_extract(spec, '$.qos') AS qos FROM jobs JOIN runs USING (run_id) WHERE scheduler = 'slurm' AND "
    "jobs.state IN ('submitting', 'queued', 'running', 'unknown')) GROUP BY 1, 2"
)
AGAIN = "campaign submit  (again, when jobs have ended), or let `campaign timer` do it"
ROUNDING_GPU_H = 1e-9


@dataclass(frozen=True, slots=True)
class Caps:
    """What one command allows itself, beside the caps of campaign.yaml; the tighter one holds. None: no cap."""

    queued: int | None = None
    """`--max-queued`: jobs that are queued or running at once, all sites together."""
    gpu_hours: float | None = None
    """`--max-gpu-hours`: spent, committed and new ones together, as `caps.gpu_hours`."""


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit on jobs (array elements) that are queued or running at once."""

    most: int
    there: int
    """Of the campaign's own."""
    problem: Problem
    """What is said of it, at the line that sets it."""
    qos: str | None = None
    """None: it holds for every job of the site."""


def fit(items: Iterable[Item], limits: Sequence[Limit]) -> tuple[list[Item], list[Problem]]:
    """The items that the limits leave room for, the most useful first; what is said of the limits that were met."""
    left = [max(0, limit.most - limit.there) for limit in limits]
    stay = [0] * len(limits)
    kept: list[Item] = []
    for element in elements(items):
        mine = [index for index, limit in enumerate(limits) if limit.qos in (None, element[0].run.qos)]
        tightest = min(mine, key=lambda index: left[index], default=None)
        if tightest is not None and left[tightest] == 0:
            stay[tightest] += 1
            continue
        kept.extend(element)
        for index in mine:
            left[index] -= 1
    problems = [
        dataclasses.replace(
            limit.problem, message=f"{limit.problem.message}: {_stay(count, 'job')} planned", hint=AGAIN
        )
        for limit, count in zip(limits, stay, strict=True)
        if count
    ]
    return kept, problems


def _stay(count: int, what: str) -> str:
    return f"{number(count, what)} {'stays' if count == 1 else 'stay'}"


def job_limits(config: Config, ledger: Ledger, site: Site, caps: Caps) -> list[Limit]:
    """Every limit that is known for jobs of this site: of the site file, learned from Slurm, of project and command."""
    if site.local:
        return []
    rows = ledger.query(ACTIVE_ELEMENTS)
    here: dict[str | None, int] = {row["qos"]: int(row["n"]) for row in rows if row["site"] == site.name}
    everywhere = sum(int(row["n"]) for row in rows)
    return [*_of_site(site, here), *_learned(ledger, site, here), *_own(config, caps, everywhere)]


def _of_site(site: Site, here: dict[str | None, int]) -> Iterator[Limit]:
    there = sum(here.values())
    most = site.scheduler.limits.submit_jobs
    if most is not None:
        message = f"{site.name} allows {number(most, 'job')} at once, {there} are there"
        yield Limit(most, there, site.problem(("scheduler", "limits", "submit_jobs"), message))
    named: dict[str, tuple[int, tuple[str, ...]]] = {}
    for partition, facts in site.partitions.items():
        for name, qos in facts.qos.items():
            if qos.submit_jobs is not None and qos.submit_jobs < named.get(name, (qos.submit_jobs + 1, ()))[0]:
                named[name] = qos.submit_jobs, ("partitions", partition, "qos", name, "submit_jobs")
    for name, (most, path) in named.items():
        message = f"QOS {name} of {site.name} allows {number(most, 'job')} at once, {here.get(name, 0)} are there"
        yield Limit(most, here.get(name, 0), site.problem(path, message), qos=name)


def _learned(ledger: Ledger, site: Site, here: dict[str | None, int]) -> Iterator[Limit]:
    """Limits that no file knows: what accounting said when sbatch had met one. They are believed for a day."""
    for row in ledger.query(
        "SELECT * FROM learned_limits WHERE site = ? AND julianday('now') - julianday(seen_at) < 1", (site.name,)
    ):
        qos = row["qos"] or None
        there = here.get(qos, 0) if qos else sum(here.values())
        whose = f"QOS {qos} of {site.name}" if qos else f"{site.name}"
        message = f"{whose} allows {number(row['submit_jobs'], 'job')} of a user at once, {there} are there"
        yield Limit(row["submit_jobs"], there, Problem(f"{message} (as accounting says; no site file knows)"), qos=qos)


def _own(config: Config, caps: Caps, everywhere: int) -> Iterator[Limit]:
    if config.caps.queued is not None:
        message = f"the project allows itself {number(config.caps.queued, 'queued job')}, {everywhere} are there"
        yield Limit(config.caps.queued, everywhere, config.problem(("caps", "queued"), message))
    if caps.queued is not None:
        message = f"--max-queued allows {number(caps.queued, 'job')} at once, {everywhere} are there"
        yield Limit(caps.queued, everywhere, Problem(message, key="--max-queued", value=caps.queued))


def within_cap(
    config: Config, ledger: Ledger, items: Sequence[Item], caps: Caps = NO_CAPS
) -> tuple[list[Item], Problem | None]:
    """The items that the cap on GPU-hours leaves room for, the most useful first; what is said when that isn't all.

    The tighter one of `caps.gpu_hours` and `--max-gpu-hours` holds. Every run counts with its whole walltime until it
    has ended; what it didn't use is room again then.
    """
    cap = min_cap(config, caps)
    if cap is None or not items:
        return list(items), None
    state = budget(config, ledger, cap=cap)
    kept = _affordable(items, state)
    if len(kept) == len(items):
        return kept, None
    own = cap != config.caps.gpu_hours
    whose = "--max-gpu-hours" if own else "the project's cap"
    message = (
        f"{whose} of {amount(cap)} GPU-h leaves room for {amount(state.left_gpu_h or 0.0)} "
        f"({amount(state.spent_gpu_h)} spent, {amount(state.committed_gpu_h)} queued or running): "
        f"{_stay(len(items) - len(kept), 'run')} planned"
    )
    hint = "raise the cap, or shorten walltimes and plan again; what running jobs leave unused is room again later"
    if own:
        return kept, Problem(message, key="--max-gpu-hours", value=cap, hint=hint)
    return kept, config.problem(("caps", "gpu_hours"), message, hint=hint)


def min_cap(config: Config, caps: Caps) -> float | None:
    """The cap on GPU-hours that holds; None: there is none."""
    return min((cap for cap in (config.caps.gpu_hours, caps.gpu_hours) if cap is not None), default=None)


def _affordable(items: Sequence[Item], state: Budget) -> list[Item]:
    left = state.left_gpu_h or 0.0
    kept: list[Item] = []
    for element in elements(items):
        left -= sum(item.run.price.gpu_h or 0.0 for item in element)
        if left < -ROUNDING_GPU_H:
            break
        kept.extend(element)
    return kept
