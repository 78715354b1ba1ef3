"""sbatch takes the golden scripts of every site, on a controller with that site's partitions."""

from __future__ import annotations

import re

import pytest

from campaign.site import load_site
from tests.needs import needs
from tests.sites.sent import ROOT, SLURM_SITES
from tests.sites.test_golden import GOLDEN, SIZES
from tests.slurm.sitebed import site_bed

pytestmark = needs("slurm")


@pytest.mark.parametrize("name", SLURM_SITES)
def test_sbatch_takes_the_golden_scripts(name: str) -> None:
    scripts = re.split(r"^##### .*\n", (GOLDEN / f"{name}.sh").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(scripts) == len(SIZES[name])
    with site_bed(load_site(ROOT / "sites" / f"{name}.yaml")) as bed:
        assert [bed.refusal(script) for script in scripts] == [None] * len(scripts)
        # the controller does refuse: no node has so many GPUs
        assert bed.refusal(re.sub(r"(gres=gpu:|gpus-per-node=)\d+", r"\g<1>99", scripts[0])) is not None
