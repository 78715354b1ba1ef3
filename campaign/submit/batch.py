"""What one sbatch sends: a tag, the runs under it, their specs, and the submit folder they lie in."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, Problem
from campaign.job.spec import SPECS_FILE, RunSpec
from campaign.plan.model import START_S, PlannedRun
from campaign.submit.order import Element, elements

if TYPE_CHECKING:
    from campaign.project import Project, SitePaths
    from campaign.site import Site


@dataclass(frozen=True, slots=True)
class Item:
    """One attempt at one run."""

    run: PlannedRun
    attempt: int
    tries: int = 0
    """Earlier intents of this very attempt that came to nothing; part of the tag, so a tag is never used twice."""
    avoid: tuple[str, ...] = ()
    """Suspect nodes of earlier attempts, kept out of this one; `run.exclude` names them too."""


@dataclass(frozen=True)
class Batch:
    """The runs that one sbatch (or one local queue) takes: `elements[i]` are the runs of array index i, in order.

    What is looked up for every spec of a batch is worked out once: an array may have 10,000 elements.
    """

    site: str
    tag: str
    submit_dir: Path
    elements: tuple[tuple[Item, ...], ...]

    def placed(self) -> Iterator[tuple[int, Item]]:
        """Every item with its array index."""
        for index, items in enumerate(self.elements):
            for item in items:
                yield index, item

    @property
    def first(self) -> PlannedRun:
        """The run whose placement (partition, account and so on) all share."""
        return self.elements[0][0].run

    @functools.cached_property
    def nodes(self) -> int:
        """Nodes of one array element: those of its largest run."""
        return max(item.run.nodes for _, item in self.placed())

    @functools.cached_property
    def cores(self) -> int:
        """Cores per node: what the run that wants most asks for."""
        return max(item.run.cpus_per_rank * item.run.ranks_per_node for _, item in self.placed())

    @functools.cached_property
    def memory_bytes(self) -> int | None:
        """Per node; None: nothing is asked."""
        return max((item.run.memory_bytes for _, item in self.placed() if item.run.memory_bytes), default=None)

    @functools.cached_property
    def walltime_s(self) -> int:
        """Walltime of one array element: packed runs come one after another."""
        return max(
            sum(item.run.walltime_s for item in items) + (START_S if len(items) > 1 else 0) for items in self.elements
        )

    @property
    def signal_lead_s(self) -> int:
        """Seconds before the walltime at which the head is warned."""
        return max(10, min(90, self.walltime_s // 4))


def make_batches(project: Project, site: Site, items: Iterable[Item]) -> list[Batch]:
    """Items as batches. Slurm: the most useful first, one array per resource shape, split at MaxArraySize. Local: one
    queue, in plan order."""
    if site.local:
        groups: list[list[Element]] = [sorted(elements(items), key=lambda element: element[0].run.order)]
    else:
        size = site.elements_per_array
        shapes: dict[tuple[Any, ...], list[Element]] = {}
        for element in elements(items):
            run = element[0].run
            # a ladder is an array of its own
            shapes.setdefault(("serial", *run.placement()) if run.pack == "serial" else run.shape(), []).append(element)
        groups = [group[at : at + size] for group in shapes.values() for at in range(0, len(group), size)]
    return [_batch(project, site, group) for group in groups if group]


def _batch(project: Project, site: Site, group: Sequence[Element]) -> Batch:
    paths = project.site_paths(site)
    root = str(paths.run_root)
    if "%" in root:
        raise BadInput(
            Problem("Slurm expands % in output paths", key="paths.run_root", value=root, allowed="a path without %")
        )
    # two projects may share a run root: the tag tells their jobs apart, the claim lets one of them run
    items = [[item.run.run_id, item.attempt, item.tries] for element in group for item in element]
    identity = json.dumps([str(project.root), root, site.name, items])
    tag = "c" + hashlib.sha256(identity.encode()).hexdigest()[:12]
    return Batch(site.name, tag, paths.run_root / "submit" / tag, tuple(group))


def write_specs(
    batch: Batch,
    site: Site,
    paths: SitePaths,
    project: Project,
    origin: Mapping[str, Any],
    *,
    srun_args: Sequence[str] = (),
) -> None:
    """Write `specs.jsonl` into the submit folder: whole, on disk, before anything is queued.

    `srun_args`: for the step of the agents, beside the site's own.
    """
    batch.submit_dir.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    shared = project.config.group_readable
    specs = [
        make_spec(batch, index, item, site, paths, project.root, token, origin, group_readable=shared)
        for index, item in batch.placed()
    ]
    lines = [dataclasses.replace(spec, srun_args=[*spec.srun_args, *srun_args]).to_line() for spec in specs]
    target = batch.submit_dir / SPECS_FILE
    part = target.with_suffix(".part")
    mode = 0o640 if shared else 0o600  # the token in it lets an agent speak to the head
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(target)


def tidy(submit_dir: Path, job_id: str | None = None) -> None:
    """Take away what a killed `submit` left half-written; to be called before the ledger settles its intent, so that
    whoever is killed in between tidies again.

    `job_id`: of the job that was queued after all, which keeps its script under the name that submitit gives it.
    """
    for script in submit_dir.glob(".submission_file_*.sh"):
        if job_id is not None and not script.is_symlink():
            script.replace(submit_dir / f"{job_id}_submission.sh")
        else:
            script.unlink(missing_ok=True)
    (submit_dir / SPECS_FILE).with_suffix(".part").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or not empty: specs stay for a job that turns up late
        submit_dir.rmdir()


def make_spec(
    batch: Batch,
    index: int,
    item: Item,
    site: Site,
    paths: SitePaths,
    cwd: Path,
    token: str,
    origin: Mapping[str, Any],
    *,
    group_readable: bool = False,
) -> RunSpec:
    """What the head is told of one attempt."""
    run = item.run
    node = _node(site, run)
    gpu = site.gpus.get(node.gpu) if node is not None and node.gpu else None
    data = dict(run.data) if run.data else None
    return RunSpec(
        schema=1,
        array_index=index,
        run_id=run.run_id,
        attempt=item.attempt,
        token=token,
        tag=batch.tag,
        site=run.site,
        study=run.study,
        workload=run.workload,
        command=None if run.command is None else list(run.command),
        metrics=[dict(metric) for metric in run.metrics],
        params=run.params,
        data=data,
        nodes=run.nodes,
        allocation_nodes=batch.nodes,
        gate=run.gate and run.pack == "serial",
        ranks_per_node=run.ranks_per_node,
        cpus_per_rank=run.cpus_per_rank,
        gpus_per_rank=run.gpus_per_rank,
        local_batch=run.local_batch,
        global_batch=run.global_batch,
        walltime_s=float(run.walltime_s),
        signal_lead_s=float(batch.signal_lead_s),
        scheduler=site.scheduler.kind,
        run_root=str(paths.run_root),
        project_dir=str(cwd),
        node_local=str(paths.node_local),
        staging=run.staging,
        redirect=run.redirect,
        network=site.network.model_dump(),
        env=dict(site.env),
        gpu_vendor=gpu.vendor if gpu is not None else None,
        visible_gpus=site.visible_gpus,
        gpus_per_node=node_gpus(site, run),
        srun_args=list(site.scheduler.srun_args),
        cpu_bind=node.cpu_bind if node is not None else None,
        record=run.record,
        group_readable=group_readable,
        python=site.software.python or sys.executable,
        provenance={
            **origin,
            "image_digest": run.image_digest,
            "data_digest": (data or {}).get("digest"),
        },
    )


def _node(site: Site, run: PlannedRun) -> Any:
    partition = site.partitions.get(run.partition) if run.partition else None
    if partition is not None:
        return site.nodes.get(partition.node)
    return next(iter(site.nodes.values()), None)


def node_gpus(site: Site, run: PlannedRun) -> int:
    """GPUs to ask for per node: all of an exclusive node (they are charged anyway), else what the ranks use."""
    used = run.gpus_per_rank * run.ranks_per_node
    partition = site.partitions.get(run.partition) if run.partition else None
    node = _node(site, run)
    if used and partition is not None and partition.exclusive and node is not None and node.gpus:
        return int(node.gpus)
    return used


def head_command(batch: Batch, site: Site) -> list[str]:
    """argv of the head: its interpreter never takes modules from the working directory (-P)."""
    return [site.software.python or sys.executable, "-P", "-m", "campaign.job.head", str(batch.submit_dir)]
