"""A run as a plain job script: sbatch, srun, and nothing of campaign on the cluster.

What is asked for and what ranks find in their environment is what `submit` and the head would give them; there is no
head, no record and no retry. Pure: the text depends on the run and its site file alone.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import campaign
from campaign.errors import BadInput, Problem
from campaign.job.network import FIRST_PORT, PORTS
from campaign.slurm.durations import format_duration
from campaign.submit.batch import Item, make_batches, make_spec
from campaign.submit.executors import script_text, setup_lines
from campaign.vendors import VENDORS
from campaign.words import count as number

if TYPE_CHECKING:
    from campaign.job.spec import RunSpec
    from campaign.plan.model import PlannedRun
    from campaign.project import Project
    from campaign.site import Site

OURS_ALONE = frozenset({"array", "error", "job-name", "open-mode", "output", "signal", "no-requeue"})
"""Directives of `submit` that make sense with the head only, or have another value here."""
FIRST = ("job-name", "account", "partition", "qos", "reservation", "nodes", "ntasks-per-node", "cpus-per-task")
SAID = {
    "account": "the budget that is charged",
    "cpus-per-task": "cores of a rank",
    "exclusive": "no other job on these nodes",
    "gpus-per-node": "GPUs of a node",
    "gres": "GPUs of a node",
    "job-name": "the study",
    "mem": "of a node",
    "nodes": "",
    "ntasks-per-node": "ranks of a node",
    "output": "name and id of the job",
    "reservation": "whose nodes are used",
    "time": "limit; the job is ended then",
}
SPEC_KEYS = ("run_id", "site", "study", "workload", "params", "data", "nodes", "ranks_per_node", "cpus_per_rank",
             "gpus_per_rank", "local_batch", "global_batch")  # fmt: skip
"""What a workload may ask of `campaign.record.spec()`."""


def standalone_text(project: Project, site: Site, run: PlannedRun) -> str:
    """The script. Raises BadInput for a site without Slurm."""
    if site.local:
        raise BadInput(Problem(f"run {run.run_id} is one of site {site.name}, which has no Slurm", key="RUN",
                               hint="campaign plan SITE  with a site that has, then its run id"))  # fmt: skip
    (batch,) = make_batches(project, site, [Item(run, 1)])
    spec = make_spec(batch, 0, batch.elements[0][0], site, project.site_paths(site), project.root, "", {})
    parts = [
        _head(run, site),
        _directives(run, site, script_text(batch, site)),
        ["# Once per job, on its first node", *setup_lines(site)],
        [f"cd {shlex.quote(spec.project_dir)} || exit 3"],
        list(_meeting(spec)),
        list(_environment(spec)),
        list(_program(spec, site)),
        list(_ranks(spec, site, run)),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _head(run: PlannedRun, site: Site) -> list[str]:
    what = f"{number(run.nodes, 'node')} x {number(run.ranks_per_node, 'rank')}"
    return [
        "#!/bin/bash",
        f"# {run.study} on {site.title or site.name}: {what}. Send it with: sbatch THIS_FILE",
        f"# Written by campaign {campaign.__version__} for run {run.run_id}; it needs no campaign on the cluster.",
    ]


def _directives(run: PlannedRun, site: Site, sent: str) -> list[str]:
    """The #SBATCH lines: those that `submit` sends, with one task a rank."""
    asked: dict[str, str | None] = {"job-name": run.study}
    for line in sent.splitlines():
        match = re.fullmatch(r"#SBATCH --([a-z0-9-]+)(?:=(.*))?", line)
        if match and match[1] not in OURS_ALONE:
            asked[match[1]] = match[2]
    asked["ntasks-per-node"] = str(run.ranks_per_node)
    asked["cpus-per-task"] = str(site.slurm_cpus(str(run.partition), run.cpus_per_rank))
    asked["time"] = format_duration(run.walltime_s)
    asked["output"] = "%x-%j.out"
    lines = []
    for name in sorted(asked, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        value = asked[name]
        text = f"#SBATCH --{name}" + ("" if value is None else f"={value}")
        said = SAID.get(name, "")
        if name == "cpus-per-task" and site.cpu_unit == "thread":
            said = "hardware threads of a rank: this Slurm counts threads"
        lines.append(f"{text:<40} # {said}" if said else text)
    return lines


def _meeting(spec: RunSpec) -> Iterator[str]:
    """MASTER_ADDR and MASTER_PORT, as the head chooses them."""
    yield "# Where ranks meet: the first node, at a port of this job's own"
    yield 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    suffix = spec.network.get("master_addr_suffix")
    if suffix:
        yield f"""MASTER_ADDR=${{first%%.*}}{shlex.quote(suffix)}${{first#"${{first%%.*}}"}}  # its fast interface"""
        yield 'getent ahostsv4 "$MASTER_ADDR" > /dev/null || MASTER_ADDR=$first'
    else:
        yield "MASTER_ADDR=$first"
    if spec.network.get("resolve_ip"):
        yield """address=$(getent ahostsv4 "$MASTER_ADDR" | awk 'NR == 1 { print $1 }')"""
        yield "MASTER_ADDR=${address:-$MASTER_ADDR}"
    yield f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))"
    yield "export MASTER_ADDR MASTER_PORT"


def _environment(spec: RunSpec) -> Iterator[str]:
    """What the site sets for ranks; a value of the user's own wins."""
    if spec.env:
        yield "# The site's settings; your own values win"
    for name, value in spec.env.items():
        yield f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}'
    if "OMP_NUM_THREADS" not in spec.env:
        yield f"export OMP_NUM_THREADS={max(1, spec.cpus_per_rank)}"
    yield "export PYTHONUNBUFFERED=1"


def _program(spec: RunSpec, site: Site) -> Iterator[str]:
    """The interpreter, and the parameters of a workload of ours."""
    if _own_python(spec, site):
        yield "# The interpreter of the ranks: another one by PYTHON=/path/to/python sbatch THIS_FILE"
        yield f'[ -n "${{PYTHON-}}" ] || PYTHON={shlex.quote(spec.python)}'
    if spec.workload is None:
        return
    package = spec.workload.partition(":")[0].partition(".")[0]
    yield f"# {spec.workload} comes from the Python package `{package}`, and reads its parameters with campaign.record:"
    yield (
        "# pip install 'campaign[train]' brings both into that interpreter"
        if package == "training"
        else (
            f"# that interpreter must find {package} (in this folder, or installed) and campaign (pip install campaign)"
        )
    )
    told = {"schema": 1} | {name: getattr(spec, name) for name in SPEC_KEYS}
    yield "export CAMPAIGN_SPEC=$PWD/campaign-spec-$SLURM_JOB_ID.json"
    yield """trap 'rm -f "$CAMPAIGN_SPEC"' EXIT"""
    # strings in JSON have no line breaks, so no line of it can end the text early
    yield "cat > \"$CAMPAIGN_SPEC\" <<'JSON'"
    yield json.dumps(told, ensure_ascii=False, indent=1)
    yield "JSON"


def _own_python(spec: RunSpec, site: Site) -> bool:
    """True when ranks start an interpreter that the batch system's nodes have, and not one in an image."""
    return site.container.image is None and (spec.command is None or spec.command[0] in ("python", "python3"))


def _ranks(spec: RunSpec, site: Site, run: PlannedRun) -> Iterator[str]:
    """One srun for all ranks. The wrapper passes its words on as they are: no shell reads them again."""
    yield "# Each task becomes a rank: what torch.distributed reads, from what Slurm says of the task"
    yield "rank='"
    yield "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID NODE_RANK=$SLURM_NODEID"
    yield f"export WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE={spec.ranks_per_node}"
    vendor = VENDORS.get(spec.gpu_vendor or "")
    if spec.visible_gpus == "all" and vendor is not None:
        for name, value in vendor.visible(spec.gpus_per_node).items():
            yield f"export {name}={value}  # every rank sees all GPUs of its node"
    yield 'exec "$@"'
    yield "'"
    binding = _binding(spec)
    step = [
        "srun", f"--nodes={spec.nodes}", f"--ntasks={spec.world_size}", f"--ntasks-per-node={spec.ranks_per_node}",
        f"--cpus-per-task={site.slurm_cpus(str(run.partition), spec.cpus_per_rank)}",  # srun doesn't take sbatch's
        *(argument for argument in spec.srun_args if not (binding and argument.startswith("--cpu-bind"))), *binding,
    ]  # fmt: skip
    if not any(argument.startswith("--kill-on-bad-exit") for argument in step):
        step.append("--kill-on-bad-exit=1")
    yield " ".join([shlex.join(step), "\\"])
    yield '  bash -c "$rank" rank ' + " ".join(_words(spec, site, run))


def _binding(spec: RunSpec) -> Sequence[str]:
    """Masks of the CPUs next to each rank's GPU, where the site file says with which CPU each begins."""
    first = (spec.cpu_bind or [])[: spec.ranks_per_node]
    if not first or len(first) < spec.ranks_per_node:
        return ()
    gaps = [after - before for before, after in itertools.pairwise(sorted(first))]
    width = max(1, min([spec.cpus_per_rank, *gaps]))
    masks = ",".join(hex(((1 << width) - 1) << cpu) for cpu in first)
    return (f"--cpu-bind=mask_cpu:{masks}",)


def _words(spec: RunSpec, site: Site, run: PlannedRun) -> Iterator[str]:
    """argv of a rank, each word quoted."""
    container = site.container
    if container.image is not None:
        runtime = container.runtime or "apptainer"
        binds = [f"--bind={place}" for place in container.binds]
        options = (*site.container_args(str(run.partition)), *binds)
        yield from map(shlex.quote, (runtime, "exec", *options, container.image))
    python = '"$PYTHON"' if _own_python(spec, site) else "python"
    if spec.command is not None:
        first, *rest = spec.command
        yield python if first in ("python", "python3") and container.image is None else shlex.quote(first)
        yield from map(shlex.quote, rest)
        return
    module, _, function = str(spec.workload).partition(":")
    yield python
    if function:
        yield "-c " + shlex.quote(f"import sys; from {module} import {function}; sys.exit({function}())")
    else:
        yield f"-m {module}"
