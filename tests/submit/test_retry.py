"""Which runs are tried again by themselves: the policy, and what it does to a ledger with real records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from campaign.plan.model import Price
from campaign.plan.walltime import Estimate
from campaign.sitefields import Partition
from campaign.submit import states
from campaign.submit.attempts import next_items
from campaign.submit.batch import Batch, Item
from campaign.submit.charges import committed_gpu_h
from campaign.submit.ledger import Ledger
from campaign.submit.retry import Ended, decide, retry_by_class, suspects
from tests.submit.make import make_plan, make_run

RUN = "ab" * 8
TAG = "c0123456789ab"
LONGER = Estimate(7200, 10.0, 4000.0, "a pilot")


@pytest.mark.parametrize(
    ("facts", "again"),
    [
        ({"fail_class": "node"}, True),
        ({"fail_class": "fabric", "infrastructure": 2}, True),
        ({"fail_class": "node", "infrastructure": 3}, False),
        ({"state": "interrupted", "fail_class": "preempted"}, True),
        ({"fail_class": "node", "allowed": 0}, False),
        *[({"fail_class": name}, False) for name in
          ("oom_host", "oom_gpu", "config", "user", "quota", "hang", "unknown", None)],
        ({"state": "interrupted", "fail_class": None}, False),  # Ctrl-C
        ({"state": "timeout", "timeout": "never", "needed": LONGER}, False),
        ({"state": "timeout", "resumes": True}, True),
        ({"state": "timeout", "resumes": True, "progressed": False}, False),
        ({"state": "timeout"}, False),  # nobody knows how long
        ({"state": "timeout", "needed": LONGER}, True),
        ({"state": "timeout", "needed": LONGER, "lengthened": True}, False),
        ({"state": "timeout", "needed": LONGER, "limit_s": 7199.0}, False),
        ({"state": "timeout", "needed": LONGER, "limit_s": 7200.0}, True),
        ({"state": "timeout", "fail_class": "node"}, True),
    ],
)  # fmt: skip
def test_the_policy(facts: dict[str, Any], again: bool) -> None:
    whole: dict[str, Any] = {"state": "failed", "fail_class": None, "infrastructure": 1, "allowed": 2,
                             "timeout": "resume", "walltime_s": 600, **facts}  # fmt: skip
    decision = decide(Ended(**whole))
    assert decision.again is again
    assert decision.why
    lengthened = again and facts.get("needed") is not None
    assert decision.walltime_s == (7200 if lengthened else None)


class Fixed:
    """A project of one site, with a partition that takes runs of two hours at most."""

    def load_site(self, name: str) -> Any:
        partition = Partition.model_validate({"node": "n", "nodes": 9, "max_time": "02:00:00"})
        return SimpleNamespace(name=name, partitions={"p": partition}, local=False)


PROJECT: Any = Fixed()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    run = make_run(RUN, partition="p", retry={"infrastructure": 2, "timeout": "resume"}, walltime_s=600,
                   params={"epochs": 4}, price=Price(2.0, 1.0, None, None, 12))  # fmt: skip
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", run))
        yield ledger


def attempt(ledger: Ledger, state: str, fail_class: str | None = None, failed_nodes: str | None = None) -> Item:
    """The next attempt, from its intent to this ending."""
    (item,) = next_items(ledger, ledger.run_rows([RUN]))
    tag = f"c{item.attempt:012d}"
    batch = Batch("here", tag, ledger.path.parent / "root" / "submit" / tag, ((item,),))
    states.take_intent(ledger, batch, "slurm", "here")
    states.note_queued(ledger, "here", tag, job_id=str(item.attempt))
    key = {"site": "here", "tag": tag, "array_index": 0, "run_id": RUN, "attempt": item.attempt}
    ending = {"state": state, "fail_class": fail_class}
    states.update_jobs(ledger, [(key, {**ending, "failed_nodes": failed_nodes}, ending)])
    return item


def retry(ledger: Ledger) -> list[str]:
    return retry_by_class(PROJECT, ledger, None, lambda _: None)


def state(ledger: Ledger) -> str:
    return str(ledger.states([RUN])[RUN])


def record(ledger: Ledger, number: int, epochs: list[int], seconds: int = 600) -> None:
    """A final record of this attempt, with so many seconds between start and end and no start-up phase."""
    folder = ledger.path.parent / "root" / "runs" / "ab" / RUN / f"a{number}"
    folder.mkdir(parents=True)
    times = {"started": "2026-01-01T00:00:00Z", "ended": f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"}
    (folder / "record.json").write_text(json.dumps({"schema": 1, "state": "timeout", **times}))
    if epochs:
        pq.write_table(pa.table({"epoch": epochs}), folder / "epochs.parquet")


def test_a_node_failure_is_forgiven_twice_and_its_node_avoided(ledger: Ledger) -> None:
    assert attempt(ledger, "failed", "node", "n7").avoid == ()
    assert retry(ledger) == [RUN]
    second = attempt(ledger, "failed", "fabric", "n9")
    assert (second.attempt, second.avoid, second.run.exclude) == (2, ("n7",), "n7")
    assert retry(ledger) == [RUN]
    third = attempt(ledger, "failed", "node", "n7")
    assert set(third.avoid) == {"n7", "n9"}
    assert retry(ledger) == []
    assert state(ledger) == "failed"
    jobs = ledger.jobs_of(RUN)
    assert [job["avoided"] for job in jobs] == [None, "n7", ",".join(third.avoid)]
    assert [job["again"].partition(":")[0] for job in jobs] == ["again", "again", "not by itself"]


def test_nodes_that_the_study_names_are_kept(tmp_path: Path) -> None:
    run = make_run(RUN, partition="p", retry={"infrastructure": 2, "timeout": "resume"}, nodelist="n7")
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", run))
        attempt(ledger, "failed", "node", "n7")
        assert retry(ledger) == [RUN]
        (item,) = next_items(ledger, ledger.run_rows([RUN]))
        assert (item.avoid, item.run.exclude, item.run.nodelist) == ((), None, "n7")


def test_suspects_are_forgotten_after_a_day_and_the_list_is_short(ledger: Ledger) -> None:
    attempt(ledger, "failed", "node", ",".join(f"n{number}" for number in range(20)))
    assert suspects(ledger, "here") == [f"n{number}" for number in range(8)]
    assert suspects(ledger, "elsewhere") == []
    with ledger.transaction() as db:
        db.execute("UPDATE jobs SET state_seen_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-25 hours')")
    assert suspects(ledger, "here") == []


@pytest.mark.parametrize("fail_class", ["oom_host", "config", "user", "quota", "hang", "unknown"])
def test_other_failures_wait_for_a_person(ledger: Ledger, fail_class: str) -> None:
    attempt(ledger, "failed", fail_class)
    assert retry(ledger) == []
    assert state(ledger) == "failed"
    assert ledger.jobs_of(RUN)[0]["again"].startswith("not by itself: ")
    assert states.plan_again(ledger, [RUN]) == 1


def test_a_time_limit_is_met_once_with_what_the_progress_asks_for(ledger: Ledger) -> None:
    attempt(ledger, "timeout")
    record(ledger, 1, [0, 1])  # two of four epochs in 600 s: 1200 s of work
    assert retry(ledger) == [RUN]
    (row,) = ledger.run_rows([RUN])
    assert row["walltime_s"] == 2100  # 1.5 x 1200 s + 120 s = 1920 s, in whole 5 minutes
    second = attempt(ledger, "timeout")
    assert second.run.walltime_s == 2100
    assert (second.run.price.node_h, second.run.price.gpu_h) == (pytest.approx(3.5), pytest.approx(7.0))
    record(ledger, 2, [0, 1, 2])
    assert retry(ledger) == []
    assert state(ledger) == "timeout"
    assert [job["walltime_s"] for job in ledger.jobs_of(RUN)] == [600, 2100]


def test_a_longer_walltime_counts_against_the_cap_while_it_is_queued(ledger: Ledger) -> None:
    attempt(ledger, "timeout")
    states.plan_again(ledger, [RUN], walltimes={RUN: 1200})
    (item,) = next_items(ledger, ledger.run_rows([RUN]))
    folder = ledger.path.parent / "root" / "submit" / TAG
    states.take_intent(ledger, Batch("here", TAG, folder, ((item,),)), "slurm")
    assert committed_gpu_h(ledger) == pytest.approx(4.0)


def test_no_progress_no_guess(ledger: Ledger) -> None:
    attempt(ledger, "timeout")
    record(ledger, 1, [])
    assert retry(ledger) == []
    assert "unknown" in ledger.jobs_of(RUN)[0]["again"]


def test_longer_than_the_partition_allows_waits_for_a_person(ledger: Ledger) -> None:
    attempt(ledger, "timeout")
    record(ledger, 1, [0], seconds=3599)  # a fourth in an hour
    assert retry(ledger) == []
    assert "the partition allows 02:00:00" in ledger.jobs_of(RUN)[0]["again"]


def test_a_workload_with_checkpoints_goes_on_as_long_as_it_gets_further(tmp_path: Path) -> None:
    run = make_run(RUN, partition="p", retry={"infrastructure": 2, "timeout": "resume"}, params={"epochs": 9},
                   record={"on_warning": "signal"})  # fmt: skip
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", run))
        for number, epochs in enumerate(([0, 1], [2, 3], [4]), start=1):
            attempt(ledger, "timeout")
            record(ledger, number, epochs)
            assert retry(ledger) == [RUN]
        assert ledger.run_rows([RUN])[0]["walltime_s"] is None
        attempt(ledger, "timeout")
        record(ledger, 4, [4])  # no further than before
        assert retry(ledger) == []
        assert state(ledger) == "timeout"


def test_a_plan_with_another_walltime_has_the_last_word(ledger: Ledger) -> None:
    attempt(ledger, "timeout")
    states.plan_again(ledger, [RUN], walltimes={RUN: 1200})
    run = ledger.planned_runs([RUN])[RUN]
    ledger.add_plan(make_plan("p2", run))
    assert ledger.run_rows([RUN])[0]["walltime_s"] == 1200  # planned again as it was
    ledger.add_plan(make_plan("p3", run.with_walltime(1800)))
    assert ledger.run_rows([RUN])[0]["walltime_s"] is None


def test_another_walltime_for_a_run_that_is_planned_again_already(ledger: Ledger) -> None:
    assert states.plan_again(ledger, [RUN], walltimes={RUN: 1200}) == 0  # never tried: the plan says how long
    attempt(ledger, "timeout")
    assert states.plan_again(ledger, [RUN], walltimes={RUN: 1200}) == 1
    assert states.plan_again(ledger, [RUN], walltimes={RUN: 900}) == 1
    assert ledger.run_rows([RUN])[0]["walltime_s"] == 900
