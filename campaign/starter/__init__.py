"""The files that `campaign init` puts into a new project: the sites and studies that campaign ships.

In a wheel they lie beside this module; in a clone they are the clone's own `sites/` and `studies/`.
"""

from __future__ import annotations

import json
from importlib import resources
from importlib.resources.abc import Traversable

from campaign import schema

ROOMS = ("sites", "studies")
SCHEMAS = ".campaign/schema/"
"""Folder of the JSON Schemas in a project: what the first line of its YAML files names, for editors."""


def room(name: str) -> Traversable:
    """The folder `sites` or `studies` of the starter files. Raises FileNotFoundError in a broken installation."""
    package = resources.files("campaign")
    for folder in (package / "starter" / name, package / ".." / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the starter files ({name}/) are missing from this installation of campaign")


def names(kind: str) -> list[str]:
    """The sites or studies that can be had, without `.yaml`, sorted."""
    return sorted(entry.name.removesuffix(".yaml") for entry in room(kind).iterdir() if entry.name.endswith(".yaml"))


def files(project_name: str, sites: tuple[str, ...] = ()) -> dict[str, str]:
    """Path within the project -> text, for a new project. `sites`: only these; empty: all."""
    wanted: dict[str, str] = {}
    for kind in ROOMS:
        for entry in sorted(room(kind).iterdir(), key=lambda entry: entry.name):
            if entry.name == "README.md" or (entry.name.endswith(".yaml") and entry.is_file()):
                text = entry.read_text(encoding="utf-8")
                wanted[f"{kind}/{entry.name}"] = text.replace("$schema=../docs/schema/", f"$schema=../{SCHEMAS}")
    if sites:
        for name in names("sites"):
            if name not in sites:
                del wanted[f"sites/{name}.yaml"]
    own = resources.files("campaign.starter")
    # a JSON string is a YAML string, whatever the folder is called
    text = (own / "campaign.yaml").read_text(encoding="utf-8")
    wanted["campaign.yaml"] = text.replace("@NAME@", json.dumps(project_name, ensure_ascii=False))
    wanted |= {f"{SCHEMAS}{name}.json": text for name, text in schema.texts().items()}
    wanted[".gitignore"] = (own / "gitignore").read_text(encoding="utf-8")
    return wanted
