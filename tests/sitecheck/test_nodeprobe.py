"""The programs of a probe, run here as two nodes that meet over the loopback interface."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.site import Site
from campaign.sitecheck.probejob import Request, make_folder, read_facts
from tests.waiting import wait_for

MakeSite = Callable[..., Site]
PROGRAM = b"abc"
DIGEST = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc", FIPS 180-2


@pytest.fixture
def folder(make_site: MakeSite, tmp_path: Path) -> Path:
    """A probe's folder as `campaign site probe` makes it; the internet is left alone."""
    local = tmp_path / "local"
    local.mkdir()
    filesystems = {"scratch": str(tmp_path), "login": str(tmp_path / "nowhere")}
    request = Request(2, "gpu", "proj1", None, tmp_path / "runs", local, filesystems)
    made = make_folder(make_site(("master_addr_suffix: i", 'master_addr_suffix: ""')), request)
    change(made, internet=None)
    return made


def change(folder: Path, **values: Any) -> dict[str, Any]:
    path = folder / "probe.json"
    spec: dict[str, Any] = json.loads(path.read_text()) | values
    path.write_text(json.dumps(spec))
    return spec


def start(folder: Path, task: int, *arguments: str) -> subprocess.Popen[bytes]:
    """One task of a step, whose output goes where srun would put it."""
    env = os.environ | {"SLURM_PROCID": str(task), "SLURMD_NODENAME": f"n{task}", "CUDA_VISIBLE_DEVICES": "0,1"}
    with (folder / f"node-{task}.jsonl").open("w") as output:
        return subprocess.Popen([sys.executable, "-EsB", folder / "nodeprobe.py", folder, *arguments],
                                stdout=output, env=env)  # fmt: skip


def test_two_nodes(folder: Path, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(PROGRAM)
    tasks = [start(folder, task, "node", "localhost", "23456", str(sent)) for task in (0, 1)]
    assert [task.wait(120) for task in tasks] == [0, 0]
    facts = read_facts(folder)
    first, second = facts["nodes"]["0"], facts["nodes"]["1"]
    assert first["end"] is second["end"] is True
    assert (first["host"]["node"], second["host"]["node"]) == ("n0", "n1")
    assert first["host"]["variables"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert first["cpus"]["allowed"] == len(os.sched_getaffinity(0))
    stat = os.statvfs("/dev/shm")
    assert first["shm"]["size_bytes"] == stat.f_blocks * stat.f_frsize
    assert first["filesystems"]["scratch"]["there"] is True
    assert first["filesystems"]["login"] == {"path": str(tmp_path / "nowhere"), "there": False}
    # both look at one file here; the first to come removes it
    assert DIGEST in (first["sbcast"].get("sha256"), second["sbcast"].get("sha256"))
    assert not sent.exists()
    assert first["network_interfaces"]["lo"] == "127.0.0.1"
    assert (first["run_root"]["shared"], second["run_root"]["shared"]) == (True, True)
    assert list((tmp_path / "local").iterdir()) == []  # nothing stays on the node


def test_messages_between_two_nodes(folder: Path) -> None:
    tasks = [start(folder, task, "node", "localhost", "23457", "") for task in (0, 1)]
    assert [task.wait(120) for task in tasks] == [0, 0]
    nodes = read_facts(folder)["nodes"]
    server, client = nodes["0"]["pair"], nodes["1"]["pair"]
    assert (server["role"], client["role"]) == ("server", "client")
    assert [name["reached"] for name in client["names"]] == [True]
    assert (client["names"][0]["address"], client["names"][0]["interface"]) == ("127.0.0.1", "lo")
    assert client["way"] == "plain TCP sockets"
    assert [size["bytes"] for size in client["sizes"]] == [8, 16 * 2**20]
    for size in client["sizes"]:
        assert size["bytes_per_s"] == pytest.approx(size["bytes"] / size["latency_s"])
    assert [one["peer"] for one in server["reached"]] == ["127.0.0.1"]


def test_a_stranger_on_the_port_does_not_end_the_check(folder: Path) -> None:
    server = start(folder, 0, "node", "localhost", "23459", "")
    try:
        for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n"):
            with wait_for(lambda: reached(23459)) as stranger:
                stranger.sendall(greeting)
        client = start(folder, 1, "node", "localhost", "23459", "")
        assert (server.wait(120), client.wait(120)) == (0, 0)
    finally:
        server.kill()
    nodes = read_facts(folder)["nodes"]
    assert [one["peer"] for one in nodes["0"]["pair"]["reached"]] == ["127.0.0.1"]
    assert nodes["1"]["pair"]["names"][0]["reached"] is True


def reached(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=5)
    except OSError:
        return None


def test_a_name_that_is_not_known(folder: Path) -> None:
    """The name with the suffix (too long for any name) fails at once, the plain one is used."""
    change(folder, suffix="x" * 64)
    tasks = [start(folder, task, "node", "localhost", "23458", "") for task in (0, 1)]
    assert [task.wait(120) for task in tasks] == [0, 0]
    client = read_facts(folder)["nodes"]["1"]["pair"]
    assert [(name["name"], name["reached"]) for name in client["names"]] == [
        ("localhost" + "x" * 64, False),
        ("localhost", True),
    ]
    assert len(client["sizes"]) == 2


def test_a_check_that_fails_loses_no_other(folder: Path) -> None:
    change(folder, filesystems={"scratch": None}, nodes=1)
    assert start(folder, 0, "node", "localhost", "0", "").wait(120) == 0
    checks = read_facts(folder)["nodes"]["0"]
    assert checks["filesystems"]["error"].startswith("TypeError")
    assert {"host", "cpus", "shm", "node_local", "gpus", "container", "trace", "end"} <= set(checks)
    assert "pair" not in checks


def test_strace_that_works_means_that_tracing_is_allowed(folder: Path) -> None:
    change(folder, nodes=1)
    assert start(folder, 0, "node", "localhost", "0", "").wait(120) == 0
    trace = read_facts(folder)["nodes"]["0"]["trace"]
    assert isinstance(trace["ptrace"], bool)
    assert trace["ptrace"] or not trace["strace_works"]


def test_the_end_of_a_process(folder: Path) -> None:
    before = time.time()
    task = start(folder, 0, "linger")
    path = folder / "linger-0.jsonl"
    try:
        wait_for(lambda: path.exists() and "ready" in path.read_text())
        task.send_signal(signal.SIGTERM)
        wait_for(lambda: path.read_text().count("alive") > 2)
    finally:
        task.kill()
        task.wait(30)
    (end,) = read_facts(folder)["ends"].values()
    assert before < end["sigterm"] < end["alive"] < time.time()


def test_the_file_that_sbcast_sends(folder: Path) -> None:
    content = (folder / "broadcast.bin").read_bytes()
    assert len(content) == 2**20
    assert read_facts(folder)["broadcast_sha256"] == hashlib.sha256(content).hexdigest()
