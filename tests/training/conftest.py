"""Prepared data sets, once for the session."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def climate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real climate data set."""
    from training.data.climate import ClimateSource
    from training.data.prepare import prepare

    return prepare(ClimateSource(), tmp_path_factory.mktemp("data") / "hydrology").info.path


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic data set of 7 cells (of 9) and 8 years."""
    from training.data.bucket import BucketSource
    from training.data.prepare import prepare

    source = BucketSource(cells=7, years=8, seed=3)
    return prepare(source, tmp_path_factory.mktemp("data") / "hydrology_synthetic").info.path
