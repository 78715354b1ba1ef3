"""`python -m campaign.schema FOLDER`: write the JSON Schemas of site, study and campaign files, for editors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from campaign.config import config_schema
from campaign.site import site_schema
from campaign.study import study_schema

SCHEMAS = {"site": site_schema, "study": study_schema, "campaign": config_schema}


def texts() -> dict[str, str]:
    """The schemas as JSON text: site, study, campaign (campaign.yaml)."""
    return {name: json.dumps(schema(), indent=2) + "\n" for name, schema in SCHEMAS.items()}


def write(folder: Path) -> None:
    """Write site.json, study.json and campaign.json into `folder`."""
    for name, text in texts().items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schema"))
