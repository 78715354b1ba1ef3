"""Every figure of a shipped site file says where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.site import load_site
from campaign.yamlfile import load
from tests.sites.grades import GRADED, known_sources, other_claims, ungraded, wrong_claims
from tests.sites.sent import SITES

SOURCES = {"JPY", "JDD", "datasheet"}


def test_the_documents_table_names_the_sources() -> None:
    assert {"JDD", "LUMI", "CINECA-UG", "LXP", "IT4I", "EESSI", "USER", "datasheet"} <= known_sources()


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_every_entry_says_where_it_is_from(path: Path) -> None:
    document = load(path)
    assert set(GRADED) & set(document.data), "nothing was looked at"
    assert ungraded(document, known_sources()) == []


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_other_sources_are_known_ones_too(path: Path) -> None:
    claims = other_claims(load(path))
    assert [(line, wrong) for line, text in claims for wrong in wrong_claims(text, known_sources())] == []


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_what_is_said_of_the_internet_has_a_source(path: Path) -> None:
    document = load(path)
    lines = document.text.splitlines()
    assert "compute_internet" in document.data, "null when nobody knows"
    number = document.line_of(("compute_internet",))
    known = load_site(path).compute_internet is not None
    assert (number in {line for line, _ in other_claims(document)}) == known, lines[number - 1]


def test_every_source_of_the_table_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SITES)
    assert {name for name in known_sources() if f" {name}" not in text} == set()


GOOD = (
    "# [O 2021-09-09 JPY]",
    "# [O 2021 JPY]",
    "# [M undated JDD live output]",
    "# [K datasheet]",
    "# [O 2021-09-09 JPY; 384 also R 2024-11 JDD]",
    "# [K datasheet of the A100; 40 GB P 2025-06 JDD]",
)
BAD = (
    "",
    "# from the web",
    "# [O JPY]",
    "# [O 2021]",
    "# [X 2021 JPY]",
    "# [K]",
    "# [K 2021]",
    "# O 2021 JPY",
    "# [M yesterday JPY]",
    "# [O 2021-13 JPY]",
    "# [O 2021-09-32 JPY]",
    "# [O 2021-9-9 JPY]",
    "# [O 2021 NOBODY]",
    "# [the page says O 2021 JPY]",
    "# [O 2021 JPY; 384 also]",
    "# [O 2021 JPY; 384 also R JDD]",
    "# [O 2021 JPY; 384 R 2024 NOBODY]",
    "# [O 2021 JPY and R 2024 JDD]",
    "# [O 2021 JPY] and more",
)


def a_file(folder: Path, comment: str) -> Path:
    """A file with a good entry and one that has this comment."""
    path = folder / "x.yaml"
    path.write_text(f"partitions:\n  a: {{node: n}}  # [O 2021-09-09 JPY]\n  b: {{node: n}}  {comment}\n")
    return path


@pytest.mark.parametrize("comment", GOOD)
def test_an_entry_with_its_source_is_taken(tmp_path: Path, comment: str) -> None:
    assert ungraded(load(a_file(tmp_path, comment)), SOURCES) == []


@pytest.mark.parametrize("comment", BAD)
def test_an_entry_without_its_source_is_found(tmp_path: Path, comment: str) -> None:
    found = ungraded(load(a_file(tmp_path, comment)), SOURCES)
    assert found
    assert all(text.startswith("partitions.b: ") for text in found)


@pytest.mark.parametrize("section", GRADED)
def test_the_test_fails_when_a_shipped_line_loses_its_source(tmp_path: Path, section: str) -> None:
    shipped = next(path for path in SITES if path.stem == "juwels")
    document = load(shipped)
    name = next(iter(document.data[section]))
    lines = shipped.read_text(encoding="utf-8").splitlines()
    number = document.line_of((section, name)) - 1
    lines[number] = lines[number].split("  # [")[0]
    (tmp_path / "x.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [text.split(":")[0] for text in ungraded(load(tmp_path / "x.yaml"), known_sources())] == [
        f"{section}.{name}"
    ]
