"""A plan is a value: ordered, gated, the same again when nothing changed, and read back as it was written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import BadInput
from campaign.plan.build import build_plan, load_plan, save_plan
from campaign.project import Project
from tests.plan.conftest import ROOT, SITE, STUDY, Make, changed, mounted


def order(plan: Any) -> list[tuple[int, str, int]]:
    """(nodes, strategy, repeat) of the runs in their order."""
    return [(run.nodes, run.axes["strategy"], run.repeat) for run in plan.runs]


SMALL = changed(STUDY, ("[1, 2, 4]", "[2, 1]"), ("repeats: 2", "repeats: 3"))
POINTS = [(2, "ddp"), (2, "fsdp2"), (1, "ddp"), (1, "fsdp2")]


def test_repeats_are_interleaved_and_the_smallest_point_goes_first(make_project: Make) -> None:
    plan = build_plan(make_project(study=SMALL), ["tiny"])
    expected = [(*point, repeat) for repeat in (1, 2, 3) for point in POINTS]
    expected.remove((1, "ddp", 1))
    assert order(plan) == [(1, "ddp", 1), *expected]
    assert [run.order for run in plan.runs] == list(range(12))
    assert [run.gate for run in plan.runs] == [True] + [False] * 11
    assert [run.gated for run in plan.runs] == [False] + [True] * 11


def test_repeats_in_blocks_without_a_gate(make_project: Make) -> None:
    plan = build_plan(make_project(study=SMALL + "order: block\ngate: false\n"), ["tiny"])
    assert order(plan) == [(*point, repeat) for point in POINTS for repeat in (1, 2, 3)]
    assert not any(run.gate or run.gated for run in plan.runs)


def test_a_run_that_cant_run_never_holds_the_gate(make_project: Make) -> None:
    site = changed(SITE, ("{node: fat, max_nodes: 2", "{node: fat, min_nodes: 2, max_nodes: 2"),
                   ("batch: {node: fat, min_nodes: 1", "batch: {node: fat, min_nodes: 2"))  # fmt: skip
    plan = build_plan(make_project(site, SMALL), ["tiny"])
    (gate,) = [run for run in plan.runs if run.gate]
    assert (gate.nodes, gate.can_run) == (2, True)


def test_planning_again_gives_the_same_plan(make_project: Make) -> None:
    project = make_project()
    one, two = build_plan(project, ["tiny"]), build_plan(Project(project.root), ["sites/tiny.yaml"])
    assert one.runs == two.runs
    assert one.plan_id == two.plan_id
    assert len({run.run_id for run in one.runs}) == len(one.runs) == 12


@pytest.mark.parametrize("change", ["study", "site", "account", "set"])
def test_another_plan_has_another_id(make_project: Make, change: str) -> None:
    before = build_plan(make_project(), ["tiny"]).plan_id
    project = make_project(
        SITE + ("# a remark\n" if change == "site" else ""), STUDY + ("# a remark\n" if change == "study" else "")
    )
    overrides = {"walltime": "00:31:00"} if change == "set" else {}
    after = build_plan(project, ["tiny"], overrides=overrides, account="other" if change == "account" else None)
    assert after.plan_id != before


def test_a_saved_plan_is_read_back(make_project: Make) -> None:
    project = make_project(study=STUDY + "exclude: [{nodes: 2, strategy: ddp}]\n")
    plan = build_plan(project, ["tiny"], overrides={"nodes": "1,2,64", "hidden": "[1, 2]"})
    assert not all(run.can_run for run in plan.runs)
    path = save_plan(project, plan)
    assert path == project.root / ".campaign" / "plans" / f"{plan.plan_id}.json"
    assert load_plan(project, plan.plan_id) == plan
    assert load_plan(project, plan.plan_id[:5]) == plan
    assert json.loads(path.read_text()) == json.loads(json.dumps(plan.to_json()))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "nothing half-written stays"


def test_a_saved_plan_that_is_no_plan_is_said(make_project: Make) -> None:
    project = make_project()
    with pytest.raises(BadInput, match="no plan 'abc'"):
        load_plan(project, "abc")
    path = save_plan(project, build_plan(project, ["tiny"]))
    for text in ("{", "[]", '{"schema": 1}', '{"schema": 2}', '{"schema": 1, "runs": [{}]}'):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"not a plan|schema") as caught:
            load_plan(project, path.stem)
        assert caught.value.problems[0].file == str(path)


def test_sources_are_named_with_the_hash_of_their_bytes(make_project: Make) -> None:

    project = make_project()
    plan = build_plan(project, ["tiny"])
    assert plan.sites["tiny"].path == "sites/tiny.yaml"
    assert (
        plan.studies["sweep"].sha256 == hashlib.sha256((project.root / "studies/sweep.yaml").read_bytes()).hexdigest()
    )


def test_studies_that_share_a_run_measure_it_once(make_project: Make) -> None:
    wider = changed(STUDY, ("name: sweep", "name: wider"), ("[1, 2, 4]", "[1, 8]"))
    plan = build_plan(make_project(files={"studies/wider.yaml": wider}), ["tiny"], ["sweep", "wider"])
    assert len({run.run_id for run in plan.runs}) == len(plan.runs) == 12 + 4
    assert {run.nodes for run in plan.runs if run.study == "wider"} == {8}
    assert [run.nodes for run in plan.runs if run.gate] == [1, 8], "the second study still has a gate of its own"
    (warning,) = [problem for problem in plan.warnings if "measured once" in problem.message]
    assert "4 runs of study wider are in study sweep too" in warning.message


def test_points_that_conditions_make_equal_are_measured_once(make_project: Make) -> None:
    study = changed(STUDY, ("  strategy: [ddp, fsdp2]\n", "  hidden: [1, 2]\n")) + (
        "when: [{if: {lr: 0.001}, set: {extra: 1}}]\n"
    )
    plan = build_plan(make_project(study=study), ["tiny"])
    assert len(plan.runs) == 12
    assert {run.params["extra"] for run in plan.runs} == {1}


def test_a_command_is_filled_in_word_by_word(make_project: Make) -> None:
    words = ["{lr}", "{nodes}x{ranks_per_node}", "{{literal}}", "a b 'c' \"d\" $(touch x)\nü", "{flag}", "{many}",
             "{world_size} {local_batch} {global_batch} {repeat} {study}@{site}"]  # fmt: skip
    study = changed(STUDY, ('[python, train.py, --lr, "{lr}"]', json.dumps(words))).replace(
        "hidden: 64", "flag: true, many: [1, {a: b}]"
    )
    plan = build_plan(make_project(study=study), ["tiny"], overrides={"nodes": "2"})
    assert plan.runs[0].command == (
        "0.001", "2x4", "{literal}", "a b 'c' \"d\" $(touch x)\nü", "true", '[1,{"a":"b"}]', "8 32 256 1 sweep@tiny",
    )  # fmt: skip
    assert plan.runs[-1].command is not None
    assert plan.runs[-1].command[-1] == "8 32 256 2 sweep@tiny"


def test_data_that_is_missing_is_a_reason_and_says_what_to_type(make_project: Make, tmp_path: Path) -> None:
    site = mounted(SITE, tmp_path)
    plan = build_plan(make_project(site, STUDY + "data: {name: rivers}\n"), ["tiny"])
    (problem,) = {problem for run in plan.runs for problem in run.problems}
    assert problem.hint == "campaign data prepare rivers --site tiny"
    assert (problem.file, problem.line) == ("studies/sweep.yaml", 11)
    (tmp_path / "data" / "rivers").mkdir(parents=True)
    (tmp_path / "data" / "rivers" / "dataset.json").write_text("{}")
    (problem,) = {problem for run in build_plan(make_project(site, STUDY + "data: {name: rivers}\n"), ["tiny"]).runs
                  for problem in run.problems}  # fmt: skip
    assert "can't be read" in problem.message


def test_data_on_a_file_system_that_isnt_here_is_not_checked(make_project: Make) -> None:
    plan = build_plan(make_project(study=STUDY + "data: {name: rivers}\n"), ["tiny"])
    assert all(run.can_run for run in plan.runs)
    assert plan.runs[0].data == {"name": "rivers", "options": {}, "path": "/nowhere/proj/data/rivers", "digest": None}
    assert any("not checked" in problem.message for problem in plan.warnings)


def test_scheduling_keys_come_from_the_study_else_the_site(make_project: Make) -> None:
    site = changed(SITE, ("account:", "reservation: site-r\nmail: site@x\naccount:"))
    run = build_plan(make_project(site, STUDY + "resources: {reservation: study-r, switches: 1@10}\n"), ["tiny"]).runs[
        0
    ]
    assert (run.reservation, run.mail, run.switches, run.account) == ("study-r", "site@x", "1@10", "budget")


# -- the starter files -----------------------------------------------------------------------------------------------

# site, study -> [(nodes, ranks, cores, GPUs, local batch, partition, GPU-h of one repeat)], from the sites' documents
STARTER: dict[tuple[str, str], list[tuple[int, int, int, int, int, str, float]]] = {
    ("juwels", "cern_hython"): [
        (1, 4, 12, 1, 512, "develbooster", 2.0), (2, 4, 12, 1, 512, "develbooster", 4.0),
        (4, 4, 12, 1, 512, "develbooster", 8.0), (8, 4, 12, 1, 512, "booster", 16.0),
    ],
    ("vega", "cern_hython"): [
        (1, 4, 32, 1, 512, "gpu", 2.0), (2, 4, 32, 1, 512, "gpu", 4.0), (4, 4, 32, 1, 512, "gpu", 8.0),
    ],
    ("jupiter", "strong_scaling"): [
        (1, 4, 72, 1, 512, "booster", 2.0), (2, 4, 72, 1, 256, "booster", 4.0), (4, 4, 72, 1, 128, "booster", 8.0),
        (8, 4, 72, 1, 64, "booster", 16.0),
    ],
    ("juwels", "weak_scaling"): [
        (1, 4, 12, 1, 512, "develbooster", 2.0), (2, 4, 12, 1, 512, "develbooster", 4.0),
        (4, 4, 12, 1, 512, "develbooster", 8.0), (8, 4, 12, 1, 512, "booster", 16.0),
    ],
}  # fmt: skip
# one run of each, so that no change of the code may silently orphan what has been measured
PINNED = {
    ("juwels", "cern_hython"): "a1e2533da77d7497",
    ("vega", "cern_hython"): "e017e83f30646986",
    ("jupiter", "strong_scaling"): "1f15ef72df88fe49",
    ("juwels", "weak_scaling"): "9e4933700ce1a77a",
}


@pytest.fixture
def starter(tmp_path: Path) -> Project:
    """The starter files as a project of a user with account and project."""
    for folder in ("sites", "studies"):
        (tmp_path / folder).mkdir()
        for path in (ROOT / folder).glob("*.yaml"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    accounts = "accounts: {juwels: a, vega: b, jupiter: c}\nprojects: {juwels: p, vega: p, jupiter: p}\n"
    # data that is nowhere, whatever folders this machine has
    paths = "paths: {juwels: {data: /nowhere/data}, vega: {data: /nowhere/data}, jupiter: {data: /nowhere/data}}\n"
    (tmp_path / "campaign.yaml").write_text("schema: 1\n" + accounts + paths)
    return Project(tmp_path)


@pytest.mark.parametrize(("site", "study"), STARTER)
def test_a_starter_study_on_a_starter_site(starter: Project, site: str, study: str) -> None:
    plan = build_plan(starter, [site], [study])
    points = [run for run in plan.runs if run.repeat == 1]
    seen = [(run.nodes, run.ranks_per_node, run.cpus_per_rank, run.gpus_per_rank, run.local_batch, run.partition,
             run.price.gpu_h) for run in points]  # fmt: skip
    assert seen == STARTER[site, study]
    assert len(plan.runs) == 3 * len(points)
    assert all(run.can_run for run in plan.runs)
    assert points[0].run_id == PINNED[site, study]


def test_both_sites_of_the_cern_study_run_one_configuration(starter: Project) -> None:
    plan = build_plan(starter, ["juwels", "vega"], ["cern_hython"])
    configurations = {
        site: {(json.dumps(run.params, sort_keys=True), run.series, json.dumps(run.data and run.data["options"]))
               for run in plan.runs if run.site == site}
        for site in ("juwels", "vega")
    }  # fmt: skip
    assert configurations["juwels"] == configurations["vega"]
    assert [run.world_size for run in plan.runs if run.site == "juwels" and run.repeat == 1] == [4, 8, 16, 32]


def test_the_local_campaign_is_short_and_stays_on_few_cores(starter: Project) -> None:
    data = starter.root / "data" / "hydrology"
    data.mkdir(parents=True)
    (data / "dataset.json").write_text('{"digest": "x"}')
    plan = build_plan(starter, ["local"])
    assert {run.study for run in plan.runs} == {"strong_scaling"}
    assert sorted((run.ranks_per_node, run.repeat) for run in plan.runs) == [(r, n) for r in (1, 2) for n in (1, 2, 3)]
    assert {(run.global_batch, run.cpus_per_rank, run.gpus_per_rank) for run in plan.runs} == {(256, 1, 0)}
    assert all(run.can_run for run in plan.runs)


def test_ranks_above_the_cores_are_marked(starter: Project) -> None:
    site = starter.root / "sites" / "local.yaml"
    site.write_text(site.read_text().replace("cores: null", "cores: 2"))
    study = changed(STUDY, ("  nodes: [1, 2, 4]", "  ranks_per_node: [1, 2, 3, 4]"), ("256", "240"))
    (starter.root / "studies" / "sweep.yaml").write_text(study)
    plan = build_plan(starter, ["local"], ["sweep"])
    assert {run.ranks_per_node: run.oversubscribed for run in plan.runs} == {1: False, 2: False, 3: True, 4: True}
    assert all(run.can_run for run in plan.runs), "marked, not refused: nobody but the user is in the way"


def test_a_plan_is_plain_data(starter: Project) -> None:
    plan = build_plan(starter, ["juwels"])
    assert dataclasses.is_dataclass(plan)
    assert json.loads(json.dumps(plan.to_json()))["plan_id"] == plan.plan_id
