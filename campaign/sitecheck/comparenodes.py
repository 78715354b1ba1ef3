"""The node types of a site file against the nodes that stand in its partitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from campaign.site import Node, Partition, Site
from campaign.sitecheck.findings import Findings
from campaign.sitecheck.picture import Picture
from campaign.slurm import cluster
from campaign.words import count as number

NODE = "scontrol show node"
MORE, LESS = 1.10, 0.80
"""RealMemory as a share of the installed memory: sites keep some of it, and 512 GB may have meant GiB."""

Hardware = tuple[str | None, int | None, int | None, int | None, int, str | None]
"""arch, cores, threads per core, memory in bytes, GPUs, type of GPU."""


def hardware(node: cluster.Node) -> Hardware:
    """What makes nodes one type."""
    return (node.arch, node.cores, node.threads_per_core, node.memory_bytes, node.gpus, node.gpu_type)


def counts_threads(node: cluster.Node) -> bool:
    """True when this Slurm's CPUs are hardware threads. Cores that the site reserves are in CPUTot, not in `cores`."""
    threads, cores, cpus = node.threads_per_core or 1, node.cores or 0, node.cpus or 0
    return threads > 1 and cpus >= cores * threads > 0


def compare_nodes(findings: Findings, picture: Picture, name: str, said: Partition, found: cluster.Partition) -> None:
    """The node type of a partition against its nodes; of several kinds of nodes, against the one that fits best."""
    site, where = findings.site, ("nodes", said.node)
    nodes = picture.nodes_of(found)
    if nodes is None:
        reason = picture.failed.get("nodes", "no answer")
        findings.unknown(where, f"the nodes of {name}: not known ({reason})", source=NODE)
        return
    if not nodes:
        findings.unknown(where, f"partition {name} has no nodes", source=NODE)
        return
    kinds = Counter(hardware(node) for node in nodes)
    examples = {hardware(node): node for node in nodes}
    trials = []
    for kind, many in kinds.most_common():
        trial = Findings(site)
        _compare_node(trial, said.node, examples[kind])
        wrong = sum(finding.verdict == "wrong" for finding in trial.all)
        trials.append((wrong, -many, trial))
    best = min(trials, key=lambda trial: trial[:2])
    for finding in best[2].all:
        if finding not in findings.all:
            findings.all.append(finding)
    if len(kinds) > 1:
        shown = ", ".join(f"{number(many, 'node')} of {_shown(kind)}" for kind, many in kinds.most_common(5))
        message = f"partition {name} has {len(kinds)} kinds of nodes: {shown}"
        findings.add("note", ("partitions", name, "node"), message, source=NODE)


def _shown(kind: Hardware) -> str:
    _, cores, _, memory, gpus, gpu_type = kind
    parts = [f"{cores} cores", f"{(memory or 0) / 1e9:.0f} GB"]
    return ", ".join([*parts, f"{gpus} {gpu_type or 'GPUs'}"] if gpus else parts)


def _compare_node(findings: Findings, name: str, found: cluster.Node) -> None:
    site = findings.site
    said = site.nodes[name]
    where = ("nodes", name)
    findings.compare(("arch",), site.arch, found.arch, "the architecture of the nodes", source=NODE)
    findings.compare((*where, "cores"), said.cores, found.cores, f"the number of cores of {name}", source=NODE)
    findings.compare((*where, "threads_per_core"), said.threads_per_core, found.threads_per_core,
                     f"threads per core of {name}", source=NODE)  # fmt: skip
    _cpu_unit(findings, site, name, found)
    _gpus(findings, name, said, found)
    _memory(findings, name, said, found)
    disk = found.disk_bytes
    if disk is not None and said.disk_bytes is None:
        message = f"TmpDisk of {name} is {disk / 1e9:.0f} GB"
        findings.add("missing", (*where, "disk_bytes"), message, source=NODE, found=disk, write=f"disk_bytes: {disk}")


def _cpu_unit(findings: Findings, site: Site, name: str, found: cluster.Node) -> None:
    """Slurm's CPUs are threads where nodes have several per core, unless jobs say that they want cores."""
    threads, cores, cpus = found.threads_per_core, found.cores, found.cpus
    if not threads or not cores or not cpus or threads == 1:
        return
    args: Mapping[str, Any] = {key.replace("_", "-"): value for key, value in site.scheduler.sbatch_args.items()}
    cores_asked = args.get("hint") == "nomultithread" or str(args.get("threads-per-core")) == "1"
    unit = "thread" if counts_threads(found) and not cores_asked else "core"
    why = "jobs ask for one thread per core" if cores_asked else f"{name} has {cpus} CPUs on {cores} cores"
    if unit == site.cpu_unit:
        findings.add("right", ("cpu_unit",), f"Slurm counts {unit}s: {why}", source=NODE, found=unit)
    else:
        findings.add("wrong", ("cpu_unit",), f"Slurm counts {unit}s: {why}", source=NODE, found=unit,
                     write=f"cpu_unit: {unit}")  # fmt: skip


def _gpus(findings: Findings, name: str, said: Node, found: cluster.Node) -> None:
    where = ("nodes", name)
    if found.gpus == 0 and said.gpus and findings.site.scheduler.gpu_request == "none":
        # some sites give whole nodes and keep GPUs out of Slurm's books
        findings.unknown((*where, "gpus"), f"GPUs of {name}: Slurm doesn't count them (no GRES)", source=NODE)
        return
    if said.gpus is None and found.gpus == 0:
        findings.add("right", (*where, "gpus"), f"{name} has no GPUs", source=NODE, found=0)
    else:
        findings.compare((*where, "gpus"), said.gpus, found.gpus, f"the number of GPUs of {name}", source=NODE)
    if found.gpus and said.gpu:
        _gpu_type(findings, (*where, "gpu"), said.gpu, found.gpu_type)


def _gpu_type(findings: Findings, path: tuple[str, ...], said: str, found: str | None) -> None:
    """Sites name types freely (`a100`, `nvidia_a100_80gb`), so words that hold a number decide."""
    mine, theirs = _models(said), _models(found or "")
    if not mine or not theirs:
        findings.unknown(path, f"the type of the GPUs is {found or 'not said'}: can't be compared", source=NODE)
    elif any(a.startswith(b) or b.startswith(a) for a in mine for b in theirs):
        findings.add("right", path, f"the GPUs are {found}", source=NODE, found=found)
    else:
        findings.add("wrong", path, f"the GPUs are {found}, the file says {said}", source=NODE, found=found,
                     write=f"gpu: {found}   # and its line below `gpus:`")  # fmt: skip


def _models(name: str) -> list[str]:
    """Words with letters and digits: `a100-40` gives a100."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return [word for word in words if re.search(r"[a-z]", word) and re.search(r"\d", word)]


def _memory(findings: Findings, name: str, said: Node, found: cluster.Node) -> None:
    where, real = ("nodes", name), found.memory_bytes
    if real is None or real <= 2**20:  # Slurm's default of 1 MB: the site doesn't say it
        findings.unknown((*where, "usable_bytes"), f"RealMemory of {name}: not said", source=NODE)
        return
    shown = f"{real / 1e9:.1f} GB"
    usable = said.usable_bytes
    if usable is None and said.memory_bytes and real > MORE * said.memory_bytes:
        message = f"RealMemory of {name}, {shown}, is more than the host's memory: nobody should ask for all of it"
        findings.add("note", (*where, "usable_bytes"), message, source=NODE, found=real)
    elif usable is None:
        message = f"a job on {name} may ask for {shown} (RealMemory)"
        findings.add("missing", (*where, "usable_bytes"), message, source=NODE, found=real,
                     write=f"usable_bytes: {real}")  # fmt: skip
    elif usable > real:
        message = f"a job on {name} may ask for {shown} (RealMemory), less than the file says"
        findings.add("wrong", (*where, "usable_bytes"), message, source=NODE, found=real,
                     write=f"usable_bytes: {real}")  # fmt: skip
    else:
        message = f"usable_bytes of {name} is within {shown} (RealMemory)"
        findings.add("right", (*where, "usable_bytes"), message, source=NODE, found=real)
    _installed(findings, name, said, real)


def _installed(findings: Findings, name: str, said: Node, real: int) -> None:
    path, shown = ("nodes", name, "memory_bytes"), f"{real / 1e9:.1f} GB"
    installed = said.memory_bytes
    gpu = findings.site.gpus.get(said.gpu or "")
    with_gpus = (installed or 0) + (said.gpus or 0) * ((gpu.memory_bytes if gpu else None) or 0)
    if installed is None:
        message = f"Slurm counts {shown} on {name} (RealMemory)"
        findings.add("missing", path, message, source=NODE, found=real, write=f"memory_bytes: {real}")
    elif LESS * installed <= real <= MORE * installed:
        findings.add("right", path, f"Slurm counts {shown} on {name}", source=NODE, found=real)
    elif LESS * with_gpus <= real <= MORE * with_gpus:
        message = f"Slurm counts {shown} on {name}: that of its GPUs too"
        findings.add("note", path, message, source=NODE, found=real)
    else:
        message = f"Slurm counts {shown} on {name} (RealMemory), the file says {installed / 1e9:.1f} GB"
        findings.add("wrong", path, message, source=NODE, found=real, write=f"memory_bytes: {real}")
