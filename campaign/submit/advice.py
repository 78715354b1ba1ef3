"""What to do next about a run, by its state and by why it ended. For people; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from campaign.submit.outcome import INFRASTRUCTURE

BY_CLASS = {
    "node": "a node broke: `campaign submit` tries it again elsewhere, as often as the study's retry.infrastructure "
    "says; tell the site which one",
    "fabric": "the network between nodes broke: `campaign submit` tries it again without the suspect node",
    "preempted": "a job of higher priority took its nodes: `campaign submit` tries it again",
    "oom_host": "it needs less memory on the node: fewer ranks_per_node, fewer loader workers, or a smaller batch",
    "oom_gpu": "it needs less memory on the GPU: a smaller local batch, lower precision, or a strategy that shards "
    "(fsdp2, zero3)",
    "config": "mend what the lines above name (a module, an option, a path)",
    "user": "mend the program where the lines above point",
    "quota": "make room where the lines above point, in bytes and in files",
    "hang": "see which rank was furthest behind and what it waited for; a larger hang_timeout_s if it was only slow",
    "unknown": "see what the job itself said: campaign logs {run_id} --job",
}
"""By fail_class."""

BY_STATE = {
    "planned": "campaign submit",
    "submitting": "campaign status  (asks Slurm whether its job is there)",
    "queued": "campaign status --watch",
    "running": "campaign logs {run_id} -f",
    "unknown": "campaign status --force",
    "done": "campaign sql \"FROM epochs WHERE run_id = '{run_id}'\"",
    "timeout": "campaign retry --run {run_id} --walltime TIME && campaign submit; or a longer `walltime` in the study",
    "cancelled": "campaign retry --run {run_id} && campaign submit",
    "interrupted": "campaign retry --run {run_id} && campaign submit",
    "lost": "campaign retry --run {run_id} && campaign submit; a job that turns up late finds the claim and ends",
    "failed": "campaign logs {run_id}, then campaign retry --run {run_id} && campaign submit",
}


def advice(row: Mapping[str, Any]) -> list[str]:
    """Lines about a run of the ledger: what its failure asks for, then the command that goes on."""
    state, run_id = str(row["state"]), str(row["run_id"])
    then = BY_STATE[state].format(run_id=run_id)
    if state not in ("failed", "interrupted") or row["fail_class"] not in BY_CLASS:
        return [then]
    first = BY_CLASS[row["fail_class"]].format(run_id=run_id)
    return [first] if row["fail_class"] in INFRASTRUCTURE else [first, then]
