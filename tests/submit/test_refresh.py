"""What is concluded from what Slurm says: each case is text that squeue and sacct print, on a real ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.slurm.commands import user_name
from campaign.slurm.queries import parse_sacct, parse_squeue
from campaign.submit import refresh, states
from campaign.submit.answers import Answers, _by_place
from campaign.submit.batch import Batch, Item
from campaign.submit.ledger import Ledger
from tests.submit.make import make_plan, make_run

RUN = "ab" * 8
TAG = "c0123456789ab"
OTHER = "cba9876543210"


class Site:
    """The few facts of a site that refreshing needs."""

    name = "here"
    accounting = True

    class scheduler:
        adopt_grace_s = 120.0
        lost_after_s = 3600.0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", make_run(RUN)))
        yield ledger


def intent(ledger: Ledger, tag: str = TAG, tries: int = 0) -> None:
    folder = ledger.path.parent / "root" / "submit" / tag
    states.take_intent(ledger, Batch("here", tag, folder, ((Item(make_run(RUN), 1, tries),),)), "slurm", "here")


def queue(ledger: Ledger, job_id: str = "7", tag: str = TAG) -> None:
    intent(ledger, tag)
    states.note_queued(ledger, "here", tag, job_id=job_id)


def look(
    ledger: Ledger, squeue: str = "", sacct: str | None = "", *, cluster: str = "here", error: str | None = None
) -> str:
    """Apply one poll with these outputs; the state of the run after it."""
    accounted = None if sacct is None else _by_place(parse_sacct(sacct))
    answers = Answers("here", _by_place(parse_squeue(squeue)), accounted, error)
    answers.__dict__["cluster"] = cluster
    jobs = [*ledger.query(refresh.ACTIVE_JOBS), *ledger.query(refresh.LATE_JOBS)]
    states.update_jobs(ledger, *refresh.judge(ledger, jobs, answers, Site()))  # type: ignore[arg-type]
    return str(ledger.run_rows([RUN])[0]["state"])


def squeue_row(state: str, job: str = "7", tag: str = TAG) -> str:
    return f"{job}|0|{tag}|{state}|N/A|N/A||p|a|None\n"


def sacct_row(state: str, job: str = "7", tag: str = TAG, ended: str = "2026-01-01T00:00:00") -> str:
    return f"{job}_0|{tag}|{state}|0:0|2026-01-01T00:00:00|2026-01-01T00:00:00|{ended}|p|a|here|n1|None\n"


def age(ledger: Ledger, seconds: int) -> None:
    """Make everything the ledger knows of its jobs older."""
    with ledger.transaction() as db:
        for name in ("intent_at", "state_seen_at"):
            db.execute(f"UPDATE jobs SET {name} = strftime('%Y-%m-%dT%H:%M:%fZ', {name}, '-{seconds} seconds')")


def write(ledger: Ledger, name: str, **data: Any) -> None:
    path = ledger.path.parent / "root" / "runs" / "ab" / RUN / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def record(ledger: Ledger, state: str = "done", tag: str = TAG, **more: Any) -> None:
    write(ledger, "a1/record.json", schema=1, state=state, tag=tag, complete=True, **more)


def test_the_life_of_a_job(ledger: Ledger) -> None:
    queue(ledger)
    assert look(ledger, squeue_row("PENDING")) == "queued"
    assert look(ledger, squeue_row("RUNNING"), sacct_row("PENDING")) == "running"  # sacct lags
    record(ledger)
    assert look(ledger, "", sacct_row("COMPLETED")) == "done"


def test_a_job_that_left_no_trace_is_lost_after_a_while_and_not_before(ledger: Ledger) -> None:
    queue(ledger)
    age(ledger, 3500)
    assert look(ledger) == "queued"
    age(ledger, 200)
    assert look(ledger) == "lost"


@pytest.mark.parametrize(
    "conditions",
    [{"cluster": "another"}, {"error": "accounting didn't answer", "sacct": None}],
    ids=["cluster", "sacct"],
)
def test_absence_counts_only_when_everything_was_answered_by_the_right_cluster(
    ledger: Ledger, conditions: dict[str, Any]
) -> None:
    queue(ledger)
    age(ledger, 100_000)
    assert look(ledger, **conditions) == "queued"
    record(ledger)
    assert look(ledger, **conditions) == "done"  # what a record tells counts all the same


def test_another_user_s_job_is_not_lost_because_we_cannot_see_it(ledger: Ledger) -> None:
    queue(ledger)
    with ledger.transaction() as db:
        db.execute("UPDATE jobs SET user = ?", (user_name() + "x",))
    age(ledger, 100_000)
    assert look(ledger) == "queued"


def test_a_job_id_that_was_handed_out_again_is_not_ours(ledger: Ledger) -> None:
    queue(ledger)
    assert look(ledger, squeue_row("RUNNING", tag="somebody-else")) == "queued"
    assert look(ledger, "", sacct_row("FAILED", tag="somebody-else")) == "queued"
    assert look(ledger, "", sacct_row("FAILED", tag="allocation")) == "failed"  # the name sacct gives for a moment


def test_a_row_of_sacct_that_stays_open_for_ever_is_no_sign_of_life(ledger: Ledger) -> None:
    queue(ledger)
    look(ledger, squeue_row("RUNNING"))
    age(ledger, 4000)
    assert look(ledger, "", sacct_row("RUNNING", ended="Unknown")) == "lost"


def test_an_intent_is_given_back_once_and_a_stale_second_look_changes_nothing(ledger: Ledger) -> None:
    intent(ledger)
    age(ledger, 500)
    assert look(ledger) == "planned"
    intent(ledger, OTHER, tries=1)
    states.give_back(ledger, "here", TAG, "a second command saw the same", state="lost")
    row = ledger.run_rows([RUN])[0]
    assert (row["state"], row["attempts"]) == ("submitting", 1)


def test_a_job_that_came_and_went_unseen_is_adopted_by_its_claim(ledger: Ledger) -> None:
    """No accounting, killed before the answer of sbatch was noted: only the claim and the record know."""
    intent(ledger)
    age(ledger, 500)
    write(ledger, "claim.a1", tag=TAG, job="7_0", host="n1", pid=1)
    record(ledger)
    assert look(ledger, sacct=None) == "done"
    assert ledger.jobs_of(RUN)[0]["job_id"] == "7"


def test_the_attempt_s_record_decides_whichever_job_wrote_it(ledger: Ledger) -> None:
    intent(ledger)
    states.give_back(ledger, "here", TAG, "never seen", state="lost")
    queue(ledger, "8", OTHER)
    write(ledger, "claim.a1", tag=TAG, job="7_0", host="n1", pid=1)
    # the second job has ended unrun, the first still runs: nothing is over yet
    assert look(ledger, squeue_row("RUNNING"), sacct_row("COMPLETED", "8", OTHER)) in ("queued", "running")
    record(ledger)
    assert look(ledger, "", sacct_row("COMPLETED") + sacct_row("COMPLETED", "8", OTHER)) == "done"
    assert look(ledger, squeue_row("RUNNING", "8", OTHER)) == "done"  # nothing still going on replaces an ending
    ended = {job["tag"]: job["state"] for job in ledger.jobs_of(RUN)}
    assert ended == {TAG: "done", OTHER: "cancelled"}


def test_a_record_that_is_no_record_never_breaks_a_poll(ledger: Ledger) -> None:
    queue(ledger)
    write(ledger, "a1/record.json")
    assert look(ledger, "", sacct_row("COMPLETED")) == "failed"


def test_of_packed_runs_only_the_one_that_was_told_to_end_takes_slurm_s_word(ledger: Ledger) -> None:
    queue(ledger)
    record(ledger, "failed", fail_class="user")
    assert look(ledger, "", sacct_row("NODE_FAIL")) == "failed"
    assert ledger.run_rows([RUN])[0]["fail_class"] == "user"


def test_a_timed_out_job_waits_for_a_record_that_is_being_written(ledger: Ledger) -> None:
    from campaign.submit.ledger import now

    queue(ledger)
    write(ledger, "claim.a1", tag=TAG, job="7_0", host="n1", pid=1)
    assert look(ledger, "", sacct_row("TIMEOUT", ended=now()[:19])) == "running"
    assert look(ledger, "", sacct_row("TIMEOUT")) == "timeout"


def test_a_job_s_own_exit_code_says_nothing_of_a_run_that_was_not_started(ledger: Ledger) -> None:
    """In a ladder: another run failed, so the job is FAILED; this one was never started."""
    queue(ledger)
    record(ledger, "interrupted", reason="not started: the first run of the ladder failed")
    assert look(ledger, "", sacct_row("FAILED")) == "interrupted"


def test_slurm_knows_better_why_a_head_was_told_to_end(ledger: Ledger) -> None:
    queue(ledger)
    record(ledger, "interrupted", reason="the job was told to end (SIGTERM)")
    assert look(ledger, "", sacct_row("TIMEOUT")) == "timeout"


def test_who_told_a_head_to_end_is_waited_for_until_accounting_says_it(ledger: Ledger) -> None:
    """Slurm's queue has forgotten the job, accounting hasn't heard of its end: neither `cancelled` nor anything yet."""
    queue(ledger)
    assert look(ledger, squeue_row("RUNNING")) == "running"
    record(ledger, "cancelled", reason="the job was told to end (SIGTERM)")
    assert look(ledger) == "running"
    assert look(ledger, "", sacct_row("TIMEOUT")) == "timeout"


def test_it_is_not_waited_for_when_we_told_it_ourselves_or_nobody_will_ever_know(ledger: Ledger) -> None:
    queue(ledger)
    assert look(ledger, squeue_row("RUNNING")) == "running"
    record(ledger, "cancelled", reason="the job was told to end (SIGTERM)")
    age(ledger, 119)
    assert look(ledger) == "running"
    age(ledger, 2)
    assert look(ledger, error="accounting didn't answer") == "running"
    assert look(ledger) == "cancelled"


def test_a_rebuilt_ledger_knows_the_cluster_from_the_site_file(ledger: Ledger) -> None:
    """Its jobs name no cluster: that nothing of them is found in another cluster's shell says nothing."""
    queue(ledger)
    with ledger.transaction() as db:
        db.execute("UPDATE jobs SET cluster = NULL")
    jobs = ledger.query(refresh.ACTIVE_JOBS)
    answers = Answers("here", {}, {}, None)
    answers.__dict__["cluster"] = "vega"
    assert answers.elsewhere(jobs, "juwels") == "this is cluster `vega`, and the jobs are on `juwels`"
    assert answers.elsewhere(jobs, "vega") is None
    assert answers.elsewhere(jobs, None) is None
    found = Answers("here", _by_place(parse_squeue(squeue_row("RUNNING"))), {}, None)
    found.__dict__["cluster"] = "vega"
    assert found.elsewhere(jobs, "juwels") is None


def test_what_we_cancelled_is_cancelled_at_once(ledger: Ledger) -> None:
    queue(ledger)
    assert look(ledger, squeue_row("RUNNING")) == "running"
    with ledger.transaction() as db:
        db.execute("UPDATE jobs SET cancel_at = state_seen_at")
    record(ledger, "cancelled", reason="the job was told to end (SIGTERM)")
    assert look(ledger) == "cancelled"


@pytest.mark.parametrize("asked", [True, False])
def test_an_element_that_was_cancelled_while_it_was_pending_leaves_no_trace_in_slurm(
    ledger: Ledger, asked: bool
) -> None:
    """As on a real 22.05: neither squeue nor sacct names it any more; others of its array are there."""
    sibling = f"7|1|{TAG}|PENDING|N/A|N/A||p|a|JobHeldUser\n"
    queue(ledger)
    assert look(ledger, squeue_row("PENDING") + sibling) == "queued"
    if asked:
        with ledger.transaction() as db:
            db.execute("UPDATE jobs SET cancel_at = intent_at")
        assert look(ledger, "", error="no answer") == "queued"
        assert look(ledger, "") == "cancelled"
        return
    assert look(ledger, sibling) == "queued"  # it may have begun just now
    age(ledger, 121)
    assert look(ledger, "") == "queued"  # nothing of the array is known: that is another matter
    assert look(ledger, sibling.replace(TAG, OTHER)) == "queued"  # its id was handed out again
    assert look(ledger, sibling) == "cancelled"


def test_an_element_that_has_begun_was_not_cancelled_while_pending(ledger: Ledger) -> None:
    queue(ledger)
    write(ledger, "claim.a1", tag=TAG)
    age(ledger, 200)
    assert look(ledger, f"7|1|{TAG}|PENDING|N/A|N/A||p|a|JobHeldUser\n") == "queued"
