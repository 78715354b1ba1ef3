"""The MLflow mirror, against a real `mlflow server` on loopback and against an SQLite file."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_NOW, EXIT_OK
from tests.conftest import Cli, campaign_command
from tests.needs import needs
from tests.waiting import wait_for

pytestmark = [needs("mlflow", "matplotlib"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
"""SQLAlchemy warns of what MLflow does."""

RANK = """
import os, sys
from campaign.record import Recorder
recorder = Recorder.from_env()
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
recorder.world(rank, size)
if sys.argv[1] == "broken":
    sys.exit("broken on purpose")
for step in range(8):
    recorder.step(step // 4, step, samples=2, step_s=0.5, data_wait_s=0.125, loss=1.0 / (step + 1))
for epoch in range(3):
    recorder.epoch(epoch, epoch_time_s=8.0 / size + epoch, steps=4, samples_seen=16 // size, samples_unique=16,
                   loss=1.0 / (epoch + 1), warmup=epoch == 0)
recorder.observe("accuracy", 0.75, step=2, part="test set")
"""
EPOCHS = 3


def make(project: Path, cli: Cli) -> Path:
    """A project whose study `tally` ended well at one and two ranks, and `broken` badly."""
    cli("init", project, "--site", "local", code=EXIT_OK)
    (project / "rank.py").write_text(RANK)
    for name in ("tally", "broken"):
        study = {"schema": 1, "name": name, "command": [sys.executable, "rank.py", name], "scaling": "strong",
                 "params": {"global_batch": 16}, "axes": {"nodes": [1], "ranks_per_node": [1, 2]}, "repeats": 1,
                 "walltime": "00:05:00", "gate": False, "record": {"raw_ranks": [0]}}  # fmt: skip
        (project / "studies" / f"{name}.yaml").write_text(json.dumps(study))
        code = EXIT_OK if name == "tally" else EXIT_FAILED
        cli("run", "sites/local.yaml", "--study", name, "--no-plots", cwd=project, code=code)
    return project


@pytest.fixture
def project(tmp_path: Path, cli: Cli) -> Path:
    return make(tmp_path / "p", cli)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`mlflow server` with an SQLite file; its address."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true"},
        )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"

    def healthy() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"{uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        wait_for(healthy, 180, what=lambda: (folder / "log").read_text()[-2000:])
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def client(uri: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs_of(uri: str, experiment: str) -> dict[str, Any]:
    """MLflow's runs by our run_id; each once."""
    its = client(uri)
    found = its.search_runs([its.get_experiment_by_name(experiment).experiment_id])
    by_id = {run.data.tags["campaign.run_id"]: run for run in found}
    assert len(by_id) == len(found)
    return by_id


def history(uri: str, mlflow_id: str, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client(uri).get_metric_history(mlflow_id, key)]


def asked(cli: Cli, project: Path, sql: str) -> list[dict[str, Any]]:
    answer = cli("sql", sql, "--json", cwd=project, code=EXIT_OK).json()["data"]
    names = [column["name"] for column in answer["columns"]]
    return [dict(zip(names, row, strict=True)) if isinstance(row, list) else row for row in answer["rows"]]


def files(uri: str, mlflow_id: str) -> set[str]:
    its = client(uri)
    return {
        entry.path for folder in its.list_artifacts(mlflow_id) for entry in its.list_artifacts(mlflow_id, folder.path)
    }


def test_everything_of_a_run_arrives_and_again_costs_nothing(project: Path, server: str, cli: Cli) -> None:
    words = ("export", "mlflow", "--uri", server, "--experiment", "all", "--json")
    first = cli(*words, "--steps", cwd=project, code=EXIT_OK).json()["data"]
    ours = {row["run_id"]: row for row in asked(cli, project, "FROM runs")}
    assert len(ours) == 4
    assert set(first["created"]) == set(ours)
    theirs = runs_of(server, "all")
    assert set(theirs) == set(ours)
    for run_id, row in ours.items():
        run = theirs[run_id]
        assert run.info.status == ("FINISHED" if row["study"] == "tally" else "FAILED")
        assert run.data.params["world_size"] == str(row["world_size"])
        assert run.data.params["global_batch"] == "16"
        assert run.data.tags["campaign.state"] == row["state"]
        assert run.data.tags["campaign.study"] == row["study"]
        assert json.loads(run.data.tags["campaign.versions"])["python"].startswith("3.")
        assert run.info.end_time >= run.info.start_time > 1.7e12
        assert "record/record.json" in files(server, run.info.run_id)
    one = next(row for row in ours.values() if (row["study"], row["world_size"]) == ("tally", 2))
    mlflow_id = theirs[one["run_id"]].info.run_id
    epochs = asked(cli, project, f"FROM epochs WHERE run_id = '{one['run_id']}' ORDER BY epoch")
    assert history(server, mlflow_id, "epoch/epoch_time_s") == [(row["epoch"], row["epoch_time_s"]) for row in epochs]
    assert [value for _, value in history(server, mlflow_id, "epoch/epoch_time_s")] == [4.0, 5.0, 6.0]
    assert history(server, mlflow_id, "step/rank0/data_wait_s") == [(step, 0.125) for step in range(8)]
    assert history(server, mlflow_id, "accuracy/part:test set") == [(2, 0.75)]
    assert "epoch/val_loss" not in theirs[one["run_id"]].data.metrics  # not measured
    assert "figures/scaling.png" in files(server, mlflow_id)
    bad = next(row for row in ours.values() if row["study"] == "broken")
    assert "record/failed.log" in files(server, theirs[bad["run_id"]].info.run_id)

    again = cli(*words, "--steps", cwd=project, code=EXIT_OK).json()["data"]
    assert (again["created"], again["updated"], again["replaced"]) == ([], [], [])
    assert (again["unchanged"], again["metrics"]) == (4, 0)
    assert {run.info.run_id for run in runs_of(server, "all").values()} == {r.info.run_id for r in theirs.values()}


def test_an_interrupted_export_goes_on_and_doubles_nothing(project: Path, server: str, cli: Cli) -> None:
    words = [campaign_command(), "export", "mlflow", "--uri", server, "--experiment", "interrupted", "--no-figures"]
    process = subprocess.Popen(words, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begun() -> bool:
        experiment = client(server).get_experiment_by_name("interrupted")
        return experiment is not None and bool(client(server).search_runs([experiment.experiment_id]))

    wait_for(begun, 60, interval=0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED, stderr
    assert "Traceback" not in stderr
    left = runs_of(server, "interrupted")
    assert sum("campaign.digest" in run.data.tags for run in left.values()) < 4
    report = cli(*words[1:], "--json", cwd=project, code=EXIT_OK).json()["data"]
    assert len(report["created"]) + len(report["updated"]) + report["unchanged"] == 4
    assert report["created"] or report["updated"]
    now = runs_of(server, "interrupted")
    assert len(now) == 4
    for run in now.values():
        assert "campaign.digest" in run.data.tags
        points = history(server, run.info.run_id, "epoch/epoch_time_s")
        assert [step for step, _ in points] == list(range(EPOCHS if run.data.tags["campaign.study"] == "tally" else 0))


def test_a_later_attempt_takes_the_place_of_the_earlier_one(project: Path, server: str, cli: Cli) -> None:
    words = ("export", "mlflow", "--uri", server, "--experiment", "attempts", "--study", "broken", "--json")
    cli(*words, cwd=project, code=EXIT_OK)
    before = runs_of(server, "attempts")
    run_id = next(iter(before))
    cli("retry", "--run", run_id, cwd=project, code=EXIT_OK)
    cli("run", "sites/local.yaml", "--study", "broken", "--no-plots", cwd=project, code=EXIT_FAILED)
    report = cli(*words, cwd=project, code=EXIT_OK).json()["data"]
    assert report["replaced"] == report["created"] == [run_id]
    after = runs_of(server, "attempts")
    assert after[run_id].data.tags["campaign.attempt"] == "2"
    assert client(server).get_run(before[run_id].info.run_id).info.lifecycle_stage == "deleted"


def test_an_sqlite_file_in_the_project(project: Path, cli: Cli) -> None:
    (project / "campaign.yaml").write_text(
        'schema: 1\nmlflow: {tracking_uri: "sqlite:///mlflow.db", experiment: mine}\n'
    )
    elsewhere = project.parent
    said = cli("export", "mlflow", "--project", project, cwd=elsewhere, code=EXIT_OK)
    assert said.stdout.startswith(f"mine at sqlite:///{project}/mlflow.db: 4 new; ")
    assert not (elsewhere / "mlruns").exists()
    found = runs_of(f"sqlite:///{project}/mlflow.db", "mine")
    assert len(found) == 4
    assert all(run.info.artifact_uri.startswith((project / "mlartifacts").as_uri()) for run in found.values())


def test_where_it_cannot_go(project: Path, cli: Cli) -> None:
    clean = {"MLFLOW_TRACKING_URI": ""}
    nowhere = cli("export", "mlflow", cwd=project, env=clean, code=EXIT_BAD_INPUT)
    assert "--uri sqlite:///mlflow.db" in nowhere.stderr
    for uri in ("mlruns", "file:///tmp/mlruns", "ftp://host"):
        refused = cli("export", "mlflow", "--uri", uri, "--json", cwd=project, code=EXIT_BAD_INPUT).json()["errors"][0]
        assert (refused["key"], refused["value"]) == ("mlflow.tracking_uri", uri)
        assert "sqlite:///FILE" in refused["allowed"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    away = cli("export", "mlflow", "--uri", f"http://127.0.0.1:{port}", "--json", cwd=project, code=EXIT_NOT_NOW)
    assert away.json()["errors"][0]["file"] == f"http://127.0.0.1:{port}"
