"""The views runs, jobs, phases, starts and startup."""

from __future__ import annotations

import sqlite3
from typing import Any, cast

import pytest

from campaign.store.collect import collect
from campaign.store.db import open_store
from campaign.submit import outcome
from tests.store.world import World, epoch_rows, full_id

PHASES = ["job_start", "staged", "agents_up", "launched", "python_up", "imports_done", "pg_ready", "first_collective",
          "first_batch", "first_step", "ranks_done", "record_written"]  # fmt: skip


def rows(world: World, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query, after a collect."""
    assert collect(world, world.store).rejects == []
    with open_store(world.store, write=False) as connection:
        return connection.execute(sql).fetchall()


VALIDITY: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("clean", {}, {}, None),
    ("retried-from-the-start", {"attempts": 2}, {}, None),
    ("failed", {"state": "failed"}, {"state": "failed"}, "ended as failed"),
    ("incomplete", {}, {"complete": False, "missing_nodes": ["n2"]}, "no complete record"),
    ("resumed", {"attempts": 2}, {"resumed_from": 1}, "resumed: not done in one attempt"),
    ("oversubscribed", {}, {"host": {"oversubscribed": True}}, "oversubscribed: more ranks than cores"),
    ("planned-oversubscribed-but-not-seen", {"oversubscribed": 1}, {"host": {"oversubscribed": False}}, None),
    ("planned-oversubscribed-and-nothing-seen", {"oversubscribed": 1}, {"host": {}},
     "oversubscribed: more ranks than cores"),
    ("packed-side-by-side", {"pack": "concurrent"}, {}, "packed side by side with other runs"),
    ("packed-one-after-another", {"pack": "serial"}, {}, None),
    ("canary", {"valid": 0, "why_invalid": "canary 8 % off"}, {}, "canary 8 % off"),
    ("two-reasons", {"pack": "concurrent"}, {"host": {"oversubscribed": True}},
     "oversubscribed: more ranks than cores; packed side by side with other runs"),
]  # fmt: skip


def test_valid_and_why_not(world: World) -> None:
    for name, run, record, _ in VALIDITY:
        attempt = run.get("attempts", 1)
        world.plan_run(name, **run)
        world.queue(name, attempt)
        world.record(name, attempt, tables={"epochs": epoch_rows([9.0, 5.0])}, **record)
    judged = {run_id: (valid, why) for run_id, valid, why in rows(world, "SELECT run_id, valid, why_invalid FROM runs")}
    for name, _, _, why in VALIDITY:
        assert judged[full_id(name)] == (why is None, why), name


RESUMED = (False, "resumed: not done in one attempt")
ATTEMPTS: list[tuple[str, list[list[int]], tuple[bool, str | None]]] = [
    ("one-attempt-from-0", [[0, 1, 2]], (True, None)),
    ("one-attempt-from-1", [[1, 2, 3]], (True, None)),
    ("one-attempt-without-epochs", [[]], (True, None)),
    ("again-from-the-start", [[0], [0, 1, 2]], (True, None)),
    ("again-from-the-start-counted-from-1", [[1, 2], [1, 2, 3]], (True, None)),
    ("went-on", [[0], [1, 2]], RESUMED),
    ("went-on-counted-from-1", [[1, 2], [3]], RESUMED),
    ("the-epoch-that-was-cut-is-done-again", [[0, 1], [1, 2]], RESUMED),
    ("nothing-was-done-before", [[], [1, 2]], (True, None)),
    ("went-on-twice", [[0], [1], [2]], RESUMED),
    ("went-on-then-from-the-start", [[0], [1], [0, 1, 2]], (True, None)),
    ("went-on-after-an-attempt-without-epochs", [[0], [], [1, 2]], RESUMED),
]


@pytest.mark.parametrize(("numbers", "judged"), [case[1:] for case in ATTEMPTS], ids=[case[0] for case in ATTEMPTS])
def test_only_an_attempt_that_went_on_from_another_is_resumed(
    world: World, numbers: list[list[int]], judged: tuple[bool, str | None]
) -> None:
    """A program with checkpoints of its own resumes without telling, and may count from any number.

    `campaign show` reads the ledger, `campaign sql` the store: both must say the same.
    """
    last = len(numbers)
    run_id = world.plan_run("r", attempts=last)
    for attempt, epochs in enumerate(numbers, start=1):
        world.queue("r", attempt, state="done" if attempt == last else "failed")
        found = {"epochs": [{"epoch": epoch, "warmup": False, "epoch_time_s": 5.0} for epoch in epochs]}
        if attempt == last:
            world.record("r", attempt, tables=found)
        else:
            world.partial("r", attempt, tables=found)
    assert rows(world, "SELECT valid, why_invalid FROM runs") == [judged]
    job = {"run_id": run_id, "attempt": last, "tag": f"c{run_id[:8]}{last:04d}",
           "submit_dir": str(world.run_root / "submit" / "c1")}  # fmt: skip
    ended = outcome.from_record(cast("sqlite3.Row", job))
    assert ended is not None
    assert (bool(ended[1]["valid"]), ended[1]["why_invalid"]) == judged


def test_a_run_that_has_not_ended_is_not_judged(world: World) -> None:
    states = ["planned", "queued", "running", "submitting", "unknown"]
    for state in states:
        world.plan_run(state, state=state)
    assert rows(world, "SELECT state, valid, why_invalid FROM runs ORDER BY 1") == [(s, None, None) for s in states]


def test_done_without_a_record_is_not_valid(world: World) -> None:
    world.plan_run("r")
    world.queue("r")
    assert rows(world, "SELECT valid, why_invalid FROM runs") == [(False, "no complete record")]


def test_a_final_record_ends_a_run_that_the_scheduler_still_calls_running(world: World) -> None:
    world.plan_run("r", state="running")
    world.queue("r", state="running", ended=None, exit_code=None)
    world.record("r", tables={"epochs": epoch_rows([9.0, 5.0])})
    assert rows(world, "SELECT state, valid FROM runs") == [("done", True)]
    assert rows(world, "SELECT state, exit_code, CAST(ended AS VARCHAR) FROM jobs") == [
        ("done", 0, "2026-11-01 00:11:02.5")
    ]


def test_a_run_planned_again_is_not_ended_by_its_old_record(world: World) -> None:
    """`retry` makes a failed run planned; then a second attempt is queued."""
    world.plan_run("r", state="planned", attempts=1)
    world.queue("r", 1, state="failed")
    world.record("r", 1, state="failed", fail_class="user")
    assert rows(world, "SELECT state, valid FROM runs") == [("planned", None)]
    world.change("UPDATE runs SET state = 'queued', attempts = 2")
    world.queue("r", 2, state="queued", started=None, ended=None)
    assert rows(world, "SELECT state, valid FROM runs") == [("queued", None)]


def test_a_dead_heads_state_comes_from_the_scheduler(world: World) -> None:
    world.plan_run("r", state="timeout")
    world.queue("r", state="timeout", slurm_state="TIMEOUT")
    world.partial("r", tables={"epochs": epoch_rows([9.0, 5.0])})
    assert rows(world, "SELECT r.state, valid, j.slurm_state, count(e.epoch) FROM runs r JOIN jobs j USING (run_id) "
                       "JOIN epochs e USING (run_id) GROUP BY ALL") == [("timeout", False, "TIMEOUT", 2)]  # fmt: skip


# -- hours -----------------------------------------------------------------------------------------------------------


def test_hours_are_those_of_all_attempts(world: World) -> None:
    world.plan_run("r", nodes=2, ranks_per_node=4, gpus_per_rank=1, attempts=2)
    world.queue("r", 1, state="failed", started="2026-11-01T00:00:00.000000Z", ended="2026-11-01T00:30:00.000000Z")
    world.queue("r", 2, started="2026-11-01T01:00:00.000000Z", ended="2026-11-01T02:10:00.000000Z")
    world.record("r", 2, started="2026-11-01T01:05:00+00:00", ended="2026-11-01T03:05:00+01:00")
    # 30 minutes by the scheduler, 60 minutes by the record, whose times are given in two zones
    assert rows(world, "SELECT node_h, gpu_h FROM runs") == [(pytest.approx(2 * 1.5), pytest.approx(8 * 1.5))]


def test_runs_of_one_array_element_share_its_time_when_no_record_tells(world: World) -> None:
    for name in ("a", "b"):
        world.plan_run(name, pack="serial")
        world.queue(name, tag="c000000000001", array_index=0)
    assert rows(world, "SELECT node_h FROM runs") == [(pytest.approx(5 / 60),)] * 2


def test_not_started_is_not_measured(world: World) -> None:
    world.plan_run("r", state="queued")
    world.queue("r", state="queued", started=None, ended=None)
    assert rows(world, "SELECT node_h, gpu_h FROM runs") == [(None, None)]
    [(queued_s, run_s, age_s)] = rows(world, "SELECT queued_s, run_s, state_age_s FROM jobs")
    assert (queued_s, run_s) == (None, None)
    assert age_s is not None


def test_jobs_know_waiting_and_running_time_and_provenance(world: World) -> None:
    world.measured("r")
    assert rows(world, "SELECT queued_s, run_s, commit, dirty, versions->>'python' FROM jobs") == [
        (59.0, 600.0, "abc", False, "3.11.7")
    ]


def test_a_record_of_another_tag_is_not_this_jobs(world: World) -> None:
    """An attempt number that was given back and queued again: only the job that claimed it has the record."""
    world.plan_run("r")
    world.queue("r", 1, tag="c000000000001", state="refused", started=None, ended=None)
    world.queue("r", 1, tag="c000000000002")
    world.record("r", 1, tag="c000000000002")
    assert rows(world, "SELECT tag, commit FROM jobs ORDER BY 1") == [("c000000000001", None), ("c000000000002", "abc")]


# -- start-up --------------------------------------------------------------------------------------------------------


def phases(reached: int, ranks: int, lost: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """Events of the first `reached` phases; `lost`: ranks that did not reach a phase."""
    events = []
    for place, name in enumerate(PHASES[:reached]):
        count = ranks - (lost or {}).get(name, 0) if place >= 4 and name not in ("ranks_done", "record_written") else 1
        events += [
            {"kind": "phase", "name": name, "rank": rank if count > 1 else None, "node": f"n{rank // 2}",
             "t_us": 1_000_000 * place + 1000 * rank}
            for rank in range(count)
        ]  # fmt: skip
    return events


def test_phases_over_ranks(world: World) -> None:
    world.plan_run("r", nodes=2, ranks_per_node=2)
    world.queue("r")
    world.record("r", tables={"events": phases(12, 4)})
    assert rows(world, "SELECT n, min_s, median_s, max_s, slowest_node FROM phases WHERE phase = 'pg_ready'") == [
        (4, 6.0, pytest.approx(6.0015), 6.003, "n1")
    ]
    assert rows(world, "SELECT ok, failed_phase, nodes, staging FROM starts") == [(True, None, 2, "none")]
    assert rows(world, "SELECT total_s, redirect, nodes, ranks_per_node, ops_client_rank0 FROM startup") == [
        (9.003, True, 2, 2, None)
    ]


STARTS: list[tuple[str, list[dict[str, Any]], dict[str, Any], tuple[Any, ...]]] = [
    ("one-rank-lost-in-imports", phases(5, 4) + phases(6, 4, {"imports_done": 1})[-3:], {"state": "failed"},
     (False, "imports_done", "n7")),
    ("no-rank-reached-the-group", phases(6, 4), {"state": "timeout"}, (False, "pg_ready", "n7")),
    ("nothing-launched", phases(2, 4), {"state": "failed"}, (False, "agents_up", "n7")),
    ("trained-then-failed", phases(10, 4), {"state": "failed"}, (True, None, None)),
    ("program-without-recorder-done", phases(4, 4), {"state": "done"}, (True, None, None)),
    ("program-without-recorder-failed", phases(4, 4), {"state": "failed"}, (None, None, None)),
]  # fmt: skip


def test_starts(world: World) -> None:
    for name, events, record, _ in STARTS:
        world.plan_run(name, nodes=2, ranks_per_node=2, state=record["state"])
        world.queue(name)
        leaving = {"code": 1, "signal": None, "rank": 3, "node": "n7"}
        world.record(name, tables={"events": events}, exit=leaving, **record)
    found = {row[0]: row[1:] for row in rows(world, "SELECT run_id, ok, failed_phase, failed_node FROM starts")}
    for name, _, _, expected in STARTS:
        assert found[full_id(name)] == expected, name


def test_operations_of_a_start(world: World) -> None:
    observed = [("ops_client", 0, 900), ("ops_client", 1, 999), ("ops_server", None, 300), ("ops_server", None, 310),
                ("bytes_shared", None, 1000), ("bytes_shared", None, 500), ("files_created", None, 3),
                ("image_bytes", None, 7)]  # fmt: skip
    events = [{"kind": "observe", "name": name, "rank": rank, "value": value} for name, rank, value in observed]
    world.plan_run("r")
    world.queue("r")
    world.record("r", tables={"events": events})
    assert rows(world, "SELECT ops_client_rank0, ops_server_node, bytes_shared, files_created, image_bytes "
                       "FROM startup") == [(900, 310, 1500, 3, 7)]  # fmt: skip


def test_records_say_how_a_run_ended(world: World) -> None:
    world.plan_run("r", state="failed")
    world.queue("r")
    world.record("r", state="failed", fail_class="oom_host", reason="rank 3 was killed", missing_nodes=["n2"],
                 complete=False, exit={"code": None, "signal": 9, "rank": 3, "node": "n2"})  # fmt: skip
    assert rows(world, "SELECT run_id, attempt, complete, missing_nodes, fail_class, reason, exit_signal, exit_rank, "
                       "exit_node FROM records") == [
        (full_id("r"), 1, False, ["n2"], "oom_host", "rank 3 was killed", 9, 3, "n2")
    ]  # fmt: skip
