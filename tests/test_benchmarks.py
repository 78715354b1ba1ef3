"""The harness of `make bench`: medians, bounds, exit codes, the results file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks.harness import paired_ratios, process_seconds, row

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("kind", "bound", "ok"), [("max", 2.0, True), ("max", 1.9, False), ("min", 2.0, True),
                                                   ("min", 2.1, False)])  # fmt: skip
def test_the_median_is_held_against_the_bound(kind: Any, bound: float, ok: bool) -> None:
    made = row("r", [1.0, 2.0, 100.0], "x", bound=bound, kind=kind)
    assert (made["value"], made["n"], made["min"], made["max"], made["ok"]) == (2.0, 3, 1.0, 100.0, ok)


def test_pairs_are_interleaved_and_take_turns_in_going_first() -> None:
    calls: list[str] = []

    def timed(name: str, value: float) -> Callable[[], float]:
        return lambda: calls.append(name) or value  # type: ignore[func-returns-value]

    ratios, ours, theirs = paired_ratios(timed("a", 6.0), timed("b", 2.0), pairs=3, warmup=0)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert (ratios, ours, theirs) == ([3.0] * 3, [6.0] * 3, [2.0] * 3)


def test_a_process_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="exited with 3:\nno luck"):
        process_seconds([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Makes these benchmarks the only ones; gives the path of the results file."""

    def make(**benchmarks: Callable[[], list[dict[str, Any]]]) -> Path:
        for name, run in benchmarks.items():
            module = ModuleType(f"benchmarks.bench_{name}")
            module.run = run  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(bench, "discover", lambda: sorted(benchmarks))
        monkeypatch.setattr(bench, "HERE", tmp_path / "benchmarks")
        (tmp_path / "benchmarks").mkdir()
        monkeypatch.setattr(bench, "RESULTS", tmp_path / "benchmarks" / "results.json")
        return tmp_path / "benchmarks" / "results.json"

    return make


def test_a_missed_bound_and_a_broken_benchmark_end_with_1(only: Callable[..., Path]) -> None:
    good = row("good", [1.0], "x", bound=2.0, kind="max")

    def broken() -> list[dict[str, Any]]:
        raise ValueError("no luck\nat all")

    results = only(good=lambda: [good], late=lambda: [row("late", [3.0], "x", bound=2.0, kind="max")], broken=broken)
    assert bench.main(["good"]) == 0
    assert not results.exists()  # a part is no result
    assert bench.main(["late"]) == 1
    assert bench.main([]) == 1
    written = json.loads(results.read_text())
    assert [(entry["name"], entry["ok"]) for entry in written["rows"]] == [
        ("broken", False), ("good", True), ("late", False)]  # fmt: skip
    assert written["rows"][0]["detail"] == "ValueError: no luck"
    assert {"date", "cpu", "cores", "python", "versions", "commit"} <= set(written)


def test_unknown_benchmark(only: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    only(good=list)
    assert bench.main(["goof"]) == 2
    assert "good" in capsys.readouterr().err


def test_every_benchmark_of_the_issue_is_there() -> None:
    """Start-up, planning, Recorder, ingest."""
    assert {"startup", "plan", "record", "ingest"} <= set(bench.discover())
    for name in bench.discover():
        assert "def run(" in (ROOT / "benchmarks" / f"bench_{name}.py").read_text(encoding="utf-8")
