"""Scripts for runs that need not be in the ledger yet: what `plan --show-script` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from campaign.submit.batch import Item, make_batches
from campaign.submit.executors import script_text

if TYPE_CHECKING:
    from campaign.plan.model import PlannedRun
    from campaign.project import Project


def render(project: Project, site_name: str, runs: Sequence[PlannedRun]) -> list[str]:
    """The sbatch scripts of `runs` at their first attempt, one text per script; a local site has none."""
    site = project.load_site(site_name)
    if site.scheduler.kind == "local":
        return []
    batches = make_batches(project, site, [Item(run, 1) for run in runs if run.can_run])
    return [script_text(batch, site) for batch in batches]
