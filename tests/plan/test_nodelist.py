"""Node lists are read and written as Slurm reads and writes them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from campaign.slurm.nodelist import compress, expand
from tests.needs import needs
from tests.plan import slurm_says

LISTS = {
    "jwb0001": ["jwb0001"],
    "jwb[0001-0003,0045]": ["jwb0001", "jwb0002", "jwb0003", "jwb0045"],
    "n[1-2]x[3-4]": ["n1x3", "n1x4", "n2x3", "n2x4"],
    "jpbo-001-[01-03]": ["jpbo-001-01", "jpbo-001-02", "jpbo-001-03"],
    "gn[09-11],login": ["gn09", "gn10", "gn11", "login"],
    "a,b,c-1": ["a", "b", "c-1"],
    "n[098-101]": ["n098", "n099", "n100", "n101"],
    "n[8-11]": ["n8", "n9", "n10", "n11"],
}


@pytest.mark.parametrize("text", LISTS)
def test_a_list_is_read(text: str) -> None:
    assert expand(text) == LISTS[text]


def test_a_domain_behind_the_brackets_is_read_too() -> None:
    # Slurm's own hostlists have no such names, squeue of other sites may
    assert expand("r[1-2]-n[1,3].site") == ["r1-n1.site", "r1-n3.site", "r2-n1.site", "r2-n3.site"]


@pytest.mark.parametrize("text", ["", "(null)", "None assigned", "N/A", "None"])
def test_a_job_without_nodes_has_none(text: str) -> None:
    assert expand(text) == []


@pytest.mark.parametrize("text", ["n[1,3,...]", "n[1-3],...", "jwb[0001-0100…"])
def test_a_list_that_was_cut_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="was cut"):
        expand(text)


@pytest.mark.parametrize(
    "text", ["n[1", "n1]", "n[[1]]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "a,,b", "a b", ",", "n[1;2]", "n[0:9]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"node|brackets"):
        expand(text)


def test_an_absurd_list_is_refused_before_it_fills_the_memory() -> None:
    for text in ("n[1-99999999999]", "n[1-9000]x[1-9000]", "n[1-90000],m[1-90000]"):
        with pytest.raises(ValueError, match=r"more than|not a range"):
            expand(text)


def test_names_become_ranges() -> None:
    assert compress(["jwb0001", "jwb0002", "jwb0003", "jwb0045"]) == "jwb[0001-0003,0045]"
    assert compress(["gn09", "gn10", "gn11"]) == "gn[09-11]"
    assert compress(["n8", "n9", "n10"]) == "n[8-10]"
    assert compress(["login", "n1"]) == "login,n1"
    assert compress([]) == ""


_NAME = st.tuples(
    st.sampled_from(["n", "jwb", "jpbo-001-", "rack1n"]), st.integers(0, 1200), st.sampled_from([0, 2, 4])
).map(lambda name: f"{name[0]}{name[1]:0{name[2]}d}")
_NAMES = st.lists(_NAME, max_size=60, unique=True)


@settings(deadline=None)
@given(_NAMES)
def test_compressed_names_expand_to_the_same_names(names: list[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(names)


@settings(deadline=None)
@given(st.text("n1[]-,x0.…", max_size=20))
def test_any_text_is_a_list_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert all(expand(text))


@needs("slurm")
def test_slurm_reads_the_same_names(tmp_path: Path) -> None:
    assert slurm_says.hostnames(list(LISTS), tmp_path) == list(LISTS.values())


@needs("slurm")
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_NAMES.filter(bool), min_size=3, max_size=5))
def test_slurm_reads_our_lists(tmp_path: Path, groups: list[list[str]]) -> None:
    theirs = slurm_says.hostnames([compress(names) for names in groups], tmp_path)
    assert [sorted(names) for names in theirs] == [sorted(names) for names in groups]
