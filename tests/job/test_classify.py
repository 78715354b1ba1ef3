"""Why runs fail: from real messages to classes, and from what was seen to a state."""

from __future__ import annotations

import signal

import pytest

from campaign.job.classify import Failure, describe, fail_class, scheduler_class
from campaign.job.failedlog import LIMIT_BYTES, failed_log
from campaign.job.nodes import Failures
from campaign.job.outcome import Stop, decide

TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()"]


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("oom_gpu", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
        ("oom_gpu", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB"),
        ("oom_gpu", "RuntimeError: CUDA error: out of memory"),
        ("oom_host", "MemoryError"),
        ("oom_host", "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"),
        ("oom_host", "OSError: [Errno 12] Cannot allocate memory"),
        ("oom_host", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 TiB for an array with"),
        ("quota", "OSError: [Errno 122] Disk quota exceeded: '/p/scratch/x/ckpt.pt'"),
        ("quota", "OSError: [Errno 28] No space left on device"),
        ("fabric", "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error"),
        ("fabric", "jwb0003:2113:2178 [2] NCCL WARN NET/IB : Got completion from peer 10.0.0.1 with status=12"),
        ("fabric", "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.1.2.3]:41234"),
        ("fabric", "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"),
        ("hang", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE)"),
        ("node", "RuntimeError: No CUDA GPUs are available"),
        ("node", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("node", "OSError: [Errno 5] Input/output error: '/p/project/x.nc'"),
        ("config", "ModuleNotFoundError: No module named 'hython'"),
        ("config", "python: can't open file '/home/u/trian.py': [Errno 2] No such file or directory"),
        ("config", "train.py: error: unrecognized arguments: --lrr 0.1"),
        ("user", "ValueError: Expected more than 1 value per channel when training, got input size [1, 64]"),
        ("user", "KeyError: 'temperature'"),
        ("user", "mypackage.errors.ShapeError: 3 != 4"),
    ],
)  # fmt: skip
def test_messages(expected: str, line: str) -> None:
    assert fail_class(Failure(0, "n", 1, None, [*TRACEBACK, line])) == expected


@pytest.mark.parametrize(
    ("expected", "failure"),
    [
        ("oom_host", Failure(0, "n", None, signal.SIGKILL, ["step 7"], oom_kill=True)),
        ("unknown", Failure(0, "n", None, signal.SIGKILL, ["step 7"])),
        ("unknown", Failure(0, "n", None, signal.SIGSEGV, [*TRACEBACK, "ValueError: handled long ago"])),
        ("quota", Failure(0, "n", None, signal.SIGBUS, ["step 7"])),
        ("user", Failure(0, "n", 3, None, ["no message"])),
        ("user", Failure(0, "n", 1, None, [])),
        ("config", Failure(0, "n", 127, None, ["FileNotFoundError: [Errno 2] No such file or directory: 'trian'"])),
        # a warning far above the end is not the reason
        ("user", Failure(0, "n", 1, None, ["MemoryError"] + ["epoch"] * 100 + [*TRACEBACK, "KeyError: 1"])),
    ],
)
def test_endings(expected: str, failure: Failure) -> None:
    assert fail_class(failure) == expected


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ("node", "srun: error: Node failure on gn02"),
        ("node", "slurmstepd: error: *** STEP 12.0 ON gn01 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***"),
        (
            "preempted",
            "slurmstepd: error: *** STEP 12.0 ON gn01 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
        ),
        ("oom_host", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=3.0. Some of your processes may have"),
        ("config", "srun: error: Unable to create step for job 7: More processors requested than permitted"),
        (None, "slurmstepd: error: *** STEP 12.0 ON gn01 CANCELLED AT 2026-01-01T00:00:00 ***"),
        (None, "slurmstepd: error: *** STEP 12.0 ON gn01 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"),
    ],
)
def test_what_slurm_says(expected: str | None, line: str) -> None:
    assert scheduler_class([line]) == expected


CULPRIT = Failure(3, "n1", 1, None, [*TRACEBACK, "KeyError: 1"])


@pytest.mark.parametrize(
    ("state", "kind", "stop", "culprit", "missing", "said"),
    [
        ("done", None, None, None, [], []),
        ("failed", "user", None, CULPRIT, [], []),
        ("failed", "user", Stop("rank", "a rank has failed"), CULPRIT, [], []),
        ("timeout", None, Stop("deadline", "x"), None, [], []),
        ("timeout", None, Stop("deadline", "x"), CULPRIT, ["n2"], []),
        ("cancelled", None, Stop("term", "x"), None, [], []),
        ("interrupted", None, Stop("interrupt", "x"), None, [], []),
        ("interrupted", "preempted", Stop("term", "x"), None, [], ["CANCELLED DUE TO PREEMPTION"]),
        ("failed", "node", Stop("term", "x"), None, ["n2"], []),
        ("failed", "node", Stop("term", "x"), None, [], ["srun: error: Node failure on n2"]),
        ("failed", "node", Stop("node", "the agent on n2 is gone", "node", 5), None, ["n2"], []),
        ("failed", "user", Stop("node", "the agent on n2 is gone", "node", 5), CULPRIT, ["n2"], []),
        ("failed", "hang", Stop("hang", "x", "hang"), None, [], []),
        ("failed", "quota", Stop("node", "n1 can't run its ranks: full", "quota"), None, [], []),
    ],
)
def test_states(
    state: str, kind: str | None, stop: Stop | None, culprit: Failure | None, missing: list[str], said: list[str]
) -> None:
    done = stop is None and culprit is None
    outcome = decide(stop, culprit, ranks_done=done, missing_nodes=missing, scheduler_lines=said)
    assert (outcome.state, outcome.fail_class) == (state, kind)
    assert (outcome.reason is None) == done
    assert outcome.exit["code"] == (0 if done else 1 if culprit else None)


def test_ranks_that_vanish_are_no_success() -> None:
    assert decide(None, None, ranks_done=False, missing_nodes=[], scheduler_lines=[]).state == "failed"


def test_the_first_failure_is_the_culprit_unless_its_node_was_lost_before() -> None:
    failures = Failures()
    failures.add(Failure(7, "n2", 1, None, ["later"]), t_us=500)
    failures.add(Failure(9, "n3", None, signal.SIGKILL, ["first"]), t_us=100)
    failures.tails[9] = ["a", "b"]
    culprit = failures.culprit()
    assert culprit is not None
    assert (culprit.rank, culprit.lines) == (9, ["a", "b"])
    assert describe(culprit) == "rank 9 on n3 was killed by SIGKILL: b"
    assert failures.culprit(before_us=50) is None


def test_failed_log_stays_within_a_mebibyte() -> None:
    failures = Failures()
    for rank in range(16_384):
        failures.add(Failure(rank, f"n{rank // 4}", 1, None, ["Broken " + "x" * 250]), t_us=rank)
        if failures.wants_tail(rank // 4, rank):
            failures.tails[rank] = ["y" * 4096] * 200
    text = failed_log(failures)
    assert LIMIT_BYTES * 0.9 < len(text) <= LIMIT_BYTES
    assert text.count(b"=== rank") == 3
    lines = text.decode().splitlines()
    shown = sum(line.startswith("rank ") for line in lines)
    assert shown > 300
    assert lines[-1] == f"... and {16_384 - 3 - shown} more ranks"
