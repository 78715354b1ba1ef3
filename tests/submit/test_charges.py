"""Costs: planned from prices, held from jobs, charged from sacct; the cap; which code measured what."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.config import Config
from campaign.plan.model import Price
from campaign.project import Project
from campaign.slurm.queries import Charge, parse_charges
from campaign.submit import charges, states
from campaign.submit.attempts import next_items
from campaign.submit.batch import Batch, Item
from campaign.submit.budget import budget, over_cap
from campaign.submit.ledger import Ledger
from campaign.submit.limits import within_cap
from campaign.submit.origin import note_origin, other_code, provenance
from campaign.submit.submit import submit
from campaign.yamlfile import parse
from tests.conftest import Cli
from tests.slurm.projects import study
from tests.slurm.testbed.settings import REPOSITORY
from tests.submit.make import make_plan, make_run

TAG = "c0123456789ab"
# half an hour of 2 nodes with 4 GPUs and 48 cores each
PRICE = Price(4.0, 1.0, 48.0, "core-h", 10)
IDS = [f"{number:016x}" for number in range(1, 5)]

SACCT = """\
77_0|COMPLETED|900|2|192|billing=192,cpu=192,gres/gpu=8,mem=960000M,node=2
77_1|CANCELLED by 0|1800|2|192|billing=192,cpu=192,gres/gpu=8,mem=960000M,node=2
77_[2-3]|PENDING|0|2|192|billing=192,cpu=192,gres/gpu=8
78_0|RUNNING|30|2|192|billing=192,cpu=192,gres/gpu=8,mem=960000M,node=2
79_0|COMPLETING|31|2|192|billing=192,cpu=192,gres/gpu=8,mem=960000M,node=2
99|TIMEOUT|60|1|96|billing=96,cpu=96,node=1
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    runs = [
        make_run(run_id, nodes=2, walltime_s=1800, price=PRICE, gpus_per_rank=1, ranks_per_node=4) for run_id in IDS
    ]
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.add_plan(make_plan("p1", *runs))
        batch = Batch("here", TAG, tmp_path / "root" / "submit" / TAG, tuple((Item(run, 1),) for run in runs[:3]))
        states.take_intent(ledger, batch, "slurm", "here")
        states.note_queued(ledger, "here", TAG, job_id="77")
        ended = {"state": "done", "started": "2026-01-01T00:00:00Z"}
        changes = [
            ({"site": "here", "tag": TAG, "array_index": index, "run_id": IDS[index], "attempt": 1},
             ended | {"ended": f"2026-01-01T00:{minutes}:00Z"}, {"state": "done"})
            for index, minutes in ((0, 15), (1, 30))
        ]  # fmt: skip
        states.update_jobs(ledger, changes)
        yield ledger


def config(text: str) -> Config:
    from campaign.validate import FileSource

    made = Config.model_validate(parse(text, Path("campaign.yaml")).data)
    made._source = FileSource(parse(text, Path("campaign.yaml")), "campaign.yaml")
    return made


def test_what_sacct_prints() -> None:
    assert parse_charges(SACCT) == [
        Charge("77", 0, 900, 2, 192, 8, 192),
        Charge("77", 1, 1800, 2, 192, 8, 192),
        Charge("99", None, 60, 1, 96, None, 96),
    ]
    assert parse_charges("sacct: error: nothing\n77_0|FAILED|x|2|192|node=2\n") == []


def test_planned_and_held(ledger: Ledger) -> None:
    (cost,) = charges.costs(ledger)
    assert (cost.attempts, cost.elements, cost.charged_elements) == (2, 2, 0)
    assert (cost.planned_gpu_h, cost.planned_node_h, cost.planned_units, cost.unit) == (8.0, 2.0, 96.0, "core-h")
    # a quarter and half an hour of 8 GPUs
    assert cost.held_gpu_h == pytest.approx(6.0, rel=1e-6)
    assert cost.held_node_h == pytest.approx(1.5, rel=1e-6)
    assert cost.charged_gpu_h is None
    assert cost.gpu_h == cost.held_gpu_h


def test_charged(ledger: Ledger) -> None:
    rows = {row["array_index"]: row for row in ledger.query(charges.UNCHARGED, ("here",))}
    assert sorted(rows) == [0, 1]
    found = {charge.array_index: charge for charge in parse_charges(SACCT) if charge.job_id == "77"}
    charges._keep(ledger, [(rows[0], found[0])])
    (cost,) = charges.costs(ledger)
    assert (cost.charged_elements, cost.charged_gpu_h) == (1, None), "one of two jobs is no answer for both"
    charges._keep(ledger, [(rows[1], found[1])])
    (cost,) = charges.costs(ledger)
    assert (cost.charged_gpu_h, cost.charged_node_h, cost.charged_cpu_h, cost.charged_billing_h) == (6, 1.5, 144, 144)
    assert ledger.query(charges.UNCHARGED, ("here",)) == []


def test_the_cap_counts_what_is_spent_and_what_is_on_its_way(ledger: Ledger) -> None:
    state = budget(config("schema: 1\ncaps: {gpu_hours: 15}\n"), ledger)
    assert (state.spent_gpu_h, state.committed_gpu_h) == (pytest.approx(6), 4.0)
    assert state.left_gpu_h == pytest.approx(5)
    assert state.share(4.0) == pytest.approx(14 / 15)
    assert budget(config("schema: 1\n"), ledger).share(4.0) is None


def test_a_plan_above_the_cap_is_warned_of(ledger: Ledger) -> None:
    settings = config("schema: 1\ncaps:\n  gpu_hours: 15\n")
    state = budget(settings, ledger)
    assert over_cap(settings, state, 5.0 - 1e-3) is None
    warning = over_cap(settings, state, 6.0)
    assert warning is not None
    assert (warning.file, warning.line, warning.key) == ("campaign.yaml", 3, "caps.gpu_hours")
    assert "6 GPU-h, and 5 of the project's cap are left (6 spent, 4 queued or running)" in warning.message


@pytest.mark.parametrize(("cap", "kept"), [(100, 1), (14.1, 1), (13.9, 0)])
def test_submit_stops_at_the_cap(ledger: Ledger, cap: float, kept: int) -> None:
    items = next_items(ledger, ledger.run_rows([IDS[3]]))
    left, problem = within_cap(config(f"schema: 1\ncaps: {{gpu_hours: {cap}}}\n"), ledger, items)
    assert len(left) == kept
    assert (problem is None) is bool(kept)
    if problem is not None:
        assert "1 run stays planned" in problem.message
        assert problem.key == "caps.gpu_hours"


def test_a_site_that_the_cap_holds_back_counts_as_full(tmp_path: Path, cli: Cli) -> None:
    """As at a site's own limits, whoever follows then waits for a run to end before asking the cluster again."""
    (tmp_path / "sites").mkdir()
    local = (REPOSITORY / "sites" / "local.yaml").read_text()
    (tmp_path / "sites" / "local.yaml").write_text(local.replace("gpus: 0,", "gpus: 1,"))
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "s.yaml").write_text(json.dumps({"schema": 1, "name": "s"} | study(["true"])))
    (tmp_path / "campaign.yaml").write_text("schema: 1\ncaps: {gpu_hours: 0.01}\n")
    cli("plan", "local", "--study", "s", cwd=tmp_path, code=0)
    project = Project(tmp_path)
    with Ledger.open(project.ledger_path) as ledger:
        ids = [row["run_id"] for row in ledger.query("SELECT run_id FROM runs")]
        assert len(ids) == 1
        report = submit(project, ledger, ids)
        assert (report.queued, report.full_sites) == (0, {"local"})
        assert [problem.key for problem in report.limited] == ["caps.gpu_hours"]


SINCE_3 = [("runs", "walltime_s")] + [
    ("jobs", name)
    for name in "expected_start over_since fail_class failed_nodes walltime_s avoided again cancel_at".split()
]


def test_an_older_ledger_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with Ledger.open(path) as ledger:
        ledger.add_plan(make_plan("p1", make_run(IDS[0])))
        ledger.db.executescript("DROP TABLE charges; DROP TABLE origins; UPDATE meta SET value = '1'")
        for table, column in SINCE_3:
            ledger.db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    with Ledger.open(path) as ledger:
        assert charges.costs(ledger) == []
        assert ledger.query("SELECT value FROM meta WHERE key = 'schema'")[0][0] == "3"
        assert ledger.states(IDS) == {IDS[0]: "planned"}
    with Ledger.open(path, write=False) as ledger:
        assert ledger.query("SELECT count(*) FROM origins")[0][0] == 0


def test_runs_measured_with_another_commit_are_told(ledger: Ledger, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        options = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *options, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert provenance(tmp_path)["commit"] is None
    git("init", "-q")
    (tmp_path / "train.py").write_text("1\n")
    git("add", "train.py")
    git("commit", "-qm", "one")
    origin = provenance(tmp_path)
    assert (origin["commit"], origin["dirty"]) == (git("rev-parse", "HEAD"), False)
    note_origin(ledger, "here", TAG, origin)
    assert other_code(ledger, tmp_path, IDS[:2]) is None
    (tmp_path / "train.py").write_text("2\n")
    assert provenance(tmp_path)["dirty"] is True
    git("commit", "-qam", "two")
    problem = other_code(ledger, tmp_path, IDS[:2])
    assert problem is not None
    assert f"2 runs measured with other code: commit {origin['commit'][:10]} (2)" in problem.message
    assert other_code(ledger, tmp_path, []) is None
