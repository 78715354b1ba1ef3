"""Room for what a campaign writes: inodes and bytes against quotas and against what the file system itself says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.errors import Problem
from campaign.plan.build import build_plan
from campaign.plan.model import Plan
from campaign.plan.quota import Need, need, submissions
from tests.needs import needs
from tests.plan.conftest import SITE, STUDY, Make, changed
from tests.plan.test_places import reasons, site_in

# 1 node x 1 strategy x 50 repeats
STUDY_50 = changed(STUDY, ("nodes: [1, 2, 4]", "nodes: [1]"), ("[ddp, fsdp2]", "[ddp]"), ("repeats: 2", "repeats: 50"))


def said(plan: Plan) -> list[Problem]:
    return [problem for problem in plan.warnings if "the records of" in problem.message]


def test_what_a_plan_writes() -> None:
    """50 runs: 10 files, their own folder and their attempt's each, 50 prefix folders at most; 2 of one submission."""
    assert need(50, 1) == Need(inodes=50 * 12 + 50 + 2, least_bytes=50 * 40960, most_bytes=50 * 4194304)
    assert need(1000, 3).inodes == 12000 + 256 + 6
    assert need(0, 0) == Need(0, 0, 0)


@pytest.mark.parametrize(
    ("runs", "size", "times"), [([1], 1001, 1), ([1001], 1001, 1), ([1002], 1001, 2), ([4, 4, 9], 4, 5), ([], 4, 0)]
)
def test_how_often_sbatch_is_called(runs: list[int], size: int, times: int) -> None:
    assert submissions(runs, size) == times


def with_quota(quota: str) -> str:
    return changed(SITE, ("on_compute: true}", f"on_compute: true, {quota}}}"))


@pytest.mark.parametrize(("inodes", "outcome"), [(651, "refused"), (652, "warned"), (1303, "warned"), (1304, "quiet")])
def test_inodes_of_50_runs_against_a_quota(make_project: Make, inodes: int, outcome: str) -> None:
    """652 are needed: above the quota they can't run, above half of it (1303 and less) that is said."""
    plan = build_plan(make_project(with_quota(f"quota_inodes: {inodes}"), STUDY_50), ["tiny"])
    if outcome == "refused":
        (problem,) = reasons(plan)
        assert said(plan) == []
    else:
        assert all(run.can_run for run in plan.runs)
        assert len(said(plan)) == (outcome == "warned")
        if outcome == "quiet":
            return
        (problem,) = said(plan)
    amount = "at least 652" if outcome == "refused" else "up to 652"
    assert problem.message == (
        f"the records of 50 runs on tiny take {amount} files and folders, and /nowhere/proj/runs has room for "
        f"{inodes:,} files and folders; what is used now is not known"
    )
    assert (problem.file, problem.line, problem.key) == ("sites/tiny.yaml", 19, "filesystems.scratch.quota_inodes")
    assert problem.value == inodes


@pytest.mark.parametrize(
    ("size", "outcome"),
    # at least 10 blocks of 4 KiB a run, usually at most 4 MiB
    [(50 * 40960 - 1, "refused"), (50 * 40960, "warned"), (100 * 4194304 - 1, "warned"), (100 * 4194304, "quiet")],
)
def test_bytes_of_50_runs_against_a_quota(make_project: Make, size: int, outcome: str) -> None:
    plan = build_plan(make_project(with_quota(f"quota_bytes: {size}"), STUDY_50), ["tiny"])
    assert all(run.can_run for run in plan.runs) is (outcome != "refused")
    assert len(said(plan)) == (outcome == "warned")
    if outcome != "quiet":
        problem = said(plan)[0] if outcome == "warned" else reasons(plan)[0]
        assert problem.key == "filesystems.scratch.quota_bytes"


def test_an_unknown_quota_is_no_reason(make_project: Make) -> None:
    plan = build_plan(make_project(study=STUDY_50), ["tiny"])
    assert said(plan) == []
    assert all(run.can_run for run in plan.runs)


def test_runs_that_cant_run_anyway_need_no_room(make_project: Make) -> None:
    """Two points of 50 repeats, one of them too large for the site: 50 runs count."""
    study = changed(STUDY_50, ("nodes: [1]", "nodes: [1, 64]"))
    plan = build_plan(make_project(with_quota("quota_inodes: 652"), study), ["tiny"])
    assert [run.nodes for run in plan.runs if run.can_run] == [1] * 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1000 inodes of which 101 are used, and of 64 MiB, mounted as the site's gpfs."""
    mount = tmp_path / "gpfs"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=1000", "none", str(mount)], check=True)
    try:
        (mount / "proj").mkdir()
        for index in range(99):
            (mount / f"file{index}").touch()
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@needs("tmpfs")
def test_what_the_file_system_says_is_used_counts(make_project: Make, tmp_path: Path, small_disk: Path) -> None:
    """101 of 1000 are used (root, proj, 99 files): 899 are left, and 69 runs (899) fit where 70 (912) don't."""
    site = site_in(tmp_path)
    for runs, fits in ((69, True), (70, False)):
        study = changed(STUDY_50, ("repeats: 50", f"repeats: {runs}"))
        plan = build_plan(make_project(site, study), ["tiny"])
        # 12 inodes a run, a prefix folder each at most, 2 of the submission
        assert need(runs, 1).inodes == runs * 13 + 2
        assert all(run.can_run for run in plan.runs) is fits, runs
        text = said(plan)[0].message if fits else reasons(plan)[0].message
        assert f"{small_disk}/proj/runs has room for 899" in text
        assert "not known" not in text, "there is no quota that others could have used"


@needs("tmpfs")
def test_a_quota_beside_a_file_system_of_another_size(make_project: Make, tmp_path: Path, small_disk: Path) -> None:
    """The file system has 1000 inodes: it shows a quota of 900 (within a quarter), not one of 500."""
    for quota, known, left in ((900, True, 899), (500, False, 500)):
        text = site_in(tmp_path)
        first = text.index("on_compute: true}")
        site = text[:first] + f"on_compute: true, quota_inodes: {quota}}}" + text[first + len("on_compute: true}") :]
        study = changed(STUDY_50, ("repeats: 50", "repeats: 35"))  # 457 inodes
        (warning, *_) = said(build_plan(make_project(site, study), ["tiny"]))
        assert f"has room for {left}" in warning.message
        assert ("not known" in warning.message) is not known
