"""What a probe's facts mean beside the site file of conftest: 56 cores, 4 GPUs, ib0 with names in `i`, scratch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from campaign.site import Site
from campaign.sitecheck.findings import Finding
from campaign.sitecheck.verdicts import verdicts

MakeSite = Callable[..., Site]
KILL_WAIT_S = 30
GIB = 2**30


def place(path: str, kind: str) -> dict[str, Any]:
    return {"path": path, "mount": path, "kind": kind, "size_bytes": 64 * GIB, "free_bytes": GIB, "writable": True}


def node(name: str) -> dict[str, Any]:
    """What one healthy node says."""
    return {
        "host": {"node": name, "hostname": name, "arch": "x86_64", "variables": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}},
        "cpus": {"cores": 56, "allowed": 112},
        "shm": place("/dev/shm", "tmpfs"),
        "node_local": place("/dev/shm/me", "tmpfs"),
        "filesystems": {"scratch": place("/p/scratch/x", "gpfs") | {"there": True},
                        "login": {"path": "/login", "there": False},
                        "shm": place("/dev/shm", "tmpfs") | {"there": True}},
        "sbcast": {"there": True, "sha256": "right"},
        "network_interfaces": {"lo": "127.0.0.1", "ib0": "10.0.0.1", "eth0": "192.168.0.1"},
        "gpus": {"devices": [*(f"/dev/nvidia{number}" for number in range(4)), "/dev/nvidiactl"]},
        "container": {"runtime": "apptainer", "version": "apptainer version 1.3.1", "starts": None},
        "trace": {"ptrace": True, "strace_works": True},
        "internet": {"host": "pypi.org", "reached": False, "error": "timed out"},
        "run_root": {"shared": True, "missing": [], "seconds": 0.1},
        "end": True,
    }  # fmt: skip


def facts() -> dict[str, Any]:
    """Two healthy nodes, ranks, and a job that ended as jobs should."""
    first, second = node("g001"), node("g002")
    first["pair"] = {"role": "server", "reached": []}
    second["pair"] = {
        "role": "client", "way": "plain TCP sockets", "over": "g001i",
        "names": [{"name": "g001i", "address": "10.0.0.1", "reached": True, "error": None, "interface": "ib0"},
                  {"name": "g001", "address": "192.168.0.1", "reached": True, "error": None, "interface": "eth0"}],
        "sizes": [{"bytes": 8, "round_trips": 200, "latency_s": 5e-6, "bytes_per_s": 1.6e6}],
    }  # fmt: skip
    return {
        "batch": {"state": "ending", "started": 1000.0, "cancelled": 1060.0, "signals": {"usr2": 1020.0},
                  "sbcast": {"exit": 0, "said": ""}},
        "nodes": {"0": first, "1": second},
        "ranks": {"0": {"rank": {"cpus": {"cores": 14, "allowed": 28}, "variables": {}}}},
        "ends": {"batch": {"sigterm": 1060.2, "alive": 1090.2}, "0": {"sigterm": 1060.3, "alive": 1090.0},
                 "1": {"sigterm": 1060.3, "alive": 1090.0}},
        "broadcast_sha256": "right",
        "errors": {},
        "names": {"0": "g001", "1": "g002"},
    }  # fmt: skip


def judged(site: Site, found: dict[str, Any]) -> list[Finding]:
    return verdicts(site, found, "gpu", KILL_WAIT_S)


def of(findings: list[Finding], verdict: str) -> list[tuple[str, Any]]:
    return [(finding.key, finding.found) for finding in findings if finding.verdict == verdict]


def test_nodes_that_are_as_the_file_says(make_site: MakeSite) -> None:
    findings = judged(make_site(), facts())
    assert of(findings, "wrong") == []
    assert of(findings, "unknown") == []
    assert of(findings, "missing") == [("compute_internet", False)]
    right = dict(of(findings, "right"))
    assert right["nodes.a100x4.cores"] == 56
    assert right["nodes.a100x4.gpus"] == 4
    assert right["filesystems.scratch.kind"] == "gpfs"
    assert right["filesystems.login.on_compute"] is False
    assert right["network.master_addr_suffix"] == "g001i"
    messages = [finding.message for finding in findings]
    assert "the warning signal reached the batch process 20 s after its start" in messages
    assert "a process that stays after SIGTERM is killed after 30 s (KillWait 30 s)" in messages
    assert "SIGTERM reached batch process and steps (3 of 3 processes) 0.3 s after scancel" in messages


WRONG: dict[str, tuple[tuple[Any, ...], Any, tuple[str, Any], str | None]] = {
    # where in the facts, what is there instead, (key, found), the line to type
    "a mount that is gone": (("nodes", "0", "filesystems", "scratch"), {"path": "/p/scratch/x", "there": False},
                             ("filesystems.scratch.on_compute", False), "on_compute: false"),
    "another kind": (("nodes", "1", "filesystems", "scratch", "kind"), "lustre",
                     ("filesystems.scratch.kind", "lustre"), "kind: lustre"),
    "a mount that should not be there": (("nodes", "0", "filesystems", "login"), place("/login", "nfs4") |
                                         {"there": True}, ("filesystems.login.on_compute", True), "on_compute: true"),
    "cores": (("nodes", "0", "cpus", "cores"), 28, ("nodes.a100x4.cores", 28), "cores: 28"),
    "a GPU that is gone": (("nodes", "1", "gpus", "devices"), ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"],
                           ("nodes.a100x4.gpus", 3), "gpus: 3"),
    "no such interface": (("nodes", "0", "network_interfaces"), {"lo": "127.0.0.1", "hsn0": "10.0.0.1"},
                          ("network.interface", "hsn0"), "interface: hsn0"),
    "the suffix": (("nodes", "1", "pair", "names", 0, "reached"), False,
                   ("network.master_addr_suffix", ""), 'master_addr_suffix: ""'),
    "no container": (("nodes", "0", "container", "runtime"), None, ("container.runtime", None), "runtime: null"),
    "a run root that is not shared": (("nodes", "1", "run_root"),
                                      {"shared": False, "missing": ["node0"], "seconds": 15.0},
                                      ("paths.run_root", False), "run_root: a folder on shared storage"),
    "no warning": (("batch", "signals"), {}, ("", False), None),
    "a step without SIGTERM": (("ends", "1", "sigterm"), None, ("", 2), None),
    "killed too early": (("ends", "batch", "alive"), 1065.2, ("", pytest.approx(5.0)), None),
    "another architecture": (("nodes",), None, ("arch", "aarch64"), "arch: aarch64"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_is_wrong(make_site: MakeSite, name: str) -> None:
    path, instead, expected, write = WRONG[name]
    found = facts()
    if path == ("nodes",):
        for checks in found["nodes"].values():
            checks["host"]["arch"] = "aarch64"
    else:
        inner: Any = found
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = copy.deepcopy(instead)
    findings = judged(make_site(), found)
    assert of(findings, "wrong") == [expected]
    assert next(finding.write for finding in findings if finding.verdict == "wrong") == write


def test_a_node_that_does_not_see_the_run_root(make_site: MakeSite) -> None:
    found = facts()
    found["nodes"]["1"] = {}
    found["errors"] = {"1": "python: can't open file '/x/nodeprobe.py'"}
    findings = judged(make_site(), found)
    assert ("paths.run_root", False) in of(findings, "wrong")
    (wrong,) = (finding.message for finding in findings if finding.key == "paths.run_root" and not finding.found)
    assert wrong.startswith("g002 left nothing in the run root")
    assert wrong.endswith("can't open file '/x/nodeprobe.py'")


def test_nodes_that_differ_are_named(make_site: MakeSite) -> None:
    found = facts()
    found["nodes"]["1"]["filesystems"]["scratch"] = {"path": "/p/scratch/x", "there": False}
    (wrong,) = (finding for finding in judged(make_site(), found) if finding.verdict == "wrong")
    assert wrong.message == "/p/scratch/x isn't there on g002"


def test_broadcast_matters_where_images_are_staged(make_site: MakeSite) -> None:
    found = facts()
    found["nodes"]["1"]["sbcast"]["sha256"] = "another"
    assert of(judged(make_site(), found), "wrong") == []
    site = make_site(("container: {", "staging: {mode: staged-image}\ncontainer: {"))
    assert of(judged(site, found), "wrong") == [("staging.mode", False)]


@pytest.mark.parametrize(("said", "reached", "verdict"), [
    ("false", False, "right"), ("true", True, "right"), ("true", False, "wrong"), ("false", True, "wrong"),
])  # fmt: skip
def test_internet(make_site: MakeSite, said: str, reached: bool, verdict: str) -> None:
    found = facts()
    for checks in found["nodes"].values():
        checks["internet"]["reached"] = reached
    site = make_site(("cpu_unit: thread", f"cpu_unit: thread\ncompute_internet: {said}"))
    assert ("compute_internet", reached) in of(judged(site, found), verdict)


def test_a_check_that_failed_is_unknown(make_site: MakeSite) -> None:
    found = facts()
    found["nodes"]["0"]["trace"] = {"error": "no answer within 20 s"}
    findings = judged(make_site(), found)
    assert of(findings, "wrong") == []
    messages = [finding.message for finding in findings if finding.verdict == "unknown"]
    assert messages == ["trace on g001: no answer within 20 s"]


def test_a_job_that_was_cut_short(make_site: MakeSite) -> None:
    found = facts()
    found["batch"]["state"] = "running"
    found["batch"]["signals"] = {}
    found["ends"] = {}
    del found["nodes"]["1"]["end"]
    messages = [finding.message for finding in judged(make_site(), found) if finding.verdict == "unknown"]
    assert messages == [
        "g002: the checks were cut short",
        "the warning signal: the job ended before",
        "SIGTERM at the end: the job wasn't cancelled, or nothing was told",
    ]
