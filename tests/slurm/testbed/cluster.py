"""One running cluster as a user on its login node meets it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

FINAL_STATES = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Name, configuration and nodes of a cluster, and Slurm's commands against it."""

    name: str
    slurm_conf: Path
    nodes: tuple[str, ...]
    shared: Path
    """Folder that the login side and all nodes share; everything below /tmp and /dev/shm is private to a node."""

    @property
    def env(self) -> dict[str, str]:
        """The caller's environment with SLURM_CONF for this cluster and no other variable of Slurm."""
        foreign = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SALLOC_", "SINFO_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return kept | {"SLURM_CONF": str(self.slurm_conf)}

    def run(
        self, *argv: str, check: bool = True, timeout: float = 120, env: Mapping[str, str] | None = None, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (sbatch, srun, sacct, ...) against this cluster, in its shared folder, `env` added to `env`.

        Raises RuntimeError with the command's stderr when `check` and it fails.
        """
        kwargs.setdefault("cwd", self.shared)
        answer = subprocess.run(
            argv, env=self.env | dict(env or {}), capture_output=True, text=True, timeout=timeout, check=False, **kwargs
        )
        if check and answer.returncode != 0:
            raise RuntimeError(f"{' '.join(argv)}: exit {answer.returncode}\n{answer.stderr}{answer.stdout}")
        return answer

    def submit(self, *arguments: str, **kwargs: Any) -> str:
        """`sbatch --parsable ARGUMENTS`; the job id."""
        return self.run("sbatch", "--parsable", *arguments, **kwargs).stdout.strip().partition(";")[0]

    def job_state(self, job: str) -> str:
        """The job's state as the controller knows it now, e.g. RUNNING; '' when it doesn't know the job."""
        answer = self.run("scontrol", "show", "job", job, "--oneliner", check=False)
        words = (word.partition("=") for word in answer.stdout.split())
        return next((value for key, _, value in words if key == "JobState"), "")

    def wait_job(self, job: str, *states: str, deadline: float = 120.0) -> str:
        """Wait until the job is in one of `states` (default: any final one); that state."""
        wanted = states or FINAL_STATES
        wait_for(
            lambda: self.job_state(job) in wanted,
            deadline,
            what=lambda: f"job {job} of {self.name} is {self.job_state(job)}, not {'/'.join(wanted)}",
        )
        return self.job_state(job)

    def accounting(self, job: str, *fields: str) -> list[tuple[str, ...]]:
        """What sacct says of a job now, one tuple of `fields` for the job and for each of its steps; [] when it
        doesn't know the job yet (it lags by a second and more: wait for what you need)."""
        answer = self.run("sacct", "-n", "-P", "-j", job, "-o", ",".join(fields), check=False)
        return [tuple(line.split("|")) for line in answer.stdout.splitlines()]

    def node_states(self) -> dict[str, str]:
        """State of each node, as `sinfo` says it (idle, allocated*, down, ...)."""
        answer = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False)
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)
