"""Faults on real daemons: nothing runs twice in one attempt, nothing vanishes, and every run is told as it was.

All faults are produced in one campaign (three more have a project of their own), one beside the other, so that they
share the time that Slurm and campaign wait; then each is judged on its own. A retry takes every run to its end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.needs import needs
from tests.slurm import otherdrives
from tests.slurm.drives import DRIVES
from tests.slurm.faults import Drill, Drilled, Pair, Row, clear_recorded, row, same_in_store, write_table
from tests.slurm.jobdrives import STUDIES
from tests.slurm.testbed import Settings, Testbed
from tests.waiting import wait_for

pytestmark = [needs("slurm", "root", "tmpfs"), pytest.mark.timeout(1800)]

DONE: Pair = ("done", None)
NODE: Pair = ("failed", "node")
UNKNOWN: Pair = ("failed", "unknown")
CANCELLED: Pair = ("cancelled", None)
LOST: Pair = ("lost", None)
EXPECTED: dict[str, list[Pair]] = {
    # the controller has forgotten the job; a controller that saved its state in time runs it
    "slurmctld killed within a second of a submit": [LOST, LOST],
    "slurmctld killed": [DONE],
    "slurmctld restarted": [DONE],
    "TIMEOUT": [("timeout", None), ("timeout", None)],
    "node dies": [NODE, NODE],
    # the run whose node nobody reached has ended well there, whatever Slurm says of its job
    "link of a node cut": [DONE, NODE],
    "head killed": [UNKNOWN],
    "run folder removed": [UNKNOWN],
    "requeued by hand": [CANCELLED],
    "preempted": [("interrupted", "preempted")],
    "node drained, job held, submit folder removed": [DONE, DONE, DONE, UNKNOWN],
    # of an element that was cancelled while it waited Slurm keeps nothing
    "array partly cancelled by hand": [CANCELLED, CANCELLED, DONE, DONE],
    "OUT_OF_MEMORY": [("failed", "oom_host")],
    "agent killed": [NODE],
    "purged": [DONE],
    "slurmdbd down": [DONE, ("failed", "unknown")],
    "sbatch refused: account, QOS": [DONE, DONE, ("planned", None), ("planned", None)],
    "partition down, inactive": [DONE, DONE],
    "run root full": [DONE, ("failed", "quota")],
    "clock of the cluster 20 min ahead": [CANCELLED, DONE, UNKNOWN],
    "clock of the cluster 20 min behind": [CANCELLED, DONE, UNKNOWN],
    "no accounting": [CANCELLED, DONE, UNKNOWN],
}
"""How the first attempts end."""
NEVER_PLANNED_AGAIN = {"sbatch refused: account, QOS"}
ACTIVE = frozenset({"submitting", "queued", "running", "unknown"})
PATIENCE_S = 240.0
LOOK_S = 70.0
"""More than RECORD_GRACE_S, less than the five minutes for which a controller remembers."""


@dataclass
class Campaign:
    """A project, and the faults that were produced in it."""

    drill: Drill
    faults: list[Drilled]
    rows: dict[str, Row] = field(default_factory=dict)
    error: BaseException | None = None
    """What went wrong with the whole of it."""
    said: list[str] = field(default_factory=list)
    """What `retry` and `submit` answered."""


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A bed of nine nodes, with a second cluster that has no accounting."""
    root = Path(tempfile.mkdtemp(prefix="slurmtb-", dir="/tmp"))
    settings = Settings.from_environment(
        root=root, clusters=("vega", "juwels"), nodes_per_cluster=9, slurmd_timeout_s=5, users=("root",),
        without_accounting=("juwels",),
    )  # fmt: skip
    bed = Testbed(settings)
    try:
        bed.start()
        yield bed
    finally:
        bed.stop()


@pytest.fixture(scope="module")
def drilled(request: pytest.FixtureRequest, bed: Testbed) -> dict[str, tuple[Campaign, Drilled]]:
    """All faults whose tests were chosen, produced and judged; by name."""
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = {item.callspec.params["fault"] for item in functions if item.originalname == test_a_fault.__name__}
    clear_recorded()
    with ExitStack() as mounted:
        small = None
        if "run root full" in wanted:
            # not below the bed's own folder, which is mounted again in its nodes, without other file systems in it
            small = Path(mounted.enter_context(tempfile.TemporaryDirectory(prefix="small-", dir="/var/tmp")))
            mounted.enter_context(otherdrives.small_run_root(bed, small))
        campaigns = list(_others_begin(bed, wanted, small))

        def look() -> None:
            for campaign in campaigns:
                campaign.drill.poll()

        main = _main(bed, wanted, look)
        campaigns += [main] if main is not None else []
        _all_settled(campaigns)
        for campaign in campaigns:
            _again(campaign)
        _all_settled(campaigns)
        for campaign in campaigns:
            _sum_up(campaign)
    rows = {name: line for campaign in campaigns for name, line in campaign.rows.items()}
    write_table(rows[name] for name in EXPECTED if name in rows)
    return {fault.name: (campaign, fault) for campaign in campaigns for fault in campaign.faults}


# -- producing -------------------------------------------------------------------------------------------------------


def _main(bed: Testbed, wanted: set[str], look: Callable[[], None]) -> Campaign | None:
    """The campaign in which most faults happen. `look` is called now and then: others are looked after meanwhile."""
    look()
    chosen = {name: DRIVES[name] for name in DRIVES if name in wanted}
    if not chosen:
        return None
    drill = Drill(bed, bed.layout.shared / "main", STUDIES)
    drill.plan(*(study for _, studies in chosen.values() for study in studies))
    campaign = Campaign(drill, [])
    going = {}
    for name, (drive, studies) in chosen.items():
        fault = Drilled(name, studies, frozenset(drill.runs(*studies)))
        campaign.faults.append(fault)
        going[name] = (fault, drive(drill))
    looked = time.monotonic()
    while going:
        for name, (fault, drive_on) in list(going.items()):
            try:
                next(drive_on)
            except StopIteration:
                del going[name]
            except Exception as error:
                # the others are judged all the same, and don't wait for these
                fault.error = error
                drill.go(*fault.studies)
                del going[name]
            if time.monotonic() - looked > LOOK_S:
                look()
                looked = time.monotonic()
    return campaign


def _others_begin(bed: Testbed, wanted: set[str], small: Path | None) -> Iterator[Campaign]:
    """The faults that have a project of their own. `small`: a run root that can be filled."""
    for name, minutes in (("clock of the cluster 20 min ahead", 20), ("clock of the cluster 20 min behind", -20)):
        if name in wanted:
            folder = bed.layout.shared / f"clock{minutes}"
            env = otherdrives.wrong_clock(minutes, bed.layout.shared / f"bin{minutes}")
            drill = Drill(bed, folder, otherdrives.CLOCK_STUDIES, **env)
            yield _one(drill, name, otherdrives.clock)
    if "no accounting" in wanted:
        drill = Drill(bed, bed.layout.shared / "bare", otherdrives.BARE_STUDIES, site="juwels")
        yield _one(drill, "no accounting", otherdrives.bare)
    if small is not None:
        yield _full(bed, small)


def _one(drill: Drill, name: str, drive: Callable[[Drill], None]) -> Campaign:
    studies = tuple(sorted(path.stem for path in (drill.project / "studies").glob("*.yaml")))
    drill.plan(*studies)
    fault = Drilled(name, studies, frozenset(drill.runs(*studies)))
    try:
        drive(drill)
    except Exception as error:
        fault.error = error
    return Campaign(drill, [fault])


def _full(bed: Testbed, root: Path) -> Campaign:
    drill = Drill(bed, bed.layout.shared / "full", otherdrives.FULL_STUDIES, run_root=root)
    campaign = _one(drill, "run root full", otherdrives.full)
    (fault,) = campaign.faults
    wait_for(lambda: fault.error is not None or _settled(drill, "full"), what=drill.squeue)
    otherdrives.room(drill)
    return campaign


def _settled(drill: Drill, *studies: str) -> bool:
    drill.poll()
    return not any(state in ACTIVE for state, _ in drill.endings(*studies))


# -- judging ---------------------------------------------------------------------------------------------------------


def _all_settled(campaigns: Sequence[Campaign]) -> None:
    """Ask the schedulers until no campaign has a job left, or for PATIENCE_S: what isn't over then fails its test."""
    end = time.monotonic() + PATIENCE_S
    left = list(campaigns)
    while left and time.monotonic() < end:
        left = [
            one for one in left if not _settled(one.drill, *(name for fault in one.faults for name in fault.studies))
        ]
        time.sleep(1)  # between two looks, as `campaign run` does


def _again(campaign: Campaign) -> None:
    """Note how the first attempts ended; plan and queue again what didn't succeed."""
    for fault in campaign.faults:
        fault.first = campaign.drill.endings(*fault.studies)
    for argv in (("retry", "--all"), ("submit",)):
        # 2 where something is refused for good
        campaign.said.append(str(campaign.drill.cli(*argv, code=None)))


def _sum_up(campaign: Campaign) -> None:
    """Compare store and ledger; the lines of the table."""
    try:
        same_in_store(campaign.drill)
    except AssertionError as error:
        campaign.error = error
    for fault in campaign.faults:
        fault.last = campaign.drill.endings(*fault.studies)
        campaign.rows[fault.name] = row(campaign.drill, fault)


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault(drilled: dict[str, tuple[Campaign, Drilled]], fault: str) -> None:
    """How the runs that it hits end, that none of them is lost or runs twice, and that a retry takes them to an end."""
    campaign, seen = drilled[fault]
    if seen.error is not None:
        raise seen.error
    if campaign.error is not None:
        raise campaign.error
    why = campaign.drill.query("SELECT study, state, fail_class, reason, attempts FROM runs")
    assert seen.first == sorted(EXPECTED[fault], key=str), why
    line = campaign.rows[fault]
    assert (line.runs_after, line.twice, line.lost) == (line.runs_before, 0, 0)
    assert line.runs_before == len(EXPECTED[fault])
    if fault not in NEVER_PLANNED_AGAIN:
        assert set(seen.last) <= {DONE, ("failed", "oom_host")}, "\n".join(campaign.said)


def test_no_study_is_left_out() -> None:
    """Every drive is judged, and every study belongs to one."""
    assert set(DRIVES) <= set(EXPECTED)
    hit = [study for _, studies in DRIVES.values() for study in studies]
    assert sorted(hit) == sorted(set(hit))
