"""Is this the site that is meant? Asked before anything is queued or cancelled."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from campaign.errors import BadInput, Problem
from campaign.slurm import commands

if TYPE_CHECKING:
    from campaign.site import Site


def guard_cluster(site: Site, sent_to: Collection[str] = ()) -> str | None:
    """The name of the cluster that answers here; None when none does (a controller that is away passes).

    Raises BadInput when it isn't the site's `cluster_name`, or not one that jobs were `sent_to`, or when the site is to
    be reached another way than from here.
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
    config = commands.show_config(site.name)
    if isinstance(config, commands.Answer) or config.name is None:
        return None
    expected = {site.cluster_name} if site.cluster_name else set(sent_to)
    if expected and config.name not in expected:
        raise BadInput(_wrong_cluster(site, config.name, " or ".join(sorted(map(str, expected)))))
    return config.name


def _wrong_cluster(site: Site, here: str, expected: str) -> Problem:
    variable = f"CAMPAIGN_SLURM_CONF_{site.name.upper().replace('-', '_')}"
    return Problem(
        f"this is cluster {here!r}, site {site.name} is {expected!r}",
        site.source.place(("cluster_name",))[0],
        key="cluster_name",
        value=expected,
        allowed=f"what `scontrol show config` says here: {here}",
        hint=f"log in where the site's Slurm answers, or set {variable} to its slurm.conf",
    )
