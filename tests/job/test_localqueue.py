"""The local site's queue: order, slots, cancelling, ending. Real queues, heads and ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from campaign.job.spec import RunSpec
from tests.job.jobs import Ended, Site, children, command_line, gone
from tests.waiting import wait_for


@dataclass
class Queue:
    """A queue process and its runs."""

    site: Site
    specs: list[RunSpec]
    folder: Path
    process: subprocess.Popen[bytes]

    def ended(self, index: int) -> Ended:
        spec = self.specs[index]
        return Ended(spec, 0, (self.folder / f"{spec.tag}_{index}.log").read_text(encoding="utf-8"))

    def claimed(self, index: int) -> bool:
        return (self.specs[index].run_dir / "claim.a1").exists()

    def heads(self) -> list[int]:
        return [pid for pid in children(self.process.pid) if "campaign.job.head" in command_line(pid)]


@pytest.fixture
def queues(site: Site) -> Iterator[list[Queue]]:
    made: list[Queue] = []
    yield made
    for queue in made:
        heads = queue.heads()
        if queue.process.poll() is None:
            queue.process.kill()
            queue.process.wait()
        for pid in heads:
            os.kill(pid, signal.SIGKILL)


def start(site: Site, queues: list[Queue], code: str, count: int, tag: str = "c0123456789ab", *argv: str) -> Queue:
    script = site.script(code)
    specs = [
        site.spec([*script, str(place)], run_id=f"{len(queues)}{place}23456789abcdef", array_index=place, tag=tag)
        for place in range(count)
    ]
    folder = site.submit(*specs)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "campaign.job.localqueue", str(folder), *argv], stdin=subprocess.DEVNULL
    )
    queues.append(Queue(site, specs, folder, process))
    return queues[-1]


STAMP = """
    import sys, time
    begin = time.time()
    time.sleep(0.3)
    print(begin, time.time())
    sys.exit(sys.argv[1] == "1")
"""


def test_one_after_another_in_order_and_a_failure_stops_nothing(site: Site, queues: list[Queue]) -> None:
    queue = start(site, queues, STAMP, 3)
    assert queue.process.wait(120) == 1
    ended = [queue.ended(index) for index in range(3)]
    assert [one.state[0] for one in ended] == ["done", "failed", "done"]
    times = [float(word) for one in ended for word in one.console().split()]
    assert times == sorted(times)


def test_slots_are_shared_by_all_queues_of_a_run_root(site: Site, queues: list[Queue]) -> None:
    wait = "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    first = start(site, queues, wait, 2, "caaaaaaaaaaaa", "--slots", "2")
    wait_for(lambda: first.claimed(0) and first.claimed(1))
    second = start(site, queues, wait, 1, "cbbbbbbbbbbbb", "--slots", "2")
    other = start(site, queues, wait, 1, "ccccccccccccc", "--slots", "3")
    wait_for(lambda: other.claimed(0), what="a third slot is free")
    assert not second.claimed(0)
    (site.project / "go").touch()
    for queue in (first, second, other):
        assert queue.process.wait(120) == 0
    assert second.ended(0).state == ("done", None)


def test_the_number_of_slots_comes_from_queue_json(site: Site, queues: list[Queue]) -> None:
    folder = site.run_root / "submit" / "c0123456789ab"
    folder.mkdir(parents=True)
    (folder / "queue.json").write_text(json.dumps({"slots": 2}), encoding="utf-8")
    queue = start(site, queues, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)", 3)
    wait_for(lambda: queue.claimed(0) and queue.claimed(1))
    assert not queue.claimed(2)
    (site.project / "go").touch()
    assert queue.process.wait(120) == 0


def test_a_cancelled_element_is_passed_over(site: Site, queues: list[Queue]) -> None:
    queue = start(site, queues, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)", 3)
    wait_for(lambda: queue.claimed(0))
    (queue.folder / "cancel.1").touch()
    (site.project / "go").touch()
    assert queue.process.wait(120) == 0
    assert not queue.claimed(1)
    assert "cancelled before it began" in queue.ended(1).log
    assert queue.ended(2).state == ("done", None)


def test_a_queue_that_is_told_to_end(site: Site, queues: list[Queue]) -> None:
    queue = start(site, queues, "import time\nprint('ready')\ntime.sleep(600)", 2)
    console = queue.specs[0].run_dir / "a1.partial" / "console.log"
    wait_for(lambda: console.exists() and "ready" in console.read_text(encoding="utf-8"))
    queue.process.terminate()
    assert queue.process.wait(120) == 1
    assert queue.ended(0).state == ("cancelled", None)
    assert not queue.claimed(1)
    assert "told to end" in queue.ended(1).log


def test_it_has_a_session_of_its_own(site: Site, queues: list[Queue]) -> None:
    queue = start(site, queues, "import time\ntime.sleep(600)", 1)
    wait_for(lambda: queue.claimed(0))
    assert os.getsid(queue.process.pid) != os.getsid(0)
    assert os.getsid(queue.heads()[0]) != os.getsid(queue.process.pid)
    queue.process.terminate()
    queue.process.wait(120)


def test_a_run_goes_on_and_keeps_its_slot_when_its_queue_is_killed(site: Site, queues: list[Queue]) -> None:
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    first = start(site, queues, wait, 1, "caaaaaaaaaaaa")
    wait_for(lambda: first.claimed(0))
    heads = first.heads()
    first.process.kill()
    first.process.wait()
    second = start(site, queues, "print('second')", 1, "cbbbbbbbbbbbb")
    # its queue has looked for a slot, and found none
    wait_for((site.run_root / "slots" / "0").exists)
    assert not second.claimed(0)
    (site.project / "go").touch()
    assert second.process.wait(120) == 0
    wait_for(gone(heads))
    assert first.ended(0).state == second.ended(0).state == ("done", None)
    ends = [one.record for one in (first.ended(0), second.ended(0))]
    assert ends[0]["ended"] <= ends[1]["started"]


@pytest.mark.parametrize("content", ["", "not json\n", '{"schema": 99}\n'])
def test_unreadable_specs(tmp_path: Path, content: str) -> None:
    (tmp_path / "specs.jsonl").write_text(content, encoding="utf-8")
    for module in ("localqueue", "head"):
        answer = subprocess.run(
            [sys.executable, "-P", "-m", f"campaign.job.{module}", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 2
        assert str(tmp_path) in answer.stdout + answer.stderr
        assert "Traceback" not in answer.stderr
