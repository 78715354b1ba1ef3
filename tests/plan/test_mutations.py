"""Valid files, broken by name and at random: read with a meaning, or refused with file and line. Nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from campaign.errors import BadInput
from campaign.plan.build import build_plan
from campaign.project import Project
from tests.plan.conftest import ROOT
from tests.plan.mutation_table import NAMES, Outcome, at, judge, same
from tests.plan.mutations import MUTATIONS, Mutation, Reads, Refused

MUTATIONS_AT_LEAST = 100


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What the files mean before anything is changed, each planned as its mutations will be."""
    found = {}
    for kind in NAMES:
        folder = tmp_path_factory.mktemp(kind)
        found[kind] = judge(None, folder, kind)
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.name}")
def test_a_mutated_file_is_read_as_it_should_be_or_refused(
    tmp_path: Path, mutation: Mutation, bases: dict[str, Outcome]
) -> None:
    outcome, expected = judge(mutation, tmp_path), mutation.verdict
    if isinstance(expected, Refused):
        assert outcome.meaning is None, "it was read"
        for problem in outcome.problems:
            assert problem.file == NAMES[mutation.file], problem
            assert problem.line is not None, problem
        said = [(p.line, f"{p.message} {p.allowed} {p.hint} {p.value}") for p in outcome.problems]
        assert any(line == expected.line and expected.words in text for line, text in said), said
        return
    assert outcome.meaning is not None, outcome.problems
    if isinstance(expected, Reads):
        assert same(at(outcome.meaning, expected.path), expected.value)
        assert not same(outcome.meaning, bases[mutation.file].meaning), "it means the same"
    else:
        assert outcome.meaning == bases[mutation.file].meaning
        assert outcome.runs == bases[mutation.file].runs


def test_the_mutations_are_many_and_each_is_another() -> None:
    """Names and texts: no mutation counts twice, and none leaves the file as it was."""
    assert len({(mutation.file, mutation.name) for mutation in MUTATIONS}) == len(MUTATIONS) >= MUTATIONS_AT_LEAST
    assert len({(mutation.file, mutation.text) for mutation in MUTATIONS}) == len(MUTATIONS)


FILES = [*sorted((ROOT / "sites").glob("*.yaml")), *sorted((ROOT / "studies").glob("*.yaml"))]
PIECES = [
    "null", "[]", "{}", "-1", "0", "1e999", ".nan", "true", '"x"', "10:00", "!!python/none", "&a", "*a", "<<", "\t",
    "'", "{", "]", ":", "\x00", "\u2028", "ü", "9" * 30, '"\\0"', "{a: {a: {a: 1}}}", "[[1], [2]]",
]  # fmt: skip


def broken(text: str, rng: random.Random) -> str:
    """One mutation: a value, a character, a line or a word is replaced, removed, doubled or moved."""
    lines = text.splitlines(keepends=True)
    row = rng.randrange(len(lines))
    line = lines[row]
    kind = rng.randrange(6)
    if kind == 0 and ":" in line:
        key, _, _ = line.partition(":")
        lines[row] = f"{key}: {rng.choice(PIECES)}\n"
    elif kind == 1:
        at = rng.randrange(len(line))
        lines[row] = line[:at] + rng.choice(PIECES) + line[at + rng.randrange(2) :]
    elif kind == 2:
        del lines[row]
    elif kind == 3:
        lines.insert(row, line)
    elif kind == 4:
        lines.insert(rng.randrange(len(lines)), lines.pop(row))
    else:
        words = line.split(" ")
        words[rng.randrange(len(words))] = rng.choice(PIECES)
        lines[row] = " ".join(words)
    return "".join(lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_file_is_read_or_refused(tmp_path: Path, path: Path) -> None:
    rng = random.Random(path.stem)
    text = path.read_text(encoding="utf-8")
    study = path.stem if path.parent.name == "studies" else "cern_hython"
    site = path.stem if path.parent.name == "sites" else "vega"
    for file in FILES:
        target = tmp_path / file.parent.name / file.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    outcomes = {"read": 0, "refused": 0}
    for _ in range(20):
        mutant = broken(text, rng)
        target = tmp_path / path.parent.name / path.name
        target.write_text(mutant, encoding="utf-8")
        try:
            plan = build_plan(Project(tmp_path), [f"sites/{site}.yaml"], [f"studies/{study}.yaml"], account="a")
            assert plan.runs
            outcomes["read"] += 1
        except BadInput as error:
            outcomes["refused"] += 1
            for problem in error.problems:
                assert problem.file is not None, problem
                assert problem.line is not None, problem
                assert problem.line <= mutant.count("\n") + 2
    assert outcomes["read"] > 0 or site != "vega", outcomes
    assert outcomes["refused"] > 0, outcomes
