"""The ranks of one node as processes: started, drained, signalled, reaped."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from campaign.job.output import LineTail
from campaign.job.processes import signal_group
from campaign.job.rankenv import NodePlace, RankEnv, core_slices, physical_cores, rank_argv, rank_env
from campaign.job.spec import RunSpec

READ_BYTES = 1 << 20
PIPE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Exit:
    """How a rank ended: code, or the signal that killed it."""

    code: int | None
    signal: int | None
    at_ns: int
    """CLOCK_MONOTONIC of this node."""

    @property
    def failed(self) -> bool:
        """True unless the code is 0."""
        return self.code != 0


class Rank:
    """One rank: its process, the pipe of its output, its last lines."""

    def __init__(self, rank: int, argv: list[str], env: dict[str, str], cwd: str) -> None:
        """Start it. Raises OSError when the program can't be started."""
        self.rank = rank
        self.tail = LineTail()
        self.exit: Exit | None = None
        self.output, write_end = os.pipe()
        os.set_blocking(self.output, False)
        with contextlib.suppress(OSError):
            # a bigger pipe: a rank that prints a lot waits less for us
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            os.close(self.output)
            raise
        finally:
            os.close(write_end)

    @property
    def pid(self) -> int:
        """Its process id, which is its process group and session too."""
        return self._process.pid

    def read(self) -> bytes | None:
        """What it has printed and we haven't read; b"" when there is nothing now, None at the end."""
        try:
            data = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            return None
        self.tail.feed(data)
        return data

    def reap(self) -> bool:
        """True when it has ended by now (once)."""
        if self.exit is not None or self._process.poll() is None:
            return False
        code = self._process.returncode
        self.exit = Exit(code, None, time.monotonic_ns()) if code >= 0 else Exit(None, -code, time.monotonic_ns())
        return True

    def signal_group(self, number: signal.Signals) -> None:
        """Signal it and its children."""
        signal_group(self.pid, number)

    def signal_alone(self, number: signal.Signals) -> None:
        """Signal the rank's own process: its workers may have no handler and would die."""
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class RankStartError(Exception):
    """A rank could not be started. `code` is what a shell would say: 127 not found, 126 not runnable."""

    def __init__(self, rank: int, error: OSError) -> None:
        self.rank = rank
        self.code = 127 if isinstance(error, FileNotFoundError) else 126
        super().__init__(f"{type(error).__name__}: {error}")


def why_not_started(error: Exception) -> str:
    """fail_class of what kept a node from starting its ranks."""
    if isinstance(error, OSError):
        return "quota" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "node"
    return "config"


def slices(spec: RunSpec) -> list[set[int]] | None:
    """The CPUs of each local rank; None when they aren't bound."""
    if spec.scheduler == "local" and spec.nodes > 1:
        # several "nodes" on one machine: each would bind its ranks to the same first cores
        return None
    cores = physical_cores(sorted(os.sched_getaffinity(0)))
    return core_slices(cores, spec.ranks_per_node, spec.cpus_per_rank, spec.cpu_bind)


def start_rank(spec: RunSpec, place: NodePlace, env: RankEnv, local_rank: int, cpus: set[int] | None) -> Rank:
    """Start one rank on its CPUs: this process takes them, the child inherits them, this process takes its own back."""
    rank = place.node_rank * spec.ranks_per_node + local_rank
    own = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        return Rank(rank, rank_argv(spec), rank_env(spec, place, env, local_rank), spec.project_dir)
    except OSError as error:
        raise RankStartError(rank, error) from error
    finally:
        os.sched_setaffinity(0, own)
