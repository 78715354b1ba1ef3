"""`campaign try --here`: a job's script, run inside an allocation that the user holds already.

The very script that sbatch would get is run by one task on the allocation's first node, so the head sits where a batch
step would be. What that task and the shell of `salloc` know of their job and steps is taken out of its environment, and
what sbatch would have said of a job of this size is put in: ranks see the same, whichever way they came up.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import BadInput, NotNow, Problem
from campaign.job.launch import STEP_INPUTS
from campaign.slurm import commands
from campaign.slurm.allocation import Allocation, parse_allocation
from campaign.slurm.jobscope import JOB_SCOPED
from campaign.slurm.nodelist import compress
from campaign.submit.batch import Batch, Item, make_batches, node_gpus, write_specs
from campaign.submit.executors import script_text
from campaign.submit.guard import guard_cluster
from campaign.submit.origin import provenance
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.plan.model import PlannedRun
    from campaign.project import Project
    from campaign.site import Site

SCRIPT = "here.sh"
LEAST_S = 60
"""An allocation with less time left takes no try."""
GPUS_OF_STEP = frozenset({"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"})
"""What Slurm sets for the GPUs of a step: an interactive step's own must not reach another one."""
OF_THE_NODE = frozenset(
    "SLURMD_NODENAME SLURM_GPUS_ON_NODE SLURM_PRIO_PROCESS SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN "
    "SLURM_WORKING_CLUSTER".split()
)
"""What the task on the first node is told as a batch step would be; all else that is job-scoped is unset there."""
STOP_S = 30.0


# -- the allocation --------------------------------------------------------------------------------------------------


def allocation(site: Site, environ: Mapping[str, str] = os.environ) -> Allocation:
    """The allocation that this process is in. Raises BadInput when there is none, or it is of another cluster."""
    salloc = f"salloc -N NODES -p {site.default_partition} -t 00:30:00, and then the same command in its shell"
    if site.local:
        raise BadInput(Problem(f"--here means inside a Slurm allocation; site {site.name} has no Slurm", key="--here",
                               hint="leave --here away: the try runs on this machine anyway"))  # fmt: skip
    job_id = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job_id:
        raise BadInput(Problem("there is no allocation here: SLURM_JOB_ID is not set", key="--here",
                               hint=f"{salloc}; or leave --here away"))  # fmt: skip
    cluster = guard_cluster(site)
    given = environ.get("SLURM_CLUSTER_NAME")
    if cluster is not None and given not in (None, cluster):
        raise BadInput(Problem(f"allocation {job_id} is of cluster {given!r}; what answers for site {site.name} is "
                               f"{cluster!r}", site.source.place(("cluster_name",))[0], key="--here",
                               hint=salloc))  # fmt: skip
    answer = commands.run(site.name, ["scontrol", "-d", "show", "job", job_id])
    found = parse_allocation(answer.stdout) if answer.ok else None
    if found is None and not (answer.ok or "Invalid job id" in answer.stderr):
        raise NotNow(Problem(f"Slurm didn't answer: {answer.stderr}", key="--here", hint="the same command, later"))
    if found is None:
        message = f"cluster {cluster or site.name} knows no job {job_id}: an allocation of another cluster, or ended"
        raise BadInput(Problem(message, key="--here", value=job_id, hint=salloc))
    if found.state != "RUNNING":
        raise BadInput(Problem(f"job {job_id} is {found.state}, not RUNNING", key="--here", hint=salloc))
    if found.partition not in site.partitions:
        raise BadInput(site.problem(("partitions",), f"allocation {job_id} is in partition {found.partition}, which "
                                    f"the file of site {site.name} doesn't describe", value=None,
                                    allowed=", ".join(site.partitions)))  # fmt: skip
    left_s = found.left_s()
    if left_s is not None and left_s < LEAST_S:
        raise BadInput(Problem(f"allocation {job_id} ends in {max(0, left_s):.0f} s", key="--here",
                               allowed=f"at least {LEAST_S} s", hint=salloc))  # fmt: skip
    return dataclasses.replace(found, cluster=cluster)


def cpus_of(held: Allocation, nodes: tuple[str, ...], threads: int) -> int | None:
    """CPUs that a step may ask for on each of these nodes; None when Slurm doesn't say. `threads` of a core."""
    counts = [held.cpus[node] for node in nodes if node in held.cpus]
    if not counts:
        return None
    return max(1, min(counts) // (threads if held.one_thread else 1))


def check_size(site: Site, held: Allocation, run: PlannedRun) -> None:
    """Raise BadInput when the run doesn't fit into the allocation."""
    problems = []
    each = " on each node"

    def small(what: str, where: str, wanted: int, there: int, option: str) -> None:
        if there < wanted:
            needs = number(wanted, what) + where
            message = f"allocation {held.job_id} is too small: the try needs {needs}, it has {there}"
            problems.append(Problem(message, key="--here", hint=f"salloc {option} ...  or a smaller point by --set"))

    small("node", "", run.nodes, len(held.nodes), f"-N {run.nodes}")
    first = held.nodes[: run.nodes]
    cpus = cpus_of(held, first, site.node_of(str(run.partition)).threads_per_core)
    if cpus is not None:
        cores = run.cpus_per_rank * run.ranks_per_node
        small("core", each, cores, cpus, f"--ntasks-per-node=1 --cpus-per-task={cores}")
    gpus = run.gpus_per_rank * run.ranks_per_node
    if gpus:
        there = min((held.gpus.get(node, 0) for node in first), default=0)
        small("GPU", each, gpus, there, f"--gres=gpu:{gpus}")
    left_s = held.left_s()
    if left_s is not None and run.walltime_s > left_s:
        message = f"allocation {held.job_id} ends in {left_s:.0f} s, before the walltime of {run.walltime_s} s"
        problems.append(Problem(message, key="--walltime", hint="a shorter --walltime, or none"))
    if problems:
        raise BadInput(problems)


# -- the script ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is started: a command with its environment, and the batch that it runs."""

    argv: list[str]
    env: dict[str, str]
    batch: Batch
    job_id: str
    log: Path
    nodes: tuple[str, ...]


def prepare(project: Project, site: Site, run: PlannedRun, held: Allocation) -> Prepared:
    """Write specs and script of `run` for the first nodes of the allocation."""
    (batch,) = make_batches(project, site, [Item(run, 1)])
    nodes = held.nodes[: run.nodes]
    # beside the step that the head is in, and any other that the user has running
    step = ("--overlap", f"--nodelist={compress(nodes)}")
    write_specs(batch, site, project.site_paths(site), project, provenance(project.root), srun_args=step)
    threads = site.node_of(str(run.partition)).threads_per_core
    cpus = cpus_of(held, nodes, threads) or batch.cores
    script = batch.submit_dir / SCRIPT
    script.write_text(here_script(batch, site, held, nodes, cpus), encoding="utf-8")
    gpus = min(node_gpus(site, run), held.gpus.get(nodes[0], 0))
    argv = [
        "srun", f"--jobid={held.job_id}", f"--job-name={batch.tag}", "--nodes=1", "--ntasks=1",
        f"--nodelist={nodes[0]}", "--overlap", f"--cpus-per-task={cpus}", *([f"--gres=gpu:{gpus}"] if gpus else []),
        "--mem=0", "--mpi=none", "--cpu-bind=none", "--export=ALL", "--input=none", "--quiet", "--kill-on-bad-exit=0",
        "bash", str(script),
    ]  # fmt: skip
    log = batch.submit_dir / f"{held.job_id}_0_0_log.out"
    return Prepared(argv, clean_env(site, os.environ), batch, held.job_id, log, nodes)


def clean_env(site: Site, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what belongs to a job or a step, or would be read as an option of one."""
    conf = commands.slurm_conf(site.name)
    kept = {name: value for name, value in environ.items() if not _scoped(name)}
    return kept | ({"SLURM_CONF": conf} if conf else {})


def _scoped(name: str) -> bool:
    inputs = name in JOB_SCOPED or name in GPUS_OF_STEP or STEP_INPUTS.fullmatch(name)
    return bool(inputs or re.fullmatch(r"SRUN_.*|SBATCH_.*|SLURM_STEP_.*|PMI_.*|PMIX_.*|PMI2_.*", name))


def here_script(batch: Batch, site: Site, held: Allocation, nodes: tuple[str, ...], cpus: int) -> str:
    """The batch script, in the environment that sbatch would have given it."""
    run = batch.first
    many = f"(x{len(nodes)})" if len(nodes) > 1 else ""
    said: dict[str, object | None] = {
        "ENVIRONMENT": "BATCH",
        "SLURM_JOB_ID": held.job_id,
        "SLURM_JOBID": held.job_id,
        "SLURM_JOB_NAME": batch.tag,
        "SLURM_JOB_NODELIST": compress(nodes),
        "SLURM_NODELIST": compress(nodes),
        "SLURM_JOB_NUM_NODES": len(nodes),
        "SLURM_NNODES": len(nodes),
        "SLURM_JOB_CPUS_PER_NODE": f"{cpus}{many}",
        "SLURM_JOB_PARTITION": held.partition,
        "SLURM_JOB_ACCOUNT": held.account,
        "SLURM_JOB_QOS": held.qos,
        "SLURM_JOB_RESERVATION": held.reservation,
        "SLURM_JOB_USER": held.user,
        "SLURM_JOB_UID": held.uid,
        "SLURM_JOB_GID": held.gid,
        "SLURM_CLUSTER_NAME": held.cluster,
        "SLURM_SUBMIT_DIR": Path.cwd(),
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_NODE_ALIASES": "(null)",
    }
    unset = sorted(JOB_SCOPED - OF_THE_NODE - {"SLURM_STEP_GPUS"})
    lines = [
        "#!/bin/bash",
        f"# campaign try --here: run {run.run_id} inside allocation {held.job_id}, as sbatch would start it",
        *(f"unset {' '.join(unset[at : at + 6])}" for at in range(0, len(unset), 6)),
        '[ -z "${SLURM_STEP_GPUS-}" ] || export SLURM_JOB_GPUS="$SLURM_STEP_GPUS"',
        "unset SLURM_STEP_GPUS",
        'export HOSTNAME="$SLURMD_NODENAME"',  # as in a batch step
        *(f"export {name}={shlex.quote(str(value))}" for name, value in said.items() if value is not None),
    ]
    return "\n".join(lines) + "\n" + script_text(batch, site).partition("\n")[2]


# -- running it ------------------------------------------------------------------------------------------------------


def run_here(prepared: Prepared, note: Callable[[str], None]) -> int:
    """Run it to its end; srun's exit code, which means nothing beside the record.

    Ctrl-C ends the run, as it would end any command in an allocation: its ranks are told, its record is written. The
    KeyboardInterrupt is raised again then.
    """
    where = compress(prepared.nodes)
    note(f"running on {where} of allocation {prepared.job_id}; log: {prepared.log}")
    with prepared.log.open("ab") as log:
        try:
            process = subprocess.Popen(
                prepared.argv, env=prepared.env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise BadInput(Problem("srun is not installed here", key="--here",
                                   hint="run this in the allocation's own shell")) from None  # fmt: skip
        try:
            return process.wait()
        except KeyboardInterrupt:
            note("ending the try")
            _interrupt(prepared, process)
            raise


def _interrupt(prepared: Prepared, process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to the head, which ends its ranks and writes the record. srun would end it together with its step."""
    site, job_id = prepared.batch.site, prepared.job_id
    steps = commands.run(site, ["squeue", "--steps", f"--jobs={job_id}", "--noheader", "--format=%i %j"])
    mine = [line.split()[0] for line in steps.stdout.splitlines() if line.split()[1:] == [prepared.batch.tag]]
    if mine:
        # its exit code says nothing: 22.05 signals the step and complains all the same
        commands.run(site, ["scancel", "--signal=INT", mine[0]])
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    if process.poll() is None:
        process.terminate()
        process.wait(STOP_S)
