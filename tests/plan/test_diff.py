"""What a new plan changes: which runs are new, gone or placed otherwise, and which measurements stay valid."""

from __future__ import annotations

from campaign.plan.build import build_plan
from campaign.plan.diff import Change, Count, diff
from campaign.plan.model import Plan
from tests.plan.conftest import SITE, STUDY, Make, changed


def plan_of(make: Make, site: str = SITE, study: str = STUDY) -> Plan:
    return build_plan(make(site, study), ["sites/tiny.yaml"])


def test_the_same_again_changes_nothing(make_project: Make) -> None:
    first, second = plan_of(make_project), plan_of(make_project)
    assert first.plan_id == second.plan_id
    assert diff(first, second, {}).empty


def test_new_gone_and_kept_runs(make_project: Make) -> None:
    old = plan_of(make_project)
    new = plan_of(make_project, study=changed(STUDY, ("[1, 2, 4]", "[1, 2, 8]")))
    done = {run.run_id: "done" for run in old.runs if run.nodes in (1, 4) and run.repeat == 1}
    queued = {run.run_id: "queued" for run in old.runs if run.nodes == 4 and run.repeat == 2}
    found = diff(old, new, done | queued)
    assert found.files == ["studies/sweep.yaml"]
    # 2 strategies x 2 repeats a size: 8 nodes are new, 4 are gone, 1 and 2 stay, of which 1 is half measured
    assert found.counts == [Count("tiny", "sweep", new=4, same=8, valid=2, gone=4, kept=2, active=2)]
    assert found.changes == []
    assert not found.empty


def test_another_walltime_is_no_other_run(make_project: Make) -> None:
    old = plan_of(make_project)
    new = plan_of(make_project, study=changed(STUDY, ("00:30:00", "03:00:00")))
    found = diff(old, new, {run.run_id: "done" for run in old.runs})
    assert found.counts == [Count("tiny", "sweep", same=12, valid=12)]
    assert Change("tiny", "sweep", "walltime_s", 12, 1800, 10800) in found.changes
    # up to 2 nodes went to devel, which gives 2 hours
    assert Change("tiny", "sweep", "partition", 8, "devel", "batch") in found.changes


def test_a_run_that_no_longer_fits_tells_its_reason(make_project: Make) -> None:
    old = plan_of(make_project)
    new = plan_of(make_project, site=changed(SITE, ("min_nodes: 1, max_nodes: 8", "min_nodes: 1, max_nodes: 3")))
    (change,) = [change for change in diff(old, new, {}).changes if change.field == "problems"]
    assert (change.runs, change.old) == (4, None)
    assert "no partition of tiny admits 4 nodes" in change.new


def test_revision_makes_every_run_new(make_project: Make) -> None:
    old, new = plan_of(make_project), plan_of(make_project, study=STUDY + "revision: 2\n")
    done = {run.run_id: "done" for run in old.runs}
    assert diff(old, new, done).counts == [Count("tiny", "sweep", new=12, gone=12, kept=12)]
