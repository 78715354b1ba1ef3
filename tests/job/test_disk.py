"""Disks that are full: a tmpfs of 1 MiB as shared and as node-local storage, in a mount namespace of the test's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from campaign.job.spec import RunSpec
from tests.job.jobs import Site
from tests.needs import needs

pytestmark = needs("tmpfs")

MANY_STEPS = """
    import os, time
    from campaign.record import Recorder

    recorder = Recorder.from_env()
    for step in range(30000):
        recorder.step(0, step, samples=1, data_wait_s=step * 1e-7, forward_s=step * 1.1e-7, step_s=step * 1e-6,
                      loss=1 / (step + 1))
    recorder.epoch(0, epoch_time_s=1.5, steps=30000, samples_seen=30000)
    print("trained")
"""


class Small:
    """A run whose shared or node-local storage is a tmpfs; what was there at its end is copied out."""

    def __init__(self, site: Site, spec: RunSpec, place: Path, size: str, fill: str = "true") -> None:
        submit = site.submit(spec)
        saved, specs = site.root / "saved", site.root / "specs"
        shutil.copytree(submit, specs)
        script = """
            set -e
            mount -t tmpfs -o size="$1" none "$2"
            mkdir -p "$3"; cp "$4"/* "$3"
            eval "$5"
            set +e
            "$6" -P -m campaign.job.head "$3"
            code=$?
            df --output=avail "$2" | tail -1 > "$7.free"
            cp -r "$2" "$7"
            exit $code
        """
        argv = [size, place, submit, specs, fill, sys.executable, saved]
        answer = subprocess.run(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *map(str, argv)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        self.code = answer.returncode
        self.log = answer.stdout + answer.stderr
        self.saved = saved
        root = saved if place == site.run_root else site.run_root
        self.run_dir = root / spec.run_dir.relative_to(site.run_root)

    @property
    def record(self) -> dict[str, Any]:
        path = self.run_dir / "a1" / "record.json"
        assert path.exists(), self.log
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return data


def test_shared_storage_that_fills_up_during_the_run(site: Site) -> None:
    spec = site.spec(site.script(MANY_STEPS))
    run = Small(site, spec, site.run_root, "1m")
    record = run.record
    assert run.code == 1
    assert (record["state"], record["fail_class"]) == ("failed", "quota")
    assert "No space left on device" in record["reason"]
    assert record["complete"] is False
    assert record["exit"]["code"] == 0
    # what has its place is there and says the truth
    folder = run.run_dir / "a1"
    assert pq.read_table(folder / "epochs.parquet")["epoch_time_s"].to_pylist() == [1.5]
    assert "trained" in (folder / "console.log").read_text(encoding="utf-8")
    for name, file in record["files"].items():
        assert (folder / name).stat().st_size == file["bytes"], name
    assert site.local_leftovers() == []


def test_rows_that_were_written_before_the_disk_was_full_are_kept(site: Site) -> None:
    script = site.script(MANY_STEPS + "    time.sleep(600)\n")
    # the disk fills while the run goes on; the walltime ends it
    run = Small(site, site.spec(script, walltime_s=9.0), site.run_root, "3m", 'head -c 1500k /dev/urandom > "$2/other"')
    record = run.record
    assert (record["state"], record["complete"]) == ("timeout", False)
    assert record["bytes_dropped"] > 0
    folder = run.run_dir / "a1"
    assert (folder / "epochs.parquet").exists()
    for name in set(record["files"]) - {"console.log"}:
        if name.endswith(".arrows"):
            with pa.OSFile(str(folder / name)) as source, pa.ipc.open_stream(source) as reader:
                assert reader.read_all().num_rows == record["files"][name]["rows"]


def test_no_room_for_even_a_claim(site: Site) -> None:
    spec = site.spec(site.script("print('must not run')"))
    run = Small(site, spec, site.run_root, "64k", 'head -c 1m /dev/zero > "$2/other" || true')
    assert run.code == 1
    assert "No space left on device" in run.log
    assert not (run.run_dir / "a1").exists()


def test_node_local_storage_that_a_rank_fills(site: Site) -> None:
    script = site.script("""
        import tempfile
        print("begin")
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * (4 << 20))
    """)
    run = Small(site, site.spec(script), site.node_local, "1m")
    record = run.record
    assert (record["state"], record["fail_class"]) == ("failed", "quota")
    assert "No space left on device" in record["reason"]
    assert record["complete"] is True
    assert list(run.saved.iterdir()) == []


def test_training_goes_on_when_its_records_find_no_room(site: Site) -> None:
    script = site.script("""
        import os
        from campaign.record import Recorder
        recorder = Recorder.from_env()
        recorder.observe("before", 1)
        recorder.flush()
        with open(os.environ["TMPDIR"] + "/big", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
            for step in range(5000):
                recorder.step(0, step, step_s=0.1)
            recorder.flush()
            dropped = recorder.bytes_dropped
            assert dropped, "the disk was not full"
            os.unlink(file.name)
            file.truncate(0)
        recorder.step(0, 5000, step_s=0.1)
        recorder.flush()
        print(recorder.bytes_dropped)
    """)
    run = Small(site, site.spec(script), site.node_local, "1m")
    record = run.record
    assert record["state"] == "done", run.log
    assert record["bytes_dropped"] == int((run.run_dir / "a1" / "console.log").read_text(encoding="utf-8"))
    steps = pq.read_table(run.run_dir / "a1" / "steps.parquet")["step"].to_pylist()
    assert steps[-1] == 5000
    assert list(run.saved.iterdir()) == []


def test_node_local_storage_that_is_full_from_the_start(site: Site) -> None:
    spec = site.spec(site.script("print('must not run')"))
    run = Small(site, spec, site.node_local, "64k", 'head -c 1m /dev/zero > "$2/other" || true')
    record = run.record
    assert (record["state"], record["fail_class"]) == ("failed", "quota")
    assert str(site.node_local) in record["reason"]
    assert [path.name for path in run.saved.iterdir()] == ["other"]
