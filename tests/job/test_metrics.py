"""Numbers of programs that don't use the Recorder."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.job.metricsource import JsonLines, LineMatcher, Value, patterns
from tests.job.jobs import Site


def test_metrics_from_output_json_lines_and_files(site: Site) -> None:
    script = site.script("""
        import json, os, time
        rank = int(os.environ["RANK"])
        metrics = open(os.environ["CAMPAIGN_METRICS"], "a", buffering=1)
        log = open("log.jsonl", "w", buffering=1) if rank == 0 else None
        for epoch in range(3):
            print(f"Epoch {epoch}: loss={1 / (epoch + 1):.3f} took {epoch + 2}.5s" + (" ???" if rank else ""))
            metrics.write(json.dumps({"name": "gpu_memory", "value": 10 * rank + epoch, "unit": "GB", "step": epoch}))
            metrics.write("\\nthis is not JSON\\n")
            if log:
                log.write(json.dumps({"name": "val_loss", "value": 0.1 * epoch, "step": epoch}) + "\\n")
    """)
    metrics = [
        {"name": "loss", "unit": "1", "regex": r"^Epoch (?P<step>\d+): loss=(?P<value>[\d.]+)"},
        {"name": "epoch_time_s", "unit": "s", "regex": r"Epoch (?P<step>\d+): .* took (?P<value>[\d.]+)s$"},
        {"jsonl": "log.jsonl"},
    ]
    (site.project / "log.jsonl").write_text('{"name": "val_loss", "value": 99, "step": 77}\n', encoding="utf-8")
    ended = site.run(site.spec(script, ranks_per_node=2, metrics=metrics))
    assert ended.state == ("done", None), ended.log
    epochs = {row["epoch"]: row for row in ended.rows("epochs")}
    assert {epoch: (row["epoch_time_s"], row["loss"]) for epoch, row in epochs.items()} == {
        0: (2.5, 1.0),
        1: (3.5, 0.5),
        2: (4.5, 0.333),
    }
    assert [epochs[epoch]["val_loss"] for epoch in range(3)] == pytest.approx([0, 0.1, 0.2])
    memory = {(row["rank"], row["step"]): (row["value"], row["unit"]) for row in ended.events("gpu_memory")}
    assert memory == {(rank, epoch): (10.0 * rank + epoch, "GB") for rank in range(2) for epoch in range(3)}
    # the same numbers are kept as observations too
    assert len(ended.events("loss")) == 3


LINES = st.lists(st.sampled_from(["step 1 loss=0.5", "noise", "step 20 loss=1e-3", "loss=nan step", ""]), max_size=12)


@settings(deadline=None)
@given(LINES, st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_matches_do_not_depend_on_how_the_output_comes(lines: list[str], cuts: list[int], ended: bool) -> None:
    data = "\n".join(lines).encode() + (b"\n" if ended else b"")
    matcher = LineMatcher(patterns([{"name": "loss", "unit": "", "regex": r"step (?P<step>\d+) loss=(?P<value>\S+)$"}]))
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    found = [value for first, last in itertools.pairwise(places) for value in matcher.feed(data[first:last])]
    found += matcher.end()
    expected = {"step 1 loss=0.5": (0.5, 1), "step 20 loss=1e-3": (0.001, 20)}
    assert [(value.value, value.step) for value in found] == [expected[line] for line in lines if line in expected]


def test_json_lines_follow_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = JsonLines(path)
    assert lines.read() == []
    path.write_text('{"name": "a", "value": 1}\n{"name": "b", "val', encoding="utf-8")
    assert lines.read() == [Value("a", 1.0)]
    with path.open("a", encoding="utf-8") as file:
        file.write(
            'ue": 2, "unit": "s", "step": 7, "labels": {"x": 1}}\n[1]\n{"name": "c"}\n{"name": "d", "value": "NaN"}'
        )
    assert lines.read() == [Value("b", 2.0, "s", 7, {"x": "1"})]
    assert lines.bad_lines == 2
    assert lines.read(final=True) == []
    assert lines.bad_lines == 3
    path.write_text(json.dumps({"name": "e", "value": 5}) + "\n", encoding="utf-8")
    assert lines.read() == [Value("e", 5.0)]


@pytest.mark.parametrize(
    "again", ['{"name": "a", "value": 1}\n', '{"name": "a", "value": 1.0}\n{"name": "b", "value": 2}\n']
)
def test_a_file_of_an_earlier_run_is_passed_over_and_a_new_one_read_whole(tmp_path: Path, again: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"name": "a", "value": 1}\n', encoding="utf-8")
    os.utime(path, ns=(0, 0))
    lines = JsonLines(path, from_end=True)
    assert lines.read() == []
    path.write_text(again, encoding="utf-8")
    assert [value.name for value in lines.read()] == ["a", "b"][: again.count("\n")]
    assert lines.read() == []


def test_a_metric_that_never_matched_is_told(site: Site) -> None:
    metrics = [{"name": "loss", "unit": "1", "regex": r"accuracy=(?P<value>\d+)"}]
    ended = site.run(site.spec(site.script("print('loss=0.5')"), metrics=metrics))
    assert ended.state == ("done", None), ended.log
    assert ended.record["reason"] == "no line of rank 0 matched the metric loss"
