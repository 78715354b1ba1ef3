"""What a run costs if it uses its whole walltime."""

from __future__ import annotations

from campaign.plan.model import Price
from campaign.site import Node, Site

FILES_PER_RUN = 10
"""At most, on shared storage: 8 of the record (claim, record.json, tables, logs) and 2 of submitit (script, log)."""


def price(
    site: Site, partition: str, *, nodes: int, ranks_per_node: int, cpus_per_rank: int, gpus_per_rank: int, hours: float
) -> Price:
    """GPU-hours, node-hours and the site's own unit, as charged: whole nodes where the site charges whole nodes."""
    node = site.node_of(partition)
    whole = site.billing.whole_nodes or site.partitions[partition].exclusive
    share = 1.0 if whole else _share(node, ranks_per_node, cpus_per_rank, gpus_per_rank)
    node_h = nodes * hours * share
    gpus = node.gpus if whole else gpus_per_rank * ranks_per_node
    gpu_h = None if gpus is None else nodes * hours * gpus
    core_h = None if node.cores is None else node_h * node.cores
    rate = site.billing.per_node_hour
    by_hardware = {"node-h": node_h, "core-h": core_h, "gpu-h": gpu_h, None: None}[site.billing.unit]
    units = by_hardware if rate is None else node_h * rate
    return Price(gpu_h, node_h, units, site.billing.unit, FILES_PER_RUN)


def _share(node: Node, ranks_per_node: int, cpus_per_rank: int, gpus_per_rank: int) -> float:
    """The part of a shared node that is taken: the larger of its cores and its GPUs."""
    cores = ranks_per_node * cpus_per_rank / node.cores if node.cores else 0.0
    gpus = ranks_per_node * gpus_per_rank / node.gpus if node.gpus else 0.0
    return min(1.0, max(cores, gpus)) or 1.0
