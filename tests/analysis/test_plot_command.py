"""`campaign plot` as a user calls it, over a ledger, records and the real store."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis import style
from analysis.answers import draw_all, scaling_text
from analysis.choice import Choice
from analysis.figures import KINDS, draw
from campaign.cli import cli as command_line
from campaign.errors import Problem
from campaign.store.collect import collect
from campaign.store.db import open_store
from tests.cli.test_json import validate
from tests.conftest import Cli, Result
from tests.store.world import World, epoch_rows

PHASE_ENDS = {"launched": 1.0, "python_up": 1.5, "imports_done": 6.0, "first_step": 8.0}


def measure(world: World, site: str, size: int, seconds: float, repeat: int = 0, **more: object) -> None:
    """A run with epochs, windows and phases."""
    name = world.plan_run(f"{site}-{size}-{repeat}", site=site, nodes=size, repeat=repeat, **more)  # type: ignore[arg-type]
    world.queue(name, site=site)
    windows = [
        {"epoch": epoch, "window": 0, "metric": metric, "unit": "s", "n": size, "median": seconds * share / 10}
        for epoch in range(3)
        for metric, share in {"step_s": 1.0, "forward_s": 0.3, "data_wait_s": 0.1}.items()
    ]
    events = [
        {"kind": "phase", "name": phase, "rank": rank, "node": "n1", "t_us": int(1e6 * (end + rank / 10))}
        for phase, end in PHASE_ENDS.items()
        for rank in range(size)
    ]
    world.record(
        name, tables={"epochs": epoch_rows([99.0, seconds, seconds]), "windows": windows, "events": events}, site=site
    )


@pytest.fixture
def measured(world: World) -> World:
    """Two sites, three world sizes, two repeats; nothing collected yet. A project too."""
    (world.folder / "sites").mkdir()
    for site, slower in (("alpha", 1.0), ("beta", 1.4)):
        for size in (1, 2, 4):
            for repeat in range(2):
                measure(world, site, size, slower * (40 / size + repeat), repeat)
    return world


def call(world: World, *argv: str, code: int = 0) -> Result:
    """`campaign plot` in this process."""
    answer = CliRunner().invoke(command_line, ["plot", "--project", str(world.folder), *argv], prog_name="campaign")
    result = Result(("plot", *argv), answer.exit_code, answer.stdout, answer.stderr)
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exc_info
    assert result.code == code, str(result)
    return result


def figures(world: World) -> list[str]:
    folder = world.folder / "figures"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_plot_collects_draws_and_prints_the_paths(measured: World, cli: Cli) -> None:
    result = cli("plot", "scaling", "cross-site", cwd=measured.folder, code=0)
    assert figures(measured) == ["cross-site.png", "cross-site.svg", "scaling.png", "scaling.svg"]
    assert result.stdout.splitlines() == [
        f"figures/{name}.{end}" for name in ("scaling", "cross-site") for end in ("png", "svg")
    ]
    assert "12 new records collected" in result.stderr


def test_json_says_what_was_drawn(measured: World) -> None:
    answer = call(measured, "scaling", "--json", "--format", "svg").json()
    validate(answer, "plot")
    (figure,) = answer["data"]["figures"]
    assert (figure["name"], figure["runs"], figure["excluded"], figure["sites"]) == (
        "scaling",
        12,
        0,
        ["alpha", "beta"],
    )
    assert figure["files"] == [str(measured.folder / "figures" / "scaling.svg")]
    assert figure["newest"] == "2026-11-01T00:11:00Z"
    assert figure["commits"] == ["abc"]
    assert any("n = 2 runs" in note for note in figure["notes"])


def test_the_same_store_gives_the_same_bytes_again(measured: World) -> None:
    call(measured, "all", "--format", "svg")
    assert figures(measured) == sorted(f"{name}.svg" for name in KINDS)
    before = {name: (measured.folder / "figures" / name).read_bytes() for name in figures(measured)}
    call(measured, "all", "--no-collect", "--format", "svg")
    assert {name: (measured.folder / "figures" / name).read_bytes() for name in before} == before


def test_selection_output_folder_and_title(measured: World, tmp_path: Path) -> None:
    out = tmp_path / "paper"
    chosen = ("--site", "beta", "--where", "nodes < 4")
    written = ("--out", str(out), "--title", "Mine $\\nope$", "--format", "png,pdf")
    answer = call(measured, "scaling", *chosen, *written, "--json").json()
    (figure,) = answer["data"]["figures"]
    assert (figure["title"], figure["sites"], figure["runs"]) == ("Mine $\\nope$", ["beta"], 4)
    assert sorted(path.name for path in out.iterdir()) == ["scaling.pdf", "scaling.png"]
    assert figures(measured) == []


def test_a_plan_is_looked_up_in_the_ledger(measured: World) -> None:
    measured.change("INSERT INTO plan_runs SELECT 'p2', run_id, ord FROM runs WHERE site = 'beta'")
    answer = call(measured, "scaling", "--plan", "p2", "--json", "--format", "svg").json()
    assert answer["data"]["figures"][0]["sites"] == ["beta"]
    result = call(measured, "scaling", "--plan", "p9", code=2)
    assert "no planned run has this plan" in result.stderr


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (("scalling",), ("no figure has this name", "scaling, cross-site, startup, steps", "campaign plot scaling")),
        (("scaling", "--format", "gif"), ("--format", "'gif'", "png, svg, pdf")),
        (("scaling", "--format", ","), ("--format",)),
        (("scaling", "steps", "--title", "T"), ("--title", "name one figure")),
        (("scaling", "--site", "gamma"), ("--site gamma", "sites: alpha, beta")),
        (("scaling", "--where", "nodes <"), ("--where", "world_size")),
        (("scaling", "--series", "zero9"), ("--series zero9",)),
        (("cross-site", "--site", "beta"), ("two or more sites", "strong on beta", "campaign run")),
    ],
)
def test_bad_input_is_exit_2_and_says_what_to_type(
    measured: World, argv: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    result = call(measured, *argv, code=2)
    for part in parts:
        assert part in result.stderr
    assert figures(measured) == []
    validate(call(measured, *argv, "--json", code=2).json(), "plot")


def test_what_can_be_drawn_is_drawn_beside_what_cannot(measured: World) -> None:
    result = call(measured, "scaling", "cross-site", "--site", "beta", "--format", "svg", code=2)
    assert figures(measured) == ["scaling.svg"]
    assert "two or more sites" in result.stderr


def test_all_leaves_out_what_has_no_data(world: World) -> None:
    (world.folder / "sites").mkdir()
    for size in (1, 2):
        world.measured(f"{size}", [99.0, 10.0 / size], nodes=size)
    call(world, "all", "--format", "svg")
    assert figures(world) == ["scaling.svg"]


def test_an_empty_project_says_what_to_do(world: World) -> None:
    (world.folder / "sites").mkdir()
    assert "the store has no runs" in call(world, "scaling", code=2).stderr
    assert "no figure has data yet" in call(world, "all", code=2).stderr


@pytest.mark.parametrize("argv", [(), ("list",)])
def test_the_list_needs_no_project_and_names_every_figure(tmp_path: Path, cli: Cli, argv: tuple[str, ...]) -> None:
    result = cli("plot", *argv, cwd=tmp_path, code=0)
    for name, kind in KINDS.items():
        assert name in result.stdout
        assert kind.shows in result.stdout
        assert kind.needs in result.stdout


def test_without_matplotlib_the_error_says_what_to_install(measured: World, cli: Cli, tmp_path: Path) -> None:
    # a finder that hides matplotlib from this process alone
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'matplotlib':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    environment = {"PYTHONPATH": str(tmp_path)}
    assert "scaling" in cli("plot", "list", cwd=measured.folder, env=environment, code=0).stdout
    result = cli("plot", "scaling", cwd=measured.folder, env=environment, code=2)
    assert "pip install 'campaign[plots]'" in result.stderr


def test_a_users_own_package_named_analysis_is_not_taken_for_ours(measured: World, cli: Cli) -> None:
    own = measured.folder / "analysis"
    own.mkdir()
    (own / "__init__.py").write_text("raise SystemExit('the wrong package')")
    result = cli(
        "plot", "scaling", "--format", "svg", cwd=measured.folder, env={"PYTHONPATH": str(measured.folder)}, code=0
    )
    assert figures(measured) == ["scaling.svg"], result


def test_answers_of_run(measured: World) -> None:
    collect(measured, measured.store)
    text = scaling_text(measured.store, sites=("alpha",))
    assert "40.5  (40.0\N{EN DASH}41.0)" in text
    assert "beta" not in text
    drawn = draw_all(measured.store, measured.folder / "figures", sites=("alpha",), formats=("svg",))
    # cross-site compares with the others in the store
    assert [plotted.name for plotted in drawn] == ["scaling", "cross-site", "startup", "steps"]
    assert (drawn[0].provenance.sites, drawn[1].provenance.sites) == (("alpha",), ("alpha", "beta"))
    assert scaling_text(measured.store, studies=("unknown",)) == ""


def test_draw_all_warns_of_a_crowd_and_draws_the_rest(world: World) -> None:
    for index in range(22):
        world.measured(f"{index}", [99.0, 10.0], series=f"strategy=ddp hidden={index}")
    collect(world, world.store)
    warned: list[Problem] = []
    assert draw_all(world.store, world.folder / "figures", warn=warned.append) == []
    assert "22 lines on one panel can't be read" in warned[0].message


def test_numbers_on_the_figure_are_those_of_the_real_view(measured: World) -> None:
    collect(measured, measured.store)
    with open_store(measured.store, write=False) as connection, style.look():
        rows = connection.execute("SELECT epoch_time_s FROM scaling WHERE site = 'beta' ORDER BY world_size").fetchall()
        panel = draw("scaling", connection, Choice()).figure.axes[0]
        (line,) = [line for line in panel.lines if line.get_label() == "beta"]
    assert list(line.get_ydata()) == [value for (value,) in rows] == pytest.approx([56.7, 28.7, 14.7])  # type: ignore[arg-type]


def test_every_figure_is_described_in_the_docs() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    for name in KINDS:
        assert f"\n## {name}\n" in text
