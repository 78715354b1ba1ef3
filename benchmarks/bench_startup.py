"""The command line must feel instant: start-up against the libraries that it can't do without."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import milliseconds, paired_ratios, process_seconds, row
from campaign.plan.model import Plan, PlannedRun, Price, SourceFile
from campaign.submit.ledger import Ledger, now

CAMPAIGN = Path(sys.executable).with_name("campaign")
RUNS = 10_000
STATES = ("done", "done", "done", "failed", "planned")
"""Shares of run states in the ledger that `status` reads."""


def run() -> list[dict[str, Any]]:
    """`campaign --help` against `import click`; `campaign status` over 10,000 runs against one SELECT of DuckDB."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        make_project(project, RUNS)
        return [
            _row("campaign --help / import click", [CAMPAIGN, "--help"], "import click", 1.5),
            _row(
                "campaign status, 10,000 runs / DuckDB SELECT",
                [CAMPAIGN, "status", "--project", project],
                "import duckdb; duckdb.sql('SELECT 1').fetchall()",
                2.0,
            ),
        ]


def _row(name: str, ours: list[Any], peer: str, bound: float) -> dict[str, Any]:
    ratios, mine, theirs = paired_ratios(
        lambda: process_seconds(ours), lambda: process_seconds([sys.executable, "-c", peer]), pairs=21, warmup=2
    )
    detail = f"{milliseconds(mine)} against {milliseconds(theirs)}"
    return row(name, ratios, "x", bound=bound, kind="max", detail=detail)


def make_project(folder: Path, count: int) -> None:
    """A project whose ledger holds `count` runs of four studies on two sites, most of them done."""
    (folder / "sites").mkdir()
    source = SourceFile("x.yaml", "0" * 64)
    with Ledger.open(folder / ".campaign" / "ledger.sqlite") as ledger:
        runs = tuple(_run(number) for number in range(count))
        sites, studies = {run.site for run in runs}, {run.study for run in runs}
        ledger.add_plan(
            Plan("bench", now(), dict.fromkeys(sites, source), dict.fromkeys(studies, source), {}, runs)
        )  # fmt: skip
        with ledger.transaction() as db:
            states = [(STATES[run.order % len(STATES)], run.run_id) for run in runs]
            db.executemany("UPDATE runs SET state = ?, attempts = 1 WHERE run_id = ?", states)


def _run(number: int) -> PlannedRun:
    nodes = 2 ** (number % 6)
    return PlannedRun(
        run_id=f"{number:016x}", site=("juwels", "vega")[number % 2], study=f"study{number // 2 % 4}",
        series=f"lr={number % 7}", workload="training.workloads.hydrology", command=None, metrics=(),
        params={"global_batch": 2048, "hidden": 128, "lr": 1e-3, "seed": number},
        axes={"nodes": nodes, "strategy": "ddp"}, strategy="ddp", scaling="strong", nodes=nodes, ranks_per_node=4,
        cpus_per_rank=12, gpus_per_rank=1, world_size=4 * nodes, local_batch=2048 // nodes, global_batch=2048,
        repeat=number % 3, order=number, gate=False, gated=False, oversubscribed=False, data=None, staging="none",
        redirect=True, record={}, retry={}, pack="false", partition="booster", qos=None, account="demo",
        reservation=None, constraint=None, switches=None, exclude=None, nodelist=None, mail=None, memory_bytes=None,
        walltime_s=1800, revision=None, image_digest=None,
        price=Price(gpu_h=2.0 * nodes, node_h=0.5 * nodes, site_units=None, site_unit=None, files=10),
    )  # fmt: skip
