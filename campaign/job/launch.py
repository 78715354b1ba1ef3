"""Starts the node agents: one srun step on Slurm, child processes on the local site."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

from campaign.job.processes import signal_group
from campaign.job.rankenv import HEAD_VARIABLE, NODE_VARIABLE, START_VARIABLE, TOKEN_VARIABLE
from campaign.job.spec import RunSpec

AGENT = ["-P", "-m", "campaign.job.agent"]

STEP_INPUTS = re.compile(
    # what sbatch leaves behind and srun would take for options of this step, some of them in conflict with ours
    r"SLURM_(CPU_BIND.*|MEM_BIND.*|MEM_PER_(CPU|GPU|NODE)|NTASKS|NPROCS|NTASKS_PER_(NODE|CORE|SOCKET|GPU|TRES)|"
    r"CPUS_PER_(TASK|GPU)|TRES_PER_TASK|TRES_BIND|GPU_BIND|GPUS_PER_TASK|DISTRIBUTION|HINT|THREADS_PER_CORE|"
    r"CORE_SPEC|EXCLUSIVE|WHOLE|EXACT|OVERLAP|OVERCOMMIT|KILL_BAD_EXIT|WAIT|TIMELIMIT|MPI_TYPE|EXPORT_ENV|LABELIO|"
    r"UNBUFFEREDIO|OPEN_MODE|STDINMODE|STDOUTMODE|STDERRMODE|IMMEDIATE|RELATIVE|ARBITRARY.*|STEP_.*|MULTI_PROG)"
    r"|SRUN_CPUS_PER_TASK|SRUN_EXPORT_ENV"
)

CONTROLLER_AWAY = re.compile(r"Unable to contact slurm controller|Socket timed out on send/recv|Connection refused")
"""What srun says when no step was made because slurmctld is being restarted."""


def cpus_per_node(environ: Mapping[str, str]) -> int | None:
    """CPUs that the job has on each of its nodes, the smallest count: from `SLURM_JOB_CPUS_PER_NODE` (`48(x3),24`)."""
    text = environ.get("SLURM_JOB_CPUS_PER_NODE") or environ.get("SLURM_CPUS_ON_NODE") or ""
    counts = [int(number) for number in re.findall(r"(?:^|,)(\d+)", text)]
    return min(counts, default=None)


def srun_argv(spec: RunSpec, environ: Mapping[str, str], python: str) -> list[str]:
    """The step that starts one agent per node. The site's own arguments come last but two, so they win over ours."""
    cpus = cpus_per_node(environ)
    smaller = spec.allocation_nodes is not None and spec.nodes < spec.allocation_nodes
    return [
        "srun",
        f"--nodes={spec.nodes}",
        # -n as well: --ntasks-per-node alone loses against the job's own task count
        f"--ntasks={spec.nodes}",
        "--ntasks-per-node=1",
        # a small run of a ladder takes the first nodes, this one among them
        *(["--relative=0"] if smaller else []),
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        "--mem=0",
        "--mpi=none",
        "--cpu-bind=none",
        "--export=ALL",
        "--input=none",
        "--quiet",
        *spec.srun_args,
        # which rank's end ends the others, and when, is the head's decision
        "--kill-on-bad-exit=0",
        "--wait=0",
        python,
        *AGENT,
    ]


def step_env(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of srun: without what would be read as an option of the step."""
    return {name: value for name, value in environ.items() if not STEP_INPUTS.fullmatch(name)}


class Launcher:
    """The processes that carry the agents: srun, or the agents themselves."""

    def __init__(self, spec: RunSpec, addresses: list[str], start_timeout_s: float, log: Callable[[str], None]) -> None:
        """Start them. Raises OSError when there is no srun."""
        self._log = log
        self.lines: deque[str] = deque(maxlen=100)
        """The last lines of srun or the agents: the only place where Slurm says why a step failed."""
        self._open = ""
        shared = {
            HEAD_VARIABLE: ",".join(addresses),
            TOKEN_VARIABLE: spec.token,
            START_VARIABLE: str(start_timeout_s),
        }
        if spec.scheduler == "slurm":
            self._commands = [(srun_argv(spec, os.environ, sys.executable), step_env(os.environ) | shared)]
        else:
            self._commands = [
                ([sys.executable, *AGENT], dict(os.environ) | shared | {NODE_VARIABLE: str(node)})
                for node in range(spec.nodes)
            ]
        self.output = -1
        self._start()

    def _start(self) -> None:
        self.output, write_end = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._processes = [
                subprocess.Popen(
                    argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                for argv, env in self._commands
            ]
        finally:
            os.close(write_end)

    def again(self) -> None:
        """Start them once more, after all have ended; `output` is another one then."""
        os.close(self.output)
        self.lines.clear()
        self._open = ""
        self._start()

    @property
    def controller_away(self) -> bool:
        """True when srun says that it reached no controller: nothing was started, and later it may be."""
        return any(CONTROLLER_AWAY.search(line) for line in self.lines)

    @property
    def pids(self) -> list[int]:
        """Process ids, of agents by node on the local site."""
        return [process.pid for process in self._processes]

    def ended(self) -> bool:
        """True when none of them runs any more. srun's exit code means nothing: it can be 0 after a time limit."""
        return not self._running()

    def read(self) -> bool:
        """Pass on what they print; False at the end of it."""
        while True:
            try:
                data = os.read(self.output, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._open = (self._open + data.decode("utf-8", "replace")).split("\n")
            self._open = self._open[-4096:]
            for line in lines:
                self.lines.append(line)
                self._log(line)

    def end(self, wait_s: float) -> None:
        """Wait for them, then end them: SIGTERM, and SIGKILL two seconds later."""
        deadline = time.monotonic() + wait_s
        for number, more_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0), (None, 0.0)):
            while (running := self._running()) and time.monotonic() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running[0].wait(0.05)
                self.read()
            if not running or number is None:
                break
            for process in running:
                signal_group(process.pid, number)
            deadline = time.monotonic() + more_s
        self.read()

    def close(self) -> None:
        """Close the pipe of their output."""
        os.close(self.output)

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes if process.poll() is None]
