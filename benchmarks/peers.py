"""What we are compared with in bench_submit: submitit, one sbatch per run, and ReFrame, a harness for test sweeps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from benchmarks.processes import Word, check, environment, running
from tests.slurm.testbed import Cluster
from tests.waiting import wait_for

SWEEP = 100
"""Runs of the sweep that ReFrame does."""
LOCK = Path(__file__).resolve().parent.parent / "requirements" / "reframe.txt"
REFRAME = Path(sys.prefix) / "peers" / "reframe"
"""Its own virtual environment: ReFrame brings polars and lxml, which nobody else here needs."""

SUBMITIT_LOOP = """
import sys, time
import submitit

folder, jobs = sys.argv[1], int(sys.argv[2])
executor = submitit.SlurmExecutor(folder=folder)
executor.update_parameters(time=5, nodes=1, ntasks_per_node=1, cpus_per_task=2, partition="gpu", account="demo",
                           additional_parameters={"hold": True})
executor._throttling = 0  # it would wait 0.2 s between two jobs
begin = time.perf_counter()
for seed in range(jobs):
    executor.submit(print, seed)
print(time.perf_counter() - begin)
"""

REFRAME_SETTINGS = """
site_configuration = {
    "systems": [{
        "name": "vega",
        "hostnames": [".*"],
        "modules_system": "nomod",
        "stagedir": "stage",
        "outputdir": "output",
        "partitions": [{
            "name": "gpu",
            "scheduler": "slurm",
            "launcher": "local",
            "environs": ["builtin"],
            "access": ["--hold", "--account=demo", "--partition=gpu", "--nodes=1", "--cpus-per-task=2"],
            "max_jobs": 100000,
        }],
    }],
    "environments": [{"name": "builtin", "cc": ""}],
    "general": [{"remote_detect": False, "resolve_module_conflicts": False}],
}
"""

REFRAME_TEST = """
import reframe as rfm


@rfm.simple_test
class Sweep(rfm.RunOnlyRegressionTest):
    seed = parameter(range({runs}))
    valid_systems = ["*"]
    valid_prog_environs = ["builtin"]
    executable = "python"
    time_limit = "5m"

    @run_before("run")
    def arguments(self):
        self.executable_opts = ["-c", "pass", str(self.seed)]

    @sanity_function
    def ran(self):
        return True
"""

TIMED_SBATCH = """\
#!/bin/bash
'{real}' "$@"
code=$?
echo "$EPOCHREALTIME" >> '{log}'
exit $code
"""


def submitit_seconds(cluster: Cluster, folder: Path, jobs: int) -> float:
    """Seconds that submitit needs to submit `jobs` functions by an sbatch each; without its start-up and the
    0.2 s that it waits between two jobs by default."""
    shutil.rmtree(folder, ignore_errors=True)
    argv: list[Word] = [sys.executable, "-c", SUBMITIT_LOOP, folder, str(jobs)]
    return float(check(argv, env=environment(cluster.env)).stdout.split()[-1])


def reframe() -> Path:
    """ReFrame's program, in the version of the lock; installed at the first call. Raises RuntimeError."""
    program, stamp = REFRAME / "bin" / "reframe", REFRAME / "lock.txt"
    if not (stamp.exists() and stamp.read_bytes() == LOCK.read_bytes()):
        shutil.rmtree(REFRAME, ignore_errors=True)
        try:
            venv.create(REFRAME, with_pip=True)
            install: list[Word] = [REFRAME / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes"]
            check([*install, "-r", LOCK], env=dict(os.environ))
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            said = str(error).strip().splitlines()
            raise RuntimeError(f"ReFrame can't be installed: {said[-1] if said else error!r}") from error
        shutil.copyfile(LOCK, stamp)
    return program


def reframe_seconds(program: Path, cluster: Cluster, folder: Path) -> float:
    """Seconds from ReFrame's start until the last sbatch of the sweep has been answered.

    Its jobs are held, so it would wait for ever: it is ended then. The caller cancels the jobs.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "settings.py").write_text(REFRAME_SETTINGS)
    (folder / "sweep.py").write_text(REFRAME_TEST.format(runs=SWEEP))
    answered = folder / "answered"
    answered.touch()
    sbatch = folder / "bin" / "sbatch"
    sbatch.write_text(TIMED_SBATCH.format(real=shutil.which("sbatch"), log=answered))
    sbatch.chmod(0o755)
    env = environment(cluster.env) | {"PATH": f"{sbatch.parent}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    argv: list[Word] = [program, "-C", "settings.py", "-c", "sweep.py", "--exec-policy=async", "--run"]
    log = folder / "log"

    def times() -> list[str]:
        return answered.read_text().splitlines()

    begin = time.time()
    with running(argv, env=env, cwd=folder, log=log) as process:
        wait_for(lambda: len(times()) >= SWEEP or process.poll() is not None, 300,
                 what=lambda: f"ReFrame has called sbatch {len(times())} times")  # fmt: skip
        if len(times()) < SWEEP:
            raise RuntimeError(f"ReFrame ended after {len(times())} sbatch calls:\n{log.read_text()[-2000:]}")
    return float(times()[SWEEP - 1]) - begin
