"""The ledger takes a plan's runs from the text of the saved plan, and only where it is theirs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from campaign.errors import Problem
from campaign.plan.store import run_texts, save_plan
from campaign.project import Project
from campaign.submit.ledger import Ledger
from tests.submit.make import make_plan, make_run

IDS = [f"{number:016x}" for number in range(1, 4)]


@pytest.mark.parametrize("given", ["saved", "none", "others", "too few"])
def test_specs_are_the_runs_as_planned(tmp_path: Path, given: str) -> None:
    runs = [make_run(run_id, params={"lr": index, "größe": "ü\n"}) for index, run_id in enumerate(IDS)]
    runs[1] = dataclasses.replace(runs[1], problems=(Problem("too large"),))
    plan = make_plan("p1", *runs)
    path = save_plan(Project(tmp_path), plan)
    texts = {
        "saved": run_texts(path),
        "none": None,
        "others": iter(['{"run_id":"ffff","x":1}'] * 3),
        "too few": iter([next(run_texts(path))]),
    }[given]
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(plan, texts=texts)
        rows = {row["run_id"]: row for row in ledger.query("SELECT * FROM runs")}
        assert ledger.planned_runs(IDS) == {IDS[0]: runs[0], IDS[2]: runs[2]}
    assert {run_id: json.loads(row["params"])["lr"] for run_id, row in rows.items()} == {IDS[0]: 0, IDS[2]: 2}
