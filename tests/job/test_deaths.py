"""Processes that are killed outright: nothing of the run survives, and what was streamed can be read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from campaign.tables import record_schema
from tests.job.jobs import Running, Site, children, gone, marked
from tests.waiting import wait_for

ENDLESS = """
    import os, subprocess, sys, time
    from campaign.record import Recorder

    recorder = Recorder.from_env()
    # a child of the rank in a session of its own, as a data loader or a daemon is
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    step = 0
    print("ready")
    while True:
        for _ in range(10):
            recorder.step(0, step, samples=1, step_s=0.01)
            step += 1
        recorder.flush()
        time.sleep(0.05)
"""


def ready(site: Site, **changes: object) -> tuple[Running, list[int]]:
    """A run whose ranks have begun, and the processes of its ranks."""
    running = site.start(site.spec(site.script(ENDLESS), **changes))
    running.wait_for_console("ready")
    ranks = running.spec.nodes * running.spec.ranks_per_node
    wait_for(lambda: len(running.rank_pids()) == 2 * ranks, what=lambda: f"pids: {running.rank_pids()}")
    return running, running.rank_pids()


def rows_in(path: Path) -> int:
    """Rows of a stream that is being written; 0 while its head isn't there."""
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            return sum(batch.num_rows for batch in reader)
    except (OSError, pa.ArrowInvalid):
        return 0


def test_a_killed_head_leaves_a_readable_partial_record_and_nothing_else(site: Site) -> None:
    running, pids = ready(site, ranks_per_node=2)
    steps = running.partial / "steps.arrows"
    wait_for(lambda: rows_in(steps) >= 20, what="the first rows in the partial folder")
    agents = running.agent_pids()
    running.head.kill()
    wait_for(gone(pids + agents), what="ranks and agents have ended")
    wait_for(lambda: site.local_leftovers() == [], what=site.local_leftovers)
    with pa.OSFile(str(steps)) as source, pa.ipc.open_stream(source) as reader:
        rows = reader.read_all()
    assert rows.schema == record_schema("steps")
    assert rows["step"].to_pylist()[:20] == list(range(20))
    assert not (running.spec.run_dir / "a1").exists()


def test_a_killed_agent_fails_the_run_and_its_ranks_do_not_survive(site: Site) -> None:
    running, pids = ready(site, nodes=2, record={"fail_grace_s": 0.5, "term_grace_s": 1})
    agents = running.agent_pids()
    # of the two the one on the second node: the first one feeds the console
    victim = max(agents, key=lambda pid: b"CAMPAIGN_NODE_RANK=1" in Path(f"/proc/{pid}/environ").read_bytes())
    os.kill(victim, signal.SIGKILL)
    ended = running.wait()
    assert ended.state == ("failed", "node")
    assert ended.record["missing_nodes"] == [ended.record["nodes"][1]]
    assert ended.record["complete"] is False
    assert ended.rows("steps")
    wait_for(gone(pids), what="the ranks have ended")
    wait_for(lambda: site.local_leftovers() == [], what=site.local_leftovers)


def test_what_an_agent_and_its_guard_left_is_removed_by_the_next_run(site: Site) -> None:
    running, pids = ready(site)
    (agent,) = running.agent_pids()
    guards = [pid for pid in children(agent) if pid not in pids]
    for pid in [*guards, agent]:
        os.kill(pid, signal.SIGKILL)
    running.wait()
    left = site.local_leftovers()
    assert len(left) == 1
    foreign = site.node_local / "fedcba9876543210.a1.not-ours"
    foreign.mkdir()
    try:
        ended = site.run(site.spec(["true"], attempt=2))
        assert ended.state == ("done", None)
        assert site.local_leftovers() == [foreign.name]
        assert left[0] in ended.log
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_a_living_run_is_not_taken_for_a_dead_one(site: Site) -> None:
    running, _ = ready(site)
    other = site.run(site.spec(["true"], run_id="fedcba9876543210"))
    assert other.state == ("done", None)
    assert len(site.local_leftovers()) == 1
    running.head.terminate()
    assert running.wait().state == ("cancelled", None)


@pytest.mark.parametrize("what", ["head", "agent"])
def test_no_process_of_a_killed_run_stays(site: Site, what: str) -> None:
    running, pids = ready(site, record={"term_grace_s": 1})
    marker = str(site.node_local)
    os.kill(running.head.pid if what == "head" else running.agent_pids()[0], signal.SIGKILL)
    wait_for(gone(pids))
    wait_for(lambda: not list(marked(f"CAMPAIGN_RANK_DIR={marker}")))
    if what == "agent":
        assert running.wait().state == ("failed", "node")


def test_a_controller_that_is_away_when_the_step_is_made(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun reaches no controller: neither the run's fault nor its node's. The step is tried again."""
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\n"
        f"if [ ! -e {tmp_path}/tried ]; then\n"
        f"  touch {tmp_path}/tried\n"
        "  echo 'srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller (connect "
        "failure)' >&2\n"
        "  exit 1\n"
        "fi\n"
        'while [ "${1#--}" != "$1" ]; do shift; done\n'
        'SLURM_NODEID=0 SLURM_PROCID=0 exec "$@"\n'
    )
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ended = site.run(site.spec(site.script("print('ran')"), scheduler="slurm"))
    assert ended.state == ("done", None), ended.log
    assert "the step is tried again" in ended.log
    assert ended.console().count("ran") == 1
