"""One picture of a cluster: what its controller and its accounting say, asked once, kept as text and read by parsers.

A query that failed is None in the picture, with the reason in `failed`: nothing is known, which is never "there is
none".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from campaign.errors import BadInput, NotNow, Problem
from campaign.slurm import commands
from campaign.slurm.cluster import (
    ASSOC_FIELDS,
    QOS_FIELDS,
    Association,
    Node,
    Partition,
    Qos,
    Reservation,
    parse_associations,
    parse_nodes,
    parse_partitions,
    parse_qos,
    parse_reservations,
)
from campaign.slurm.nodelist import expand
from campaign.slurm.queries import ClusterConfig, parse_config

PICTURE_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for a job in a partition: its own limits and those of its QOS, whichever is tighter."""

    max_time_s: float
    """`math.inf`: none, as for `max_nodes`."""
    min_nodes: int
    max_nodes: float
    complete: bool
    """False: the partition has a QOS whose limits aren't known."""
    source: str
    """The commands that said it."""


@dataclass(frozen=True)
class Picture:
    """What a cluster said: `texts` by question (config, partitions, nodes, qos, associations, reservations)."""

    texts: Mapping[str, str]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why a question has no answer, by question."""
    user: str = ""
    taken: str = ""
    """UTC, ISO 8601."""

    @cached_property
    def config(self) -> ClusterConfig:
        """The cluster's configuration; there is no picture without it."""
        return parse_config(self.texts["config"])

    @cached_property
    def partitions(self) -> dict[str, Partition] | None:
        """By name, in the cluster's order."""
        text = self.texts.get("partitions")
        return None if text is None else {found.name: found for found in parse_partitions(text)}

    @cached_property
    def nodes(self) -> dict[str, Node] | None:
        """By name."""
        text = self.texts.get("nodes")
        return None if text is None else {found.name: found for found in parse_nodes(text)}

    @cached_property
    def qos(self) -> dict[str, Qos] | None:
        """By name."""
        text = self.texts.get("qos")
        return None if text is None else {found.name: found for found in parse_qos(text)}

    @cached_property
    def associations(self) -> list[Association] | None:
        """Those of this user on this cluster."""
        text = self.texts.get("associations")
        if text is None:
            return None
        return [found for found in parse_associations(text) if found.cluster == self.config.name]

    @cached_property
    def reservations(self) -> dict[str, Reservation] | None:
        """By name."""
        text = self.texts.get("reservations")
        return None if text is None else {found.name: found for found in parse_reservations(text)}

    def nodes_of(self, partition: Partition) -> list[Node] | None:
        """The nodes of a partition; None when that isn't known."""
        if self.nodes is None:
            return None
        try:
            names = expand(partition.nodes)
        except ValueError:
            return None
        return [self.nodes[name] for name in names if name in self.nodes]

    def limits(self, partition: Partition) -> Limits:
        """The limits of a partition for its jobs."""
        qos = (self.qos or {}).get(partition.qos or "")
        times = [partition.max_time_s, qos.max_time_s if qos else None]
        most = [partition.max_nodes, qos.max_nodes if qos else None]
        fewest = [1, partition.min_nodes, qos.min_nodes if qos else None]
        return Limits(
            max_time_s=min((value for value in times if value is not None), default=math.inf),
            # Slurm says 0 for no minimum; a job has a node anyway
            min_nodes=max(value for value in fewest if value is not None),
            max_nodes=min((value for value in most if value is not None), default=math.inf),
            complete=partition.qos is None or qos is not None,
            source="scontrol show partition" + (f", sacctmgr show qos {qos.name}" if qos else ""),
        )

    def save(self, path: Path) -> None:
        """Write the picture as JSON."""
        data = {"schema": 1, "taken": self.taken, "user": self.user, "texts": dict(self.texts),
                "failed": dict(self.failed)}  # fmt: skip
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def ask(site: str = "") -> Picture:
    """Ask the cluster behind `site` (the one that Slurm's programs here belong to). Raises `NotNow` without answer."""
    config = commands.run(site, ["scontrol", "show", "config"])
    if not config.ok:
        raise NotNow(_no_answer(config))
    user = commands.user_name()
    name = parse_config(config.stdout).name or ""
    answers = {
        "partitions": commands.show(site, "partition"),
        "nodes": commands.show(site, "node"),
        "reservations": commands.show(site, "reservation"),
    }
    if parse_config(config.stdout).accounting is not False:
        answers["qos"] = commands.sacctmgr_show(site, "qos", f"format={QOS_FIELDS}")
        who = ("assoc", f"user={user}", f"cluster={name}")
        answers["associations"] = commands.sacctmgr_show(site, *who, f"format={ASSOC_FIELDS}")
    else:
        answers["qos"] = answers["associations"] = commands.Answer(False, "", "this cluster has no accounting")
    return Picture(
        texts={"config": config.stdout} | {key: answer.stdout for key, answer in answers.items() if answer.ok},
        failed={key: _last_line(answer) for key, answer in answers.items() if not answer.ok},
        user=user,
        taken=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def read(path: Path) -> Picture:
    """A picture that `save` wrote, there or elsewhere. Raises `BadInput`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != 1 or "config" not in data["texts"]:
            raise ValueError("not a picture of a cluster")
        return Picture(data["texts"], data["failed"], data["user"], data["taken"])
    except OSError as error:
        raise BadInput(Problem(f"can't be read: {error.strerror}", str(path), key="--from")) from None
    except (ValueError, KeyError, TypeError) as error:
        hint = "campaign site discover --save FILE   on the cluster's login node writes one"
        raise BadInput(Problem(f"not a saved picture of a cluster: {error}", str(path), key="--from",
                               hint=hint)) from None  # fmt: skip


def _no_answer(answer: commands.Answer) -> Problem:
    missing = answer.stderr.endswith("command not found")
    hint = (
        "log in to a login node of the site; or give a saved picture: --from FILE"
        if missing
        else "ask again later; or set SLURM_CONF, or log in to the site's login node"
    )
    return Problem(f"no answer from the cluster: {_last_line(answer)}", hint=hint)


def _last_line(answer: commands.Answer) -> str:
    """Slurm's own reason; the lines before are its attempts."""
    lines = answer.stderr.splitlines()
    return lines[-1] if lines else "no message"
