"""Judges the named mutations. `python -m tests.plan.mutation_table` prints the table of all of them as Markdown."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.plan.build import build_plan
from campaign.project import Project
from tests.plan.mutations import BASE, MUTATIONS, Mutation

NAMES = {"site": "sites/tiny.yaml", "study": "studies/sweep.yaml", "campaign": "campaign.yaml"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one mutated file: what it means, or why it is refused."""

    meaning: dict[str, Any] | None
    """Of the mutated file; None when it is refused."""
    runs: tuple[Any, ...] = ()
    problems: tuple[Problem, ...] = ()
    reasons: tuple[Problem, ...] = ()
    """Of a file that is read: why runs can't run."""


def judge(mutation: Mutation | None, folder: Path, kind: str = "study") -> Outcome:
    """Plan a project below `folder` whose one file is mutated; None: none is, and the meaning is that of `kind`."""
    looked_at = mutation.file if mutation is not None else kind
    for other, name in NAMES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mutated = mutation is not None and mutation.file == other
        path.write_bytes(mutation.text if mutation is not None and mutated else BASE[other].encode())
    project = Project(folder)
    try:
        # the studies that a site's file lists are part of its meaning
        plan = build_plan(project, ["sites/tiny.yaml"], None if looked_at == "site" else ["studies/sweep.yaml"])
    except BadInput as error:
        return Outcome(None, problems=tuple(error.problems))
    reasons = dict.fromkeys(problem for run in plan.runs for problem in run.problems)
    return Outcome(_meaning(project, looked_at), _comparable(plan.runs), reasons=tuple(reasons))


def _meaning(project: Project, kind: str) -> dict[str, Any]:
    model = {
        "site": lambda: project.load_site("sites/tiny.yaml"),
        "study": lambda: project.load_study("studies/sweep.yaml"),
        "campaign": lambda: project.config,
    }[kind]()
    dumped: dict[str, Any] = model.model_dump(by_alias=True)
    return dumped


def _comparable(runs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((run.run_id, run.order, *run.shape()) for run in runs)


def at(meaning: dict[str, Any], path: str) -> Any:
    """The value at a dotted path."""
    value: Any = meaning
    for key in path.split("."):
        value = value[key]
    return value


def rows() -> list[tuple[str, str, str, str, str]]:
    """(number, file, mutation, verdict, message) of every mutation, as it is judged now."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        base = {kind: judge(None, Path(folder) / kind, kind) for kind in NAMES}
        for number, mutation in enumerate(MUTATIONS, start=1):
            outcome = judge(mutation, Path(folder) / str(number))
            found.append(
                (str(number), mutation.file, mutation.name, *_verdict(outcome, base[mutation.file].meaning or {}))
            )
    return found


def _verdict(outcome: Outcome, base: dict[str, Any]) -> tuple[str, str]:
    if outcome.meaning is None:
        return "refused", _said(outcome.problems[0])
    if same(outcome.meaning, base):
        return "read, same meaning", ""
    changed = [f"{key} = {outcome.meaning[key]!r}" for key in outcome.meaning if outcome.meaning[key] != base[key]]
    meaning = "; ".join(changed)[:160]
    if outcome.reasons:
        return "read, runs refused", f"{meaning}: {_said(outcome.reasons[0])}"
    return "read", meaning


def _said(problem: Problem) -> str:
    more = [f"allowed: {problem.allowed}"] if problem.allowed else []
    more += [f"try: {problem.hint}"] if problem.hint else []
    return f"`{problem.file}:{problem.line}` {problem.message}" + (f" ({'; '.join(more)})" if more else "")


def same(one: Any, other: Any) -> bool:
    """Equal in values and types."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def markdown() -> str:
    """The table, with its counts on top."""
    table = rows()
    counts = Counter(row[3] for row in table)
    lines = [
        f"{len(table)} mutations of valid files: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common()),
        "",
        "| | file | mutation | verdict | message or meaning |",
        "|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in table]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
