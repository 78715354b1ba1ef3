"""What each site's documents say of its jobs, asserted on what would be sent there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from campaign.errors import BadInput
from campaign.project import Project
from tests.sites.checklist import CHECKLIST, EVERYWHERE, Fact
from tests.sites.sent import SLURM_SITES, Sent, planned, sent


@pytest.fixture(scope="session")
def send(shipped: Project) -> Callable[[str, int, str], Sent]:
    """Each batch, made once."""
    made: dict[tuple[str, int, str], Sent] = {}

    def get(site: str, nodes: int, walltime: str) -> Sent:
        key = (site, nodes, walltime)
        if key not in made:
            made[key] = sent(shipped, *key)
        return made[key]

    return get


def test_every_site_has_a_checklist_of_eight_facts_or_more() -> None:
    assert sorted(CHECKLIST) == sorted(SLURM_SITES)
    assert min(len(facts) for facts in CHECKLIST.values()) >= 8


@pytest.mark.parametrize(
    ("site", "fact"),
    [pytest.param(site, fact, id=f"{site}: {fact.says}") for site, facts in CHECKLIST.items() for fact in facts],
)
def test_a_fact_of_the_site_is_in_what_is_sent(send: Callable[..., Sent], site: str, fact: Fact) -> None:
    assert fact.get(send(site, fact.nodes, fact.walltime)) == fact.expected


@pytest.mark.parametrize("site", SLURM_SITES)
@pytest.mark.parametrize("fact", EVERYWHERE, ids=lambda fact: fact.says)
def test_a_rule_of_ours_is_in_what_is_sent(send: Callable[..., Sent], site: str, fact: Fact) -> None:
    assert fact.get(send(site, fact.nodes, fact.walltime)) == fact.expected


@pytest.mark.parametrize("site", SLURM_SITES)
def test_without_an_account_nothing_is_planned(shipped: Project, tmp_path: Path, site: str) -> None:
    for folder in ("sites", "studies"):
        (tmp_path / folder).symlink_to(shipped.root / folder)
    with pytest.raises(BadInput) as caught:
        planned(Project(tmp_path), site, {})
    assert f"no account to charge on {site}" in [problem.message for problem in caught.value.problems]


REFUSED: Sequence[tuple[str, int, str, str, str]] = (
    ("jupiter", 1, "12:01:00", "no partition of jupiter admits 1 nodes for 12:01:00", "booster: at most 12:00:00"),
    ("lumi", 1536, "01:00:00", "no partition of lumi admits 1536 nodes for 01:00:00", "standard-g: at most 1024 nodes"),
    ("leonardo", 512, "01:00:00", "no partition of leonardo admits 512", "QOS boost_qos_bprod at most 256 nodes"),
    ("leonardo", 16, "48:00:00", "no partition of leonardo admits 16", "QOS boost_qos_lprod at most 8 nodes"),
    ("marenostrum5", 128, "01:00:00", "no partition of marenostrum5 admits 128", "QOS acc_ehpc at most 100 nodes"),
    ("karolina", 4, "72:00:00", "no partition of karolina admits 4 nodes for 3-00:00:00", "qgpu: at most 2-00:00:00"),
    ("vega", 64, "01:00:00", "no partition of vega admits 64 nodes for 01:00:00", "gpu: at most 60 nodes"),
    ("meluxina", 256, "01:00:00", "no partition of meluxina admits 256 nodes for 01:00:00", "gpu: at most 200 nodes"),
)


@pytest.mark.parametrize(("site", "nodes", "walltime", "message", "allowed"), REFUSED)
def test_what_a_site_would_refuse_is_refused_with_its_limit(
    shipped: Project, site: str, nodes: int, walltime: str, message: str, allowed: str
) -> None:
    (run,) = planned(shipped, site, {"nodes": [nodes], "walltime": walltime})
    assert not run.can_run
    (problem,) = run.problems
    assert message in problem.message
    assert allowed in str(problem.allowed)
