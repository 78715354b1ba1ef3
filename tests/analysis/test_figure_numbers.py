"""What is drawn is what the views say: lines, error bars, hollow points, ideals, bars, read back from the figures."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import duckdb
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import style
from analysis.choice import Choice
from analysis.figures import draw
from tests.analysis.answers_store import Run, ladder, memory_store, phase_times, step_times
from tests.analysis.conftest import Drawn
from tests.analysis.shapes import invalid, two_sites

COLUMNS = {
    "epoch_time": ("epoch_time_s", "epoch_time_lo_s", "epoch_time_hi_s"),
    "throughput": ("throughput_per_s", "throughput_lo", "throughput_hi"),
    "efficiency": ("efficiency", "efficiency_lo", "efficiency_hi"),
}


ALL = Choice()


def figure_of(name: str, runs: list[Run], choice: Choice = ALL) -> Figure:
    with style.look(), memory_store(runs) as connection:
        return draw(name, connection, choice).figure


def panel(figure: Figure, label: str) -> Axes:
    (found,) = [panel for panel in figure.axes if panel.get_label() == label]
    return found


def line(panel: Axes, label: str) -> Line2D:
    (found,) = [line for line in panel.lines if line.get_label() == label]
    return found


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]  # type: ignore[arg-type]


def bars(panel: Axes, name: str) -> dict[float, tuple[float, float]]:
    """Ends of the error bars of a line by x; empty when it has none."""
    found = [c for c in panel.containers if isinstance(c, ErrorbarContainer) and c.get_label() == f"spread of {name}"]
    segments = [segment for container in found for segment in container.lines[2][0].get_segments()]
    return {float(segment[0][0]): (float(segment[0][1]), float(segment[1][1])) for segment in segments}


@pytest.mark.parametrize("figure", ["scaling", "cross-site"])
@pytest.mark.parametrize("metric", COLUMNS)
@pytest.mark.parametrize("site", ["juwels", "vega"])
def test_lines_and_error_bars_are_the_rows(
    drawn: Drawn, stores: Callable[[str], duckdb.DuckDBPyConnection], figure: str, metric: str, site: str
) -> None:
    query = f"SELECT world_size, {', '.join(COLUMNS[metric])} FROM scaling WHERE site = ? AND n > 0 ORDER BY 1"
    rows = stores("two sites").execute(query, [site]).fetchall()
    assert len(rows) > 2
    here = panel(drawn(figure, "two sites").figure, metric)
    assert points(line(here, site)) == [(size, pytest.approx(value)) for size, value, _, _ in rows]
    assert bars(here, site) == {size: (pytest.approx(low), pytest.approx(high)) for size, _, low, high in rows}


@pytest.mark.parametrize("site", ["juwels", "vega"])
def test_speedup_is_the_row_and_its_bar_follows_from_the_efficiency(
    drawn: Drawn, stores: Callable[[str], duckdb.DuckDBPyConnection], site: str
) -> None:
    rows = stores("two sites").execute(
        "SELECT world_size, speedup, throughput_lo, throughput_hi, "
        "first(throughput_per_s ORDER BY world_size) OVER () FROM scaling WHERE site = ? AND n > 0 ORDER BY 1",
        [site],
    ).fetchall()  # fmt: skip
    here = panel(drawn("scaling", "two sites").figure, "speedup")
    assert points(line(here, site)) == [(size, pytest.approx(value)) for size, value, *_ in rows]
    expected = {size: (pytest.approx(low / base), pytest.approx(high / base)) for size, _, low, high, base in rows}
    assert bars(here, site) == expected


def test_two_sites_share_one_panel_and_differ_in_colour_marker_and_dash(drawn: Drawn) -> None:
    here = panel(drawn("cross-site", "two sites").figure, "throughput")
    juwels, vega = line(here, "juwels"), line(here, "vega")
    assert juwels.get_color() != vega.get_color()
    assert juwels.get_marker() != vega.get_marker()
    assert juwels.get_linestyle() != vega.get_linestyle() or juwels._dash_pattern != vega._dash_pattern  # type: ignore[attr-defined]


def test_an_invalid_run_is_hollow_unconnected_and_in_no_median() -> None:
    figure = figure_of("scaling", two_sites())
    base_per_s = 4096 / 102
    expected = {"epoch_time": 9.9, "throughput": 4096 / 9.9, "speedup": 4096 / 9.9 / base_per_s}
    expected["efficiency"] = expected["speedup"] * 4 / 32
    for metric, value in expected.items():
        hollow = line(panel(figure, metric), "not valid: juwels")
        assert points(hollow) == [(32, pytest.approx(value))]
        assert hollow.get_linestyle() == "None"
        assert to_rgba(hollow.get_markerfacecolor())[3] == 0
        assert hollow.get_markeredgecolor() == line(panel(figure, metric), "juwels").get_color()
    assert points(line(panel(figure, "epoch_time"), "juwels"))[-1] == (32, pytest.approx(14.5))


def test_no_repeats_no_error_bars_and_the_caption_says_so(drawn: Drawn) -> None:
    drawing = drawn("scaling", "no repeats")
    assert all(not bars(here, "ddp") for here in drawing.figure.axes)
    assert not any(isinstance(c, ErrorbarContainer) for here in drawing.figure.axes for c in here.containers)
    assert "no error bars" in " ".join(drawing.notes)


def test_one_run_is_no_spread_whatever_the_view_gives_as_its_ends() -> None:
    with memory_store(ladder([1, 2], repeats=1)) as connection:
        connection.execute("UPDATE scaling SET epoch_time_lo_s = epoch_time_s, epoch_time_hi_s = epoch_time_s, "
                           "spread_kind = 'minmax'")  # fmt: skip
        with style.look():
            here = panel(draw("scaling", connection, Choice()).figure, "epoch_time")
    assert bars(here, "ddp") == {}


def test_points_without_repeats_have_no_bar_beside_those_that_have() -> None:
    runs = [*ladder([1, 2], repeats=3), *ladder([4], repeats=1, has_base=True, base=1)]
    here = panel(figure_of("scaling", runs), "epoch_time")
    assert sorted(bars(here, "ddp")) == [1, 2]
    assert len(points(line(here, "ddp"))) == 3


def test_ideal_lines_start_at_the_baseline_and_are_linear() -> None:
    figure = figure_of("scaling", ladder([4, 8, 64], serial=0, parallel=80, repeats=1))
    assert points(line(panel(figure, "epoch_time"), "ideal")) == [(4, pytest.approx(80)), (64, pytest.approx(5))]
    assert points(line(panel(figure, "speedup"), "ideal")) == [(4, 1), (64, 16)]
    rate = 4096 / 80
    assert points(line(panel(figure, "throughput"), "ideal")) == [
        (4, pytest.approx(rate)),
        (64, pytest.approx(16 * rate)),
    ]
    assert set(line(panel(figure, "efficiency"), "ideal").get_ydata()) == {1}  # type: ignore[arg-type]


def test_without_a_baseline_speedup_is_not_drawn_and_the_panel_says_so(drawn: Drawn) -> None:
    figure = drawn("scaling", "missing baseline").figure
    assert panel(figure, "epoch_time").lines
    for metric in ("speedup", "efficiency"):
        here = panel(figure, metric)
        assert {found.get_label() for found in here.lines} <= {"ideal"}
        assert "no baseline" in " ".join(text.get_text() for text in here.texts)


def test_ticks_stand_at_the_measured_world_sizes(drawn: Drawn) -> None:
    here = panel(drawn("scaling", "nine world sizes to 16384, n = 5").figure, "epoch_time")
    sizes = [1, 4, 16, 64, 256, 1024, 4096, 8192, 16384]
    assert [int(tick) for tick in here.get_xticks()] == sizes
    labels = [label.get_text() for label in here.get_xticklabels()]
    assert all(label in ("", str(size)) for label, size in zip(labels, sizes, strict=True))
    assert labels[0] == "1"
    assert labels[-1] == "16384"


def test_all_points_lie_within_their_panels(drawn: Drawn) -> None:
    for shape in ("superlinear", "huge values", "tiny values", "two sites", "all invalid on two sites"):
        for here in drawn("scaling", shape).figure.axes:
            (left, right), (bottom, top) = here.get_xlim(), here.get_ylim()
            for found in here.lines:
                if found.get_label() == "ideal" and here.get_label() == "efficiency":
                    continue
                assert all(left < x < right and bottom < y < top for x, y in points(found)), (shape, found.get_label())


def segments(panel: Axes, horizontal: bool = False) -> dict[str, list[tuple[float, float]]]:
    """(start, length) of the bar segments by part, in the order of drawing."""
    found: dict[str, list[tuple[float, float]]] = {}
    for container in panel.containers:
        if isinstance(container, BarContainer):
            for patch in container.patches:
                box = (patch.get_x(), patch.get_width()) if horizontal else (patch.get_y(), patch.get_height())
                found.setdefault(str(container.get_label()), []).append(box)
    return found


def test_step_bars_are_medians_over_runs_and_add_up_to_the_step() -> None:
    def run(repeat: int, step: float, **parts: float) -> Run:
        return Run(world_size=4, repeat=repeat, step_parts={"step_s": step, **parts})

    names: dict[str, Any] = {"data_wait_s": 0.1, "h2d_s": 0.05, "forward_s": 0.2, "comm_exposed_s": 0.15}
    runs = [run(i, 1.0 + i / 10, backward_s=0.4 + i / 100, optimizer_s=0.02, **names) for i in range(3)]
    figure = figure_of("steps", runs)
    drawn = {name: length for name, [(_, length)] in segments(panel(figure, "time")).items()}
    expected = {
        "data wait": 0.1, "copy to device": 0.05, "forward": 0.2, "backward": 0.41 - 0.15,
        "exposed communication": 0.15, "optimizer": 0.02, "other": 1.1 - (0.1 + 0.05 + 0.2 + 0.41 + 0.02),
    }  # fmt: skip
    assert list(drawn) == list(expected)
    for name, seconds in expected.items():
        assert drawn[name] == pytest.approx(seconds), name
    shares = {name: length for name, [(_, length)] in segments(panel(figure, "share")).items()}
    assert sum(shares.values()) == pytest.approx(100)
    assert shares["forward"] == pytest.approx(100 * 0.2 / 1.1)
    assert bars(panel(figure, "time"), "the step") == {0: (pytest.approx(1.0), pytest.approx(1.2))}


def test_step_windows_of_warm_up_epochs_do_not_count() -> None:
    # the fixture's warm-up window is nine times as long, the others average to the value given
    figure = figure_of("steps", [Run(step_parts={"step_s": 0.5, "forward_s": 0.3})])
    assert panel(figure, "time").get_ylabel() == "time per step (ms)"
    assert segments(panel(figure, "time"))["forward"] == [(pytest.approx(0), pytest.approx(300))]


def test_steps_without_windows_come_from_the_epochs(drawn: Drawn) -> None:
    drawing = drawn("steps", "epoch sums only")
    found = segments(panel(drawing.figure, "time"))
    assert [length for _, length in found["data wait"]] == pytest.approx([4 / 16] * 3)
    assert [length for _, length in found["other"]] == pytest.approx([32 / 16 / size - 6 / 16 for size in (1, 2, 4)])
    assert any("from epochs" in note for note in drawing.notes)


def legend_names(figure: Figure) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_a_step_without_parts_is_drawn_as_one() -> None:
    runs = [Run(world_size=2, repeat=repeat, step_parts={"step_s": 0.5 + repeat / 10}) for repeat in range(3)]
    with style.look(), memory_store(runs) as connection:
        drawing = draw("steps", connection, Choice())
    name = "step, parts not recorded"
    assert segments(panel(drawing.figure, "time")) == {name: [(0, pytest.approx(600))]}  # ms
    assert segments(panel(drawing.figure, "share")) == {name: [(0, pytest.approx(100))]}
    assert legend_names(drawing.figure) == {name}
    assert any("the whole step (step_s) alone" in note for note in drawing.notes)
    assert not any("other parts" in note for note in drawing.notes)


def test_a_run_without_parts_does_not_change_the_parts_of_the_others() -> None:
    whole = Run(world_size=2, repeat=0, step_parts={"step_s": 9.0})
    split = Run(world_size=2, repeat=1, step_parts={"step_s": 1.0, "forward_s": 0.3})
    found = segments(panel(figure_of("steps", [whole, split]), "time"))
    assert {name: length for name, [(_, length)] in found.items()} == {
        "forward": pytest.approx(0.3), "other": pytest.approx(0.7)
    }  # fmt: skip


@pytest.mark.parametrize("epochs", ["none", "without a count of steps"])
def test_steps_do_not_need_the_epochs_counts(epochs: str) -> None:
    """Without epochs nothing tells the warm-up (the fixture's is nine times as long): all four windows count."""
    with style.look(), memory_store([Run(step_parts={"step_s": 1.0})]) as connection:
        connection.execute("DELETE FROM epochs" if epochs == "none" else "UPDATE epochs SET steps = NULL")
        drawing = draw("steps", connection, Choice())
    mean = (9.0 + 0.5 + 1.5 + 1.0) / 4 if epochs == "none" else (0.5 + 1.5 + 1.0) / 3
    assert segments(panel(drawing.figure, "time")) == {"step, parts not recorded": [(0, pytest.approx(mean))]}
    assert any("Runs without epochs" in note for note in drawing.notes) == (epochs == "none")


def test_the_legend_has_no_part_that_no_bar_has() -> None:
    parts = {"step_s": 1.0, "data_wait_s": 0.0, "h2d_s": 0.0004, "forward_s": 0.3996, "backward_s": 0.6}
    with style.look(), memory_store([Run(step_parts=parts)]) as connection:
        drawing = draw("steps", connection, Choice())
    assert legend_names(drawing.figure) == {"forward", "backward"}
    assert "At most 0.1 % of any step: data wait, copy to device." in drawing.notes
    assert any(note.startswith("Not recorded: exposed communication, optimizer;") for note in drawing.notes)


def test_startup_segments_end_when_the_slowest_rank_is_there() -> None:
    runs = [Run(world_size=4, repeat=repeat, phases=phase_times(4, repeat)) for repeat in range(3)]
    figure = figure_of("startup", runs)
    slowest = {phase: median(phase_times(4, repeat)[phase][2] for repeat in range(3)) for phase in phase_times(4)}
    ends = {
        name: start + length for name, [(start, length)] in segments(panel(figure, "bars"), horizontal=True).items()
    }
    assert ends == {phase: pytest.approx(seconds) for phase, seconds in slowest.items()}
    dots = line(panel(figure, "ranges"), "4 ranks").get_xdata()
    assert list(dots) == pytest.approx(
        [median(phase_times(4, r)[phase][1] for r in range(3)) for phase in phase_times(4)]
    )  # type: ignore[arg-type]
    (whiskers,) = [c for c in panel(figure, "ranges").containers if isinstance(c, ErrorbarContainer)]
    low, high = whiskers.lines[2][0].get_segments()[-1][:, 0]
    assert (low, high) == (
        pytest.approx(phase_times(4, 0)["first_step"][0]),
        pytest.approx(phase_times(4, 2)["first_step"][2]),
    )


def test_a_missing_phase_belongs_to_the_next_one() -> None:
    phases = {name: times for name, times in phase_times(4).items() if name in ("launched", "first_step")}
    found = segments(panel(figure_of("startup", [Run(phases=phases)]), "bars"), horizontal=True)
    assert found == {
        "launched": [(0, pytest.approx(phases["launched"][2]))],
        "first_step": [
            (pytest.approx(phases["launched"][2]), pytest.approx(phases["first_step"][2] - phases["launched"][2]))
        ],
    }


@pytest.mark.parametrize("name", ["startup", "steps"])
def test_bars_without_a_valid_run_are_hollow(drawn: Drawn, name: str) -> None:
    for shape, alpha in (("all invalid on two sites", 0), ("two points", 1)):
        figure = drawn(name, shape).figure
        faces = {
            p.get_facecolor()[3] for c in figure.axes[0].containers if isinstance(c, BarContainer) for p in c.patches
        }
        assert faces == {alpha}


def test_valid_runs_hide_the_invalid_ones_of_the_same_bar() -> None:
    slow = Run(world_size=4, repeat=5, valid=False, why_invalid="x", step_parts=step_times(9, 4))
    good = Run(world_size=4, step_parts=step_times(1, 4))
    found = segments(panel(figure_of("steps", [slow, good]), "time"))
    assert sum(length for part in found.values() for _, length in part) == pytest.approx(1)


def test_selection_restricts_what_is_drawn() -> None:
    figure = figure_of("scaling", two_sites(), Choice(sites=("vega",)))
    assert {str(found.get_label()) for found in panel(figure, "epoch_time").lines} == {"ddp", "ideal", "_nolegend_"}
    assert len(points(line(panel(figure, "epoch_time"), "ddp"))) == 3
    figure = figure_of("scaling", two_sites(), Choice(where="world_size < 16 AND site = 'juwels'"))
    assert [size for size, _ in points(line(panel(figure, "epoch_time"), "ddp"))] == [4, 8]


def test_same_work_is_said_and_other_work_too() -> None:
    with style.look(), memory_store(two_sites()) as connection:
        notes = draw("cross-site", connection, Choice()).notes
    assert notes[0].startswith(
        "The same work on every site: hydrology, 4096 distinct samples per epoch, global batch 256"
    )
    other = [*ladder([4, 8]), *ladder([4, 8], site="vega", samples=1024, params={"hidden": 64, "lr": 0.001})]
    with style.look(), memory_store(other) as connection:
        notes = draw("cross-site", connection, Choice()).notes
    assert notes[0].startswith("NOT the same work")
    assert "4096 (juwels), 1024 (vega)" in notes[0]
    assert "hidden 128 (juwels), 64 (vega)" in notes[0]


def test_amdahl_is_printed_from_four_world_sizes_on(drawn: Drawn) -> None:
    assert any("Amdahl" in note for note in drawn("scaling", "no repeats").notes)
    assert not any("Amdahl" in note for note in drawn("scaling", "two points").notes)


def test_reasons_of_invalid_runs_are_counted() -> None:
    runs = [*ladder([4, 8]), invalid(8, 30.0), Run(world_size=4, repeat=7, valid=False, why_invalid="ended as failed",
            state="failed", epoch_time_s=None)]  # fmt: skip
    with style.look(), memory_store(runs) as connection:
        drawing = draw("scaling", connection, Choice())
    (note,) = [note for note in drawing.notes if "Not valid" in note]
    assert "2 runs" in note
    assert "ended as failed: 1" in note
    assert "Hollow: the 1" in note
    assert (drawing.provenance.runs, drawing.provenance.excluded) == (6, 2)
