"""What `test_many_jobs.py` and `make bench` share: a small bed that takes large arrays, and projects for it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Settings, Testbed

MANY = 10_000
"""Also MaxArraySize of the bed: its largest index is 9,999, so an array of MANY just fits."""
STUDY = "many"


@contextmanager
def bed_of_large_arrays() -> Iterator[Testbed]:
    """A bed of its own: vega with one node."""
    root = Path(tempfile.mkdtemp(prefix="slurmtb-", dir="/tmp"))
    bed = Testbed(Settings.from_environment(root=root, clusters=("vega",), nodes_per_cluster=1, max_array_size=MANY))
    try:
        bed.start()
        yield bed
    finally:
        bed.stop()


def many_runs(folder: Path, runs: int, *, hold: bool = True, poll_s: int = 600, **limits: int) -> Path:
    """A project in `folder` with `runs` runs of one shape. `hold`: Slurm keeps their jobs, so that nothing starts.

    `limits`: of the site file, such as `array_size`.
    """
    seeds = {"nodes": [1], "ranks_per_node": [1], "seed": list(range(runs))}
    sweep = study(["python", "-c", "pass", "{seed}"], axes=seeds, resources={"cpus_per_rank": 1})
    make_project(folder, "vega", studies={STUDY: sweep})
    path = folder / "sites" / "vega.yaml"
    options = "{hold: true}" if hold else "{}"
    changes = {
        r"sbatch_args: \{.*?\}": f"sbatch_args: {options}",
        r"poll_interval_s: \d+": f"poll_interval_s: {poll_s}",
    }
    changes |= {rf"\b{name}: null": f"{name}: {limit}" for name, limit in limits.items()}
    text = path.read_text()
    for pattern, change in changes.items():
        text, count = re.subn(pattern, change, text, count=1)
        assert count == 1, f"{path} has nothing like {pattern}"
    path.write_text(text)
    return folder
