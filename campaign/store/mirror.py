"""The MLflow mirror: one MLflow run for each run, sent in batches, again and again without a difference.

MLflow itself says what it has: its runs carry the tags `campaign.run_id` and, once everything has arrived,
`campaign.digest`. So an export that was interrupted goes on, and a run that hasn't changed costs nothing. Numbers have
the time they were measured at: sent twice they are one (MLflow's tables have the time in their key).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.errors import BadInput, NotNow, Problem
from campaign.store.mirrored import Mirrored

METRICS_A_CALL = 1000
"""MLflow refuses more in one call."""
NAMES_A_CALL = 100
"""Parameters or tags in one call."""
DIGEST, FIGURES = "campaign.digest", "campaign.figures_digest"
STATUS = {"done": "FINISHED", "cancelled": "KILLED", "interrupted": "KILLED"}
"""MLflow's word for a state; FAILED for all others."""
URI = re.compile(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?://|https?://|databricks")


@dataclass
class MirrorReport:
    """What one export did. Counts are runs."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    """Had changed, or an earlier export had been interrupted."""
    replaced: list[str] = field(default_factory=list)
    """A later attempt is there: the MLflow run of the earlier one was deleted (MLflow can restore it)."""
    unchanged: int = 0
    metrics: int = 0
    """Numbers that were sent."""


def check_uri(uri: str, root: Path) -> str:
    """The tracking URI, with a relative SQLite file taken from the project. Raises BadInput."""
    if not URI.match(uri):
        raise BadInput(
            Problem("not a tracking server or a database: MLflow 3 refuses plain folders", key="mlflow.tracking_uri",
                    value=uri, allowed="http(s)://HOST:PORT, sqlite:///FILE, postgresql://...",
                    hint="sqlite:///mlflow.db")
        )  # fmt: skip
    relative = re.fullmatch(r"sqlite:///([^/].*)", uri)
    return f"sqlite:///{root / relative[1]}" if relative else uri


class Mirror:
    """One experiment of one tracking server."""

    def __init__(self, uri: str, experiment: str, root: Path) -> None:
        """Connects, makes the experiment. Raises BadInput without MLflow, NotNow when the server doesn't answer."""
        client_of, self._error = _mlflow()
        self._uri = uri
        with self._answered():
            self._client = client_of(tracking_uri=uri)
            self.experiment_id = self._experiment(experiment, root)
            self._known = {run.data.tags["campaign.run_id"]: run for run in self._runs()}

    def send(self, run: Mirrored, report: MirrorReport) -> None:
        """Bring one run to the server, unless it is there as it is."""
        digest = run.digest()
        known = self._known.get(run.run_id)
        with self._answered():
            if known is not None and known.data.tags.get("campaign.attempt") != str(run.attempt):
                self._client.delete_run(known.info.run_id)
                report.replaced.append(run.run_id)
                known = None
            if known is None:
                known = self._create(run)
                report.created.append(run.run_id)
            elif known.data.tags.get(DIGEST) != digest:
                report.updated.append(run.run_id)
            else:
                report.unchanged += 1
            mlflow_id, tags = known.info.run_id, known.data.tags
            if tags.get(DIGEST) != digest:
                self._fill(mlflow_id, run)
                report.metrics += len(run.metrics)
                self._client.set_terminated(mlflow_id, STATUS.get(run.state, "FAILED"), run.ended_ms)
                self._client.set_tag(mlflow_id, DIGEST, digest)  # last: all of it is there
            if run.figures and tags.get(FIGURES) != (drawn := run.figures_digest()):
                self._attach(mlflow_id, run.figures, "figures")
                self._client.set_tag(mlflow_id, FIGURES, drawn)

    def _create(self, run: Mirrored) -> Any:
        tags = {"campaign.run_id": run.run_id, "campaign.attempt": str(run.attempt)}
        return self._client.create_run(self.experiment_id, start_time=run.started_ms, tags=tags, run_name=run.name)

    def _fill(self, mlflow_id: str, run: Mirrored) -> None:
        from mlflow.entities import Metric, Param, RunTag

        for names in _chunks(sorted(run.params.items()), NAMES_A_CALL):
            self._client.log_batch(mlflow_id, params=[Param(name, value) for name, value in names])
        for names in _chunks(sorted(run.tags.items()), NAMES_A_CALL):
            self._client.log_batch(mlflow_id, tags=[RunTag(name, value) for name, value in names])
        for metrics in _chunks(run.metrics, METRICS_A_CALL):
            entities = [Metric(m.key, m.value, m.time_ms, m.step) for m in metrics]
            self._client.log_batch(mlflow_id, metrics=entities)
        self._attach(mlflow_id, run.files, "record")

    def _attach(self, mlflow_id: str, files: list[Path], folder: str) -> None:
        for path in files:
            self._client.log_artifact(mlflow_id, str(path), folder)

    def _experiment(self, name: str, root: Path) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage != "active":
            raise BadInput(
                Problem("this experiment has been deleted in MLflow", key="mlflow.experiment", value=name,
                        hint=f"mlflow experiments restore --experiment-id {found.experiment_id}, or another name")
            )  # fmt: skip
        if found is not None:
            return str(found.experiment_id)
        # a database has no place of its own for files: MLflow would take the working directory
        place = None if self._uri.startswith(("http", "databricks")) else (root / "mlartifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=place))

    def _runs(self) -> Iterator[Any]:
        """The runs that an export made, the oldest of one run last: it is the one that counts."""
        token = None
        while True:
            page = self._client.search_runs([self.experiment_id], "tags.`campaign.run_id` != ''", max_results=1000,
                                            order_by=["attributes.start_time DESC"], page_token=token)  # fmt: skip
            yield from page
            token = page.token
            if not token:
                return

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        """MLflow's errors, in words."""
        try:
            yield
        except self._error as error:
            text = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
            raise NotNow(
                Problem(f"MLflow: {text}", self._uri, key="mlflow.tracking_uri",
                        hint="the same command again goes on where it stopped")
            ) from None  # fmt: skip


def _mlflow() -> tuple[Any, type[Exception]]:
    """(its client, its error). Raises BadInput when it isn't installed."""
    # a server that is away is told after seconds, not after MLflow's minutes; the user's own values win
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # stdout is the command's own
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise BadInput(Problem("MLflow is not installed", hint="pip install 'campaign[mlflow]'")) from None
    return MlflowClient, MlflowException


def _chunks(values: list[Any], size: int) -> Iterable[list[Any]]:
    return (values[at : at + size] for at in range(0, len(values), size))
