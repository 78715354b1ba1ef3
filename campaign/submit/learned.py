"""Submit limits that no file names: asked of accounting when sbatch has met one, and believed for a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from campaign.slurm import commands
from campaign.slurm.cluster import ASSOC_FIELDS, QOS_FIELDS, parse_associations, parse_qos
from campaign.submit.ledger import Ledger, now

if TYPE_CHECKING:
    from campaign.site import Site


def learn_limit(ledger: Ledger, site: Site, qos: str | None, account: str | None) -> bool:
    """Ask accounting how many jobs this user may have queued; True when it named a limit, which is kept.

    Two sacctmgr calls. The limit of the QOS that is asked for, else of the association's default one, and the
    association's own. A question without an answer teaches nothing.
    """
    found: dict[str, int] = {}
    user = commands.user_name()
    answer = commands.sacctmgr_show(site.name, "assoc", f"user={user}", f"format={ASSOC_FIELDS}")
    mine = parse_associations(answer.stdout) if answer.ok else []
    mine = [one for one in mine if account in (None, one.account)] or mine
    limits = [one.submit_jobs for one in mine if one.submit_jobs is not None]
    if limits:
        found[""] = min(limits)
    name = qos or next((one.default_qos for one in mine if one.default_qos), None)
    answer = commands.sacctmgr_show(site.name, "qos", f"format={QOS_FIELDS}")
    for one in parse_qos(answer.stdout) if answer.ok else []:
        if one.name == name and one.submit_jobs is not None:
            # a default QOS isn't asked for by name: its limit holds for all jobs that name none
            found[qos or ""] = min(one.submit_jobs, found.get(qos or "", one.submit_jobs))
    with ledger.transaction() as db:
        db.executemany(
            "INSERT OR REPLACE INTO learned_limits (site, qos, submit_jobs, seen_at) VALUES (?, ?, ?, ?)",
            [(site.name, key, most, now()) for key, most in found.items()],
        )
    return bool(found)
