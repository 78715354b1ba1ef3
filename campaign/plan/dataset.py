"""The data set of a study as a plan sees it: where it is, its digest, or why it can't be read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.errors import Problem
from campaign.plan.ground import Ground
from campaign.study import Study

DATASET_FILE = "dataset.json"


@dataclass(frozen=True, slots=True)
class DataSet:
    """`value`: {name, options, path, digest} for the run; `problem`: why runs can't have it; `warning`: unchecked."""

    value: dict[str, Any] | None
    problem: Problem | None = None
    warning: Problem | None = None


def find(ground: Ground, study: Study) -> DataSet:
    """The study's data set in the site's data folder."""
    if study.data is None:
        return DataSet(None)
    site, root = ground.site, ground.paths.data
    path = root / study.data.name
    digest: str | None = None
    problem = warning = None
    # a folder on none of the listed file systems is seen where the machine itself is the site
    if not (ground.shows(root) or (ground.here and ground.mount_of(root) is None)):
        message = f"data set {study.data.name}: {root} of {site.name} is not to be seen from here, so it is not checked"
        hint = "plan again on a login node of the site: the digest of the data is part of a run's identity"
        warning = study.problem(("data", "name"), message, hint=hint)
    else:
        digest, problem = _digest(study, path, site.name)
    return DataSet({**study.data.model_dump(), "path": str(path), "digest": digest}, problem, warning)


def _digest(study: Study, path: Path, site: str) -> tuple[str | None, Problem | None]:
    assert study.data is not None
    name = study.data.name
    prepare = f"campaign data prepare {name} --site {site}"
    file = path / DATASET_FILE
    try:
        digest = json.loads(file.read_text(encoding="utf-8"))["digest"]
    except (FileNotFoundError, NotADirectoryError):
        return None, study.problem(("data", "name"), f"data set {name} is not in {path.parent}", hint=prepare)
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{file} can't be read: {error or type(error).__name__}"
        return None, study.problem(("data", "name"), message, hint=f"{prepare} --force")
    if not isinstance(digest, str) or not digest:
        return None, study.problem(("data", "name"), f"{file} has no digest", hint=f"{prepare} --force")
    return digest, None
