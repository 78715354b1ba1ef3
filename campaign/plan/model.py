"""The plan as a value: what `campaign plan` makes and `campaign submit` takes, unchanged.

A plan is stored as JSON under `.campaign/plans/<plan_id>.json`. Units are in the names (`_s`, `_bytes`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from campaign.errors import Problem

START_S = 60
"""Of every allocation, for the head and the first claims: walltimes are the runs' own."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A site or study file as it was when the plan was made; `submit` refuses runs whose file has changed since."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Price:
    """What one run costs if it uses its whole walltime. None: not known."""

    gpu_h: float | None
    node_h: float
    site_units: float | None
    site_unit: str | None
    files: int
    ops_shared: int | None = None

    def times(self, factor: float) -> Price:
        """The price of `factor` times the walltime."""
        return dataclasses.replace(
            self,
            gpu_h=None if self.gpu_h is None else self.gpu_h * factor,
            node_h=self.node_h * factor,
            site_units=None if self.site_units is None else self.site_units * factor,
        )


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run as planned. Identity fields are those of contract section 2; the rest is provenance and resources."""

    run_id: str
    site: str
    study: str
    series: str
    workload: str | None
    """Entry point `module` or `module:function`; None for a `command:` study."""
    command: tuple[str, ...] | None
    """argv with `{axis}` and `{param}` filled in; None for a workload. Never a shell line."""
    metrics: tuple[dict[str, Any], ...]
    params: dict[str, Any]
    """Every parameter and every axis value except nodes and ranks_per_node."""
    axes: dict[str, Any]
    """The axis values of this point, in the study's order."""
    strategy: str | None
    scaling: Literal["strong", "weak", "none"]
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_rank: int
    world_size: int
    local_batch: int | None
    global_batch: int | None
    repeat: int
    order: int
    """Place in the plan: submit keeps it."""
    gate: bool
    """True for the smallest point of a study with `gate: true`: it runs before the rest of that study on that site."""
    gated: bool
    """True when the study has `gate: true` and this is not the gate run."""
    oversubscribed: bool
    """Planned ranks exceed the cores of the node (without a GPU)."""
    data: dict[str, Any] | None
    """{name, options, path, digest} of the data set; None when the study reads none."""
    staging: str
    redirect: bool
    record: dict[str, Any]
    retry: dict[str, Any]
    pack: Literal["false", "serial", "concurrent"]
    partition: str | None
    qos: str | None
    account: str | None
    reservation: str | None
    constraint: str | None
    switches: str | None
    exclude: str | None
    nodelist: str | None
    mail: str | None
    memory_bytes: int | None
    walltime_s: int
    revision: str | int | None
    image_digest: str | None
    price: Price
    baseline: str | dict[str, Any] = "smallest"
    """Point that speedup is measured against: "smallest" or {axis: value}."""
    ladder: int | None = None
    """Of `pack: serial`: runs of one study and site with the same number share an allocation, in plan order."""
    allocation_nodes: int | None = None
    """Nodes of that allocation, which is what is charged; None: the run's own."""
    walltime_why: str | None = None
    """How `walltime: auto` came to its value; None when the study says it."""
    problems: tuple[Problem, ...] = ()
    """Why this run can't run here; empty for a run that can be submitted."""

    def with_walltime(self, walltime_s: int) -> PlannedRun:
        """The same run with another walltime, and the price of it."""
        if walltime_s == self.walltime_s:
            return self
        price = self.price.times(walltime_s / self.walltime_s)
        return dataclasses.replace(self, walltime_s=walltime_s, price=price)

    @property
    def can_run(self) -> bool:
        """True when nothing was found against it."""
        return not self.problems

    def shape(self) -> tuple[Any, ...]:
        """What runs of one job array must share."""
        return (
            self.site,
            self.partition,
            self.qos,
            self.account,
            self.reservation,
            self.constraint,
            self.switches,
            self.exclude,
            self.nodelist,
            self.mail,
            self.nodes,
            self.ranks_per_node,
            self.cpus_per_rank,
            self.gpus_per_rank,
            self.memory_bytes,
            self.walltime_s,
        )

    def placement(self) -> tuple[Any, ...]:
        """What runs of one serial ladder share beside their nodes."""
        return (self.site, self.study, self.partition, self.qos, self.account, self.reservation, self.constraint,
                self.switches, self.exclude, self.nodelist, self.mail, self.ladder)  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; `from_json` gives the same run back. Mappings are shared with the run, not copied."""
        data = dict(zip(_RUN_FIELDS, _RUN_VALUES(self), strict=True))
        data["price"] = dict(zip(_PRICE_FIELDS, _PRICE_VALUES(self.price), strict=True))
        data["problems"] = [problem.to_json() for problem in self.problems]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PlannedRun:
        """The run that `to_json` wrote. Raises TypeError when keys are missing or unknown."""
        data = dict(data)
        data["command"] = None if data["command"] is None else tuple(data["command"])
        data["metrics"] = tuple(data["metrics"])
        data["price"] = Price(**data["price"])
        data["problems"] = tuple(Problem(**problem) for problem in data["problems"])
        return cls(**data)


# one call for all fields: a plan may have 100,000 runs
_PRICE_FIELDS = tuple(entry.name for entry in dataclasses.fields(Price))
_PRICE_VALUES = attrgetter(*_PRICE_FIELDS)
_RUN_FIELDS = tuple(entry.name for entry in dataclasses.fields(PlannedRun))
_RUN_VALUES = attrgetter(*_RUN_FIELDS)


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of some studies on some sites: checked, priced, ordered."""

    plan_id: str
    created: str
    """UTC, ISO 8601."""
    sites: dict[str, SourceFile]
    studies: dict[str, SourceFile]
    overrides: dict[str, Any]
    """`--set key=value`, as given."""
    runs: tuple[PlannedRun, ...]
    warnings: tuple[Problem, ...] = field(default=())

    def to_json(self, *, runs: bool = True) -> dict[str, Any]:
        """A JSON-ready dict with `schema: 1`; without its runs when a writer streams them."""
        data = {
            "schema": 1,
            "plan_id": self.plan_id,
            "created": self.created,
            "sites": {name: dataclasses.asdict(source) for name, source in self.sites.items()},
            "studies": {name: dataclasses.asdict(source) for name, source in self.studies.items()},
            "overrides": self.overrides,
            "warnings": [warning.to_json() for warning in self.warnings],
        }
        return {**data, "runs": [run.to_json() for run in self.runs]} if runs else data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The plan that `to_json` wrote."""
        return cls(
            plan_id=data["plan_id"],
            created=data["created"],
            sites={name: SourceFile(**source) for name, source in data["sites"].items()},
            studies={name: SourceFile(**source) for name, source in data["studies"].items()},
            overrides=data["overrides"],
            runs=tuple(PlannedRun.from_json(run) for run in data["runs"]),
            warnings=tuple(Problem(**warning) for warning in data["warnings"]),
        )
