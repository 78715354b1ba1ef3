# ruff: noqa: RUF012  pydantic copies defaults, mutable ones too
"""The parts of a site file: what each mapping in it may say. `null` is unknown, not checked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from campaign.fieldtypes import Count, Limit, Line, Positive, Token, refuse
from campaign.validate import Strict
from campaign.vendors import VendorName

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
StagingMode = Literal["none", "image", "staged-image", "staged-copy", "staged-env"]


def _sbatch_value(value: Any) -> Any:
    if value is True:
        return True
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and "\n" not in value:
        return str(value)
    raise refuse("must be a string, or true for a flag", allowed="a string | true")


SbatchValue = Annotated[Any, BeforeValidator(_sbatch_value), WithJsonSchema({"type": ["string", "integer", "boolean"]})]


class Transport(Strict):
    """How this site's commands are reached: run here, or over the user's OpenSSH."""

    kind: Literal["here", "ssh"] = "here"
    host: Token | None = None
    root: Line | None = None


DEFAULT_ARRAY_SIZE = 1001
"""Slurm's own MaxArraySize where nobody says otherwise; the largest index is one less."""


class SchedulerLimits(Strict):
    """Limits of the scheduler; null is unknown. On a local site `running_jobs` is the number of slots."""

    array_size: Positive | None = None
    submit_jobs: Positive | None = None
    running_jobs: Positive | None = None


class Scheduler(Strict):
    """What is said to the scheduler beside the resources."""

    kind: Literal["slurm", "local"]
    gpu_request: Literal["gres", "gpus-per-node", "none"] = "gres"
    sbatch_args: dict[str, SbatchValue] = {}
    srun_args: list[Line] = []
    wckey: Token | None = None
    limits: SchedulerLimits = SchedulerLimits()
    poll_interval_s: Annotated[float, Field(gt=0)] = 30
    adopt_grace_s: Annotated[float, Field(ge=0)] = 120
    lost_after_s: Annotated[float, Field(gt=0)] = 3600


class Qos(Strict):
    """Limits of one QOS within a partition."""

    min_nodes: Positive | None = None
    max_nodes: Positive | None = None
    max_time: Limit | None = None
    submit_jobs: Positive | None = None
    running_jobs: Positive | None = None


class Partition(Strict):
    """One partition (queue): which nodes, and its limits. Times in seconds."""

    node: str
    nodes: Positive | None = None
    min_nodes: Positive | None = None
    max_nodes: Positive | None = None
    max_time: Limit | None = None
    default_time: Limit | None = None
    exclusive: bool = True
    down: bool = False
    """True: not used by `partition_by_size`."""
    qos: dict[Token, Qos] = {}
    qos_by_size: list[Token] = []
    """The first that admits nodes and walltime is asked for, unless site or study name one."""


class Node(Strict):
    """One type of node. On a local site null cores and GPUs are counted when planning."""

    gpu: str | None = None
    gpus: Count | None = None
    """Devices that the scheduler and the framework count, each a rank of its own (a GCD of an MI250X is one)."""
    cores: Positive | None = None
    """Physical cores that jobs may use."""
    threads_per_core: Positive = 1
    numa: Positive | None = None
    memory_bytes: Positive | None = None
    usable_bytes: Positive | None = None
    """Memory that a job may ask for."""
    disk_bytes: Count | None = None
    cpu_bind: list[Count] | None = None
    """The CPU with which each local rank's cores begin, where GPU n isn't next to the n-th share of the cores."""


class Gpu(Strict):
    """One type of GPU: a vendor's figures."""

    vendor: VendorName
    memory_bytes: Positive | None = None
    power_cap_w: Annotated[float, Field(gt=0)] | None = None
    peak_flops: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Dense peak by number format, FLOP/s."""


class Network(Strict):
    """For the ranks' rendezvous and the agents' connection to the head."""

    interface: Token | None = None
    master_addr_suffix: str = ""
    resolve_ip: bool = False


class Filesystem(Strict):
    """One file system. Quotas are the project's, shared by its members."""

    path: Line
    kind: str
    shared: bool
    on_compute: bool
    quota_bytes: Count | None = None
    quota_inodes: Count | None = None
    purge_days: Positive | None = None


class Paths(Strict):
    """Where things go: `filesystem:sub/folder` or an absolute path. null: the project folder (see docs/sites.md)."""

    run_root: Line | None = None
    node_local: Line | None = None
    data: Line | None = None


class Software(Strict):
    """What the batch script loads before the head, and the interpreter of ranks (null: the one that plans)."""

    modules: list[Line] = []
    python: Line | None = None


class Container(Strict):
    """How ranks run in an image."""

    runtime: Literal["apptainer", "singularity"] | None = None
    image: Line | None = None
    gpu_flag: bool = True
    """Pass the flag of the GPUs' vendor (`--nv`, `--rocm`)."""
    args: list[Line] = []
    """Beside that flag and the binds."""
    binds: list[Line] = []


class Staging(Strict):
    """How software reaches node-local storage before ranks start, and whether what they write is redirected there."""

    mode: StagingMode = "none"
    redirect: bool = True
    warn_metadata_ops: Positive | None = None


class Billing(Strict):
    """What the site charges in."""

    unit: Literal["node-h", "core-h", "gpu-h"] | None = None
    whole_nodes: bool = True
    per_node_hour: Annotated[float, Field(gt=0)] | None = None
    """Units that a whole node costs in an hour; null: 1, its cores or its GPUs."""
