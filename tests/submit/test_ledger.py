"""The ledger keeps what was planned and changes states one transaction at a time."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.errors import BadInput, NotNow
from campaign.submit import states
from campaign.submit.batch import Batch, Item
from campaign.submit.ledger import Ledger
from campaign.submit.overview import overview
from tests.submit.make import make_plan, make_run


def ids(number: int) -> list[str]:
    return [f"{index:016x}" for index in range(number)]


def state_of(ledger: Ledger, run_id: str) -> str:
    return str(ledger.run_rows([run_id])[0]["state"])


def batch(path: Path, *runs: str, tag: str = "c000000000000", attempt: int = 1) -> Batch:
    items = tuple((Item(make_run(run_id), attempt),) for run_id in runs)
    return Batch("here", tag, path / "runs-root" / "submit" / tag, items)


def test_a_plan_read_back_is_the_plan(tmp_path: Path) -> None:
    run = make_run("a" * 16, command=("echo", "ü \n$(touch x)"), params={"lr": 1e-3, "name": "ü"})
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        report = ledger.add_plan(make_plan("p1", run))
        assert (report.new, report.known) == (1, 0)
        assert ledger.planned_runs([run.run_id]) == {run.run_id: run}


def test_planning_again_keeps_state_and_attempts(tmp_path: Path) -> None:
    run = make_run("a" * 16)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", run))
        states.take_intent(ledger, batch(tmp_path, run.run_id), "local")
        report = ledger.add_plan(make_plan("p2", run))
        assert (report.new, report.known) == (0, 1)
        row = ledger.run_rows([run.run_id])[0]
        assert (row["state"], row["attempts"], row["plan_id"]) == ("submitting", 1, "p2")


def test_a_new_plan_supersedes_what_was_only_planned(tmp_path: Path) -> None:
    old, queued, other, new = (make_run(letter * 16) for letter in "abcd")
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", old, queued))
        ledger.add_plan(make_plan("p2", other, lr=1))  # another --set: both variants are wanted
        states.take_intent(ledger, batch(tmp_path, queued.run_id), "local")
        assert ledger.add_plan(make_plan("p3", new)).superseded == 1
        rows = {row["run_id"]: row["superseded_by"] for row in ledger.query("SELECT * FROM runs")}
        assert rows == {old.run_id: "p3", queued.run_id: None, other.run_id: None, new.run_id: None}
        assert overview(ledger).total == 3
        ledger.add_plan(make_plan("p4", old, new))  # planned once more: wanted again
        assert ledger.run_rows([old.run_id])[0]["superseded_by"] is None


def test_runs_that_cannot_run_are_not_taken(tmp_path: Path) -> None:
    from campaign.errors import Problem

    run = make_run("a" * 16, problems=(Problem("too big"),))
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        assert ledger.add_plan(make_plan("p1", run)).new == 0
        assert overview(ledger).total == 0


def test_two_submitters_one_wins_and_nothing_of_the_other_stays(tmp_path: Path) -> None:
    first, second = ids(2)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", make_run(first), make_run(second)))
        states.take_intent(ledger, batch(tmp_path, second, tag="c1"), "local")
        with pytest.raises(states.TakenByAnother):
            states.take_intent(ledger, batch(tmp_path, first, second, tag="c2"), "local")
        assert state_of(ledger, first) == "planned"
        assert [row["tag"] for row in ledger.query("SELECT tag FROM jobs")] == ["c1"]


def test_a_refused_batch_is_planned_under_the_same_attempt(tmp_path: Path) -> None:
    """A job that turns up late after all must meet the claim of the same attempt."""
    (run_id,) = ids(1)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", make_run(run_id)))
        states.take_intent(ledger, batch(tmp_path, run_id), "slurm")
        states.give_back(ledger, "here", "c000000000000", "refused")
        row = ledger.run_rows([run_id])[0]
        assert (row["state"], row["attempts"]) == ("planned", 0)
        assert ledger.jobs_of(run_id)[0]["state"] == "refused"


def test_only_runs_that_ended_badly_are_planned_again(tmp_path: Path) -> None:
    names = ids(11)
    every = ("planned", "submitting", "queued", "running", "done", "failed", "timeout", "interrupted", "cancelled",
             "lost", "unknown")  # fmt: skip
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", *[make_run(name) for name in names]))
        with ledger.transaction() as db:
            db.executemany("UPDATE runs SET state = ? WHERE run_id = ?", list(zip(every, names, strict=True)))
        assert states.plan_again(ledger, names) == 5
        after = [state_of(ledger, name) for name in names]
        assert after == ["planned", "submitting", "queued", "running", "done", *["planned"] * 5, "unknown"]


def test_an_old_attempt_never_moves_the_run(tmp_path: Path) -> None:
    (run_id,) = ids(1)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", make_run(run_id)))
        states.take_intent(ledger, batch(tmp_path, run_id, tag="c1"), "slurm")
        states.note_queued(ledger, "here", "c1", job_id="7")
        key = dict(ledger.jobs_of(run_id)[0])
        states.update_jobs(ledger, [(key, {"state": "failed"}, {"state": "failed"})])
        states.plan_again(ledger, [run_id])
        states.take_intent(ledger, batch(tmp_path, run_id, tag="c2", attempt=2), "slurm")
        states.update_jobs(ledger, [(key, {"state": "done"}, {"state": "done"})])
        assert state_of(ledger, run_id) == "submitting"


def test_a_locked_ledger_is_not_now(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger.open(path).db.close()
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('BEGIN EXCLUSIVE'); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(NotNow) as caught:
            Ledger.open(path, wait_s=0.2)
        holder.communicate(b"\n")
    assert caught.value.exit_code == 3
    assert str(path) in str(caught.value)


def test_a_newer_schema_and_a_damaged_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with Ledger.open(path) as ledger, ledger.transaction() as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(BadInput, match="schema 99"):
        Ledger.open(path)
    path.write_bytes(b"not a database, but long enough to be read as one" * 50)
    with pytest.raises(BadInput, match="not a ledger"):
        Ledger.open(path)


def test_a_commit_is_durable(tmp_path: Path) -> None:
    """Rollback journal and synchronous=FULL, as another connection and the pragma see it."""
    path = tmp_path / "l.sqlite"
    with Ledger.open(path) as ledger:
        assert ledger.query("PRAGMA synchronous")[0][0] == 2
        assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_hours_come_from_jobs_that_ended(tmp_path: Path) -> None:
    (run_id,) = ids(1)
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", make_run(run_id, nodes=2, ranks_per_node=4, gpus_per_rank=1)))
        states.take_intent(ledger, batch(tmp_path, run_id, tag="c1"), "slurm")
        key = dict(ledger.jobs_of(run_id)[0])
        times = {"started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T01:30:00Z"}
        states.update_jobs(ledger, [(key, times, {})])
        (group,) = overview(ledger).groups
        assert group.node_h == pytest.approx(3.0)
        assert group.gpu_h == pytest.approx(12.0)


def test_params_are_json_that_sql_can_ask(tmp_path: Path) -> None:
    from campaign.submit.select import Selection, select_runs

    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        values = zip(ids(3), (0.1, 0.2, 0.2), (1, 2, 4), strict=True)
        runs = [make_run(name, params={"lr": lr}, nodes=nodes) for name, lr, nodes in values]
        ledger.add_plan(make_plan("p1", *runs))
        assert json.loads(ledger.query("SELECT params FROM runs LIMIT 1")[0][0]) == {"lr": 0.1}
        wanted = select_runs(ledger, Selection(where="params->>'lr' = '0.2' AND nodes > 2"))
        assert wanted == [ids(3)[2]]
        with pytest.raises(BadInput, match="worldsize"):
            select_runs(ledger, Selection(where="worldsize > 2"))
        with pytest.raises(BadInput, match="no planned run has this site"):
            select_runs(ledger, Selection(sites=("heer",)))
        with pytest.raises(BadInput):
            select_runs(ledger, Selection(where="1=1); DROP TABLE runs; SELECT (1"))


@pytest.mark.parametrize("left", ["nothing", "empty file", "folder"])
def test_a_lost_ledger_is_no_new_one(tmp_path: Path, left: str) -> None:
    """Plans lie beside it: to begin anew would forget its jobs."""
    path = tmp_path / ".campaign" / "ledger.sqlite"
    (tmp_path / ".campaign" / "plans").mkdir(parents=True)
    (tmp_path / ".campaign" / "plans" / "0123456789ab.json").write_text("{}")
    if left == "empty file":
        path.touch()
    elif left == "folder":
        path.mkdir()
    for write in (True, False):
        with pytest.raises(BadInput, match="the ledger is gone, though 1 plan lies beside it") as caught:
            Ledger.open(path, write=write)
        assert "campaign rebuild" in str(caught.value.problems[0].hint)
    if left != "folder":
        with Ledger.open(path, new=True) as ledger:
            assert ledger.states([]) == {}


def test_a_ledger_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.mkdir()
    with pytest.raises(BadInput, match="the ledger can't be used: unable to open"):
        Ledger.open(path)
