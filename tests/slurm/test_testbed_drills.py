"""Starting, sharing, breaking and stopping a bed; on beds of their own, so that nobody else is disturbed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs
from tests.slurm.conftest import OWN
from tests.slurm.testbed import Cluster, Settings, Testbed, TestbedError
from tests.slurm.testbed.lease import alone
from tests.slurm.testbed.processes import PidFiles, Process
from tests.slurm.testbed.settings import REPOSITORY
from tests.waiting import wait_for


@pytest.fixture
def vega(own_testbed: Testbed) -> Cluster:
    return own_testbed.cluster("vega")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a bed with one node, at a root that nobody uses."""
    root = Path("/tmp") / f"slurmtb-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    settings = Settings.from_environment(root=root, **OWN | {"nodes_per_cluster": 1})
    yield settings
    Testbed(settings).stop()


@needs("slurm")
def test_running_job_survives_its_controller(own_testbed: Testbed, vega: Cluster) -> None:
    job = vega.submit("-n1", "-t5", "-w", "gn01", "--mem=50M", "-o", "/dev/null", "--wrap", "sleep 300")
    vega.wait_job(job, "RUNNING")
    own_testbed.ctld_stop("vega")
    assert vega.run("scontrol", "ping", check=False).returncode == 1
    own_testbed.ctld_start("vega")
    assert vega.job_state(job) == "RUNNING"
    vega.run("scancel", job)
    vega.wait_job(job, "CANCELLED")


@needs("slurm")
def test_accounting_is_away_and_catches_up(own_testbed: Testbed, vega: Cluster) -> None:
    own_testbed.dbd_stop()
    assert vega.run("sacct", check=False).returncode == 1
    job = vega.submit("-n1", "-t5", "--mem=50M", "-o", "/dev/null", "--wrap", "true")
    vega.wait_job(job, "COMPLETED")
    own_testbed.dbd_start()
    wait_for(lambda: (job, "COMPLETED") in vega.accounting(job, "JobID", "State"), interval=0.2)


@needs("slurm")
def test_lost_nodes_fail_their_jobs_and_come_back(own_testbed: Testbed, vega: Cluster) -> None:
    """One node loses power, the other one its cable."""
    jobs = {
        node: vega.submit(
            "-n1", "-t5", "--no-requeue", "-w", node, "--mem=50M", "-o", "/dev/null", "--wrap", "sleep 300"
        )
        for node in ("gn01", "gn02")
    }
    for job in jobs.values():
        vega.wait_job(job, "RUNNING")
    own_testbed.node_kill("vega", "gn01")
    own_testbed.link_down("vega", "gn02")
    for job in jobs.values():
        vega.wait_job(job, "NODE_FAIL")
    own_testbed.wait_node("vega", "gn01", "down")
    own_testbed.node_up("vega", "gn01")
    own_testbed.link_up("vega", "gn02")
    for node in vega.nodes:
        own_testbed.wait_node("vega", node, "idle")
        assert vega.run("srun", "-Q", "-t1", "--mem=50M", "-w", node, "hostname").stdout.strip() == node


@needs("slurm")
def test_an_ordinary_user_may_submit(own_testbed: Testbed, vega: Cluster) -> None:
    argv = ("srun", "-Q", "-t1", "--mem=50M", "id", "-un")
    answer = vega.run(*argv, user="nobody", group="nogroup", extra_groups=[], env={"HOME": "/nonexistent"})
    assert answer.stdout == "nobody\n"


@needs("slurm")
def test_submit_limit_of_a_qos(vega: Cluster) -> None:
    held = [vega.submit("-H", "-q", "devel", "-n1", "-t1", "--wrap", "true") for _ in range(4)]
    try:
        answer = vega.run("sbatch", "-H", "-q", "devel", "-n1", "-t1", "--wrap", "true", check=False)
        assert answer.returncode == 1
        assert "QOSMaxSubmitJobPerUserLimit" in answer.stderr
    finally:
        vega.run("scancel", *held)


def traces(root: Path) -> dict[str, set[str]]:
    """What a bed at `root` has on the machine, found without its own bookkeeping."""
    mark = str(root).encode()
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes():
                processes.add(folder.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    bridges = [link["ifname"] for link in all_links() if link.get("ifalias") == str(root)]
    # names may be another bed's a moment later; interface and inode numbers aren't
    links = {str(link["ifindex"]) for link in all_links() if {link["ifname"], link.get("master")} & set(bridges)}
    cgroups = {str(path.stat().st_ino) for name in bridges for path in Path("/sys/fs/cgroup").glob(f"*/{name}")}
    mounts = {line for line in Path("/proc/self/mounts").read_text().splitlines() if str(root) in line}
    files = {str(path) for path in root.parent.glob(root.name + "*")}
    return {"processes": processes, "links": links, "cgroups": cgroups, "mounts": mounts, "files": files}


def all_links() -> list[dict[str, Any]]:
    answer = subprocess.run(["ip", "-j", "link", "show"], capture_output=True, text=True, check=True)
    links: list[dict[str, Any]] = json.loads(answer.stdout)
    return links


@needs("slurm")
def test_stop_leaves_nothing(tiny: Settings) -> None:
    bed = Testbed(tiny)
    bed.start()
    vega = bed.cluster("vega")
    # a job that must not outlive the bed, with a process in a session of its own
    script = f"setsid sh -c 'sleep 1000; true' {tiny.root}/job & trap '' TERM; touch started; sleep 1000; true"
    vega.submit("-n1", "-t5", "-o", "/dev/null", "--wrap", script)
    wait_for((bed.layout.shared / "started").exists)
    during = traces(tiny.root)
    # munged, mariadbd, slurmdbd, slurmctld, a node's init, slurmd, slurmstepd, job script and what it left
    assert len(during["processes"]) >= 9
    assert len(during["links"]) == 2
    assert len(during["cgroups"]) == bed.memory_limits
    assert str(tiny.root) in during["files"]
    bed.stop()
    assert not any(traces(tiny.root).values())
    assert not during["links"] & {str(link["ifindex"]) for link in all_links()}
    assert not during["cgroups"] & {str(path.stat().st_ino) for path in Path("/sys/fs/cgroup").glob("*/*")}
    bed.stop()


@needs("slurm")
def test_two_processes_share_a_bed_and_the_last_one_stops_it(tiny: Settings) -> None:
    program = f"""
import sys
from tests.slurm.testbed import Settings
from tests.slurm.testbed.lease import leased
with leased(Settings.from_json({tiny.to_json()!r})) as bed:
    print(bed.pids.process("munged").pid, flush=True)
    sys.stdin.read()
"""

    def user() -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", program]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)

    with user() as first, user() as second:
        assert first.stdout
        assert second.stdout
        assert first.stdout.readline() == second.stdout.readline() != ""
        first.communicate()
        with pytest.raises(TestbedError, match="tests use the test bed"), alone(tiny):
            pass
        assert Testbed(tiny).complete
        second.communicate()
    assert not any(traces(tiny.root).values())
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_stranger_with_our_number_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        real = Process.of(sleeper.pid)
        assert real is not None
        pids = PidFiles(tmp_path)
        pids.write("service", dataclasses.replace(real, started=real.started - 1))
        pids.stop(["service"], signal.SIGKILL)
        assert sleeper.poll() is None
        pids.write("service", real)
        pids.stop(["service"], signal.SIGKILL)
        assert sleeper.wait() == -signal.SIGKILL


def test_a_folder_that_is_no_bed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    monkeypatch.chdir(tmp_path)
    bed = Testbed(Settings(root=Path()))
    for action in (bed.start, bed.stop):
        with pytest.raises(TestbedError, match="isn't a test bed"):
            action()
    assert (tmp_path / "thesis.tex").read_text() == "important"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"root": Path("/tmp/" + "x" * 80)}, "at most 60"),
        ({"clusters": ("lumi",)}, "there are juwels, vega, jupiter"),
        ({"nodes_per_cluster": 12}, "1 to 9"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.from_environment(**wrong)


def test_nodes_see_what_a_job_of_this_clone_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what lies below a private folder is named, and once."""
    monkeypatch.chdir("/tmp")
    monkeypatch.setenv("TESTBED_KEEP", "/tmp/a/b:/tmp/a:/usr/share:/dev/shm/c")
    keep = Settings.from_environment().keep
    assert {Path("/tmp/a"), Path("/dev/shm/c")} <= set(keep)
    assert not {Path("/tmp"), Path("/tmp/a/b"), Path("/usr/share")} & set(keep)
    for path in (REPOSITORY, Path(sys.executable).resolve()):
        if Path("/tmp") in path.parents:
            assert any(folder == path or folder in path.parents for folder in keep)
