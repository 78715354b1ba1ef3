"""What runs have cost: planned at their walltime, held according to their jobs, charged according to accounting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import Problem
from campaign.slurm import commands
from campaign.slurm.queries import Charge
from campaign.slurm.states import FINAL
from campaign.submit.answers import since
from campaign.submit.ledger import Ledger, now

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site

JOBS_PER_QUERY = 500
"""Of one sacct call: its command line stays far below the kernel's limit."""

CHARGED_HOURS = ("charged_node_h", "charged_gpu_h", "charged_cpu_h", "charged_billing_h")
_ENDED = ", ".join(f"'{state}'" for state in sorted(FINAL))

UNCHARGED = (
    f"SELECT DISTINCT site, tag, array_index, job_id, intent_at FROM jobs WHERE state IN ({_ENDED}) AND site = ? "
    "AND scheduler = 'slurm' AND job_id IS NOT NULL AND started IS NOT NULL AND ended IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM charges c WHERE c.site = jobs.site AND c.tag = jobs.tag AND c.array_index = jobs.array_index)"
)

# An attempt costs what its run's price says of its walltime, in proportion to the time that it held its nodes.
_HOURS = "max(0, julianday(j.ended) - julianday(j.started)) * 24"
_WALL_H = "json_extract(r.spec, '$.walltime_s') / 3600.0"
SUMS = f"""
SELECT r.site, r.study, count(*) AS attempts,
  count(DISTINCT j.tag || '/' || j.array_index) AS elements,
  sum(json_extract(r.spec, '$.price.gpu_h')) AS planned_gpu_h,
  sum(json_extract(r.spec, '$.price.node_h')) AS planned_node_h,
  sum(json_extract(r.spec, '$.price.site_units')) AS planned_units,
  max(json_extract(r.spec, '$.price.site_unit')) AS unit,
  sum({_HOURS} * json_extract(r.spec, '$.price.gpu_h') / ({_WALL_H})) AS held_gpu_h,
  sum({_HOURS} * json_extract(r.spec, '$.price.node_h') / ({_WALL_H})) AS held_node_h
FROM jobs j JOIN runs r USING (run_id)
WHERE j.started IS NOT NULL AND j.ended IS NOT NULL AND j.state IN ({_ENDED})
GROUP BY 1, 2 ORDER BY 1, 2
"""
CHARGED = """
SELECT r.site, r.study, count(*) AS charged_elements, sum(c.elapsed_s * c.nodes) / 3600.0 AS charged_node_h,
  CASE WHEN count(c.gpus) = count(*) THEN sum(c.elapsed_s * c.gpus) / 3600.0 END AS charged_gpu_h,
  sum(c.elapsed_s * c.cpus) / 3600.0 AS charged_cpu_h,
  CASE WHEN count(c.billing) = count(*) THEN sum(c.elapsed_s * c.billing) / 3600.0 END AS charged_billing_h
FROM charges c JOIN (SELECT site, tag, array_index, min(run_id) AS run_id FROM jobs GROUP BY 1, 2, 3)
  USING (site, tag, array_index) JOIN runs r USING (run_id)
GROUP BY 1, 2
"""
COMMITTED = (
    "SELECT sum(json_extract(spec, '$.price.gpu_h') * coalesce(walltime_s, json_extract(spec, '$.walltime_s')) "
    "/ json_extract(spec, '$.walltime_s')) FROM runs "
    "WHERE state IN ('submitting', 'queued', 'running', 'unknown')"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One study on one site: attempts that have ended. Hours; None: not known."""

    site: str
    study: str
    attempts: int
    planned_gpu_h: float | None
    """At their whole walltime, as the plan priced them."""
    planned_node_h: float | None
    planned_units: float | None
    unit: str | None
    """The site's own unit."""
    held_gpu_h: float | None
    """At the time between start and end."""
    held_node_h: float | None
    charged_gpu_h: float | None
    """From accounting; None when it doesn't know all of them."""
    charged_node_h: float | None
    charged_cpu_h: float | None
    """CPUs as the site's Slurm counts them."""
    charged_billing_h: float | None
    """The cluster's own weight (TRESBillingWeights) x hours."""
    elements: int
    """Array elements that have ended."""
    charged_elements: int
    """Of those, the ones that accounting has answered for."""

    @property
    def gpu_h(self) -> float:
        """What counts as spent: charged where accounting knows all of it, else held."""
        known = self.charged_gpu_h if self.charged_gpu_h is not None else self.held_gpu_h
        return known or 0.0


@dataclass
class ChargeReport:
    """What asking accounting brought."""

    charged: int = 0
    warnings: list[Problem] = field(default_factory=list)


def update_charges(project: Project, ledger: Ledger, *, note: Callable[[str], None] = lambda _: None) -> ChargeReport:
    """Ask the accounting of each site for ended jobs that it hasn't answered for yet. One sacct call per 500 jobs."""
    report = ChargeReport()
    for (name,) in ledger.query("SELECT DISTINCT site FROM jobs WHERE scheduler = 'slurm'"):
        rows = ledger.query(UNCHARGED, (name,))
        if not rows:
            continue
        site = project.load_site(name)
        if not site.accounting:
            report.warnings.append(Problem(f"{name} has no accounting: its costs are the time that jobs held nodes"))
            continue
        note(f"{name}: asking accounting for {len(rows)} jobs")
        _charge(ledger, site, rows, report)
    return report


def _charge(ledger: Ledger, site: Site, rows: Sequence[Row], report: ChargeReport) -> None:
    places = {(row["job_id"], row["array_index"]): row for row in rows}
    ids = list(dict.fromkeys(row["job_id"] for row in rows))
    for start in range(0, len(ids), JOBS_PER_QUERY):
        answer = commands.charges(site.name, ids[start : start + JOBS_PER_QUERY], since(rows))
        if isinstance(answer, commands.Answer):
            hint = "costs are the time that jobs held nodes; campaign cost  again"
            report.warnings.append(Problem(f"{site.name}: accounting didn't answer: {answer.stderr}", hint=hint))
            return
        found = [(places[charge.job_id, charge.array_index], charge) for charge in answer
                 if (charge.job_id, charge.array_index) in places]  # fmt: skip
        _keep(ledger, found)
        report.charged += len(found)


def _keep(ledger: Ledger, found: Sequence[tuple[Row, Charge]]) -> None:
    moment = now()
    with ledger.transaction() as db:
        db.executemany(
            "INSERT OR REPLACE INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (row["site"], row["tag"], row["array_index"], charge.elapsed_s, charge.nodes, charge.cpus,
                 charge.gpus, charge.billing, moment)
                for row, charge in found
            ],
        )  # fmt: skip


def costs(ledger: Ledger) -> list[Cost]:
    """What every study has cost on every site, from the ledger alone."""
    charged = {(row["site"], row["study"]): dict(row) for row in ledger.query(CHARGED)}
    return [_cost(dict(row), charged.get((row["site"], row["study"]), {})) for row in ledger.query(SUMS)]


def _cost(sums: dict[str, Any], charged: dict[str, Any]) -> Cost:
    """Sums with what was charged; hours of a part of the jobs are no answer for all of them."""
    elements = charged.get("charged_elements", 0)
    whole = elements == sums["elements"]
    hours: dict[str, Any] = {name: charged.get(name) if whole else None for name in CHARGED_HOURS}
    return Cost(**sums, **hours, charged_elements=elements)


def committed_gpu_h(ledger: Ledger) -> float:
    """GPU-hours that queued and running attempts may still take, at their whole walltime."""
    return float(ledger.query(COMMITTED)[0][0] or 0.0)
