"""What ranks print: live, bounded, its first and last bytes."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.job.console import LIVE_BYTES, Console
from campaign.job.output import CONSOLE_BYTES, LineTail, Pending
from tests.job.jobs import Running, Site
from tests.waiting import wait_for

GIGABYTE = """
    import os
    line = b"%07d " + b"x" * 91 + b"\\n"
    block = b"".join(line % number for number in range(10_000))
    print("first line", flush=True)
    for _ in range(1000):
        os.write(1, block)
    print("last line", flush=True)
"""


class Watch(threading.Thread):
    """Notes the largest resident memory that any agent of a run ever had."""

    def __init__(self, running: Running) -> None:
        super().__init__()
        self._running = running
        self.peak_bytes = 0

    def run(self) -> None:
        while self._running.head.poll() is None:
            for pid in self._running.agent_pids():
                try:
                    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                except OSError:
                    continue
                peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
                self.peak_bytes = max(self.peak_bytes, int(peak) * 1024)


def test_a_rank_that_prints_a_gigabyte(site: Site) -> None:
    running = site.start(site.spec(site.script(GIGABYTE)))
    watch = Watch(running)
    watch.start()
    ended = running.wait()
    watch.join()
    assert ended.state == ("done", None), ended.log
    assert 0 < watch.peak_bytes < 64 << 20
    console = (ended.folder / "console.log").read_bytes()
    assert len(console) < 2 * CONSOLE_BYTES + 100
    assert console.startswith(b"first line\n0000000 xxx")
    assert console.endswith(b"x\nlast line\n")
    left_out = int(console.split(b"[... ")[1].split()[0])
    marker = f"\n[... {left_out} bytes left out ...]\n"
    assert left_out + len(console) - len(marker) == 1000 * 10_000 * 100 + len("first line\nlast line\n")


def test_the_console_is_live(site: Site) -> None:
    script = site.script("""
        import sys, time
        from pathlib import Path
        for place in range(3):
            print("line", place)
            while not Path(f"go{place}").exists():
                time.sleep(0.02)
    """)
    running = site.start(site.spec(script))
    for place in range(3):
        running.wait_for_console(f"line {place}\n")
        assert f"line {place + 1}" not in running.console()
        (site.project / f"go{place}").touch()
    assert running.wait().console() == "line 0\nline 1\nline 2\n"


def test_only_failing_ranks_are_in_failed_log(site: Site) -> None:
    script = site.script("""
        import os, sys, time
        rank = int(os.environ["RANK"])
        for number in range(300):
            print(f"rank {rank} line {number}")
        print("y" * 100_000)
        sys.exit(rank > 0 and 7)
    """)
    ended = site.run(site.spec(script, nodes=2, ranks_per_node=2, record={"fail_grace_s": 5}))
    assert ended.record["exit"]["code"] == 7
    failed = (ended.folder / "failed.log").read_text(encoding="utf-8")
    # one rank of each node with its last lines, one line for the third
    shown = [line for line in failed.splitlines() if line.startswith("===")]
    assert len(shown) == 2
    assert failed.count("exited with code 7: yyyy") == 1
    assert "rank 0 line" not in failed
    assert "line 299" in failed
    assert "line 99\n" not in failed
    assert len(failed) < 40_000


def test_a_worker_that_keeps_the_pipe_open_does_not_keep_the_run(site: Site) -> None:
    script = site.script("""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("done")
    """)
    ended = site.run(site.spec(script))
    assert ended.state == ("done", None)
    assert ended.console() == "done\n"


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[first:last] for first, last in itertools.pairwise(places)]


TEXT = st.binary(max_size=400).map(lambda data: bytes(b"ab\n"[byte % 3] for byte in data))
CUTS = st.lists(st.integers(0, 1000), max_size=12)


@settings(deadline=None)
@given(TEXT, CUTS)
def test_line_tail_keeps_the_last_lines_however_they_come(data: bytes, cuts: list[int]) -> None:
    tail = LineTail(lines=3, line_bytes=5)
    for chunk in chunks_of(data, cuts):
        tail.feed(chunk)
    lines = [line[:5].decode() for line in data.split(b"\n")]
    if lines[-1] == "":
        lines.pop()
    assert tail.lines() == lines[-3:]


@settings(deadline=None)
@given(TEXT, CUTS, st.lists(st.booleans(), min_size=20, max_size=20))
def test_pending_and_console_show_the_first_and_the_last_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], takes: list[bool]
) -> None:
    limit = 20
    pending = Pending(limit)
    folder = tmp_path_factory.mktemp("console")
    console = Console(folder / "console.log", group_readable=False, limit=limit)
    for chunk, take in zip([*chunks_of(data, cuts), b""], takes, strict=False):
        pending.feed(chunk)
        if take:
            console.add(*pending.take())
    console.add(*pending.take())
    content = console.content()
    if len(data) <= limit * 2:
        assert content == data
    else:
        assert content.startswith(data[:limit])
        assert content.endswith(data[-limit:])
        left_out = int(content[limit:].split(b"[... ")[1].split()[0]) if b"[... " in content else 0
        assert left_out == len(data) - 2 * limit


def test_the_live_console_stays_bounded(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    console = Console(path, group_readable=False)
    sizes = []
    for _ in range(60):
        console.add(b"", 1000, b"z" * CONSOLE_BYTES)
        sizes.append(path.stat().st_size)
    assert max(sizes) <= LIVE_BYTES
    assert sizes != sorted(sizes)
    # what follows a rewrite is appended to the new file
    console.add(b"", 0, b"the end")
    assert path.read_bytes().endswith(b"zthe end")


def test_a_rank_is_not_slowed_by_an_agent_that_looks_elsewhere(site: Site) -> None:
    """Four ranks print at once; each has its turn and all of them end."""
    script = site.script("""
        import os
        for _ in range(200):
            os.write(1, b"z" * 99_999 + b"\\n")
    """)
    running = site.start(site.spec(script, ranks_per_node=4))
    ended = running.wait()
    assert ended.state == ("done", None)
    wait_for(lambda: site.local_leftovers() == [])
