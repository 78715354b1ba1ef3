"""What `campaign.yaml` says: a user's own choices in one project."""
# ruff: noqa: RUF012  pydantic copies defaults, mutable ones too

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from campaign.fieldtypes import Positive, Token
from campaign.site import Name, Paths
from campaign.validate import FileModel, FileSource, Strict, json_schema, load_model
from campaign.yamlfile import parse


class Caps(Strict):
    """What this project may use, all sites together; null: no cap."""

    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    queued: Positive | None = None


class Mlflow(Strict):
    """Where `export` mirrors results to."""

    tracking_uri: str | None = None
    experiment: str | None = None


class Config(FileModel):
    """campaign.yaml: a user's own choices; site files stay facts that groups share."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str | None = None
    sites: list[str] = []
    studies: list[str] = []
    accounts: dict[Name, Token] = {}
    projects: dict[Name, Token] = {}
    paths: dict[Name, Paths] = {}
    caps: Caps = Caps()
    group_readable: bool = False
    mlflow: Mlflow = Mlflow()


def load_config(path: Path, *, shown: str) -> Config:
    """The file's contents; all defaults when there is none. Raises `BadInput`."""
    if path.exists():
        return load_model(path, Config, shown=shown)
    config = Config.model_validate({})
    config._source = FileSource(parse("{}", path), shown)
    return config


def config_schema() -> dict[str, Any]:
    """docs/schema/campaign.json."""
    return json_schema(Config, "campaign.yaml")
