"""`make evidence`: the page says what was run and what came out, and nothing of the machine's folders."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "evidence.py"

PLAN = """
title: "Evidence: a test"
parts:
  - id: hello
    title: Says hello
    command: printf 'one\\ntwo\\nthree in %s\\n' "$PWD"; printf 'half\\rwhole\\033[31m red\\033[0m\\n' >&2
    tail: 2
  - id: picture
    title: "Draws: a picture"
    command: mkdir -p out && printf PNG > out/figure.png && exit 3
    pictures: ["out/*.png"]
"""


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, at work in a small repository."""
    spec = importlib.util.spec_from_file_location("evidence", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "EVIDENCE", tmp_path / "docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "t.yaml").write_text(PLAN)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return module


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["evidence.py", *words])
    code = module.main()
    assert isinstance(code, int)
    return code


def test_page_says_what_came_out(evidence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(evidence, monkeypatch, "t") == 1  # the second command failed, and the page is there all the same
    page = (tmp_path / "docs" / "t.md").read_text()
    commit = evidence._git("rev-parse", "--short=12", "HEAD")
    assert re.search(rf"\| 0 \| \d+\.\d s \| {commit}", page)
    assert "the last 2 lines of 4:" in page
    assert "three in .\nwhole red\n" in page
    assert str(tmp_path) not in page
    assert "exit code 3" in page
    assert "![Draws: a picture](t/picture-figure.png)" in page
    assert "sha256 `796120837694d3f3f29259cfeb25091698c2a0aa87873658d840b4993ee889b3`" in page
    assert "(#draws-a-picture)" in page
    assert (tmp_path / "docs" / "t" / "picture-figure.png").read_text() == "PNG"


def test_one_part_again_leaves_the_others(
    evidence: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(evidence, monkeypatch, "t")
    before = json.loads((tmp_path / "docs" / "t.json").read_text())
    plan = tmp_path / "docs" / "t.yaml"
    plan.write_text(PLAN.replace("one", "uno").replace("tail: 2", "tail: 9"))
    assert run(evidence, monkeypatch, "t", "--only", "hello") == 0
    after = json.loads((tmp_path / "docs" / "t.json").read_text())
    assert after["picture"] == before["picture"]
    assert after["hello"]["lines"][0] == "uno"
    assert "t/picture-figure.png" in (tmp_path / "docs" / "t.md").read_text()


def test_unknown_issue_and_part(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(evidence, monkeypatch, "nothing") == 2
    assert "there are: t" in capsys.readouterr().err
    assert run(evidence, monkeypatch, "t", "--only", "helo") == 2
    assert "there are: hello, picture" in capsys.readouterr().err
