"""`python -m campaign.schema FOLDER`: write the JSON Schemas of site and study files, for editors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from campaign.site import site_schema
from campaign.study import study_schema

SCHEMAS = {"site": site_schema, "study": study_schema}


def write(folder: Path) -> None:
    """Write site.json and study.json into `folder`."""
    for name, schema in SCHEMAS.items():
        (folder / f"{name}.json").write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schema"))
