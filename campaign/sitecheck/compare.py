"""Is this site file true? The file, line by line, against a picture of its cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from campaign.site import Partition, Qos, Site
from campaign.sitecheck.comparenodes import compare_nodes
from campaign.sitecheck.findings import Finding, Findings, Verdict
from campaign.sitecheck.picture import Picture
from campaign.slurm import cluster
from campaign.slurm.durations import format_duration
from campaign.words import count as number

CONFIG = "scontrol show config"
PARTITION = "scontrol show partition"
QOS = "sacctmgr show qos"
ASSOC = "sacctmgr show assoc"
RESERVATION = "scontrol show reservation"


def compare(site: Site, picture: Picture, account: str | None) -> list[Finding]:
    """All findings; only the first one when the picture is of another cluster.

    `account`: what would be charged; None: nobody has said it.
    """
    compared = _Compare(site, picture, account)
    if compared.cluster_name():
        compared.scheduler()
        compared.partitions()
        compared.account()
        compared.qos()
        compared.reservation()
    return compared.findings.all


class _Compare:
    """One site file against one picture."""

    def __init__(self, site: Site, picture: Picture, account: str | None) -> None:
        self.site, self.picture, self.account_name = site, picture, account
        self.findings = Findings(site)

    def cluster_name(self) -> bool:
        """False: this is another cluster, and comparing further would only mislead."""
        name = self.picture.config.name
        self.findings.compare(("cluster_name",), self.site.cluster_name, name, "the cluster's name", source=CONFIG)
        return self.site.cluster_name in (None, name)

    # -- the scheduler as a whole

    def scheduler(self) -> None:
        config, limits = self.picture.config, self.site.scheduler.limits
        path = ("scheduler", "limits", "array_size")
        self.findings.compare(path, limits.array_size, config.max_array_size, "MaxArraySize", source=CONFIG)
        if config.accounting is None:
            self.findings.unknown(("accounting",), "accounting: not said", source=CONFIG)
        else:
            said = str(config.accounting).lower()
            self.findings.compare(("accounting",), self.site.accounting, config.accounting, "accounting",
                                  source=CONFIG, text=said)  # fmt: skip

    # -- partitions

    def partitions(self) -> None:
        known = self.picture.partitions
        if known is None:
            reason = self.picture.failed.get("partitions", "no answer")
            self.findings.unknown(("partitions",), f"partitions: not known ({reason})", source=PARTITION)
            return
        for name, said in self.site.partitions.items():
            found = known.get(name)
            if found is None:
                message = f"there is no partition {name}; there are {', '.join(known) or 'none'}"
                self.findings.add("wrong", ("partitions", name), message, source=PARTITION, found=", ".join(known))
                continue
            self.partition(name, said, found)
            compare_nodes(self.findings, self.picture, name, said, found)
        self.default_partition(known)

    def partition(self, name: str, said: Partition, found: cluster.Partition) -> None:
        where = ("partitions", name)
        down = found.state != "UP"
        message = f"partition {name} is {found.state}"
        if down == said.down:
            self.findings.add("right", (*where, "down"), message, source=PARTITION, found=found.state)
        else:
            self.findings.add("wrong", (*where, "down"), message, source=PARTITION, found=found.state,
                              write=f"down: {str(down).lower()}")  # fmt: skip
        self.times(name, said, found)
        self.counts(name, said, found)
        exclusive = found.oversubscribe == "EXCLUSIVE"
        if found.oversubscribe is None:
            self.findings.unknown((*where, "exclusive"), f"OverSubscribe of {name}: not said", source=PARTITION)
        else:
            self.findings.compare((*where, "exclusive"), said.exclusive, exclusive,
                                  f"OverSubscribe of {name} is {found.oversubscribe}: exclusive",
                                  source=PARTITION, text=str(exclusive).lower())  # fmt: skip

    def times(self, name: str, said: Partition, found: cluster.Partition) -> None:
        limits = self.picture.limits(found)
        if not limits.complete:
            message = f"max_time of {name}: the limits of its QOS {found.qos} aren't known"
            self.findings.unknown(("partitions", name, "max_time"), message, source=QOS)
        else:
            text = f'"{format_duration(limits.max_time_s)}"'
            path = ("partitions", name, "max_time")
            self.findings.compare(path, said.max_time, limits.max_time_s, f"the longest walltime of {name}",
                                  source=limits.source, text=text)  # fmt: skip
        path = ("partitions", name, "default_time")
        default, what = found.default_time_s, f"the default walltime of {name}"
        if default is None and said.default_time is None:
            self.findings.add("right", path, f"{name} has no default walltime", source=PARTITION)
        elif default is None:
            self.findings.add("wrong", path, f"{name} has no default walltime", source=PARTITION,
                              found="NONE", write="default_time: null")  # fmt: skip
        else:
            text = f'"{format_duration(default)}"'
            self.findings.compare(path, said.default_time, default, what, source=PARTITION, text=text)

    def counts(self, name: str, said: Partition, found: cluster.Partition) -> None:
        where = ("partitions", name)
        self.findings.compare((*where, "nodes"), said.nodes, found.node_count, f"the number of nodes of {name}",
                              source=PARTITION)  # fmt: skip
        limits = self.picture.limits(found)
        low, high = limits.min_nodes, limits.max_nodes
        if said.min_nodes is None and low == 1:
            self.findings.add("right", (*where, "min_nodes"), f"{name} has no minimum", source=limits.source)
        else:
            self.findings.compare((*where, "min_nodes"), said.min_nodes, low, f"the fewest nodes of a job in {name}",
                                  source=limits.source)  # fmt: skip
        path, what = (*where, "max_nodes"), f"the most nodes of a job in {name}"
        if not limits.complete:
            self.findings.unknown(
                path, f"max_nodes of {name}: the limits of its QOS {found.qos} aren't known", source=QOS
            )
        elif not math.isinf(high):
            self.findings.compare(path, said.max_nodes, int(high), what, source=limits.source)
        elif said.max_nodes is None or (found.node_count and said.max_nodes >= found.node_count):
            self.findings.add("right", path, f"{what}: all of them", source=limits.source, found="UNLIMITED")
        else:
            self.findings.add("wrong", path, f"{what}: all of them, the file says {said.max_nodes}",
                              source=limits.source, found="UNLIMITED", write="max_nodes: null")  # fmt: skip

    def default_partition(self, known: dict[str, cluster.Partition]) -> None:
        path = ("default_partition",)
        default = next((found.name for found in known.values() if found.default), None)
        if default == self.site.default_partition:
            self.findings.add("right", path, f"{default} is the cluster's default", source=PARTITION, found=default)
        elif self.site.default_partition in known:
            message = f"the cluster's own default is {default or 'none'}; campaign names the partition, so both will do"
            self.findings.add("note", path, message, source=PARTITION, found=default)
        others = [name for name in known if name not in self.site.partitions]
        if others:
            message = f"the cluster has partitions that the file doesn't describe: {', '.join(others)}"
            self.findings.add("note", ("partitions",), message, source=PARTITION, found=", ".join(others))

    # -- accounts and QOS

    def account(self) -> None:
        path, mine, name = ("account",), self.picture.associations, self.account_name
        if not mine:
            # an empty answer may be privacy (PrivateData), or a cluster that lets anybody in
            reason = self.picture.failed.get("associations", "sacctmgr shows none")
            self.findings.unknown(path, f"accounts of {self.picture.user}: not known ({reason})", source=ASSOC)
            return
        accounts = list(dict.fromkeys(one.account for one in mine))
        shown = ", ".join(accounts) or "none"
        if name is None:
            self.findings.unknown(path, f"no account is given; {self.picture.user} may charge {shown}", source=ASSOC)
        elif name.lower() in accounts or name in accounts:
            self.findings.add("right", path, f"{self.picture.user} may charge {name}", source=ASSOC, found=name)
        else:
            message = f"{self.picture.user} may not charge {name} on this cluster"
            self.findings.add("wrong", path, message, source=ASSOC, found=shown,
                              write=f"account: {accounts[0]}" if accounts else None)  # fmt: skip
        self.job_limits([one for one in mine if one.account == (name or "").lower() or one.account == name] or mine)
        for partition, found in (self.picture.partitions or {}).items():
            allowed = found.allow_accounts
            if name and allowed is not None and partition in self.site.partitions and name not in allowed:
                message = f"partition {partition} doesn't admit account {name}: only {', '.join(allowed)}"
                self.findings.add("note", ("partitions", partition), message, source=PARTITION)

    def job_limits(self, mine: Sequence[cluster.Association]) -> None:
        """The user's own limits; a smaller figure in the file is the group's own choice."""
        limits = self.site.scheduler.limits
        qos = (self.picture.qos or {}).get(self.site.qos or next((one.default_qos or "" for one in mine), ""))
        for key, said in (("submit_jobs", limits.submit_jobs), ("running_jobs", limits.running_jobs)):
            known = [getattr(one, key) for one in (*mine, qos) if one is not None and getattr(one, key) is not None]
            path, what = ("scheduler", "limits", key), f"{key} of {self.picture.user}"
            if not known:
                verdict: Verdict = "right" if said is None else "note"
                message = f"{what}: the cluster sets no limit" + ("" if said is None else "; the file's holds")
                self.findings.add(verdict, path, message, source=ASSOC)
            elif said is not None and said < min(known):
                message = f"{what} is {min(known)}; the file's smaller limit holds"
                self.findings.add("note", path, message, source=ASSOC, found=min(known))
            else:
                self.findings.compare(path, said, min(known), what, source=ASSOC)

    def qos(self) -> None:
        known = self.picture.qos
        if not known:  # every cluster with accounting has one
            reason = self.picture.failed.get("qos", "sacctmgr shows none")
            self.findings.unknown(("qos",), f"QOS: not known ({reason})", source=QOS)
            return
        if self.site.qos is not None:
            self.named_qos(("qos",), self.site.qos, known)
        for partition, described in self.site.partitions.items():
            there = (self.picture.partitions or {}).get(partition)
            if self.picture.partitions is not None and there is None:
                continue  # told already
            for name, said in described.qos.items():
                path = ("partitions", partition, "qos", name)
                if self.named_qos(path, name, known):
                    self.qos_limits(path, name, said, known[name], there)
                if there is not None and there.allow_qos is not None and name not in there.allow_qos:
                    message = f"partition {partition} doesn't admit QOS {name}: only {', '.join(there.allow_qos)}"
                    self.findings.add("wrong", path, message, source=PARTITION, found=", ".join(there.allow_qos))

    def named_qos(self, path: tuple[str, ...], name: str, known: dict[str, cluster.Qos]) -> bool:
        if name not in known:
            message = f"there is no QOS {name}; there are {', '.join(known)}"
            self.findings.add("wrong", path, message, source=QOS, found=", ".join(known))
            return False
        allowed = {qos for one in self.picture.associations or [] for qos in one.qos}
        if self.picture.associations and name not in allowed:
            message = f"{self.picture.user} may not use QOS {name}, only {', '.join(sorted(allowed)) or 'none'}"
            self.findings.add("note", path, message, source=ASSOC)
        else:
            self.findings.add("right", path, f"QOS {name} is there", source=QOS, found=name)
        return True

    def qos_limits(self, path: tuple[str, ...], name: str, said: Qos, found: cluster.Qos,
                   partition: cluster.Partition | None) -> None:  # fmt: skip
        """Limits of a QOS within a partition: its own, and where it has none those of the partition."""
        limits = None if partition is None else self.picture.limits(partition)
        whole: dict[str, float] = {}
        if limits is not None and not math.isinf(limits.max_time_s):
            whole["max_time"] = limits.max_time_s
        if limits is not None and not math.isinf(limits.max_nodes):
            whole["max_nodes"] = int(limits.max_nodes)
        for key in ("max_time", "min_nodes", "max_nodes", "submit_jobs", "running_jobs"):
            mine = getattr(said, key)
            own = getattr(found, "max_time_s" if key == "max_time" else key)
            theirs = whole.get(key) if own is None else own
            what = f"{key} of QOS {name}"
            if theirs is None and (mine is None or (key == "min_nodes" and mine == 1)):
                self.findings.add("right", (*path, key), f"{what}: no limit", source=QOS)
            elif theirs is None:
                self.findings.add("wrong", (*path, key), f"{what}: the cluster sets no limit", source=QOS,
                                  found="no limit", write=f"{key}: null")  # fmt: skip
            elif own is None and mine is None:
                self.findings.add("right", (*path, key), f"{what}: the partition's limit holds", source=PARTITION)
            else:
                text = f'"{format_duration(theirs)}"' if key == "max_time" else None
                source = PARTITION if own is None else QOS
                self.findings.compare((*path, key), mine, theirs, what, source=source, text=text)

    # -- reservation and features

    def reservation(self) -> None:
        name, known = self.site.reservation, self.picture.reservations
        path = ("reservation",)
        if name is None:
            pass
        elif known is None:
            reason = self.picture.failed.get("reservations", "no answer")
            self.findings.unknown(path, f"reservations: not known ({reason})", source=RESERVATION)
        elif name not in known:
            there = ", ".join(known) or "none"
            self.findings.add("wrong", path, f"there is no reservation {name}; there are {there}", source=RESERVATION,
                              found=there, write="reservation: null")  # fmt: skip
        else:
            state = known[name].state
            verdict: Verdict = "right" if state == "ACTIVE" else "note"
            self.findings.add(verdict, path, f"reservation {name} is {state}", source=RESERVATION,
                              found=state)  # fmt: skip
        if self.site.constraint is not None:
            self.constraint(self.site.constraint)

    def constraint(self, expression: str) -> None:
        """Every feature that a constraint names must be one of the nodes'."""
        if self.picture.nodes is None:
            self.findings.unknown(("constraint",), "features: not known", source="scontrol show node")
            return
        features = {feature for node in self.picture.nodes.values() for feature in node.features}
        named = [word for word in re.split(r"[&|,!()\[\]]|\*\d+", expression) if word]
        absent = [word for word in named if word not in features]
        if absent:
            message = f"no node has the feature {', '.join(absent)}; there are {number(len(features), 'feature')}"
            self.findings.add("wrong", ("constraint",), message, source="scontrol show node",
                              found=", ".join(sorted(features)[:20]) or "none")  # fmt: skip
        else:
            self.findings.add("right", ("constraint",), f"nodes have {expression}", source="scontrol show node")
