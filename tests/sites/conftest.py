"""One project with all shipped sites, made once; its user is always the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from campaign.project import Project
from tests.sites.sent import make_project


@pytest.fixture(scope="session")
def _fixed_user() -> Iterator[None]:
    """{user} in paths is the login name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGNAME", "alice")
        yield


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory, _fixed_user: None) -> Project:
    """A project of the shipped sites."""
    return make_project(tmp_path_factory.mktemp("shipped") / "project")
