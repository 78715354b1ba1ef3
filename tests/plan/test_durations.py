"""Times and sizes mean what Slurm means by them."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.slurm.durations import format_duration, format_size, parse_duration, parse_size
from tests.needs import needs
from tests.plan import slurm_says

# the six forms of sbatch(1), --time, and what people make of them; tests/slurm/test_plan_says.py asks sbatch itself
TIMES = [
    ("30", 1800), ("0", 0), ("007", 420), ("5", 300), ("1440", 86400),
    ("10:00", 600), ("90:90", 5490), ("00:30", 30), ("00:01", 1), ("120:00", 7200),
    ("1:2:3", 3723), ("24:00:00", 86400), ("25:00:00", 90000), ("0:30:0", 1800), ("999:59:59", 3599999),
    ("1-2", 93600), ("1-30", 194400), ("1-0", 86400), ("0-1", 3600), ("365-0", 31536000),
    ("1-2:3", 93780), ("0-0:30", 1800), ("1-2:3:4", 93784), ("0-0:0:1", 1), ("2-00:00:00", 172800),
]  # fmt: skip
NOT_TIMES = [
    "", "x", "1.5", "1:2:3:4", "1-2:3:4:5", "+5", "1:", ":5", "::", "1-:5", "1-2:", "1--2", "1-1-1", "1h", "5m", "1d",
    "10:00:00am", "1 2", "1e2", "0x10", "1,5", "1_0", "PT30M",
]  # fmt: skip
# Slurm takes these by accident of its parser: as days without hours, as its sign for unlimited, as digits of C
NOT_TIMES_OF_OURS = ["1-", "-5", "-1", "\u0663"]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_a_time_is_read_as_sbatch_documents_it(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", [*NOT_TIMES, *NOT_TIMES_OF_OURS])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Slurm time"):
        parse_duration(text)


def test_unlimited_only_where_it_is_allowed() -> None:
    assert parse_duration("UNLIMITED", unlimited=True) == parse_duration("infinite", unlimited=True) == math.inf
    with pytest.raises(ValueError, match="unlimited"):
        parse_duration("UNLIMITED")


@settings(deadline=None)
@given(st.integers(0, 10**8))
def test_a_written_time_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@settings(deadline=None)
@given(st.floats(0, 1e6))
def test_a_fraction_of_a_second_is_rounded_up(seconds: float) -> None:
    assert 0 <= parse_duration(format_duration(seconds)) - seconds <= 1


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_duration(text, unlimited=True) >= 0


@needs("slurm")
def test_slurm_reads_every_row_of_the_table_alike() -> None:
    assert slurm_says.seconds([text for text, _ in TIMES]) == [seconds for _, seconds in TIMES]
    assert slurm_says.seconds(NOT_TIMES) == [None] * len(NOT_TIMES)
    assert slurm_says.seconds(["UNLIMITED", "unlimited", "INFINITE", "infinite", "Infinite"]) == [-1] * 5


_FIELD = st.integers(0, 500).map(str)
_TIME = st.one_of(
    _FIELD,
    st.tuples(_FIELD, _FIELD).map(":".join),
    st.tuples(_FIELD, _FIELD, _FIELD).map(":".join),
    st.tuples(_FIELD, _FIELD).map("-".join),
    st.tuples(_FIELD, _FIELD, _FIELD).map(lambda f: f"{f[0]}-{f[1]}:{f[2]}"),
    st.tuples(_FIELD, _FIELD, _FIELD, _FIELD).map(lambda f: f"{f[0]}-{f[1]}:{f[2]}:{f[3]}"),
)


@needs("slurm")
@settings(max_examples=8, deadline=None)
@given(st.lists(_TIME, min_size=50, max_size=200))
def test_slurm_reads_the_same_seconds(texts: list[str]) -> None:
    assert [parse_duration(text) for text in texts] == slurm_says.seconds(texts)


@needs("slurm")
@settings(max_examples=8, deadline=None)
@given(st.lists(st.text("0123456789:-+. x", min_size=1, max_size=9), min_size=50, max_size=200))
def test_what_we_accept_slurm_accepts_too(texts: list[str]) -> None:
    for text, theirs in zip(texts, slurm_says.seconds([text.strip() for text in texts]), strict=True):
        try:
            ours = parse_duration(text)
        except ValueError:
            continue
        # 32-bit seconds overflow in Slurm; nobody asks for 68 years
        assert theirs == ours or ours >= 2**31, text


@pytest.mark.parametrize(
    ("text", "size"),
    [("16G", 16 << 30), ("16g", 16 << 30), ("16GB", 16 << 30), ("1.5T", 3 << 39), ("512M", 512 << 20), ("1K", 1024),
     ("0.5K", 512), ("2P", 2 << 50)],
)  # fmt: skip
def test_a_size_is_in_multiples_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


# (text, MiB): sizes that sbatch(1), --mem, takes too; it rounds kilobytes up and counts in MiB
SIZES = [("16G", 16384), ("16g", 16384), ("16GB", 16384), ("16gb", 16384), ("512M", 512), ("16MB", 16), ("007G", 7168),
         ("1K", 1), ("1024K", 1), ("1025K", 2), ("1500K", 2), ("1T", 1048576), ("1TB", 1048576),
         ("1t", 1048576)]  # fmt: skip
NOT_SIZES = ["", "G", "16 G", "-1G", "16X", "1e3M", "16GiB", "1.G", "1,5G", "0x1G"]


@pytest.mark.parametrize(("text", "mebibytes"), SIZES)
def test_a_size_in_mebibytes_as_sbatch_counts(text: str, mebibytes: int) -> None:
    assert math.ceil(parse_size(text) / 2**20) == mebibytes


@needs("slurm")
def test_slurm_reads_every_size_of_the_table_alike() -> None:
    assert slurm_says.mebibytes([text for text, _ in SIZES]) == [size for _, size in SIZES]
    assert slurm_says.mebibytes(NOT_SIZES) == [None] * len(NOT_SIZES)


@pytest.mark.parametrize("text", ["16", *NOT_SIZES])
def test_a_size_without_a_unit_or_with_a_strange_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@settings(deadline=None)
@given(st.integers(0, 1 << 60))
def test_a_written_size_is_the_size_in_whole_kilobytes(size: int) -> None:
    assert parse_size(format_size(size)) == size // 1024 * 1024


@needs("slurm")
@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1 << 20, 1 << 55), min_size=30, max_size=100))
def test_slurm_reads_our_sizes(sizes: list[int]) -> None:
    texts = [format_size(size // (1 << 20) * (1 << 20)) for size in sizes]
    assert slurm_says.mebibytes(texts) == [size >> 20 for size in sizes]
