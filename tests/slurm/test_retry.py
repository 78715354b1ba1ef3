"""A node breaks under a run: it is tried again by itself, elsewhere, and what failed otherwise is not."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.submit.ledger import Ledger
from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

SCRIPT = """
import os, pathlib, sys, time
with open("tally", "a") as file:
    file.write(os.environ["CAMPAIGN_RUN_ID"] + " " + os.environ["CAMPAIGN_ATTEMPT"] + "\\n")
if sys.argv[1] == "broken":
    sys.exit("broken on purpose")
while os.environ["CAMPAIGN_ATTEMPT"] == "1":
    time.sleep(0.1)
"""


@pytest.fixture
def vega(own_testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, whole before and after."""
    cluster = own_testbed.cluster("vega")
    monkeypatch.setenv("SLURM_CONF", str(cluster.slurm_conf))
    yield cluster
    for node in cluster.nodes:
        own_testbed.node_up("vega", node)
        own_testbed.wait_node("vega", node, "idle")


def newest(project: Path) -> dict[str, dict[str, Any]]:
    """The newest job of each run, by the run's `what`."""
    with Ledger.open(project / ".campaign" / "ledger.sqlite") as ledger:
        rows = ledger.query("SELECT json_extract(params, '$.what') AS what, runs.state AS run_state, valid, jobs.* "
                            "FROM runs JOIN jobs USING (run_id) WHERE jobs.attempt = runs.attempts")  # fmt: skip
        return {row["what"]: dict(row) for row in rows}


@needs("slurm")
def test_a_run_whose_node_broke_is_tried_again_elsewhere(own_testbed: Testbed, vega: Cluster, cli: Cli) -> None:
    folder = Path(tempfile.mkdtemp(dir=own_testbed.layout.shared))
    axes = {"nodes": [1], "ranks_per_node": [1], "what": ["hit", "broken"]}
    sweep = study(["python", "-c", SCRIPT, "{what}"], axes=axes, resources={"memory": "500M"})
    project = make_project(folder / "p", "vega", studies={"t": sweep})
    path = project / "sites" / "vega.yaml"
    path.write_text(re.sub(r"lost_after_s: \d+", "lost_after_s: 20", path.read_text()))
    cli("plan", "vega", "--study", "t", cwd=project, code=0)
    cli("submit", cwd=project, code=0)

    def look(*words: str) -> dict[str, dict[str, Any]]:
        cli("status", "--force", *words, cwd=project)
        return newest(project)

    wait_for(lambda: look()["hit"]["run_state"] == "running" and look()["hit"]["nodelist"], what=lambda: str(look()))
    wait_for(lambda: (project / "tally").exists() and len((project / "tally").read_text().splitlines()) == 2)
    node = look()["hit"]["nodelist"]
    own_testbed.node_kill("vega", node)
    wait_for(lambda: look("--advance")["hit"]["run_state"] == "done", 240, what=lambda: str(newest(project)))
    hit, broken = look()["hit"], look()["broken"]
    assert (hit["attempt"], hit["avoided"], hit["valid"]) == (2, node, 1)
    assert hit["nodelist"] != node
    assert f"#SBATCH --exclude={node}" in next(Path(hit["submit_dir"]).glob("*_submission.sh")).read_text()
    assert (broken["attempt"], broken["run_state"]) == (1, "failed")
    lines = sorted((project / "tally").read_text().splitlines())
    assert lines == sorted([f"{hit['run_id']} 1", f"{hit['run_id']} 2", f"{broken['run_id']} 1"])
    shown = cli("show", hit["run_id"], cwd=project, code=0).stdout
    assert f"avoids      {node}" in shown
    assert "tried again no: it would fail the same way" in cli("show", broken["run_id"], cwd=project, code=0).stdout
