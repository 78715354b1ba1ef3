"""Start submitit's local controller away from the terminal: `python -P -m campaign.submit.detach FOLDER COMMAND`.

Prints the controller's pid and ends, so the controller belongs to init and lives on when the caller is gone. The time
limit of runs is the head's business; the controller's own would also count the waiting for a slot.
"""

from __future__ import annotations

import os
import shlex
import sys

import submitit

YEAR_MIN = 365 * 24 * 60


class LocalExecutor(submitit.LocalExecutor):
    """submitit's local executor; the name is in its registry already."""

    @classmethod
    def name(cls) -> str:
        """submitit's registry name of this kind."""
        return "local"


def main(folder: str, command: str) -> None:
    """Start `command` (one shell-quoted argv) under a controller and print the controller's pid."""
    executor = LocalExecutor(folder=folder)
    executor.update_parameters(timeout_min=YEAR_MIN, stderr_to_stdout=True)
    answer = os.dup(1)
    # the controller must not hold the caller's pipes open
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    job: submitit.Job[None] = executor._submit_command(shlex.join([*_own_gpus(), *shlex.split(command)]))
    os.write(answer, f"{job.job_id}\n".encode())
    os._exit(0)  # no destructor of submitit's job may touch the process


def _own_gpus() -> list[str]:
    """submitit sets CUDA_VISIBLE_DEVICES even for no GPUs, to nothing: give the user's own value back."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ["env", "-u", "CUDA_VISIBLE_DEVICES"] if visible is None else ["env", f"CUDA_VISIBLE_DEVICES={visible}"]


if __name__ == "__main__":
    main(*sys.argv[1:])
