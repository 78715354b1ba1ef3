"""Editors know the keys: the exported schemas are up to date and take what is shipped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from campaign.site import site_schema
from campaign.study import study_schema
from campaign.yamlfile import load, without_marks
from tests.sites.sent import ROOT, SITES

STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


@pytest.mark.parametrize(("name", "schema"), [("site", site_schema), ("study", study_schema)])
def test_the_exported_json_schema_is_up_to_date(name: str, schema: Any) -> None:
    written = json.loads((ROOT / "docs" / "schema" / f"{name}.json").read_text())
    assert written == json.loads(json.dumps(schema())), "run: python -m campaign.schema docs/schema"


@pytest.mark.parametrize("path", [*SITES, *STUDIES], ids=lambda path: path.stem)
def test_an_editor_accepts_the_starter_files(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match
    schema = json.loads((path.parent / match[1]).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(without_marks(load(path).data), schema)


def test_an_editor_shows_an_unknown_key() -> None:
    data = without_marks(load(ROOT / "sites" / "juwels.yaml").data)
    data["scheduler"]["gpu_requests"] = "gres"
    with pytest.raises(jsonschema.ValidationError, match="gpu_requests"):
        jsonschema.validate(data, site_schema())
