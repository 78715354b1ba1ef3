"""How far a long plan has come: lines in a log, one rewritten line on a terminal, nothing with -q."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.cli.common import Context
from campaign.cli.progress import Progress
from campaign.plan.build import build_plan, save_plan
from campaign.project import Project
from campaign.submit.ledger import Ledger

SITE = """\
schema: 1
name: here
scheduler: {kind: local}
default_partition: all
partitions: {all: {node: any}}
nodes: {any: {cores: 64}}
"""
STUDY = """\
schema: 1
name: s
command: [python, "{size}"]
axes: {size: [SIZES]}
repeats: 2
walltime: "00:01:00"
"""


def project_of(folder: Path, points: int) -> Project:
    for name, text in (("sites/here.yaml", SITE), ("studies/s.yaml", STUDY)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("SIZES", ", ".join(map(str, range(points)))))
    return Project(folder)


def context(*, quiet: bool = False) -> Context:
    return Context("plan", None, None, None, as_json=False, quiet=quiet, verbose=0)


def test_every_step_of_a_plan_says_how_far_it_is(tmp_path: Path) -> None:
    """700 points with 2 repeats: 1,400 runs; a word every 500."""
    said: list[tuple[str, int, int, str]] = []
    project = project_of(tmp_path, 700)
    plan = build_plan(project, ["here"], ["s"], progress=lambda *words: said.append(words))
    save_plan(project, plan, lambda *words: said.append(words))
    with Ledger.open(project.ledger_path, new=True) as ledger:
        ledger.add_plan(plan, lambda *words: said.append(words))
    assert said == [
        ("checking s on here", 0, 700, "points"),
        ("checking s on here", 500, 700, "points"),
        *(
            (what, done, 1400, "runs")
            for what in ("planning s on here", "writing the plan", "noting runs in the ledger")
            for done in (0, 500, 1000)
        ),
    ]


@pytest.mark.parametrize(("line_s", "quiet", "text"), [
    (0.0, False, "planning s on here: 120,000 of 200,000 runs\n"), (0.0, True, ""), (1000.0, False, ""),
])  # fmt: skip
def test_a_log_gets_lines(capsys: pytest.CaptureFixture[str], line_s: float, quiet: bool, text: str) -> None:
    progress = Progress(context(quiet=quiet), line_s)
    progress("planning s on here", 120_000, 200_000, "runs")
    progress.end()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", text)


SHOW = """
from campaign.cli import progress
from campaign.cli.common import Context
progress.FIRST_S = progress.AGAIN_S = 0.0
show = progress.Progress(Context("plan", None, None, None, False, False, 0))
for done in (1000, 2000):
    show("writing", done, 3000, "runs")
show.end()
"""


def test_a_terminal_gets_one_line_that_is_rewritten_and_taken_away() -> None:
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", SHOW], stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert re.split(r"\r\x1b\[K", shown) == ["", "writing: 1,000 of 3,000 runs", "writing: 2,000 of 3,000 runs", ""]
