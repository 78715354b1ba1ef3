"""Is this the site that is meant? Asked before anything is written, queued or cancelled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from campaign.errors import BadInput, CampaignError, NotNow, Problem
from campaign.slurm import commands
from campaign.slurm.queries import no_cluster_here

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site
    from campaign.submit.ledger import Ledger


class WrongCluster(BadInput):
    """Another cluster than the site's answers here."""


class NoClusterHere(NotNow):
    """This machine is no login node: Slurm's programs are missing or know no cluster."""


class NotMounted(BadInput):
    """The file system that the site's run root is on isn't here."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a project knows of clusters, as far as it concerns one site."""

    ran_on: frozenset[str] = frozenset()
    """Clusters that took jobs of this site."""
    claimed: Mapping[str, str] = field(default_factory=dict)
    """Clusters that another site's file names, and how."""
    used: Mapping[str, str] = field(default_factory=dict)
    """Clusters that took jobs of another site, and which."""


def known_clusters(project: Project, ledger: Ledger, site: Site) -> Known:
    """From the project's site files and the ledger's jobs. Sites whose file can't be read say nothing."""
    ran_on: dict[str, list[str]] = {}
    for row in ledger.query(
        "SELECT DISTINCT site, cluster FROM jobs WHERE scheduler = 'slurm' AND cluster NOT NULL AND job_id NOT NULL"
    ):
        ran_on.setdefault(row["site"], []).append(row["cluster"])
    own = frozenset(ran_on.pop(site.name, ()))
    used = {cluster: f"jobs of site {name} are there" for name, clusters in ran_on.items() for cluster in clusters}
    claimed: dict[str, str] = {}
    for other in _others(project, site):
        if other.cluster_name:
            claimed[other.cluster_name] = f"it is the cluster_name of site {other.name}"
        else:
            claimed.setdefault(other.name, f"it is called as site {other.name}")
    return Known(own, claimed, used)


def _others(project: Project, site: Site) -> Iterator[Site]:
    """The project's other Slurm sites."""
    for name in project.site_names():
        if name != site.name:
            with suppress(CampaignError):
                other = project.load_site(name)
                if not other.local:
                    yield other


def guard_cluster(site: Site, known: Known | None = None) -> str | None:
    """The name of the cluster that answers here; None for a local site. Writes nothing.

    Raises WrongCluster when it contradicts the site's `cluster_name` or what is `known`, NoClusterHere when this is no
    login node, NotNow when the controller gives no answer, BadInput when the site is to be reached another way.
    """
    if site.transport.kind != "here":
        raise BadInput(
            site.problem(
                ("transport", "kind"),
                f"site {site.name} is to be reached over {site.transport.kind}; this version submits where it runs",
                allowed="here",
                hint=f"install campaign on {site.transport.host or 'the site'} and submit there",
            )
        )
    if site.scheduler.kind != "slurm":
        return None
    name = _ask(site)
    wrong = _contradiction(site, name, known or Known())
    if wrong is not None:
        raise WrongCluster(_wrong_cluster(site, name, wrong))
    return name


def is_sure(site: Site, name: str, known: Known) -> bool:
    """True when something says that this cluster is the site's, and not only nothing that it isn't."""
    return name in {site.cluster_name, site.name, *known.ran_on}


def guard_run_root(project: Project, site: Site) -> None:
    """Raise NotMounted when the run root is given as `filesystem:folder` and that file system isn't here.

    A site's file system is never made: on the wrong machine its path would be a plain folder.
    """
    found = project.run_root_filesystem(site)
    if found is None:
        return
    name, path = found
    if path.is_dir():
        return
    message = f"file system {name} of {site.name}, {path}, is not here or the project has no folder there"
    hint = f"submit on a login node of {site.name}; or give paths.run_root of {site.name} in campaign.yaml"
    raise NotMounted(site.problem(("filesystems", name, "path"), message, value=str(path), hint=hint))


def _ask(site: Site) -> str:
    """What the cluster that answers here calls itself."""
    missing = [program for program in ("sbatch", "scontrol") if shutil.which(program) is None]
    hint = f"log in to {site.name} and submit there; `campaign doctor` says what is here"
    if missing:
        message = f"this is no login node of {site.name} (no {missing[0]} here): nothing was queued"
        raise NoClusterHere(Problem(message, hint=hint))
    config = commands.show_config(site.name)
    if isinstance(config, commands.Answer):
        lines = config.stderr.splitlines()
        reason = lines[-1] if lines else "no message"
        if no_cluster_here(config.stderr):
            raise NoClusterHere(Problem(f"this is no login node of {site.name} ({reason}): nothing was queued",
                                        hint=hint))  # fmt: skip
        raise NotNow(Problem(f"{site.name}: Slurm gave no clear answer ({reason}): nothing was done",
                             hint="the same command again, later"))  # fmt: skip
    if config.name is None:
        raise NotNow(Problem(f"{site.name}: `scontrol show config` names no cluster: nothing was done",
                             hint="the same command again, later"))  # fmt: skip
    return config.name


def _contradiction(site: Site, name: str, known: Known) -> str | None:
    """What says that cluster `name` isn't the site's. An explicit `cluster_name` that agrees has the last word."""
    if site.cluster_name:
        return None if name == site.cluster_name else f"its cluster_name is `{site.cluster_name}`"
    if known.ran_on and name not in known.ran_on:
        return f"its jobs so far are on `{'`, `'.join(sorted(known.ran_on))}`"
    if name in known.claimed:
        return known.claimed[name]
    # its own name counts more than where jobs of another site went
    return None if name == site.name else known.used.get(name)


def _wrong_cluster(site: Site, here: str, why: str) -> Problem:
    variable = f"CAMPAIGN_SLURM_CONF_{site.name.upper().replace('-', '_')}"
    file, line = site.source.place(("cluster_name",))
    return Problem(
        f"this is cluster `{here}`, not the one of site {site.name}: {why}",
        file,
        line,
        key="cluster_name",
        value=site.cluster_name,
        hint=f"submit on {site.name}'s login node, or set {variable} to its slurm.conf; "
        f"if `{here}` is the cluster of {site.name}: cluster_name: {here}",
    )
