"""Slurm node lists (`jwb[0001-0003,0045]`, `n[1-2]x[3-4]`) to names and back, as pure functions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

MAX_NODES = 100_000

_NOTHING = {"", "(null)", "n/a", "none", "none assigned"}
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.A)
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_TRAILING = re.compile(r"^(.*?)(\d+)$", re.A | re.S)


def expand(text: str) -> list[str]:
    """Names of a Slurm node list, in its order. Raises ValueError.

    `None assigned`, `(null)` and the empty string, which squeue and sacct print for jobs without nodes, give [].
    A list that was cut (`n[1,3,...]`) is refused: a part of it must never pass for the whole.
    """
    if text.strip().lower() in _NOTHING:
        return []
    if "..." in text or "…" in text:
        raise ValueError(f"the node list was cut: {text!r}")
    names: list[str] = []
    for entry in _entries(text.strip()):
        for name in _product(entry):
            names.append(name)
            if len(names) > MAX_NODES:
                raise ValueError(f"the node list has more than {MAX_NODES} names")
    return names


def compress(names: Iterable[str]) -> str:
    """A short node list of distinct names: runs of trailing numbers of one width become ranges; sorted by number."""
    groups: dict[tuple[str, int], list[int]] = {}
    single: list[str] = []
    for name in dict.fromkeys(names):
        match = _TRAILING.match(name)
        if match is None:
            single.append(name)
            continue
        # `07` is of width 2; `7` and `11` are both of width 0, so that n[7-11] is one range
        width = len(match[2]) if match[2].startswith("0") and match[2] != "0" else 0
        groups.setdefault((match[1], width), []).append(int(match[2]))
    return ",".join([*single, *_merged(groups)])


def _merged(groups: dict[tuple[str, int], list[int]]) -> Iterator[str]:
    """Joins padded groups with the wider numbers that carry on from them (n098, n099, n100)."""
    for (prefix, width), numbers in list(groups.items()):
        if width and (prefix, 0) in groups:
            grown = [number for number in groups[(prefix, 0)] if len(str(number)) == width]
            numbers.extend(grown)
            rest = [number for number in groups[(prefix, 0)] if len(str(number)) != width]
            groups[(prefix, 0)] = rest
    for (prefix, width), numbers in groups.items():
        if not numbers:
            continue
        ranges = list(_ranges(sorted(numbers)))
        texts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges]
        alone = len(texts) == 1 and ranges[0][0] == ranges[0][1]
        yield prefix + (texts[0] if alone else f"[{','.join(texts)}]")


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        yield members[0], members[-1]


def _entries(text: str) -> Iterator[str]:
    """Splits at commas outside brackets; refuses brackets that don't pair."""
    start = depth = 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        if depth not in (0, 1):
            raise ValueError(f"brackets don't pair in node list {text!r}")
    if depth:
        raise ValueError(f"brackets don't pair in node list {text!r}")
    yield text[start:]


def _product(entry: str) -> Iterator[str]:
    if not entry or entry != entry.strip() or any(character.isspace() for character in entry):
        raise ValueError(f"not a node name: {entry!r}")
    axes = [_numbers(match[1]) if match[1] is not None else [match[2]] for match in _PART.finditer(entry)]
    return ("".join(parts) for parts in itertools.product(*axes))


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"not a range of node numbers: [{ranges}]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MAX_NODES:
            raise ValueError(f"not a range of node numbers: [{ranges}]")
        # the width of the first number counts, as in Slurm: [098-101]
        width = len(first) if first.startswith("0") else 0
        numbers.extend(f"{number:0{width}d}" for number in range(int(first), int(last) + 1))
        if len(numbers) > MAX_NODES:
            raise ValueError(f"the node list has more than {MAX_NODES} names")
    return numbers
