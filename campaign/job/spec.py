"""What a job is told: one JSON line per (array index, run) in `<run_root>/submit/<tag>/specs.jsonl`.

Written before sbatch, read by the head. JSON on purpose: a job must start after a Python upgrade, and nothing that a
user can write is ever unpickled or run through a shell.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

SPECS_FILE = "specs.jsonl"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All that the head and the agents know of one attempt at one run."""

    schema: int
    array_index: int
    run_id: str
    attempt: int
    token: str
    """Random; proves to the head that an agent belongs to this job. Never printed, never in the record."""
    tag: str
    site: str
    study: str
    workload: str | None
    command: list[str] | None
    metrics: list[dict[str, Any]]
    params: dict[str, Any]
    data: dict[str, Any] | None
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_rank: int
    local_batch: int | None
    global_batch: int | None
    walltime_s: float
    signal_lead_s: float
    """Seconds before the walltime at which the warning signal comes."""
    scheduler: Literal["slurm", "local"]
    run_root: str
    """Absolute; shared storage."""
    project_dir: str
    """Absolute; the ranks' working directory."""
    node_local: str
    """Absolute; folder on every node for what is written during the run (`paths.node_local`)."""
    staging: str
    redirect: bool
    network: dict[str, Any]
    """{interface, master_addr_suffix, resolve_ip} of the site."""
    env: dict[str, str]
    """The site's `env` for ranks; a user's own value wins and is reported."""
    gpu_vendor: str | None
    visible_gpus: Literal["all", "slurm"]
    gpus_per_node: int
    srun_args: list[str]
    record: dict[str, Any]
    """{raw_ranks, window_steps, power} of the study. Optional: on_warning ("signal": the workload handles SIGUSR2),
    hang_timeout_s, start_timeout_s, fail_grace_s (for other ranks after the first has failed), term_grace_s (between
    SIGTERM and SIGKILL), max_steps (of a try: the Recorder ends a rank after so many)."""
    group_readable: bool
    python: str
    """Interpreter of workload ranks."""
    provenance: dict[str, Any]
    """{commit, dirty, image_digest, data_digest, versions}; goes into the record as it is."""
    allocation_nodes: int | None = None
    """Nodes of the job; more than `nodes` for the small runs of a serial ladder."""
    cpu_bind: list[int] | None = None
    """The CPU with which each local rank's cores begin, as the site says; None: in order."""
    gate: bool = False
    """The first run of a serial ladder: when it fails by a fault of its own, the others don't start."""

    @property
    def world_size(self) -> int:
        """Ranks that will be started (what the process group reports goes into the record)."""
        return self.nodes * self.ranks_per_node

    @property
    def run_dir(self) -> Path:
        """Folder of the run: claim, attempts."""
        return run_folder(self.run_root, self.run_id)

    def to_line(self) -> str:
        """One line of `specs.jsonl`."""
        # not asdict, which copies deeply: an array may have 10,000 of these
        data = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> RunSpec:
        """The spec that `to_line` wrote. Raises ValueError on a newer schema, TypeError on unknown keys."""
        data = json.loads(line)
        if data.get("schema") != 1:
            raise ValueError(f"specs.jsonl has schema {data.get('schema')!r}; this campaign reads 1")
        return cls(**data)


def run_folder(run_root: str | Path, run_id: str) -> Path:
    """Where claim and attempts of a run are (contract section 6)."""
    return Path(run_root) / "runs" / run_id[:2] / run_id


def visible_spec(spec: RunSpec) -> dict[str, Any]:
    """What agents and ranks may know: all but the token."""
    visible = dataclasses.asdict(spec)
    visible["token"] = ""
    return visible


def read_specs(submit_dir: Path, array_index: int) -> list[RunSpec]:
    """The specs of one array element, in order (several when runs are packed)."""
    with (submit_dir / SPECS_FILE).open(encoding="utf-8") as lines:
        # of an array of 10,000 every head reads the file: only lines that may be its own are parsed
        mark = f'"array_index":{array_index},'
        # the first line always: a file of another version is told as such
        specs = [RunSpec.from_line(line) for number, line in enumerate(lines) if number == 0 or mark in line]
    return [spec for spec in specs if spec.array_index == array_index]
