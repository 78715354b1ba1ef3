"""Fixtures of jobs that run on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.job.jobs import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A place for jobs; heads that a failed test has left are ended."""
    site = Site(tmp_path)
    # short, as on a real site: sockets below the node-local folder have paths of 107 bytes at most
    site.node_local = Path(tempfile.mkdtemp(prefix="job-", dir="/dev/shm"))
    try:
        yield site
    finally:
        site.end_all()
        shutil.rmtree(site.node_local, ignore_errors=True)
