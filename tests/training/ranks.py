"""Start ranks of the hydrology workload as real processes and read what they recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from campaign.record import HEADER, JSON_HEAD, JSON_TAG, STEP, STEP_TAG
from tests.training.forked import run_farm


@dataclass(frozen=True)
class Case:
    """`world` ranks with these parameters; one of them may raise or hang after five steps."""

    world: int
    params: dict[str, Any]
    data: str
    raises: int | None = None
    hangs: int | None = None


@dataclass(frozen=True)
class Ran:
    """What the ranks of a case left."""

    codes: list[int]
    folder: Path

    def err(self, rank: int = 0) -> str:
        return (self.folder / f"{rank}.err").read_text()

    def out(self, rank: int = 0) -> str:
        return (self.folder / f"{rank}.out").read_text()

    def records(self, rank: int = 0) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
        """(steps, everything else) of a rank."""
        data, steps, others = (self.folder / f"{rank}.bin").read_bytes(), [], []
        position = HEADER.size
        while position < len(data):
            if data[position] == STEP_TAG:
                steps.append(STEP.unpack_from(data, position))
                position += STEP.size
            else:
                tag, size = JSON_HEAD.unpack_from(data, position)
                assert tag == JSON_TAG
                position += JSON_HEAD.size + size
                others.append(json.loads(data[position - size : position]))
        return steps, others

    def losses(self, rank: int = 0) -> list[float]:
        return [step[-1] for step in self.records(rank)[0]]

    def epochs(self, rank: int = 0) -> list[dict[str, Any]]:
        return [record for record in self.records(rank)[1] if record["k"] == "epoch"]

    def __str__(self) -> str:
        return f"codes {self.codes}\n" + "\n".join(f"rank {n}: {self.err(n)}" for n in range(len(self.codes)))


def run_cases(cases: list[Case], folder: Path, timeout: float = 240) -> list[Ran]:
    """Run the cases one after another."""
    file = folder / "cases.json"
    file.write_text(json.dumps([asdict(case) for case in cases]))
    run_farm("tests.training.rank_farm", file, folder, timeout_s=timeout)
    return [
        Ran(json.loads((folder / str(number) / "codes.json").read_text()), folder / str(number))
        for number in range(len(cases))
    ]
