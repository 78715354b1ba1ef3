"""The probe's job: its folder, its script, sending it, and reading what it left behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign.errors import BadInput, CampaignError, NotNow, Problem
from campaign.job.launch import STEP_INPUTS
from campaign.plan.shape import refusals
from campaign.site import Site
from campaign.slurm import commands
from campaign.slurm.nodelist import expand
from campaign.slurm.queries import JobReport, classify_refusal
from campaign.slurm.states import FINAL, run_state
from campaign.vendors import VENDORS

MINUTES = 5
WARNING_LEAD_S = 270
"""Before the end of the walltime: Slurm sends the warning signal within the job's first minute or so."""
WARNING_BY_S = 110.0
"""Seconds after the start at which the probe stops waiting for it."""
END_S = 90.0
"""How long the probe watches its own end; Slurm's KillWait is 30 s by default."""
SETTLE_S = 5.0
INTERNET = ("pypi.org", 443)
PROGRAMS = ("batchprobe.py", "nodeprobe.py", "pairprobe.py")
BROADCAST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """What a probe asks for."""

    nodes: int
    partition: str
    account: str | None
    qos: str | None
    run_root: Path
    node_local: Path
    filesystems: Mapping[str, str]
    """Paths by name, as far as they are known."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A probe that was sent and not yet read."""

    job_id: str
    folder: str
    submitted: str
    partition: str
    nodes: int


def choose_partition(site: Site, nodes: int, named: str | None) -> str:
    """The partition by size, or the one that was named. Raises `BadInput`."""
    if named is not None:
        if named not in site.partitions:
            raise BadInput(Problem(f"{site.name} has no partition `{named}`", key="--partition", value=named,
                                   allowed=", ".join(site.partitions)))  # fmt: skip
        return named
    for name in site.partition_by_size:
        if not refusals(site.partitions[name], nodes, MINUTES * 60):
            return name
    return site.default_partition


def choose_qos(site: Site, partition: str, nodes: int) -> str | None:
    """The site's QOS, else the first of the partition's `qos_by_size` that admits the probe."""
    limits = site.partitions[partition]
    fit = (name for name in limits.qos_by_size if not refusals(limits.qos[name], nodes, MINUTES * 60))
    return site.qos or next(fit, None)


def make_folder(site: Site, request: Request) -> Path:
    """A new folder below the run root with the probe's programs and specification. Raises `BadInput`."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = request.run_root / "probe" / f"{site.name}-{now}-{secrets.token_hex(2)}"
    try:
        folder.mkdir(parents=True)
        here = Path(__file__).parent
        for name in PROGRAMS:
            shutil.copy(here / name, folder / name)
        (folder / "broadcast.bin").write_bytes(os.urandom(BROADCAST_BYTES))
    except OSError as error:
        raise BadInput(Problem(f"the probe's folder can't be made: {error.strerror}", str(folder),
                               key="paths.run_root", hint="set paths.run_root in campaign.yaml")) from None  # fmt: skip
    specification = json.dumps(_specification(site, request, folder), indent=1)
    (folder / "probe.json").write_text(specification + "\n", encoding="utf-8")
    return folder


def _specification(site: Site, request: Request, folder: Path) -> dict[str, Any]:
    """What the programs on the nodes read."""
    node, gpu = site.node_of(request.partition), site.gpu_of(request.partition)
    cores = node.cores or 1
    return {
        "schema": 1,
        "site": site.name,
        "folder": str(folder),
        "token": secrets.token_hex(8),
        "nodes": request.nodes,
        "ranks_per_node": max(1, node.gpus or 1),
        "cpus_per_node": site.slurm_cpus(request.partition, cores),
        "python": _python(site),
        "srun_args": list(site.scheduler.srun_args),
        "step_inputs": STEP_INPUTS.pattern,
        "node_local": str(request.node_local),
        "filesystems": dict(request.filesystems),
        "suffix": site.network.master_addr_suffix,
        "gpu_devices": list(VENDORS[gpu.vendor].devices) if gpu else [],
        "container": {
            "runtime": site.container.runtime,
            "image": site.container.image,
            "args": site.container_args(request.partition),
        },
        "internet": None if site.local else list(INTERNET),
        "warning_by_s": WARNING_BY_S,
        "end_s": END_S,
    }


def _python(site: Site) -> str:
    return site.software.python or sys.executable


def script(site: Site, request: Request, folder: Path) -> str:
    """The batch script: the same rules as for every other job (account, no requeue, warning to the batch process)."""
    from campaign.submit.executors import cpus_per_node, setup_lines

    node = site.node_of(request.partition)
    options: dict[str, Any] = {
        "job-name": f"probe-{folder.name}",
        "account": request.account,
        "partition": request.partition,
        "qos": request.qos,
        "nodes": request.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": cpus_per_node(site, node.cores or 1, request.partition),
        "time": MINUTES,
        "signal": f"B:USR2@{WARNING_LEAD_S}",
        "no-requeue": True,
        "open-mode": "append",
        "output": folder / "job.log",
        "chdir": folder,
        "reservation": site.reservation,
        "constraint": site.constraint,
        "exclude": site.exclude,
        "nodelist": site.nodelist,
        "switches": site.switches,
        "wckey": site.scheduler.wckey,
    }
    if node.gpus and site.scheduler.gpu_request == "gres":
        options["gres"] = f"gpu:{node.gpus}"
    elif node.gpus and site.scheduler.gpu_request == "gpus-per-node":
        options["gpus-per-node"] = node.gpus
    options |= {key.replace("_", "-"): value for key, value in site.scheduler.sbatch_args.items()}
    lines = [f"#SBATCH --{key}" + ("" if value is True else f"={shlex.quote(str(value))}")
             for key, value in options.items() if value is not None]  # fmt: skip
    command = shlex.join([_python(site), "-EsB", str(folder / "batchprobe.py"), str(folder)])
    return "\n".join(["#!/bin/bash", *lines, *setup_lines(site), f"exec {command}"]) + "\n"


def submit(site: Site, request: Request) -> Pending:
    """Make the folder and queue the job. Raises `BadInput`, `CampaignError` (refused) or `NotNow` (no answer)."""
    folder = make_folder(site, request)
    path = folder / "job.sh"
    path.write_text(script(site, request, folder), encoding="utf-8")
    answer = commands.sbatch(site.name, str(path))
    if isinstance(answer, str):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Pending(answer, str(folder), now, request.partition, request.nodes)
    if not answer.timed_out and classify_refusal(answer.stderr) == "refused":
        shutil.rmtree(folder, ignore_errors=True)
        hint = f"mend {site.name}'s site file, or give --partition, --nodes or --account"
        raise CampaignError(Problem(f"sbatch refused the probe: {answer.stderr}", hint=hint))
    message = f"no clear answer from sbatch: {answer.stderr or 'no message'}"
    raise NotNow(Problem(message, str(path), hint=f"squeue --me --name=probe-{folder.name}   says whether it is there"))


def run_here(site: Site, request: Request) -> Path:
    """The checks of one node, on this machine: what a site without a scheduler has as its compute node."""
    folder = make_folder(site, request)
    with (folder / "node-0.jsonl").open("w") as output, (folder / "job.log").open("w") as log:
        command = [_python(site), "-EsB", str(folder / "nodeprobe.py"), str(folder), "node", "localhost", "0", ""]
        try:
            subprocess.run(command, stdout=output, stderr=log, stdin=subprocess.DEVNULL, timeout=MINUTES * 60,
                           env=commands.environment(site.name), check=False)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CampaignError(Problem(f"the probe didn't run here: {error}", str(folder))) from None
    return folder


# -- a probe that was sent ---------------------------------------------------------------------------------------------


def pending_file(probes: Path, site: str) -> Path:
    """Where the probe that is on its way is noted."""
    return probes / f"{site}.pending.json"


def read_pending(probes: Path, site: str) -> Pending | None:
    """The probe that is on its way, if there is one; a note that can't be read is none."""
    try:
        return Pending(**json.loads(pending_file(probes, site).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_pending(probes: Path, site: str, pending: Pending) -> None:
    """Note a probe, so that the same command finds it again."""
    probes.mkdir(parents=True, exist_ok=True)
    path = pending_file(probes, site)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(pending)) + "\n", encoding="utf-8")
    new.replace(path)


def queued(site: str, pending: Pending) -> JobReport | commands.Answer | None:
    """The job's row in the queue; None: it has left it; an `Answer`: nobody knows."""
    reports = commands.squeue(site, [commands.user_name()])
    if isinstance(reports, commands.Answer):
        return reports
    # the controller remembers a job for a while after its end
    alive = (report for report in reports if run_state(report.slurm_state)[0] not in FINAL)
    return next((report for report in alive if report.job_id == pending.job_id), None)


def read_facts(folder: Path) -> dict[str, Any]:
    """What the job left in its folder.

    batch (None: it never started); names, nodes, ranks and errors (what a task complained about) by task; ends by
    process.
    """
    batch = None
    with contextlib.suppress(OSError, ValueError):
        batch = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {"batch": batch}
    facts["nodes"] = _by_task(folder, "node")
    facts["names"] = _names(batch)
    if facts["nodes"]:
        # a node that doesn't see the run root leaves no file there
        facts["nodes"] = {task: facts["nodes"].get(task, {}) for task in sorted({*facts["nodes"], *facts["names"]})}
    facts["ranks"] = _by_task(folder, "rank")
    facts["errors"] = {path.stem.removeprefix("node-"): tail for path in sorted(folder.glob("node-*.err"))
                       if (tail := _tail(path, 3))}  # fmt: skip
    facts["ends"] = {path.stem.removeprefix("linger-"): _end(path) for path in sorted(folder.glob("linger-*.jsonl"))
                     if not path.stem.startswith("linger-step")}  # fmt: skip
    digest = None
    with contextlib.suppress(OSError):
        digest = hashlib.sha256((folder / "broadcast.bin").read_bytes()).hexdigest()
    facts["broadcast_sha256"] = digest
    return facts


def _names(batch: Mapping[str, Any] | None) -> dict[str, str]:
    """The nodes' names by task: one task a node, in the order of the job's node list."""
    text = ((batch or {}).get("variables") or {}).get("SLURM_JOB_NODELIST") or ""
    try:
        return {str(task): name for task, name in enumerate(expand(text))}
    except ValueError:
        return {}


def settled_facts(folder: Path, patience_s: float = SETTLE_S) -> dict[str, Any]:
    """The facts of a job that has ended, once they are complete; after `patience_s` those that are there.

    A file system may show this host what a node wrote some seconds later.
    """
    end = time.monotonic() + patience_s
    while not complete(facts := read_facts(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    return facts


def _by_task(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Findings by task number: `{"0": {"shm": {...}}}`; lines that were cut are left out."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{name}-*.jsonl"), key=lambda path: (len(path.name), path.name)):
        task = path.stem.removeprefix(f"{name}-")
        found[task] = {line["check"]: line["value"] for line in _lines(path) if "check" in line}
    return found


def _end(path: Path) -> dict[str, float | None]:
    """When SIGTERM came to a process, and when it was last alive; None: never."""
    times: dict[str, float | None] = {"sigterm": None, "alive": None}
    for line in _lines(path):
        times.update({key: value for key, value in line.items() if key in times})
    return times


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    with contextlib.suppress(OSError):
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict)]


def complete(facts: Mapping[str, Any]) -> bool:
    """True when every node said all it had to say, and the job saw its own end (on Slurm)."""
    batch = facts["batch"]
    if not facts["nodes"]:
        return False
    return all("end" in checks for checks in facts["nodes"].values()) and (batch is None or batch["state"] == "ending")


def log_tail(folder: Path, lines: int = 15) -> str:
    """The last lines of the job's own output, and of what its steps complained about."""
    texts = []
    for path in (folder / "job.log", *sorted(folder.glob("node-*.err"))[:2]):
        texts.append(_tail(path, lines))
    with contextlib.suppress(OSError, ValueError, KeyError):
        steps = json.loads((folder / "result.json").read_text(encoding="utf-8"))["steps"]
        texts.extend(step["said"] for step in steps.values() if step["said"])
    return "\n".join(text for text in texts if text)


def _tail(path: Path, lines: int) -> str:
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
