"""Who a run is: test vectors made by hand, and what must and must not change an id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.plan import identity
from campaign.plan.build import build_plan
from campaign.plan.model import PlannedRun
from tests.plan.conftest import SITE, STUDY, Make, changed, mounted


def sha16(text: str) -> str:
    """The contract's recipe, written down once more: SHA-256 of UTF-8 text, first 16 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def test_a_command_run_is_the_hash_of_its_canonical_json(make_project: Make) -> None:
    run = build_plan(make_project(), ["tiny"]).runs[0]
    text = (
        '{"argv":["python","train.py","--lr","{lr}"],"cpus_per_rank":12,"gpus_per_rank":1,"nodes":1,'
        '"params":{"global_batch":256,"hidden":64,"lr":0.001,"strategy":"ddp"},"ranks_per_node":4,"repeat":1,'
        '"site":"tiny"}'
    )
    # the constant: printf '%s' TEXT | sha256sum
    assert run.run_id == sha16(text) == "c62d17edc432a2d6"


def test_everything_that_differs_from_its_default_is_in_the_hash(make_project: Make, tmp_path: Path) -> None:
    (tmp_path / "data" / "d").mkdir(parents=True)
    (tmp_path / "data" / "d" / "dataset.json").write_text('{"digest": "abc"}')
    site = changed(mounted(SITE, tmp_path), ("studies:", "staging: {redirect: false}\nstudies:"))
    site += "container: {image: 'oci://r/i@sha256:77'}\n"
    study = changed(STUDY, ('command: [python, train.py, --lr, "{lr}"]', "workload: train.it:main")) + (
        "data: {name: d, options: {fraction: 0.25}}\nrevision: zwei ü\npack: concurrent\n"
    )
    runs = build_plan(make_project(site, study), ["tiny"]).runs
    run = next(run for run in runs if run.nodes == 4 and run.strategy == "fsdp2" and run.repeat == 2)
    text = (
        '{"cpus_per_rank":12,"data":{"digest":"abc","options":{"fraction":0.25}},"gpus_per_rank":1,"image":"77",'
        '"nodes":4,"pack":"concurrent","params":{"global_batch":256,"hidden":64,"lr":0.001,"strategy":"fsdp2"},'
        '"ranks_per_node":4,"repeat":2,"revision":"zwei ü","site":"tiny","staging":{"redirect":false},'
        '"workload":"train.it:main"}'
    )
    assert run.run_id == sha16(text)


SAME: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "account": lambda site, study: (changed(site, ("account: budget", "account: other")), study),
    "walltime": lambda site, study: (site, changed(study, ("00:30:00", "00:40:00"))),
    "name of the study": lambda site, study: (
        changed(site, ("{sweep: {}}", "{other: {}}")), changed(study, ("name: sweep", "name: other")),
    ),
    "partition": lambda site, study: (site, study + "resources: {partition: batch}\n"),
    "reservation": lambda site, study: (changed(site, ("account:", "reservation: r\naccount:")), study),
    "order of keys": lambda site, study: (site, changed(study, ("lr: 1e-3, hidden: 64", "hidden: 64, lr: 0.001"))),
    "more repeats": lambda site, study: (site, changed(study, ("repeats: 2", "repeats: 5"))),
    "order of repeats": lambda site, study: (site, study + "order: block\n"),
    "gate": lambda site, study: (site, study + "gate: false\n"),
    "pack serial": lambda site, study: (site, study + "pack: serial\n"),
    "what is recorded": lambda site, study: (site, study + "record: {window_steps: 10}\n"),
    "a default written out": lambda site, study: (site, study + "staging: {mode: none, redirect: true}\n"),
    "memory": lambda site, study: (site, study + "resources: {memory: 8G}\n"),
}  # fmt: skip
OTHER: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "parameter": lambda site, study: (site, changed(study, ("1e-3", "2e-3"))),
    "argv": lambda site, study: (site, changed(study, ("train.py", "train2.py"))),
    "revision": lambda site, study: (site, study + "revision: 1\n"),
    "cores": lambda site, study: (site, study + "resources: {cpus_per_rank: 3}\n"),
    "GPUs": lambda site, study: (site, study + "resources: {gpus_per_rank: 0}\n"),
    "ranks": lambda site, study: (site, study + "resources: {ranks_per_node: 2}\n"),
    "staging": lambda site, study: (site, study + "staging: {mode: staged-copy}\n"),
    "redirect": lambda site, study: (site, study + "staging: {redirect: false}\n"),
    "pack concurrent": lambda site, study: (site, study + "pack: concurrent\n"),
    "options of the data": lambda site, study: (site, study + "data: {name: d, options: {fraction: 0.5}}\n"),
    "site": lambda site, study: (changed(site, ("name: tiny", "name: tiny2")), study),
    "image": lambda site, study: (site + "container: {image: 'x@sha256:1'}\n", study),
}


def ids(make: Make, site: str, study: str) -> set[str]:
    """Run ids of a project's only site."""
    return {run.run_id for run in build_plan(make(site, study), ["sites/tiny.yaml"]).runs}


@pytest.mark.parametrize("name", SAME)
def test_provenance_changes_no_id(make_project: Make, name: str) -> None:
    before = ids(make_project, SITE, STUDY)
    assert before <= ids(make_project, *SAME[name](SITE, STUDY))


@pytest.mark.parametrize("name", OTHER)
def test_what_is_measured_changes_every_id(make_project: Make, name: str) -> None:
    before = ids(make_project, SITE, STUDY)
    after = ids(make_project, *OTHER[name](SITE, STUDY))
    assert len(after) == len(before)
    assert not before & after


def test_the_digest_of_the_data_is_part_of_it(make_project: Make, tmp_path: Path) -> None:
    site = mounted(SITE, tmp_path)
    file = tmp_path / "data" / "d" / "dataset.json"
    file.parent.mkdir(parents=True)
    seen = []
    for digest in ("one", "two", "one"):
        file.write_text(json.dumps({"digest": digest}))
        seen.append(ids(make_project, site, STUDY + "data: {name: d}\n"))
    assert seen[0] == seen[2]
    assert not seen[0] & seen[1]


_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
_PARAMS = st.dictionaries(st.text("abc", min_size=1, max_size=3), _JSON, max_size=4)


def fields(**more: Any) -> dict[str, Any]:
    """An identity with everything else fixed."""
    base: dict[str, Any] = {
        "site": "s",
        "program": "w",
        "nodes": 1,
        "ranks_per_node": 1,
        "cpus_per_rank": 1,
        "gpus_per_rank": 0,
    }
    return {**identity.identity(params={}, **base), "repeat": 1, **more}


@settings(deadline=None)
@given(_PARAMS, st.randoms())
def test_the_order_of_keys_is_no_difference(params: dict[str, Any], random: Any) -> None:
    keys = list(params)
    random.shuffle(keys)
    assert identity.run_id(fields(params=params)) == identity.run_id(fields(params={key: params[key] for key in keys}))


@settings(deadline=None)
@given(_PARAMS, _PARAMS)
def test_other_parameters_are_another_run(one: dict[str, Any], two: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (identity.run_id(fields(params=one)) == identity.run_id(fields(params=two))) == same


def test_not_a_number_is_no_identity() -> None:
    with pytest.raises(ValueError, match="JSON"):
        identity.run_id(fields(params={"a": float("nan")}))


# -- series ----------------------------------------------------------------------------------------------------------


def series(make: Make, study: str) -> set[str]:
    """Series of a study."""
    return {run.series for run in build_plan(make(study=study), ["tiny"]).runs}


def test_a_series_is_every_axis_and_parameter_but_size_batch_and_repeat(make_project: Make) -> None:
    plain = series(make_project, STUDY)
    assert {name.split(" #")[0] for name in plain} == {"strategy=ddp", "strategy=fsdp2"}
    assert series(make_project, changed(STUDY, ("256", "512"), ("repeats: 2", "repeats: 3"))) == plain
    assert series(make_project, STUDY + "resources: {ranks_per_node: 2}\n") == plain
    assert not series(make_project, changed(STUDY, ("hidden: 64", "hidden: 65"))) & plain
    assert not series(make_project, STUDY + "data: {name: d, options: {fraction: 0.5}}\n") & plain


def test_runs_of_one_series_differ_in_size_and_repeat_only(make_project: Make) -> None:
    groups: dict[str, list[PlannedRun]] = {}
    for run in build_plan(make_project(), ["tiny"]).runs:
        groups.setdefault(run.series, []).append(run)
    assert [sorted((run.nodes, run.repeat) for run in runs) for runs in groups.values()] == [
        [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)]
    ] * 2
