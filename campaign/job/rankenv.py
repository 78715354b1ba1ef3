"""What a rank is started with: argv, environment, cores. Pure, except for reading the machine's core topology."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign.job.spec import RunSpec
from campaign.vendors import VENDORS

HEAD_VARIABLE = "CAMPAIGN_HEAD"
TOKEN_VARIABLE = "CAMPAIGN_HEAD_TOKEN"
NODE_VARIABLE = "CAMPAIGN_NODE_RANK"
START_VARIABLE = "CAMPAIGN_START_TIMEOUT_S"

STEPS_VARIABLE = "CAMPAIGN_MAX_STEPS"

# the last one too: a user's shell must not cut a measurement short
OURS = frozenset({HEAD_VARIABLE, TOKEN_VARIABLE, NODE_VARIABLE, START_VARIABLE, STEPS_VARIABLE})
SCRUBBED = re.compile(
    # the agent is the one task of its node in a Slurm step: its task variables would tell a rank that it is alone
    r"SLURM_(PROCID|LOCALID|NODEID|NTASKS|NPROCS|NTASKS_PER_NODE|TASK_PID|GTIDS|STEP_.*|STEPID|TASKS_PER_NODE|"
    r"CPU_BIND.*|DISTRIBUTION|LAUNCH_NODE_IPADDR|SRUN_COMM_.*|PMI.*|UMASK|CPUS_PER_TASK|TRES_PER_TASK)"
    r"|SRUN_.*|PMI_.*|PMIX_.*|PMI2_.*|OMPI_.*|MPI_LOCALRANKID|MPI_LOCALNRANKS"
)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where on the machine a group of ranks runs."""

    node_rank: int
    master_addr: str
    master_port: int
    folder: str
    """The node-local folder of the run."""

    @property
    def rank_dir(self) -> str:
        """Where ranks hand over their records (CAMPAIGN_RANK_DIR)."""
        return f"{self.folder}/r"

    @property
    def spec_file(self) -> str:
        """What ranks may know of the spec (CAMPAIGN_SPEC)."""
        return f"{self.folder}/spec.json"

    def metrics_file(self, rank: int) -> str:
        """Where a rank may append JSON lines (CAMPAIGN_METRICS)."""
        return f"{self.rank_dir}/{rank}.metrics.jsonl"


@dataclass(slots=True)
class RankEnv:
    """Environment shared by the ranks of a node, and what was done to the user's own (for the record)."""

    variables: dict[str, str]
    set: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    scrubbed: list[str] = field(default_factory=list)


def rank_argv(spec: RunSpec) -> list[str]:
    """The argv of every rank; never a shell. A bare `python` or `python3` means the site's interpreter."""
    if spec.command is not None:
        argv = list(spec.command)
        if argv[0] in ("python", "python3"):
            argv[0] = spec.python
        return argv
    assert spec.workload is not None
    # -P: the project's folder is put on sys.path by the runner, in the right place
    return [spec.python, "-P", "-u", "-m", "campaign.job.entry", spec.workload]


def node_env(
    spec: RunSpec, place: NodePlace, base: Mapping[str, str], redirections: tuple[dict[str, str], dict[str, str]]
) -> RankEnv:
    """The environment of the ranks of one node, without what differs between them (`rank_env` adds that)."""
    env = RankEnv({})
    for name, value in base.items():
        if name in OURS:
            continue
        if SCRUBBED.fullmatch(name):
            env.scrubbed.append(name)
        else:
            env.variables[name] = value
    env.scrubbed.sort()
    for name, value in spec.env.items():
        if name in env.variables:
            env.kept[name] = env.variables[name]
        else:
            env.set[name] = value
    ours = {
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node),
        "NODE_RANK": str(place.node_rank),
        "MASTER_ADDR": place.master_addr,
        "MASTER_PORT": str(place.master_port),
        "PYTHONUNBUFFERED": "1",
        "CAMPAIGN_RUN_ID": spec.run_id,
        "CAMPAIGN_ATTEMPT": str(spec.attempt),
        "CAMPAIGN_SPEC": place.spec_file,
        "CAMPAIGN_RANK_DIR": place.rank_dir,
    }
    if spec.record.get("max_steps"):
        ours[STEPS_VARIABLE] = str(spec.record["max_steps"])
    if "OMP_NUM_THREADS" not in spec.env:
        ours["OMP_NUM_THREADS"] = str(max(1, spec.cpus_per_rank))
    vendor = VENDORS.get(spec.gpu_vendor or "")
    if spec.visible_gpus == "all" and vendor is not None:
        ours |= vendor.visible(spec.gpus_per_node)
    moved, kept = redirections
    env.kept |= kept
    env.set |= moved | ours
    env.variables |= env.set
    return env


def rank_env(spec: RunSpec, place: NodePlace, env: RankEnv, local_rank: int) -> dict[str, str]:
    """The environment of one rank."""
    rank = place.node_rank * spec.ranks_per_node + local_rank
    return env.variables | {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "CAMPAIGN_METRICS": place.metrics_file(rank),
    }


def physical_cores(cpus: Sequence[int], sys_cpu: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """The allowed logical CPUs grouped by physical core, in order of the first CPU of each core."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        try:
            siblings = (sys_cpu / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="utf-8").strip()
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    return list(cores.values())


def core_slices(
    cores: Sequence[Sequence[int]], ranks: int, cores_per_rank: int, first: Sequence[int] | None = None
) -> list[set[int]] | None:
    """The logical CPUs of each local rank: disjoint, spread evenly over the cores in their order.

    `first` (the site's `cpu_bind`): a CPU of the core with which each local rank begins. It is left aside when it
    names fewer CPUs than there are ranks, or one that isn't allowed. None when there are fewer cores than ranks: then
    no rank is bound, the kernel shares them out.
    """
    share = len(cores) // ranks
    if share == 0:
        return None
    starts, room = [rank * share for rank in range(ranks)], share
    place = {cpu: position for position, core in enumerate(cores) for cpu in core}
    wanted = [place.get(cpu, -1) for cpu in (first or ())[:ranks]]
    if len(set(wanted)) == ranks and -1 not in wanted:
        edges = [*sorted(wanted), len(cores)]
        starts, room = wanted, min(end - start for start, end in itertools.pairwise(edges))
    width = max(1, min(cores_per_rank, room))
    return [{cpu for core in cores[start : start + width] for cpu in core} for start in starts]
