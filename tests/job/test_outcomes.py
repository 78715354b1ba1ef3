"""How runs end, and what the record says of it: real heads, agents and ranks on this machine."""

from __future__ import annotations

import platform
import signal

import pytest

from tests.job.jobs import Site, gone
from tests.waiting import wait_for

TRAIN = """
    import os, time
    from campaign.record import Recorder, spec

    recorder = Recorder.from_env()
    recorder.phase("imports_done")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    recorder.world(rank, world)
    print("rank", rank, "of", world, "lr", spec()["params"]["lr"])
    step = 0
    for epoch in range(2):
        for _ in range(25):
            recorder.step(epoch, step, samples=4, data_wait_s=0.001 * (rank + 1), step_s=0.01 * (rank + 1), loss=0.5)
            step += 1
        recorder.epoch(epoch, epoch_time_s=1.0 + rank, steps=25, samples_seen=100, warmup=epoch == 0,
                       samples_unique=100 * world, order_hash=f"h{epoch}", loss=0.5 + rank, val_loss=0.25)
    recorder.observe("accuracy", 0.75, unit="1", step=1, split="test")
"""


def test_a_run_of_two_nodes_leaves_a_whole_record(site: Site) -> None:
    spec = site.spec(site.script(TRAIN), nodes=2, ranks_per_node=2, record={"window_steps": 10, "raw_ranks": [0, 3]})
    ended = site.run(spec)
    assert ended.code == 0, ended.log
    record = ended.record
    assert ended.state == ("done", None)
    assert record["complete"] is True
    assert record["missing_nodes"] == []
    assert record["exit"] == {"code": 0, "signal": None, "rank": None, "node": None}
    assert record["world_size"] == 4
    assert len(record["nodes"]) == len(set(record["nodes"])) == 2
    assert record["commit"] == "abc"
    assert record["versions"] == {"campaign": "0", "python": platform.python_version()}
    assert record["audit"] == {"samples": 400, "unique": 400, "duplication": 1.0, "order_hashes": ["h0", "h1"]}
    assert set(record["files"]) == {entry.name for entry in ended.folder.iterdir()} - {"record.json"}
    assert not (ended.folder.parent / "a1.partial").exists()
    assert "rank 0 of 4 lr 0.5" in ended.console()

    epochs = ended.rows("epochs")
    assert [row["warmup"] for row in epochs] == [True, False]
    assert epochs[1] | {"order_hash": None} == {
        "epoch": 1,
        "warmup": False,
        "epoch_time_s": 4.0,
        "epoch_time_min_s": 1.0,
        "slowest_rank": 3,
        "steps": 25,
        "samples_seen": 400,
        "samples_unique": 400,
        "duplication": 1.0,
        "order_hash": None,
        "loss": 2.0,
        "val_loss": 0.25,
        "data_wait_s": pytest.approx(25 * 0.004),
        "comm_exposed_s": None,
        "energy_wh": None,
        "energy_scope": None,
    }
    steps = ended.rows("steps")
    assert sorted({row["rank"] for row in steps}) == [0, 3]
    assert [row["step"] for row in steps if row["rank"] == 3] == list(range(50))
    windows = {(row["epoch"], row["window"], row["metric"]): row for row in ended.rows("windows")}
    assert len(windows) == len(ended.rows("windows")) == 2 * 3 * 2
    assert windows[1, 2, "step_s"]["n"] == 4
    assert windows[1, 2, "step_s"]["max"] == pytest.approx(0.04)
    assert windows[1, 2, "step_s"]["max_rank"] == 3
    assert windows[1, 2, "step_s"]["median"] == pytest.approx(0.025)
    observed = ended.events("accuracy")
    assert len(observed) == 4
    assert dict(observed[0]["labels"]) == {"split": "test"}
    assert site.local_leftovers() == []


def test_phases_are_in_their_order_on_one_clock(site: Site) -> None:
    ended = site.run(site.spec(site.script(TRAIN), ranks_per_node=2))
    times = {row["name"]: row["t_us"] for row in ended.rows("events") if row["kind"] == "phase" and row["rank"] != 1}
    order = ["job_start", "agents_up", "launched", "python_up", "imports_done", "first_step", "ranks_done"]
    assert times["job_start"] == 0
    assert [times[name] for name in order] == sorted(times[name] for name in order)
    assert times["ranks_done"] <= times["record_written"]


def test_a_rank_that_raises(site: Site) -> None:
    script = site.script("""
        import os, time
        print("before")
        if os.environ["RANK"] == "1":
            raise ValueError("no such thing")
        time.sleep(600)
    """)
    ended = site.run(site.spec(script, ranks_per_node=3))
    assert ended.code == 1
    assert ended.state == ("failed", "user")
    assert ended.record["exit"] == {"code": 1, "signal": None, "rank": 1, "node": ended.record["nodes"][0]}
    assert "ValueError: no such thing" in ended.record["reason"]
    failed = (ended.folder / "failed.log").read_text(encoding="utf-8")
    assert "rank 1" in failed
    assert "Traceback" in failed
    assert "before" in ended.console()
    assert site.local_leftovers() == []


def test_a_rank_that_is_killed(site: Site) -> None:
    script = site.script("""
        import os
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        for step in range(100):
            recorder.step(0, step, step_s=0.1)
        recorder.phase("here")
        recorder.step(0, 100, step_s=0.1)
        os.kill(os.getpid(), 9)
    """)
    ended = site.run(site.spec(script))
    assert ended.state == ("failed", "unknown")
    assert ended.record["exit"]["signal"] == signal.SIGKILL
    # what it had flushed is there; what lay in its buffer died with it
    assert [row["step"] for row in ended.rows("steps")] == list(range(100))
    assert ended.events("here")


def test_a_rank_that_hangs(site: Site) -> None:
    script = site.script("""
        import os, time
        from campaign.record import Recorder
        rank = int(os.environ["RANK"])
        recorder = Recorder.from_env()
        for step in range(5 + 5 * (rank == 0)):
            recorder.step(0, step, step_s=0.1)
        recorder.flush()
        time.sleep(600)
    """)
    ended = site.run(site.spec(script, ranks_per_node=2, record={"hang_timeout_s": 2}))
    assert ended.state == ("failed", "hang")
    assert "rank 1 had reached step 4, others 9" in ended.record["reason"]
    assert site.local_leftovers() == []


def test_the_time_limit(site: Site) -> None:
    script = site.script("""
        import time
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        recorder.epoch(0, epoch_time_s=1, steps=1, samples_seen=1)
        print("ready")
        time.sleep(600)
    """)
    ended = site.run(site.spec(script, walltime_s=4.0))
    assert ended.code == 1
    assert ended.state == ("timeout", None)
    assert "4 s" in ended.record["reason"]
    assert len(ended.rows("epochs")) == 1
    assert ended.record["complete"] is True
    assert site.local_leftovers() == []


@pytest.mark.parametrize(
    ("number", "state"), [(signal.SIGTERM, "cancelled"), (signal.SIGINT, "interrupted")], ids=["SIGTERM", "SIGINT"]
)
def test_a_head_that_is_told_to_end(site: Site, number: signal.Signals, state: str) -> None:
    script = site.script("""
        import os, signal, time
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        def last(*_):
            recorder.observe("said_goodbye", 1)
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, last)
        open("ready" + os.environ["RANK"], "w").close()
        time.sleep(600)
    """)
    running = site.start(site.spec(script, nodes=2, record={"term_grace_s": 30}))
    wait_for(lambda: all((site.project / f"ready{rank}").exists() for rank in range(2)))
    running.head.send_signal(number)
    ended = running.wait()
    assert ended.state == (state, None)
    assert ended.record["missing_nodes"] == []
    assert len(ended.events("said_goodbye")) == 2
    assert site.local_leftovers() == []


def test_a_rank_that_ignores_sigterm_is_killed(site: Site) -> None:
    script = site.script("""
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # a worker that has left the rank's session
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("ready")
        time.sleep(600)
    """)
    running = site.start(site.spec(script, record={"term_grace_s": 1}))
    running.wait_for_console("ready")
    pids = running.rank_pids()
    assert len(pids) == 2
    running.head.terminate()
    ended = running.wait()
    assert ended.state == ("cancelled", None)
    assert ended.record["complete"] is True
    wait_for(gone(pids), what="the rank and its worker have ended")


def test_the_warning_reaches_only_workloads_that_handle_it(site: Site) -> None:
    script = site.script("""
        import signal, sys, time
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        if len(sys.argv) > 1:
            signal.signal(signal.SIGUSR2, lambda *_: sys.exit(print("warned")))
        print("ready")
        time.sleep(2 if len(sys.argv) == 1 else 600)
    """)
    for record, argv, text in (({}, [], "ready\n"), ({"on_warning": "signal"}, ["handler"], "ready\nwarned\n")):
        running = site.start(site.spec([*script, *argv], attempt=1 + len(argv), record=record))
        running.wait_for_console("ready")
        running.head.send_signal(signal.SIGUSR2)
        ended = running.wait()
        assert ended.state == ("done", None), ended.log
        assert ended.console() == text


@pytest.mark.parametrize(
    ("command", "code"), [(["no-such-program"], 127), (["python", "missing.py"], 2)], ids=["program", "script"]
)
def test_a_command_that_is_not_there(site: Site, command: list[str], code: int) -> None:
    ended = site.run(site.spec(command))
    assert ended.state == ("failed", "config")
    assert ended.record["exit"]["code"] == code


def test_a_second_job_leaves_the_first_ones_run_alone(site: Site) -> None:
    script = site.script("print('once', flush=True)\nimport time\ntime.sleep(1.5)")
    spec = site.spec(script)
    first = site.start(spec)
    wait_for((spec.run_dir / "claim.a1").exists)
    second = site.start(spec)
    assert second.head.wait(60) == 0
    assert f"claimed by local-{first.head.pid}" in second.log.read_text(encoding="utf-8")
    ended = first.wait()
    assert ended.state == ("done", None)
    assert ended.console() == "once\n"


def test_what_a_finished_rank_has_left_may_work_until_all_have_ended(site: Site) -> None:
    script = site.script("""
        import os, subprocess, sys, time
        from pathlib import Path
        if os.environ["RANK"] == "0":
            # an upload in the background, say
            code = "import pathlib, time; time.sleep(0.5); pathlib.Path('uploaded').touch(); time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", code])
        else:
            while not Path("uploaded").exists():
                time.sleep(0.02)
    """)
    running = site.start(site.spec(script, ranks_per_node=2))
    assert running.wait().state == ("done", None)
    wait_for(lambda: not running.rank_pids())


def test_a_run_whose_epochs_are_nonsense_is_recorded(site: Site) -> None:
    script = site.script("""
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        recorder.epoch(10**12, epoch_time_s=1.0, steps=10**12, samples_seen=5)
        recorder.epoch(1, epoch_time_s=float("nan"), steps=1, samples_seen=5)
        recorder.observe("x", float("inf"), step=10**18)
    """)
    ended = site.run(site.spec(script))
    assert ended.state == ("done", None), ended.log
    assert [row["epoch"] for row in ended.rows("epochs")] == [1]
    assert ended.record["bytes_dropped"] > 0


def test_packed_runs_come_one_after_another(site: Site) -> None:
    script = site.script("""
        import os, sys, time
        print(os.environ["CAMPAIGN_RUN_ID"], time.time())
        sys.exit(int(sys.argv[1]))
    """)
    specs = [site.spec([*script, str(code)], run_id=f"{place}123456789abcdef") for place, code in enumerate((0, 3, 0))]
    running = site.start(*specs)
    assert running.wait().code == 1
    ended = [running.wait()]
    ended = [type(ended[0])(spec, 0, "") for spec in specs]
    assert [one.state for one in ended] == [("done", None), ("failed", "user"), ("done", None)]
    starts = [float(one.console().split()[1]) for one in ended]
    assert starts == sorted(starts)
    assert [one.record["started"] for one in ended] == sorted(one.record["started"] for one in ended)


def test_packed_runs_after_a_cancel_are_recorded_as_not_started(site: Site) -> None:
    script = site.script("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    specs = [site.spec(script, run_id=f"{place}123456789abcdef") for place in range(2)]
    running = site.start(*specs)
    running.wait_for_console("ready")
    running.head.terminate()
    first = running.wait()
    assert first.state == ("cancelled", None)
    second = type(first)(specs[1], first.code, first.log)
    assert second.state == ("interrupted", None)
    assert "not started" in second.record["reason"]


@pytest.mark.parametrize(("name", "code"), [("nosuchprogram", 127), ("./plain.txt", 126)])
def test_a_program_that_cannot_be_started_is_named(site: Site, name: str, code: int) -> None:
    (site.project / "plain.txt").write_text("no program\n")
    ended = site.run(site.spec([name]))
    assert ended.state == ("failed", "config"), ended.log
    assert ended.record["exit"]["code"] == code
    assert name in ended.record["reason"]
    assert name in (ended.folder / "failed.log").read_text()
