"""Pending reasons in words."""

from __future__ import annotations

import pytest

from campaign.slurm.reasons import words


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("Resources", "nodes to become free"),
        ("Priority", "higher priority"),
        ("JobHeldUser", "scontrol release"),
        ("ReqNodeNotAvail, UnavailableNodes:gn04", "down, drained or reserved"),
        ("ReqNodeNotAvail,_UnavailableNodes:gn[01-04]", "down, drained or reserved"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "drained"),
        ("QOSMaxJobsPerUserLimit", "as many of your jobs"),
        ("QOSMaxSubmitJobPerUserLimit", "as many of your jobs"),
        ("AssocMaxJobsLimit", "as many jobs as it may"),
        ("AssocGrpCPUMinutesLimit", "used up"),
        ("QOSGrpCPUMinutesLimit", "used up"),
        ("AssocGrpNodeLimit", "share of the machine"),
        ("QOSMaxNodePerUserLimit", "as much at once"),
        ("QOSMaxWallDurationPerJobLimit", "never start"),
        ("DependencyNeverSatisfied", "never start"),
        ("BeginTime", "earliest start"),
        ("job requeued in held state", "is held"),
    ],
)
def test_words(reason: str, part: str) -> None:
    assert part in (words(reason) or "")


@pytest.mark.parametrize("reason", [None, "", "None", "SomethingNew"])
def test_what_nobody_knows_has_no_words(reason: str | None) -> None:
    assert words(reason) is None
