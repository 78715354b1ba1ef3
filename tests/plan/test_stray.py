"""Names that lead nowhere are said with their place, and nothing is refused for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from campaign.errors import BadInput
from campaign.plan.build import build_plan
from tests.plan.conftest import SITE, STUDY, Make, changed, mounted
from tests.plan.test_bad_input import campaign

JUWELS = changed(SITE, ("name: tiny", "name: juwels"), ("studies: {sweep: {}}\n", ""))


def stray(make: Make, study: str = STUDY, config: str | None = None, **more: Any) -> list[tuple[Any, ...]]:
    """(file, line, key, message, hint) of the warnings, less that the site is elsewhere."""
    files = {"sites/juwels.yaml": JUWELS, **({} if config is None else {"campaign.yaml": config})}
    plan = build_plan(make(study=study, files=files), ["tiny"], **more)
    assert all(run.can_run for run in plan.runs)
    found = [problem for problem in plan.warnings if problem.key != "filesystems"]
    return [(problem.file, problem.line, problem.key, problem.message, problem.hint) for problem in found]


@pytest.mark.parametrize("key", ["accounts", "projects"])
def test_a_site_of_campaign_yaml_that_isnt_there(make_project: Make, key: str) -> None:
    found = stray(make_project, config=f"schema: 1\n{key}:\n  juwels: x\n  juwls: x\n")
    message = "the project has no site `juwls`, so this is not used"
    assert found == [("campaign.yaml", 4, f"{key}.juwls", message, "did you mean `juwels`?")]


def test_paths_of_a_site_that_isnt_there(make_project: Make) -> None:
    (found,) = stray(make_project, config="schema: 1\npaths:\n  tinny: {data: /d}\n")
    assert found[:3] == ("campaign.yaml", 3, "paths.tinny")
    assert found[4] == "did you mean `tiny`?"


def test_a_study_with_a_block_for_a_site_that_isnt_there(make_project: Make) -> None:
    (found,) = stray(make_project, STUDY + "sites:\n  juwels: {}\n  juwls: {repeats: 1}\n")
    assert found[:3] == ("studies/sweep.yaml", 13, "sites.juwls")
    assert found[4] == "did you mean `juwels`?"


def test_a_site_of_another_project_is_no_likely_mistake(make_project: Make) -> None:
    (found,) = stray(make_project, STUDY + "sites: {fugaku: {}}\n")
    assert found[4] is None


def test_an_axis_that_the_command_doesnt_use(make_project: Make) -> None:
    study = changed(STUDY, ("  nodes: [1, 2, 4]", "  nodez: [1, 2, 4]"))
    assert stray(make_project, study) == [
        ("studies/sweep.yaml", 7, "axes.nodez", "axis `nodez` is used nowhere in `command`", "did you mean `nodes`?")
    ]


def test_an_axis_of_set_that_the_command_doesnt_use(make_project: Make) -> None:
    (found,) = stray(make_project, overrides={"axes.depth": "1,2"})
    assert found[:3] == ("--set", None, "axes.depth")
    assert found[4] == '"{depth}" as a word of `command`'


def test_axes_that_are_used(make_project: Make) -> None:
    """By the command, by a resource's expression, by a condition, by campaign itself; a workload gets them all."""
    axes = "  gpus: [4, 8]\n  big: [true, false]\n  ranks_per_node: [1, 2]\n  global_batch: [64]\n  lr: [0.1]\n"
    study = changed(STUDY, ("  nodes: [1, 2, 4]\n", axes), ("global_batch: 256, ", ""))
    study += 'resources: {nodes: "gpus // 4"}\nwhen: [{if: {big: true}, set: {hidden: 128}}]\n'
    assert stray(make_project, study) == []
    workload = changed(STUDY, ('command: [python, train.py, --lr, "{lr}"]', "workload: a.b"), ("nodes:", "nodez:"))
    assert [found for found in stray(make_project, workload) if "nodez" in str(found)] == []


@pytest.mark.parametrize("name", ["repeat", "world_size", "data", "site", "study"])
@pytest.mark.parametrize(
    ("text", "line", "key", "kind"),
    [
        (changed(STUDY, ("strategy: [ddp, fsdp2]", "NAME: [1, 2]")), 8, "axes.NAME", "an axis"),
        (changed(STUDY, ("hidden: 64", "NAME: 64")), 4, "params.NAME", "a parameter"),
        (STUDY + "zip: [{NAME: [1]}]\n", 11, "zip[0].NAME", "an axis"),
        (STUDY + "when: [{if: {nodes: 1}, set: {NAME: 1}}]\n", 11, "when[0].set.NAME", "a parameter"),
        (STUDY + "sites:\n  other:\n    axes: {NAME: [1]}\n", 13, "sites.other.axes.NAME", "an axis"),
    ],
)
def test_what_campaign_sets_itself_is_no_axis(
    make_project: Make, name: str, text: str, line: int, key: str, kind: str
) -> None:
    with pytest.raises(BadInput) as caught:
        build_plan(make_project(study=text.replace("NAME", name)), ["tiny"])
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.key) == ("studies/sweep.yaml", line, key.replace("NAME", name))
    assert problem.message == f"`{name}` is set by campaign and can't be {kind}"
    assert problem.hint is not None


def errors(make: Make, *args: str, **texts: Any) -> list[dict[str, Any]]:
    done = campaign(make(**texts).root, *args, "--json")
    assert done.exit_code == 2, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["errors"]
    return found


def test_quotes_are_only_blamed_where_they_are_the_mistake(make_project: Make) -> None:
    (said,) = errors(make_project, "plan", "tiny", "--set", "repeats=abc")
    assert (said["message"], said["value"], said["hint"]) == ("must be an integer", "abc", None)
    (said,) = errors(make_project, "plan", "tiny", study=changed(STUDY, ("repeats: 2", 'repeats: "two"')))
    assert said["hint"] is None
    (said,) = errors(make_project, "plan", "tiny", study=changed(STUDY, ("repeats: 2", 'repeats: "2"')))
    assert said["hint"] == "write it without quotes"


def test_the_offending_word_of_a_list_is_shown(make_project: Make) -> None:
    (said,) = errors(make_project, "plan", "tiny", "--set", "nodes=1,2,x")
    assert (said["file"], said["key"], said["value"]) == ("--set", "axes.nodes", "x")
    (said,) = errors(make_project, "plan", "tiny", "--set", "nodes=1,y,x")
    assert said["value"] == "y, x"


@pytest.mark.parametrize("written", ["größe", '"größe"', "'größe'", "größe   # all of it"])
def test_a_name_that_isnt_allowed_is_known_as_it_stands(make_project: Make, written: str) -> None:
    files = {"studies/other.yaml": changed(STUDY, ("name: sweep", f"name: {written}"))}
    (said,) = errors(make_project, "plan", "tiny", "--study", "gr", files=files)
    assert said["allowed"] == "größe, sweep"
    (said,) = errors(make_project, "plan", "tiny", "--study", "größe", files=files)
    assert (said["file"], said["line"], said["key"]) == ("studies/other.yaml", 2, "name")


@pytest.mark.parametrize(
    ("typed", "meant"), [("swep", "sweep"), ("SWEEP", "sweep"), ("sw", "sweep"), ("sewep", "sweep")]
)
def test_a_study_that_was_probably_meant(make_project: Make, typed: str, meant: str) -> None:
    (said,) = errors(make_project, "plan", "tiny", "--study", typed)
    assert said["hint"] == "did you mean `sweep`?"


def test_a_site_that_lists_a_study_that_is_gone_says_what_there_is(make_project: Make) -> None:
    files = {"studies/sweep.yaml": changed(STUDY, ("name: sweep", "name: class"))}
    (said,) = errors(make_project, "plan", "tiny", files=files)
    assert (said["file"], said["line"], said["key"], said["allowed"]) == (
        "sites/tiny.yaml",
        5,
        "studies.sweep",
        "class",
    )
    assert said["hint"] == "campaign plan tiny --study class, or change `studies` in sites/tiny.yaml"


def test_data_is_read_where_the_machine_is_the_site_only(make_project: Make, tmp_path: Any) -> None:
    """A folder of the same name on a laptop is another folder."""
    (tmp_path / "data" / "rivers").mkdir(parents=True)
    (tmp_path / "data" / "rivers" / "dataset.json").write_text('{"digest": "abc"}')
    study = STUDY + "data: {name: rivers}\n"
    here = mounted(SITE, tmp_path)
    kind = here.split(f'"{tmp_path}", kind: ')[1].split(",")[0]
    other = changed(here, (f"kind: {kind}, shared", f"kind: {'gpfs' if kind == 'lustre' else 'lustre'}, shared"))
    on_site, elsewhere = (build_plan(make_project(site, study), ["tiny"]) for site in (here, other))
    assert {run.data["digest"] for run in on_site.runs if run.data} == {"abc"}
    assert {run.data["digest"] for run in elsewhere.runs if run.data} == {None}
    assert [problem.message for problem in elsewhere.warnings if problem.key == "data.name"] == [
        f"data set rivers: {tmp_path}/data of tiny is not to be seen from here, so it is not checked"
    ]
