"""The main job on the three clusters: plan, submit, run, record, collect; with the sites' own files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster

SAYS_WHO = (
    "import os, sys, socket; from campaign.record import Recorder; rank = int(os.environ['RANK']); "
    "size = int(os.environ['WORLD_SIZE']); recorder = Recorder.from_env(); recorder.world(rank, size); "
    "recorder.epoch(0, epoch_time_s=1.0 + rank, steps=10, samples_seen=100, samples_unique=100 * size, loss=0.5); "
    "print('rank', rank, 'of', size, 'on', socket.gethostname(), os.environ['MASTER_ADDR'], flush=True)"
)


def records(project: Path) -> list[dict[str, Any]]:
    """All final records below the project's run root."""
    return [json.loads(path.read_text()) for path in sorted((project / "runs" / "runs").glob("*/*/a*/record.json"))]


@needs("slurm")
@pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)
def test_the_script_that_is_shown_is_sent_and_finishes(cluster: Cluster, shared: Path, cli: Cli) -> None:
    axes = {"nodes": [1, 4], "ranks_per_node": [4]}
    project = make_project(shared / "p", cluster.name, studies={"who": study(["python", "-c", SAYS_WHO], axes=axes)})
    shown = cli("plan", cluster.name, "--study", "who", "--show-script", cwd=project, code=0).stdout
    done = cli("run", cluster.name, "--study", "who", "--no-plots", cwd=project)
    assert done.code == 0, done
    sent = [path.read_text().strip() for path in (project / "runs" / "submit").glob("*/*_submission.sh")]
    assert len(sent) == 2
    for script in sent:
        assert script in shown
    by_size = {record["world_size"]: record for record in records(project)}
    assert sorted(by_size) == [4, 16]
    for size, record in by_size.items():
        assert record["state"] == "done"
        assert record["complete"] is True
        assert record["missing_nodes"] == []
        assert len(record["nodes"]) == size // 4
    columns = "world_size, epoch_time_s, slowest_rank, valid, why_invalid"
    sql = f"SELECT {columns} FROM epochs JOIN runs USING (run_id) ORDER BY 1"
    rows = cli("sql", sql, "--json", cwd=project, code=0).json()["data"]["rows"]
    assert [row[:3] for row in rows] == [[4, 4.0, 3], [16, 16.0, 15]]
    # the nodes claim 48 cores and GPUs; the ranks see two cores and none, and that is what counts
    assert all(row[3] is False and "oversubscribed" in row[4] for row in rows)


@needs("slurm")
@pytest.mark.parametrize("cluster", ["juwels", "jupiter"], indirect=True)
def test_ranks_meet_over_the_site_s_own_network(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """Every rank connects to rank 0 at MASTER_ADDR:MASTER_PORT, as torch would: suffix, interface, free port."""
    meets = (
        "import os, socket, sys; rank = int(os.environ['RANK']); size = int(os.environ['WORLD_SIZE'])\n"
        "address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if rank == 0:\n"
        "    server = socket.create_server(('', address[1])); seen = set()\n"
        "    while len(seen) < size - 1:\n"
        "        peer, _ = server.accept(); seen.add(int(peer.recv(16))); peer.close()\n"
        "    print('met', sorted(seen))\n"
        "else:\n"
        "    import time\n"
        "    end = time.monotonic() + 60\n"
        "    while True:\n"
        "        try:\n"
        "            peer = socket.create_connection(address, timeout=5); break\n"
        "        except OSError:\n"
        "            if time.monotonic() > end: raise\n"
        "            time.sleep(0.1)\n"
        "    peer.sendall(str(rank).encode()); peer.close()\n"
    )
    axes = {"nodes": [3], "ranks_per_node": [2]}
    project = make_project(shared / "p", cluster.name, studies={"meet": study(["python", "-c", meets], axes=axes)})
    cli("run", cluster.name, "--study", "meet", "--no-plots", cwd=project, code=0)
    (record,) = records(project)
    console = next((project / "runs" / "runs").glob("*/*/a1/console.log")).read_text()
    assert "met [1, 2, 3, 4, 5]" in console
    assert record["state"] == "done"


NASTY = "sp ace 'quote\" $(touch x) `touch y` ;touch z\n new line ünïcödé \\ %j {brace} *"


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_a_nasty_parameter_arrives_unharmed_and_unexecuted(cluster: Cluster, shared: Path, cli: Cli) -> None:
    writes = "import sys; print('hex', sys.argv[1].encode('utf-8', 'surrogateescape').hex())"
    nasty = study(["python", "-c", writes, "{value}"], params={"value": NASTY})
    project = make_project(shared / "p", cluster.name, studies={"nasty": nasty})
    cli("run", cluster.name, "--study", "nasty", "--no-plots", cwd=project, code=0)
    console = next((project / "runs" / "runs").glob("*/*/a1/console.log")).read_text()
    assert f"hex {NASTY.encode().hex()}" in console
    assert not [path for path in shared.rglob("*") if path.name in ("x", "y", "z")]


@needs("slurm")
def test_a_user_s_own_packages_win(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = make_project(
        shared / "p", cluster.name, studies={"own": study(["python", "train.py"], axes={"nodes": [2]})}
    )
    for package in ("training", "analysis", "campaign_helpers"):
        (project / package).mkdir()
        (project / package / "__init__.py").write_text(f"NAME = 'my own {package}'\n")
    lines = [f"import {name}; print({name}.NAME)" for name in ("training", "analysis", "campaign_helpers")]
    (project / "train.py").write_text("\n".join(lines) + "\n")
    cli("run", cluster.name, "--study", "own", "--no-plots", cwd=project, code=0)
    console = next((project / "runs" / "runs").glob("*/*/a1/console.log")).read_text()
    assert [line for line in console.splitlines() if line.startswith("my own")] == [
        "my own training", "my own analysis", "my own campaign_helpers",
    ]  # fmt: skip


WRITES_MUCH = """
import os, sys, tempfile, warnings
import mymodule
warnings.warn("a warning")
print("out", os.environ["RANK"]); print("err", file=sys.stderr)
tempfile.NamedTemporaryFile(delete=False).write(b"x" * 1000)
open(os.path.join(tempfile.gettempdir(), "mine"), "w").write("x")
"""


@needs("slurm")
@pytest.mark.parametrize("cluster", ["jupiter"], indirect=True)
def test_files_per_run_do_not_depend_on_ranks(cluster: Cluster, shared: Path, home: Path, cli: Cli) -> None:
    """Every new file and link below the shared root and HOME, ledger, store and plan apart."""
    counts = {}
    for nodes, ranks in ((1, 1), (1, 4), (4, 4)):
        root = shared / f"{nodes}x{ranks}"
        axes = {"nodes": [nodes], "ranks_per_node": [ranks]}
        project = make_project(root / "p", cluster.name, studies={"w": study(["python", "w.py"], axes=axes)})
        (project / "w.py").write_text(WRITES_MUCH)
        (project / "mymodule.py").write_text("VALUE = 1\n")
        cli("plan", cluster.name, "--study", "w", cwd=project, code=0)
        before = {path for top in (shared, home) for path in top.rglob("*")}
        cli("run", cluster.name, "--study", "w", "--no-plots", cwd=project, code=0)
        after = {path for top in (shared, home) for path in top.rglob("*")}
        apart = (project / ".campaign", project / "campaign.duckdb", project / "campaign.duckdb.wal")
        new = [
            path for path in after - before
            if not path.is_dir() and not any(path == top or top in path.parents for top in apart)
        ]  # fmt: skip
        counts[nodes, ranks] = sorted(path.relative_to(shared).as_posix() for path in new)
    sizes = {key: len(names) for key, names in counts.items()}
    assert len(set(sizes.values())) == 1, counts
    assert max(sizes.values()) <= 12, counts
