"""Inputs that would be downloaded by nodes that have no internet."""

from __future__ import annotations

import pytest

from campaign.plan.build import build_plan
from campaign.plan.model import Plan
from tests.plan.conftest import SITE, STUDY, Make, changed
from tests.plan.test_places import reasons


def site_with(internet: str, *changes: tuple[str, str]) -> str:
    """The site with `compute_internet` on line 4."""
    return changed(changed(SITE, ("account: budget", f"account: budget\ncompute_internet: {internet}")), *changes)


def urls(plan: Plan) -> list[tuple[str | None, int | None, str]]:
    """(key, line, message) of what is said of URLs."""
    found = [problem for problem in plan.warnings if "internet" in problem.message]
    return [(problem.key, problem.line, problem.message) for problem in found]


# study -> (key, line, URL)
PLACES: dict[str, tuple[str, str, int, str]] = {
    "command": (
        changed(STUDY, ("--lr,", "--data=https://zenodo.org/a.zip,")), "command[2]", 3, "https://zenodo.org/a.zip",
    ),
    "parameter": (changed(STUDY, ("hidden: 64", "hidden: hf://org/model")), "params.hidden", 4, "hf://org/model"),
    "parameter in a list": (
        changed(STUDY, ("hidden: 64", "hidden: {a: [s3://bucket/key]}")), "params.hidden.a[0]", 4, "s3://bucket/key",
    ),
    "axis": (
        changed(STUDY, ("[ddp, fsdp2]", '["http://x.org/ddp", fsdp2]')), "axes.strategy[0]", 8, "http://x.org/ddp",
    ),
    "condition": (
        STUDY + "when: [{if: {nodes: 1}, set: {hidden: 'gs://b/k'}}]\n", "when[0].set.hidden", 11, "gs://b/k",
    ),
    "password": (
        changed(STUDY, ("hidden: 64", "hidden: 'https://me:secret@host/x'")), "params.hidden", 4, "https://host/x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_a_url_of_a_study_is_said_where_it_stands(make_project: Make, name: str) -> None:
    study, key, line, url = PLACES[name]
    plan = build_plan(make_project(site_with("false"), study), ["tiny"])
    assert urls(plan) == [(key, line, f"{url} would be fetched by compute nodes of tiny, which have no internet")]
    assert all(run.can_run for run in plan.runs), "it may be cached: said, not refused"
    (problem,) = [problem for problem in plan.warnings if "fetched" in problem.message]
    assert problem.allowed == "paths on shared storage (sites/tiny.yaml:4)"
    assert "HF_HUB_OFFLINE" in (problem.hint or "")


def test_urls_of_the_sites_own_file(make_project: Make) -> None:
    lines = "account: budget\nenv: {HUB: 'https://hub.org'}\nsetup: ['pip install git+https://git.org/x', 'true']"
    plan = build_plan(make_project(site_with("false", ("account: budget", lines))), ["tiny"])
    assert [(key, line) for key, line, _ in urls(plan)] == [("env.HUB", 4), ("setup[0]", 5)]


@pytest.mark.parametrize(
    "text", ["http://localhost:8080/x", "http://127.0.0.1/", "tcp://host:29500", "nothttps", "file:///p/x", "a://b"]
)
def test_what_needs_no_internet(make_project: Make, text: str) -> None:
    study = changed(STUDY, ("hidden: 64", f"hidden: '{text}'"))
    assert urls(build_plan(make_project(site_with("false"), study), ["tiny"])) == []


def test_unknown_internet_is_said_only_where_it_would_be_needed(make_project: Make) -> None:
    study = PLACES["parameter"][0]
    for site in (SITE, site_with("null")):
        ((key, _, message),) = urls(build_plan(make_project(site, study), ["tiny"]))
        assert key == "params.hidden"
        assert message.endswith("unknown, not checked")
        assert urls(build_plan(make_project(site), ["tiny"])) == []


def test_with_internet_nothing_is_said(make_project: Make) -> None:
    plan = build_plan(make_project(site_with("true"), PLACES["parameter"][0]), ["tiny"])
    assert urls(plan) == []


def test_an_image_in_a_registry_cant_be_fetched_offline(make_project: Make) -> None:
    """Even a cached one: the runtime asks the registry at every start."""
    text = "account: budget\ncontainer: {runtime: singularity, image: 'docker://nvcr.io/nvidia/pytorch:24.10-py3'}"
    plan = build_plan(make_project(site_with("false", ("account: budget", text))), ["tiny"])
    (reason,) = reasons(plan)
    assert (reason.file, reason.line, reason.key) == ("sites/tiny.yaml", 4, "container.image")
    assert reason.message == (
        "container image docker://nvcr.io/nvidia/pytorch:24.10-py3 would be fetched by compute nodes of tiny, which "
        "have no internet"
    )
    pull = "on a login node: singularity pull pytorch.sif docker://nvcr.io/nvidia/pytorch:24.10-py3"
    assert (reason.hint or "").startswith(pull)
    plan = build_plan(make_project(site_with("null", ("account: budget", text))), ["tiny"])
    assert all(run.can_run for run in plan.runs)
    assert [p.key for p in plan.warnings if p.message.endswith("unknown, not checked")].count("container.image") == 1
