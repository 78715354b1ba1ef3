"""YAML means what YAML 1.2 says; everything else is refused with file and line."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import ruamel.yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput, Problem
from campaign.yamlfile import MAX_BYTES, Plain, load, parse, parse_value, without_marks

FILE = Path("sites/x.yaml")

# YAML 1.2.2, section 10.3.2, and what YAML 1.1 readers make of it instead
CORE: dict[str, Any] = {
    "null": None, "~": None, "": None, "Null": None, "nULL": "nULL",
    "true": True, "False": False, "TRUE": True, "tRUE": "tRUE",
    "no": "no", "yes": "yes", "on": "on", "off": "off", "y": "y",
    "0": 0, "-7": -7, "+12": 12, "012": 12, "0o17": 15, "0x1F": 31, "0b11": "0b11", "1_000": "1_000", "0o8": "0o8",
    "1e-3": 0.001, "1.": 1.0, ".5": 0.5, "-1.5E+3": -1500.0, "512e9": 512e9, "1e": "1e", ".": ".",
    ".inf": math.inf, "-.INF": -math.inf, ".Inf": math.inf, "inf": "inf", "nan": "nan",
    "10:00": "10:00", "24:00:00": "24:00:00", "2026-09-02": "2026-09-02", "1.2.3": "1.2.3", "=": "=",
}  # fmt: skip


@pytest.mark.parametrize("text", CORE)
def test_an_unquoted_scalar_means_what_the_core_schema_says(text: str) -> None:
    value = parse(f"key: {text}\n", FILE).data["key"]
    assert value == CORE[text]
    assert without_marks(value) == CORE[text]
    assert type(without_marks(value)) is type(CORE[text])


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(parse("key: .nan", FILE).data["key"])


@pytest.mark.parametrize("text", ['"10:00"', "'10:00'", '"true"', "'1'", '""'])
def test_a_quoted_scalar_is_a_string_without_the_mark_of_an_unquoted_one(text: str) -> None:
    value = parse(f"key: {text}\n", FILE).data["key"]
    assert value == text[1:-1]
    assert type(value) is str


def test_an_unquoted_string_carries_the_mark() -> None:
    assert type(parse("key: 10:00", FILE).data["key"]) is Plain


def test_core_tags_are_read() -> None:
    data = parse("a: !!str 10\nb: !!int '7'\nc: !!float 1\nd: !!bool 'true'\ne: !!null ''\nf: ! x", FILE).data
    assert data == {"a": "10", "b": 7, "c": 1.0, "d": True, "e": None, "f": "x"}


def test_every_key_and_item_has_its_line() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n# no\ne: |\n  text\n  more\nf: 3\n", FILE)
    lines = {("a",): 1, ("a", "b"): 2, ("a", "c"): 3, ("a", "c", 0): 4, ("a", "c", 1): 5, ("a", "c", 1, "d"): 5,
             ("e",): 7, ("f",): 10}  # fmt: skip
    assert {path: document.line_of(path) for path in lines} == lines
    assert document.line_of(("a", "missing")) == 1
    assert document.line_of(("nowhere",)) == 1


def test_aliases_are_expanded_and_have_lines() -> None:
    document = parse("base: &b {x: [1, 2]}\ncopy: *b\n", FILE)
    assert document.data == {"base": {"x": [1, 2]}, "copy": {"x": [1, 2]}}
    assert document.line_of(("copy", "x")) == 1
    assert document.line_of(("copy",)) == 2


BAD: dict[str, tuple[str, int, str]] = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", 3, "key 'a' stands twice (first on line 1)"),
    "duplicate key, quoted": ("a: 1\n'a': 3\n", 2, "stands twice"),
    "duplicate key below": ("a:\n  b: 1\n  b: 2\n", 3, "'b' stands twice"),
    "object tag": ("a: 1\nb: !!python/object/apply:os.system [true]\n", 2, "tag !!python/object/apply:os.system"),
    "own tag": ("b: !mine 1\n", 1, "tag !mine"),
    "tag on the top": ("--- !!set\n? a\n", 1, "tag !!set"),
    "timestamp tag": ("b: !!timestamp 2026-01-01\n", 1, "tag !!timestamp"),
    "binary tag": ("b: !!binary aGk=\n", 1, "tag !!binary"),
    "tag that doesn't fit": ("a: !!int x\n", 1, "not an integer"),
    "merge key": ("a: &a {x: 1}\nb:\n  <<: *a\n", 3, "merge keys"),
    "unknown alias": ("a: 1\nb: *nope\n", 2, "alias *nope"),
    "alias in itself": ("a: &a\n  b: *a\n", 2, "inside its own anchor"),
    "tab": ("a:\n\tb: 1\n", 2, "not valid YAML"),
    "open bracket": ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
    "open quote": ('a: "x\nb: 1\n', 3, "not valid YAML"),
    "two colons": ("a: b: c\n", 1, "mapping values are not allowed here"),
    "control character": ("a: 1\nb: \x07\n", 2, "not valid YAML"),
    "two documents": ("a: 1\n---\nb: 2\n", 2, "a second YAML document"),
    "YAML 1.1": ("%YAML 1.1\n---\na: 1\n", 1, "%YAML 1.1"),
    "list on top": ("# c\n- a\n- b\n", 2, "the top level is a list"),
    "text on top": ("hello\n", 1, "the top level is a single value"),
    "empty": ("", 1, "the file is empty"),
    "only a comment": ("# nothing\n", 1, "the file is empty"),
    "integer key": ("a: 1\n7: x\n", 2, "key '7' is not a string"),
    "boolean key": ("true: x\n", 1, "key 'true' is not a string"),
    "list key": ("? [a, b]\n: 1\n", 1, "a key must be a single string"),
    "lone surrogate": ('a: "\\ud800"\n', 1, "a lone surrogate"),
    "huge integer": (f"a: {'9' * 5000}\n", 1, "too long"),
    "huge float": ("a: 1e999\n", 1, "too large"),
    "deep nesting": ("a: " + "[" * 5000 + "]" * 5000 + "\n", 1, "nested too deeply"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_yaml_is_refused_with_its_line(name: str) -> None:
    text, line, message = BAD[name]
    problem = _refused(text)
    assert (problem.file, problem.line) == ("sites/x.yaml", line)
    assert message in problem.message


def test_a_billion_laughs_are_refused_before_they_are_laughed() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    problem = _refused("\n".join(lines))
    assert "aliases are expanded" in problem.message
    assert problem.line is not None
    assert problem.line <= 6


def test_what_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes("a: 1\nb: Jülich\n".encode("latin-1"))
    problem = _caught(lambda: load(path))
    assert (problem.line, problem.file) == (2, str(path))
    assert "not UTF-8" in problem.message


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: J\xc3\xbclich\r\nb: 2\r\n")
    assert load(path).data == {"name": "Jülich", "b": 2}


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: None])
def test_what_cant_be_read_is_said(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "x.yaml"
    make(path)
    assert "can't be read" in _caught(lambda: load(path)).message


def test_a_file_too_large_to_be_meant_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    assert "bytes" in _caught(lambda: load(path)).message


def test_values_of_the_command_line_follow_the_same_rules() -> None:
    assert parse_value("1e-3") == 0.001
    assert parse_value("[1, 2]") == [1, 2]
    assert parse_value("no") == "no"
    assert type(parse_value("ddp")) is str
    assert parse_value("{a: 1}") == {"a": 1}
    assert parse_value("") is None
    for text in ("[1", "!!python/name:os.system", "a: 1\na: 2"):
        with pytest.raises(ValueError, match="not a YAML value"):
            parse_value(text)


_KEY = st.text("abcdefgh_", min_size=1, max_size=8).filter(lambda key: key not in ("n", "y"))
_VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(10**18), 10**18), st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEY, inner, max_size=4)),
    max_leaves=20,
)  # fmt: skip


_DATA = st.dictionaries(_KEY, _VALUE, min_size=1, max_size=5)


@settings(deadline=None)
@given(_DATA, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_as_it_is(data: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    assert without_marks(parse(text, FILE).data) == data


@settings(deadline=None, max_examples=50)
@given(_DATA)
def test_what_another_writer_wrote_is_read_as_it_was(data: dict[str, Any]) -> None:
    writer = ruamel.yaml.YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.width = 10_000
    buffer = io.StringIO()
    writer.dump(data, buffer)
    assert without_marks(parse(buffer.getvalue(), FILE).data) == data


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab: -[]{}&*!'\"|>\n#%?,1.e\t"), max_size=60))
def test_any_text_is_a_document_or_bad_input_with_a_file(text: str) -> None:
    try:
        document = parse(text, FILE)
    except BadInput as error:
        named = {problem.file for problem in error.problems}
    else:
        named = {"sites/x.yaml"}
        assert all(1 <= line <= text.count("\n") + 1 for line in document.lines.values())
    assert named == {"sites/x.yaml"}


def _refused(text: str) -> Problem:
    return _caught(lambda: parse(text, FILE))


def _caught(call: Any) -> Problem:
    with pytest.raises(BadInput) as caught:
        call()
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]
