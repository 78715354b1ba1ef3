# ruff: noqa: RUF012  pydantic copies defaults, mutable ones too
"""What a study file says: a workload, its parameters and the axes along which they are swept."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from campaign.errors import Problem
from campaign.fieldtypes import Json, Scalar, Token, Word
from campaign.plan import expression
from campaign.site import Name, StagingMode
from campaign.studyfields import Amount, Axes, Baseline, Memory, Pack, Params, Redirect, Revision, Walltime
from campaign.validate import FileModel, Strict, json_schema, load_model, suggestion
from campaign.yamlfile import KeyPath

SHAPE = ("nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_rank")
"""An axis of one of these names is the resource of the same name."""
BATCHES = ("global_batch", "local_batch")
POINT_FIELDS = (*SHAPE, "world_size", *BATCHES, "repeat", "data", "site", "study")
"""Placeholders that every command may use beside its own axes and parameters."""
OURS = {
    "world_size": "it is nodes x ranks_per_node",
    "repeat": "repeats: 3",
    "data": "data: {name: NAME, options: {...}}",
    "site": "campaign plan SITE",
    "study": "name: NAME",
}
"""Of these, what campaign sets itself, and what says what is meant: none is an axis or a parameter."""


# -- the mappings of a study file ------------------------------------------------------------------------------------


class Data(Strict):
    """The data set: `<data>/<name>/`; its digest is part of a run's identity."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    options: dict[str, Json] = {}


class Metric(Strict):
    """What to read from a command's output: a regular expression, or a file of JSON lines."""

    name: str | None = None
    unit: str = ""
    regex: str | None = None
    jsonl: str | None = None


class When(Strict):
    """Parameters that change where axes or parameters have given values."""

    if_: dict[str, Scalar] = Field(alias="if")
    set: dict[str, Json]


class Resources(Strict):
    """What one run asks for. null: the axis of that name, else 1 node, or the site's value."""

    nodes: Amount = None
    ranks_per_node: Amount = "site"
    cpus_per_rank: Amount = "site"
    gpus_per_rank: Amount = "site"
    memory: Memory | None = None
    partition: Token | None = None
    qos: Token | None = None
    reservation: Token | None = None
    constraint: Token | None = None
    switches: Token | None = None
    exclude: Token | None = None
    """Nodes to leave out (the study's own `exclude` leaves out points)."""
    nodelist: Token | None = None
    mail: Token | None = None


class StudyStaging(Strict):
    """`site`: what the site file says."""

    mode: StagingMode | Literal["site"] = "site"
    redirect: Redirect = "site"


class Record(Strict):
    """What ranks write down beyond windows and epochs."""

    raw_ranks: list[Annotated[int, Field(ge=0)]] = [0]
    window_steps: Annotated[int, Field(ge=1)] = 50
    power: Literal["auto", "off"] = "auto"
    on_warning: Literal["signal"] | None = None
    """`signal`: the workload handles SIGUSR2, which comes before the time limit. It would kill any other."""
    hang_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """End a run of which no rank has said anything for so long. null: wait for the time limit."""
    start_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """For the node agents to come up."""
    fail_grace_s: Annotated[float, Field(ge=0)] | None = None
    """For the other ranks to end by themselves after the first has failed."""
    term_grace_s: Annotated[float, Field(ge=0)] | None = None
    """Between SIGTERM and SIGKILL."""


class Retry(Strict):
    """How often a run is tried again. Out of memory, config and user errors never are."""

    infrastructure: Annotated[int, Field(ge=0)] = 2
    timeout: Literal["resume", "never"] = "resume"


class Search(Strict):
    """A search for good parameters; trials are ordinary runs."""

    space: dict[str, Json]
    objective: str
    direction: Literal["minimize", "maximize"] = "minimize"
    engine: Literal["optuna", "ray"] = "optuna"
    sampler: str = "tpe"
    pruner: str | None = None
    trials: Annotated[int, Field(ge=1)] = 40
    parallel: Annotated[int, Field(ge=1)] = 4
    gpu_hours: float | None = None
    seed: int = 1


class SiteOverride(Strict):
    """What a study changes on one site: values of axes, parameters, data options, resources replace those above."""

    axes: Axes = {}
    params: Params = {}
    data: dict[str, Json] = {}
    zip: list[Axes] | None = None
    exclude: list[dict[str, Scalar]] | None = None
    when: list[When] | None = None
    baseline: Baseline | None = None
    repeats: Annotated[int, Field(ge=1)] | None = None
    order: Literal["interleave", "block"] | None = None
    resources: Resources = Resources()
    walltime: Walltime | None = None
    pack: Pack | None = None
    gate: bool | None = None
    staging: StudyStaging = StudyStaging()
    record: Record = Record()
    retry: Retry = Retry()


class Study(FileModel):
    """One study file (contract section 4)."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Name
    kind: Literal["sweep", "search"] = "sweep"
    revision: Revision | None = None
    workload: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$")] | None = None
    command: Annotated[list[Word], Field(json_schema_extra={"minItems": 1})] | None = None
    metrics: list[Metric] = []
    data: Data | None = None
    params: Params = {}
    scaling: Literal["strong", "weak", "none"] = "none"
    axes: Axes = {}
    zip: list[Axes] = []
    exclude: list[dict[str, Scalar]] = []
    sites: dict[str, SiteOverride] = {}
    baseline: Baseline = "smallest"
    repeats: Annotated[int, Field(ge=1)] = 1
    order: Literal["interleave", "block"] = "interleave"
    resources: Resources = Resources()
    walltime: Walltime
    when: list[When] = []
    pack: Pack = "false"
    gate: bool = True
    staging: StudyStaging = StudyStaging()
    record: Record = Record()
    retry: Retry = Retry()
    search: Search | None = None

    def axis_paths(self) -> dict[str, KeyPath]:
        """Every axis, product and zip alike, and where it stands."""
        paths: dict[str, KeyPath] = {name: ("axes", name) for name in self.axes}
        for index, group in enumerate(self.zip):
            paths |= {name: ("zip", index, name) for name in group}
        return paths

    def check(self) -> Iterator[Problem]:
        """References between keys, and what sweeps need."""
        yield from self._check_program()
        yield from self._check_names()
        yield from self._check_axes()
        yield from self._check_references()
        yield from self._check_expressions()
        yield from self._check_batch()
        if (self.kind == "search") != (self.search is not None):
            yield self.problem(("kind",), "`kind: search` and the key `search` belong together")

    def _check_program(self) -> Iterator[Problem]:
        if (self.workload is None) == (self.command is None):
            message = "a study needs either `workload` or `command`" + (", not both" if self.workload else "")
            yield self.problem(("command",), message, allowed="workload: module[:function]  |  command: [argv, ...]")
        if self.metrics and self.command is None:
            yield self.problem(("metrics",), "`metrics` are read from a `command`; a workload records its own")
        for index, metric in enumerate(self.metrics):
            yield from self._check_metric(("metrics", index), metric)
        if self.command is not None and not "".join(self.command[:1]).strip():
            path: KeyPath = ("command", 0) if self.command else ("command",)
            allowed = "a list of words: the program, then its arguments"
            hint = "command: [python, train.py]"
            yield self.problem(path, "a command without a program", allowed=allowed, hint=hint)
        for index, word in enumerate(self.command or ()):
            yield from self._check_word(("command", index), word)

    def _check_metric(self, path: KeyPath, metric: Metric) -> Iterator[Problem]:
        if (metric.regex is None) == (metric.jsonl is None):
            yield self.problem(path, "a metric is either {name, unit, regex} or {jsonl: PATH}")
        if metric.regex is None:
            return
        if metric.name is None:
            yield self.problem(path, "a metric with a `regex` needs a `name`")
        try:
            groups = re.compile(metric.regex).groupindex
        except re.error as error:
            yield self.problem((*path, "regex"), f"not a regular expression: {error}")
            return
        if "value" not in groups:
            yield self.problem((*path, "regex"), "the regular expression has no group `value`", hint="(?P<value>...)")

    def _check_word(self, path: KeyPath, word: str) -> Iterator[Problem]:
        known = {*POINT_FIELDS, *self.axis_paths(), *self.params}
        for override in self.sites.values():
            known |= {*override.axes, *override.params}
            known |= {name for group in override.zip or () for name in group}
        known |= {name for rule in self.when for name in rule.set}
        try:
            fields = list(string.Formatter().parse(word))
        except ValueError:
            yield self.problem(path, "braces don't pair", hint="write a brace that is meant as such twice: {{ }}")
            return
        for _, name, spec, conversion in fields:
            if name is None or (name in known and not spec and not conversion):
                continue
            shown = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            hint = suggestion(name, known) or "write a brace that is meant as such twice: {{ }}"
            yield self.problem(path, f"unknown placeholder {{{shown}}}", allowed=", ".join(sorted(known)), hint=hint)

    def _check_names(self) -> Iterator[Problem]:
        """No axis and no parameter has the name of what campaign sets itself."""
        named: list[KeyPath] = [*self.axis_paths().values(), *(("params", name) for name in self.params)]
        named += [("when", index, "set", name) for index, rule in enumerate(self.when) for name in rule.set]
        for site, override in self.sites.items():
            start: KeyPath = ("sites", site)
            named += [(*start, key, name) for key in ("axes", "params") for name in getattr(override, key)]
            named += [(*start, "zip", at, name) for at, group in enumerate(override.zip or ()) for name in group]
        for path in named:
            name = str(path[-1])
            if name in OURS:
                kind = "a parameter" if path[-2] in ("params", "set") else "an axis"
                message = f"`{name}` is set by campaign and can't be {kind}"
                yield self.problem(path, message, hint=f"another name; for what campaign sets: {OURS[name]}")

    def _check_axes(self) -> Iterator[Problem]:
        seen: dict[str, KeyPath] = {}
        groups = [(("axes",), self.axes), *((("zip", index), group) for index, group in enumerate(self.zip))]
        for start, group in groups:
            for name, values in group.items():
                path = (*start, name)
                if name in seen:
                    yield self.problem(path, f"axis `{name}` stands twice, in `axes` and `zip`, or in two zips")
                seen[name] = path
                yield from self._check_values(path, name, values)
        for index, group in enumerate(self.zip):
            lengths = {name: len(values) for name, values in group.items()}
            if len(set(lengths.values())) > 1:
                shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
                yield self.problem(("zip", index), f"zipped axes need equal lengths, not {shown}")

    def _check_values(self, path: KeyPath, name: str, values: list[Any]) -> Iterator[Problem]:
        if not values:
            message = f"axis `{name}` has no values, so the study would make no run"
            yield self.problem(path, message, allowed="a list of at least one value")
        twice = {repr(value) for index, value in enumerate(values) if value in values[:index]}
        if twice and path[0] == "axes":
            yield self.problem(path, f"axis `{name}` has a value twice: {', '.join(sorted(twice))}")
        low = 0 if name == "gpus_per_rank" else 1
        if name in SHAPE:
            wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, int) or value < low]
            if wrong:
                offending = wrong[0] if len(wrong) == 1 else ", ".join(map(str, wrong))
                yield self.problem(path, f"`{name}` must be integers of {low} or more", value=offending)

    def _check_references(self) -> Iterator[Problem]:
        axes = self.axis_paths()
        everywhere = {*axes, *(name for override in self.sites.values() for name in override.axes)}
        for name in self.params:
            if name in SHAPE:
                hint = f"axes: {{{name}: [...]}}  or  resources: {{{name}: ...}}"
                yield self.problem(("params", name), f"`{name}` is a resource, not a parameter", hint=hint)
        for index, entry in enumerate(self.exclude):
            for name in entry.keys() - everywhere:
                yield self._no_axis(("exclude", index, name), name, everywhere)
        for index, rule in enumerate(self.when):
            known = {*everywhere, *self.params}
            for name in rule.if_.keys() - known:
                yield self._no_axis(("when", index, "if", name), name, known)
            for name in rule.set.keys() & {*everywhere, *SHAPE}:
                yield self.problem(("when", index, "set", name), f"`when` sets parameters; `{name}` is an axis")
        for name in set(self.baseline) - everywhere if isinstance(self.baseline, dict) else ():
            yield self._no_axis(("baseline", name), name, everywhere)

    def _no_axis(self, path: KeyPath, name: str, known: set[str]) -> Problem:
        allowed = ", ".join(sorted(known)) or "the study has no axes"
        return self.problem(path, f"there is no axis `{name}`", allowed=allowed, hint=suggestion(name, known))

    def _check_expressions(self) -> Iterator[Problem]:
        known = {*self.axis_paths(), *self.params, *(n for o in self.sites.values() for n in (*o.axes, *o.params))}
        for name in SHAPE:
            value = getattr(self.resources, name)
            if not isinstance(value, str) or value == "site":
                continue
            for unknown in sorted(expression.parse(value).names - known):
                hint = suggestion(unknown, known) or f"axes: {{{unknown}: [1, 2, 4]}}"
                yield self.problem(("resources", name), f"unknown name `{unknown}`", allowed=_list(known), hint=hint)
        if self.resources.nodes == "site":
            yield self.problem(
                ("resources", "nodes"), "a site doesn't say how many nodes", allowed="an axis or an integer"
            )

    def _check_batch(self) -> Iterator[Problem]:
        given = {*self.axis_paths(), *self.params, *(n for o in self.sites.values() for n in (*o.axes, *o.params))}
        needed = {"strong": "global_batch", "weak": "local_batch"}.get(self.scaling)
        if needed is None:
            return
        other = "local_batch" if needed == "global_batch" else "global_batch"
        if other in given:
            message = f"`scaling: {self.scaling}` keeps {needed} fixed; {other} follows from it"
            yield self.problem(("params", other), message, hint=f"give {needed} instead")
        elif needed not in given and self.workload is not None:
            message = f"`scaling: {self.scaling}` needs the parameter {needed}"
            yield self.problem(("scaling",), message, hint=f"params: {{{needed}: 256}}")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "the study has no axes"


def load_study(path: Path, *, shown: str | None = None) -> Study:
    """Read and check a study file."""
    return load_model(path, Study, shown=shown)


def study_schema() -> dict[str, Any]:
    """docs/schema/study.json."""
    return json_schema(Study, "campaign study file")
