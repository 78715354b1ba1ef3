"""The Recorder: what a rank writes with."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput
from campaign.job.rankfile import RankFile, Record
from campaign.record import HEADER, STEP, Recorder, rank_file, spec
from tests.needs import needs


class Batch:
    """Records of a file, by kind."""

    def __init__(self, records: list[Record]) -> None:
        self.steps = [record for record in records if isinstance(record, tuple)]
        self.others = [record for record in records if isinstance(record, dict)]


def read_all(path: Path) -> Batch:
    file = RankFile(path, 0)
    records: list[Record] = []
    while part := file.read():
        records += part
    assert not file.corrupt
    file.close()
    return Batch(records)


def run(code: str, **env: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "3.bin"
    with Recorder(path, 3) as recorder:
        recorder.phase("imports_done")
        recorder.world(3, 4)
        recorder.step(1, 2, samples=8, data_wait_s=0.1, step_s=0.5, loss=2.5)
        recorder.epoch(1, epoch_time_s=3.5, steps=1, samples_seen=8, samples_unique=8, order_hash="ab", val_loss=0.5)
        recorder.observe("accuracy", 0.75, unit="1", step=2, split="test", fold=3)
    batch = read_all(path)
    (step,) = batch.steps
    assert step[1:3] == (1, 2)
    assert step[4:6] == (8, 0.1)
    assert [math.isnan(value) for value in step[6:11]] == [True] * 5
    assert step[11:] == (0.5, 2.5)
    phase, world, epoch, observed = batch.others
    assert (phase["k"], phase["name"]) == ("phase", "imports_done")
    assert (world["rank"], world["world_size"]) == (3, 4)
    assert epoch == epoch | {"epoch": 1, "warmup": False, "epoch_time_s": 3.5, "loss": None, "val_loss": 0.5}
    assert observed["labels"] == {"split": "test", "fold": "3"}
    assert phase["t"] <= step[3] <= observed["t"]


CALLS = st.lists(
    st.tuples(st.sampled_from("seopf"), st.integers(0, 2**31 - 1), st.floats(allow_nan=False)), max_size=80
)


@settings(deadline=None)
@given(CALLS)
def test_the_order_of_calls_is_kept(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, int, float]]
) -> None:
    path = tmp_path_factory.mktemp("record") / "0.bin"
    recorder = Recorder(path)
    steps, others = [], []
    for kind, number, value in calls:
        if kind == "s":
            recorder.step(number, number, loss=value)
            steps.append((number, value))
        elif kind == "o":
            recorder.observe("x", value, step=number)
            others.append(("observe", value))
        elif kind == "e":
            recorder.epoch(number, epoch_time_s=1, steps=number, samples_seen=number)
            others.append(("epoch", None))
        elif kind == "p":
            recorder.phase("p")
            others.append(("phase", None))
        else:
            recorder.flush()
    recorder.close()
    batch = read_all(path)
    assert [(step[2], step[12]) for step in batch.steps] == steps
    assert [(other["k"], other.get("value")) for other in batch.others] == others


def test_a_file_cut_anywhere_gives_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    with Recorder(path) as recorder:
        recorder.phase("a")
        for number in range(3):
            recorder.step(0, number)
        recorder.observe("b", 1)
    data = path.read_bytes()
    seen = []
    for size in range(HEADER.size, len(data) + 1):
        path.write_bytes(data[:size])
        batch = read_all(path)
        seen.append(len(batch.steps) + len(batch.others))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 5)


def test_a_damaged_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    with Recorder(path) as recorder:
        for number in range(3):
            recorder.step(0, number)
    data = bytearray(path.read_bytes())
    data[HEADER.size + 2 * STEP.size] = 0xFF
    path.write_bytes(data)
    file = RankFile(path, 0)
    assert len(file.read()) == 2
    assert file.corrupt
    assert file.bytes_dropped == STEP.size
    assert not file.read()


def test_outside_a_campaign_nothing_happens(tmp_path: Path) -> None:
    output = run(
        """
        from campaign.record import Recorder
        with Recorder.from_env() as recorder:
            recorder.phase("a"); recorder.world(0, 1); recorder.observe("b", 1)
            for step in range(100_000):
                recorder.step(0, step)
            recorder.epoch(0, epoch_time_s=1, steps=1, samples_seen=1)
        print(recorder.bytes_dropped)
        """
    )
    assert output == "0\n"
    assert list(tmp_path.iterdir()) == []


def test_from_env_is_one_recorder_per_process_and_closes_at_exit(tmp_path: Path) -> None:
    run(
        """
        from campaign.record import Recorder
        assert Recorder.from_env() is Recorder.from_env()
        Recorder.from_env().step(0, 7)
        """,
        CAMPAIGN_RANK_DIR=str(tmp_path),
        RANK="5",
    )
    batch = read_all(tmp_path / "5.bin")
    assert [other["name"] for other in batch.others] == ["python_up"]
    assert [step[2] for step in batch.steps] == [7]


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_a_forked_child_writes_nothing_twice(tmp_path: Path, how: str) -> None:
    run(
        f"""
        import multiprocessing, os, sys, warnings
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        recorder.step(0, 1)
        def child():
            recorder.step(0, 99)
            recorder.flush()
            Recorder.from_env().observe("child", 1)
        if "{how}" == "os.fork":
            if os.fork() == 0:
                child()
                sys.exit()  # runs the atexit handlers, unlike os._exit
            os.wait()
        else:
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            assert process.exitcode == 0
        recorder.step(0, 2)
        """,
        CAMPAIGN_RANK_DIR=str(tmp_path),
        RANK="0",
    )
    batch = read_all(tmp_path / "0.bin")
    assert [step[2] for step in batch.steps] == [1, 2]
    assert len(batch.others) == 1


def test_the_file_is_bounded_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    recorder = Recorder(path, cap_bytes=256 << 10)
    for number in range(20_000):
        recorder.step(0, number)
    recorder.close()
    assert path.stat().st_size < 400 << 10
    file = RankFile(path, 0)
    read = 0
    while batch := file.read():
        read += len(batch)
    assert recorder.bytes_dropped == file.bytes_dropped == (20_000 - read) * STEP.size > 0


def test_a_reader_makes_room_again(tmp_path: Path) -> None:
    path = tmp_path / "0.bin"
    recorder = Recorder(path, cap_bytes=4 << 20)
    file = RankFile(path, 0)
    seen: list[int] = []
    for number in range(200_000):
        recorder.step(0, number)
        if number % 10_000 == 0:
            while batch := file.read():
                seen += [step[2] for step in Batch(batch).steps]
    recorder.close()
    while batch := file.read():
        seen += [step[2] for step in Batch(batch).steps]
    assert seen == list(range(200_000))
    assert recorder.bytes_dropped == 0
    assert path.stat().st_size > 16 << 20
    assert path.stat().st_blocks * 512 < 4 << 20


@needs("tmpfs")
def test_a_full_disk_leaves_whole_records_and_a_count(tmp_path: Path) -> None:
    code = """
        import os, sys
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        for step in range(20_000):
            recorder.step(0, step)
        recorder.flush()
        full = recorder.bytes_dropped
        assert full > 0
        os.unlink(os.environ["CAMPAIGN_RANK_DIR"] + "/other")
        recorder.step(0, 20_000)
        recorder.close()
        assert recorder.bytes_dropped == full
        print(full)
    """
    script = tmp_path / "fill.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    folder, saved = tmp_path / "small", tmp_path / "saved"
    folder.mkdir()
    answer = subprocess.run(
        ["unshare", "-m", "sh", "-ec",
         'mount -t tmpfs -o size=512k none "$1"; head -c 64k /dev/zero > "$1/other"; "$2" "$3"; cp "$1/0.bin" "$4"',
         "sh", folder, sys.executable, script, saved],
        env=os.environ | {"CAMPAIGN_RANK_DIR": str(folder), "RANK": "0"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    batch = read_all(saved)
    steps = [step[2] for step in batch.steps]
    assert steps[-1] == 20_000
    assert steps[:-1] == list(range(len(steps) - 1))
    file = RankFile(saved, 0)
    assert file.bytes_dropped == int(answer.stdout) == (20_001 - len(steps)) * STEP.size


def test_a_folder_that_is_not_there_does_not_end_the_training(tmp_path: Path) -> None:
    recorder = Recorder(rank_file(str(tmp_path / "missing"), 0))
    recorder.step(0, 0)
    recorder.close()
    assert recorder.bytes_dropped == STEP.size


@pytest.mark.parametrize("bad", [{"loss": None}, {"samples": 1.5}, {"loss": "high"}])
def test_wrong_types_are_told_at_once(tmp_path: Path, bad: dict[str, Any]) -> None:
    recorder = Recorder(tmp_path / "0.bin")
    with pytest.raises(TypeError, match="must be int and the rest float"):
        recorder.step(0, 0, **bad)
    recorder.step(0, 1)
    recorder.close()
    assert [step[2] for step in read_all(tmp_path / "0.bin").steps] == [1]


def test_spec_is_what_the_run_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="CAMPAIGN_SPEC"):
        spec()
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"params": {"name": "naïve ☃"}}), encoding="utf-8")
    monkeypatch.setenv("CAMPAIGN_SPEC", str(path))
    assert spec() == {"params": {"name": "naïve ☃"}}


def test_import_is_light() -> None:
    """Ranks import it by the thousand: nothing beyond what the interpreter has loaded anyway, but struct."""
    output = run(
        """
        import sys
        before = set(sys.modules)
        import campaign.record
        print(*(name for name in set(sys.modules) - before if not name.startswith("campaign")))
        """
    )
    assert set(output.split()) <= {"struct", "_struct", "atexit", "__future__"}


LIMITED = """
    import os, sys, threading
    from campaign.record import Recorder
    recorder = Recorder.from_env()
    assert Recorder.from_env() is recorder
    def train():
        try:
            for step in range(100):
                recorder.step(0, step, samples=2, step_s=0.5)
                print("made", step)
        finally:
            print("finally")
    def stubborn():
        while True:
            try:
                train()
            except SystemExit:
                print("swallowed")
    {call}
    print("never here")
"""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("train()", ["made 0", "made 1", "finally"]),
        ("stubborn()", ["made 0", "made 1", "finally", "swallowed"]),
        ("threading.Thread(target=train).start(); train()", None),
    ],
    ids=["left", "swallowed", "in-a-thread"],
)
def test_a_step_limit_ends_the_program_with_code_0(tmp_path: Path, call: str, said: list[str] | None) -> None:
    """After the third step: what `finally` blocks do is done, all that was recorded is there, nothing comes after."""
    code = LIMITED.format(call=call)
    output = run(code, CAMPAIGN_RANK_DIR=str(tmp_path), CAMPAIGN_MAX_STEPS="3", PYTHONUNBUFFERED="1")
    assert "never here" not in output
    if said is not None:
        assert output.splitlines() == said
    found = read_all(tmp_path / "0.bin")
    assert len(found.steps) == 3
    phases = [record["name"] for record in found.others if record["k"] == "phase"]
    assert phases == ["python_up", "step_limit"]


def test_what_fails_after_the_step_limit_is_told(tmp_path: Path) -> None:
    code = """
        from campaign.record import Recorder
        try:
            Recorder.from_env().step(0, 0)
        finally:
            raise OSError("no room for the checkpoint")
    """
    env = os.environ | {"CAMPAIGN_RANK_DIR": str(tmp_path), "CAMPAIGN_MAX_STEPS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 1
    assert "no room for the checkpoint" in answer.stderr


def test_what_a_program_has_at_hand_is_not_freed_by_the_step_limit(tmp_path: Path) -> None:
    """Freeing DDP's process group at this moment has hung for ever, in a thread that waited for Python's lock."""
    code = """
        import atexit
        from campaign.record import Recorder
        class Group:
            def __del__(self):
                print("freed", flush=True)
        def train():
            group = Group()
            Recorder.from_env().step(0, 0)
            del group
        atexit.register(print, "a handler of the program's own")
        train()
    """
    said = run(code, CAMPAIGN_RANK_DIR=str(tmp_path), CAMPAIGN_MAX_STEPS="1")
    assert said == "a handler of the program's own\n"


def test_a_step_limit_means_nothing_outside_a_campaign() -> None:
    code = "from campaign.record import Recorder; [Recorder.from_env().step(0, i) for i in range(9)]; print('on')"
    assert run(code, CAMPAIGN_MAX_STEPS="3") == "on\n"
