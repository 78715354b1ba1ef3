"""Fixtures for tests on the real Slurm clusters of the test bed."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.testbed import Cluster, Settings, Testbed
from tests.slurm.testbed.lease import leased

_FAILED = pytest.StashKey[bool]()
_START_S = pytest.StashKey[float]()


OWN: dict[str, Any] = {
    "clusters": ("vega",),
    "nodes_per_cluster": 2,
    "slurmd_timeout_s": 5,
    "users": ("root", "nobody"),
}
"""Settings of `own_testbed`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"testbed", "own_testbed"} & set(getattr(item, "fixturenames", ())):
            marked = any("slurm" in mark.args for mark in item.iter_markers("needs"))
            if not marked:
                raise pytest.UsageError(f'{item.nodeid} uses the test bed: mark it @needs("slurm")')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _START_S in config.stash:
        terminalreporter.write_line(f"Slurm test bed: idle {config.stash[_START_S]} s after its start")


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """Three clusters, all nodes up, shared by the whole session (and by others of this clone).

    Do no harm to it: drills that kill things start a bed of their own (`own_testbed`).
    """
    with leased(Settings.from_environment()) as bed:
        request.config.stash[_START_S] = bed.start_s
        yield bed


@pytest.fixture(scope="session")
def own_testbed() -> Iterator[Testbed]:
    """A small bed (vega, two nodes) for drills: killed nodes, absent controllers. Shared by the drills of a session."""
    root = Path(tempfile.mkdtemp(prefix="slurmtb-", dir="/tmp"))
    bed = Testbed(Settings.from_environment(root=root, **OWN))
    try:
        bed.start()
        yield bed
    finally:
        bed.stop()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One cluster, and the test's environment set to it (SLURM_CONF), so that `campaign` and sbatch find it.

    juwels, unless the test says `@pytest.mark.parametrize("cluster", ["vega", "jupiter"], indirect=True)`.
    """
    cluster = testbed.cluster(getattr(request, "param", "juwels"))
    monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
    return cluster


@pytest.fixture
def shared(request: pytest.FixtureRequest, testbed: Testbed) -> Iterator[Path]:
    """The test's own empty folder on the parallel file system of the bed: projects and run roots belong here.

    Kept after a failure until the bed stops.
    """
    name = re.sub(r"\W+", "-", request.node.name)[:40]
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=testbed.layout.shared))
    folder.chmod(0o755)
    yield folder
    if not request.node.stash.get(_FAILED, False):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The test's own empty HOME; where jobs run on the bed, one that the nodes see too. Kept after a failure."""
    if "testbed" not in request.fixturenames:
        yield tmp_path_factory.mktemp("home")
        return
    testbed: Testbed = request.getfixturevalue("testbed")
    folder = Path(tempfile.mkdtemp(prefix="home-", dir=testbed.layout.shared))
    yield folder
    if not request.node.stash.get(_FAILED, False):
        shutil.rmtree(folder, ignore_errors=True)
