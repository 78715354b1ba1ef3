"""`campaign try`: a campaign of one run, in a drawer of its own.

The smallest point of a study, with a limit on its steps, planned and submitted like every other run. Its ledger and
its records lie apart (`.campaign/try/`, `<run_root>/try/`), so it is in no status, no store and no report. Every try is
a run of its own (`revision` names it), so that the same try runs again, and a job is never taken for another's.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Row
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput
from campaign.job.spec import run_folder
from campaign.plan.build import build_plan, plan_id
from campaign.plan.order import smallest
from campaign.project import Project, SitePaths
from campaign.slurm.durations import format_duration
from campaign.submit.guard import guard_run_root
from campaign.submit.ledger import Ledger

if TYPE_CHECKING:
    from campaign.plan.model import Plan, PlannedRun
    from campaign.site import Site
    from campaign.study import Study

WALLTIME_S = 600
"""Of a try, unless its partition allows less."""
DEVELOPMENT = re.compile(r"(^|[-_.])(dev|debug|dbg|test)")
"""Names of partitions for short trials, which no site file marks: develbooster, dev-g, debug."""
LEFT_BEHIND = "until-next-try"
"""File in the run folder of a failed try; the next try removes the folder. It holds the tag."""


class Drawer(Project):
    """The project as a try sees it: the same files, another ledger, other folders for what it writes."""

    def __init__(self, project: Project) -> None:
        super().__init__(project.root, project.store_path)
        self.ledger_path = self.root / ".campaign" / "try" / "ledger.sqlite"
        self.plans_dir = self.root / ".campaign" / "try" / "plans"

    def site_paths(self, site: Site) -> SitePaths:
        """As the project's, with a run root below the project's own."""
        paths = super().site_paths(site)
        return dataclasses.replace(paths, run_root=paths.run_root / "try")

    def make_place(self, site: Site) -> None:
        """The run root. On the local site its slots are the project's: a try must not disturb a measurement.

        Raises NotMounted where the site's file system isn't here.
        """
        guard_run_root(self, site)
        root = self.site_paths(site).run_root
        root.mkdir(parents=True, exist_ok=True)
        if site.local:
            (root.parent / "slots").mkdir(exist_ok=True)
            with suppress(FileExistsError):
                (root / "slots").symlink_to("../slots")


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be tried."""

    study: str
    site: str
    steps: int
    overrides: Mapping[str, str]
    """`--set`, as given."""
    partition: str | None = None
    reservation: str | None = None
    walltime: str | None = None
    """As given; any form that Slurm takes."""
    account: str | None = None

    @property
    def key(self) -> str:
        """The same for the same request: by it a try that goes on is found again."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()[:8]


# -- what to run -----------------------------------------------------------------------------------------------------


def plan_try(drawer: Drawer, request: Request, *, partition: str | None = None, limit_s: float = math.inf) -> Plan:
    """A plan of one run: the smallest point that can run. Raises BadInput with the reasons when none can.

    `partition`, `limit_s`: of the allocation that the try runs in.
    """
    site, study = drawer.load_site(request.site), drawer.load_study(request.study)
    named = partition or request.partition
    plan: Plan | None = None
    for place in [{"partition": named}] if named else _places(site, study):
        plan = build_plan(
            drawer,
            [request.site],
            [request.study],
            _overrides(request, place, _walltime_s(site, place.get("partition"), limit_s)),
            request.account,
        )
        index = smallest([(run.world_size, run.nodes) if run.can_run else None for run in plan.runs])
        if index is not None:
            run = plan.runs[index]
            run = dataclasses.replace(run, order=0, record={**run.record, "max_steps": request.steps})
            alone = dataclasses.replace(plan, runs=(run,))
            return dataclasses.replace(alone, plan_id=plan_id(alone))
    assert plan is not None
    raise BadInput(dict.fromkeys(problem for run in plan.runs for problem in run.problems))


def _overrides(request: Request, place: Mapping[str, str | None], walltime_s: int) -> dict[str, Any]:
    """`--set`, as given and as a try wants it."""
    overrides: dict[str, Any] = {
        **request.overrides,
        "revision": f"try-{request.key}-{time.time_ns():x}",
        "repeats": 1,
        "gate": False,
        "pack": False,
        "retry.infrastructure": 0,
        "record.raw_ranks": [0],
        "walltime": request.walltime or format_duration(walltime_s),
        **place,
    }
    if request.reservation is not None:
        overrides["reservation"] = request.reservation
    return overrides


def _walltime_s(site: Site, named: str | None, limit_s: float) -> int:
    """Ten minutes, or what the partition (else the first by size) and the allocation allow."""
    up = [name for name in site.partition_by_size if not site.partitions[name].down]
    partition = site.partitions.get(named or next(iter(up), site.default_partition))
    longest = math.inf if partition is None or partition.max_time is None else partition.max_time
    return int(min(WALLTIME_S, longest, limit_s))


def _places(site: Site, study: Study) -> Iterator[dict[str, str | None]]:
    """Where a try may go, the best first: a development partition, then by size, then as the study says.

    Only partitions with the nodes that the study runs on; a study that sweeps partitions chooses for itself.
    """
    if "partition" in study.axis_paths():
        yield {}
        return
    override = study.sites.get(site.name)
    named = (override.resources.partition if override else None) or study.resources.partition
    node = site.partitions[named if named in site.partitions else site.default_partition].node
    for name in dict.fromkeys((*site.partition_by_size, *site.partitions)):
        partition = site.partitions[name]
        if DEVELOPMENT.search(name) and partition.node == node and not partition.down:
            yield {"partition": name}
            break
    if named in site.partitions and {site.partitions[name].node for name in site.partition_by_size} == {node}:
        yield {"partition": None}
    yield {}


# -- what is known of it ---------------------------------------------------------------------------------------------


def unreported(ledger: Ledger, request: Request) -> Row | None:
    """The newest try of this very request that nobody has been told the end of; None when there is none."""
    rows = ledger.query(
        "SELECT * FROM runs WHERE json_extract(spec, '$.revision') LIKE ? AND state <> 'planned' "
        "ORDER BY changed DESC LIMIT 1",
        (f"try-{request.key}-%",),
    )
    return rows[0] if rows else None


def newest_job(ledger: Ledger, run_id: str) -> Row | None:
    """The job of a try; None when it never got so far."""
    jobs = ledger.jobs_of(run_id)
    return jobs[-1] if jobs else None


def run_dir(drawer: Drawer, run: PlannedRun) -> Path:
    """Where the records of a try are."""
    return run_folder(drawer.site_paths(drawer.load_site(run.site)).run_root, run.run_id)


# -- cleaning up -----------------------------------------------------------------------------------------------------


def forget(ledger: Ledger, run_id: str) -> None:
    """Take a try out of its ledger: it has been told how it ended, or it was never queued."""
    with ledger.transaction() as db:
        for table in ("origins", "charges"):
            db.execute(f"DELETE FROM {table} WHERE (site, tag) IN (SELECT site, tag FROM jobs WHERE run_id = ?)",
                       (run_id,))  # fmt: skip
        plans = "(SELECT plan_id FROM plan_runs WHERE run_id = ?)"
        db.execute(f"DELETE FROM plans WHERE plan_id IN {plans}", (run_id,))
        for table in ("plan_runs", "jobs", "runs"):
            db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))


def remove(drawer: Drawer, run: PlannedRun, tag: str | None, plan: str | None) -> None:
    """Remove all files of a try."""
    folder = run_dir(drawer, run)
    shutil.rmtree(folder, ignore_errors=True)
    root = folder.parent.parent.parent
    if tag:
        shutil.rmtree(root / "submit" / tag, ignore_errors=True)
    if plan:
        (drawer.plans_dir / f"{plan}.json").unlink(missing_ok=True)
    with suppress(OSError):  # not empty: another try is there
        folder.parent.rmdir()
        (root / "runs").rmdir()
        (root / "submit").rmdir()
        (root / "slots").unlink(missing_ok=True)
        root.rmdir()


def leave_until_next(drawer: Drawer, run: PlannedRun, tag: str | None) -> None:
    """Let the files of a failed try lie for its user to look at; the next try on this site removes them."""
    folder = run_dir(drawer, run)
    if folder.is_dir():
        (folder / LEFT_BEHIND).write_text(tag or "", encoding="utf-8")


def sweep(drawer: Drawer, site: Site) -> None:
    """Remove what failed tries have left on this site."""
    root = drawer.site_paths(site).run_root
    for marker in root.glob(f"runs/*/*/{LEFT_BEHIND}"):
        tag = marker.read_text(encoding="utf-8").strip()
        if tag.isalnum():
            shutil.rmtree(root / "submit" / tag, ignore_errors=True)
        shutil.rmtree(marker.parent, ignore_errors=True)
        with suppress(OSError):
            marker.parent.parent.rmdir()
