"""Sites x studies -> a plan: expanded, checked, priced, ordered. Queues nothing, writes nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.plan import dataset, identity
from campaign.plan.check import check, unknowns
from campaign.plan.expand import Point, barren, points
from campaign.plan.merge import merge
from campaign.plan.model import Plan, PlannedRun, Price, SourceFile
from campaign.plan.order import gate_index, repeated
from campaign.plan.price import price
from campaign.plan.shape import Shape, Shaper, batches
from campaign.plan.store import load_plan, save_plan
from campaign.project import Project, SitePaths, sha256_of
from campaign.site import Site
from campaign.study import SHAPE, Study

__all__ = ["build_plan", "load_plan", "plan_id", "save_plan"]

_SCHEDULING = ("reservation", "constraint", "switches", "exclude", "nodelist", "mail")


def build_plan(
    project: Project,
    sites: Sequence[Path | str],
    studies: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    account: str | None = None,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The plan of these sites (files or names) and studies (default: those that each site lists).

    `overrides`: `--set` by key. Raises `BadInput` with every error of every file; a run that is fine but doesn't fit
    its site is part of the plan, with its reasons in `problems`.
    """
    overrides = dict(overrides or {})
    builder = _Builder(project, overrides, account, note)
    for site, names in builder.chosen(sites, studies):
        for name in names:
            builder.add(site, name)
    builder.finish()
    runs = _without_twins(builder.runs, builder.warnings)
    if not runs and not builder.runs:
        raise BadInput(Problem("the plan has no runs", hint="campaign plan SITE --study NAME"))
    plan = Plan(
        plan_id="",
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        sites=builder.site_files,
        studies=builder.study_files,
        overrides=overrides,
        runs=tuple(runs),
        warnings=tuple(dict.fromkeys(builder.warnings)),
    )
    return dataclasses.replace(plan, plan_id=plan_id(plan))


def plan_id(plan: Plan) -> str:
    """12 hexadecimal digits over sources, overrides and runs: planning the same again gives the same id."""
    hashed = hashlib.sha256()
    head = {
        "sites": {name: dataclasses.asdict(source) for name, source in plan.sites.items()},
        "studies": {name: dataclasses.asdict(source) for name, source in plan.studies.items()},
        "overrides": plan.overrides,
    }
    hashed.update(identity.canonical(head).encode())
    for run in plan.runs:
        hashed.update(b"\n" + identity.canonical(run.to_json()).encode())
    return hashed.hexdigest()[:12]


def _without_twins(runs: Iterable[PlannedRun], warnings: list[Problem]) -> list[PlannedRun]:
    """Each run once, numbered: studies that share a point measure it once."""
    kept: dict[str, PlannedRun] = {}
    twins: dict[tuple[str, str, str], int] = {}
    for run in runs:
        first = kept.setdefault(run.run_id, run)
        if first is not run:
            key = (run.site, run.study, first.study)
            twins[key] = twins.get(key, 0) + 1
    for (site, study, other), count in twins.items():
        where = "the same study, because `when` makes points equal" if other == study else f"study {other}"
        message = f"{site}: {count} runs of study {study} are also in {where}, and are measured once"
        warnings.append(Problem(message))
    return [dataclasses.replace(run, order=order) for order, run in enumerate(kept.values())]


@dataclass(frozen=True, slots=True)
class _Part:
    """A point with all that its repeats share."""

    point: Point
    shape: Shape
    price: Price
    series: str
    local_batch: int | None
    global_batch: int | None
    problems: tuple[Problem, ...]


class _Builder:
    """Collects runs and errors of all sites and studies, so that the user sees every error at once."""

    def __init__(
        self, project: Project, overrides: dict[str, Any], account: str | None, note: Callable[[str], None]
    ) -> None:
        self.project = project
        self.overrides = overrides
        self.account = account
        self.note = note
        self.runs: list[PlannedRun] = []
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.site_files: dict[str, SourceFile] = {}
        self.study_files: dict[str, SourceFile] = {}
        self._studies: dict[str, Study | None] = {}
        self._unseen: dict[tuple[str, str | None], Problem] = {}
        self._site_needs: dict[str, tuple[str | None, SitePaths | None]] = {}

    # -- what to plan ------------------------------------------------------------------------------------------------

    def chosen(self, sites: Sequence[Path | str], studies: Sequence[str] | None) -> Iterator[tuple[Site, list[str]]]:
        """Sites with the names of their studies."""
        wanted = list(sites) or list(self.project.config.sites)
        if not wanted:
            hint = "campaign plan sites/local.yaml, or `sites: [local]` in campaign.yaml"
            raise BadInput(Problem("no site is given", allowed=", ".join(self.project.site_names()), hint=hint))
        seen: set[str] = set()
        for name in wanted:
            try:
                site = self.project.load_site(name)
            except BadInput as error:
                self.errors += error.problems
                continue
            if site.name not in seen:
                seen.add(site.name)
                yield site, list(studies or self._listed(site))

    def _listed(self, site: Site) -> list[str]:
        """The studies that the site's file, or else campaign.yaml, lists."""
        names = list(site.studies) or list(self.project.config.studies)
        if not names:
            hint = f"--study NAME, or `studies: {{NAME: {{}}}}` in the site file ({', '.join(self._study_names())})"
            self.errors.append(site.problem(("studies",), f"site {site.name} lists no studies", value=None, hint=hint))
        for name in [name for name in site.studies if name not in self._study_names()]:
            message = f"there is no study `{name}` in studies/"
            allowed = ", ".join(self._study_names())
            self.errors.append(site.problem(("studies", name), message, allowed=allowed, value=None))
            names.remove(name)
        return names

    def _study_names(self) -> list[str]:
        return self.project.study_names()

    def finish(self) -> None:
        """Raise every error that was found."""
        self.warnings += self._unseen.values()
        if self.errors:
            raise BadInput(list(dict.fromkeys(_hashable(self.errors))))

    # -- one study on one site ---------------------------------------------------------------------------------------

    def add(self, site: Site, study_name: str) -> None:
        """The runs of one study on one site."""
        self.note(f"planning {study_name} on {site.name}")
        try:
            study = self._study(study_name, site)
            if study is not None:
                self._add(site, merge(study, site, self.overrides))
        except BadInput as error:
            self.errors += error.problems

    def _study(self, name: str, site: Site) -> Study | None:
        if name not in self._studies:
            self._studies[name] = None
            self._studies[name] = self.project.load_study(name)
        study = self._studies[name]
        if study is not None:
            self._remember(site, study)
        return study

    def _needs(self, site: Site) -> tuple[str | None, SitePaths | None]:
        """Account and paths of a site; what is missing is noted once, and then there are no paths."""
        if site.name not in self._site_needs:
            account, paths, before = None, None, len(self.errors)
            try:
                account = self.project.resolve_account(site, self.account)
            except BadInput as error:
                self.errors += error.problems
            try:
                paths = self.project.site_paths(site)
            except BadInput as error:
                self.errors += error.problems
            self._site_needs[site.name] = account, paths if len(self.errors) == before else None
        return self._site_needs[site.name]

    def _remember(self, site: Site, study: Study) -> None:
        for files, path, name in (
            (self.site_files, self.project.site_path(site.name), site.name),
            (self.study_files, self.project.study_path(study.name), study.name),
        ):
            if name not in files:
                files[name] = SourceFile(self.project.shown(path), sha256_of(path))

    def _add(self, site: Site, study: Study) -> None:
        if study.kind == "search":
            raise BadInput(study.problem(("kind",), "searches can't be planned by this version", allowed="sweep"))
        if study.walltime == "auto":
            message = "`walltime: auto` needs measured runs, which this version can't use yet"
            raise BadInput(study.problem(("walltime",), message, hint='for example walltime: "00:30:00"'))
        account, paths = self._needs(site)
        if paths is None:
            return
        maker = _RunMaker(site, study, account, paths)
        found = points(study)
        self.warnings += barren(study, found)
        if maker.data.warning:
            self._unseen.setdefault((site.name, study.data.name if study.data else None), maker.data.warning)
        parts = [maker.part(point) for point in found]
        self.warnings += maker.unknowns
        runs = [maker.run(part, repeat) for part, repeat in repeated(parts, study.repeats, study.order)]
        self.runs += _gated(runs) if study.gate else runs


def _hashable(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Problems whose value can't be hashed (a list) with its text instead."""
    for problem in problems:
        try:
            hash(problem)
        except TypeError:
            problem = dataclasses.replace(problem, value=repr(problem.value))
        yield problem


def _gated(runs: list[PlannedRun]) -> list[PlannedRun]:
    """The gate run first, the others waiting for it."""
    first = gate_index(runs)
    if first is None:
        return runs
    others = [dataclasses.replace(run, gated=True) for index, run in enumerate(runs) if index != first]
    return [dataclasses.replace(runs[first], gate=True), *others]


class _RunMaker:
    """Makes the runs of one study on one site; what all of them share is made once."""

    def __init__(self, site: Site, study: Study, account: str | None, paths: SitePaths) -> None:
        self.site, self.study, self.account = site, study, account
        self.data = dataset.find(site, study, paths.data)
        self.walltime_s = int(study.walltime)
        self.unknowns: list[Problem] = []
        self._shaper = Shaper(site, study, self.walltime_s)
        self._checked: dict[Shape, list[Problem]] = {}
        self._prices: dict[Shape, Price] = {}
        self._shared = self._make_shared()

    def _make_shared(self) -> dict[str, Any]:
        """The fields that all runs of the study have in common."""
        site, study = self.site, self.study
        staging = study.staging.mode if study.staging.mode != "site" else site.staging.mode
        redirect = study.staging.redirect if study.staging.redirect != "site" else site.staging.redirect
        chosen = {name: getattr(study.resources, name) or getattr(site, name) for name in _SCHEDULING}
        return {
            "site": site.name,
            "study": study.name,
            "workload": study.workload,
            "metrics": tuple(metric.model_dump(exclude_none=True) for metric in study.metrics),
            "scaling": study.scaling,
            "data": self.data.value,
            "staging": staging,
            "redirect": redirect,
            "record": study.record.model_dump(),
            "retry": study.retry.model_dump(),
            "pack": study.pack,
            "account": self.account,
            "walltime_s": self.walltime_s,
            "revision": study.revision,
            "image_digest": _image_digest(site.container.image),
            "baseline": study.baseline,
            "order": 0,
            "gate": False,
            "gated": False,
            **chosen,
        }

    def part(self, point: Point) -> _Part:
        """A point with its resources, price and problems."""
        shape = self._shaper.shape(point)
        problems = list(self._problems(shape))
        local, whole, wrong = batches(self.study, point.params, shape.world_size)
        problems += wrong
        if self.data.problem is not None:
            problems.append(self.data.problem)
        series = identity.series(point.axes, point.params, (self.data.value or {}).get("options", {}))
        return _Part(point, shape, self._price(shape), series, local, whole, tuple(problems))

    def _problems(self, shape: Shape) -> list[Problem]:
        if shape.problems:
            return list(shape.problems)
        if shape not in self._checked:
            self._checked[shape] = check(self.site, self.study, shape)
            self.unknowns += unknowns(self.site, shape)
        return self._checked[shape]

    def _price(self, shape: Shape) -> Price:
        key = dataclasses.replace(shape, problems=())
        if key not in self._prices:
            self._prices[key] = price(
                self.site,
                shape.partition,
                nodes=shape.nodes,
                ranks_per_node=shape.ranks_per_node,
                cpus_per_rank=shape.cpus_per_rank,
                gpus_per_rank=shape.gpus_per_rank,
                hours=self.walltime_s / 3600,
            )
        return self._prices[key]

    def run(self, part: _Part, repeat: int) -> PlannedRun:
        """One repeat of a point."""
        point, shape, shared = part.point, part.shape, self._shared
        params = {name: value for name, value in point.params.items() if name not in SHAPE[:2]}
        data = shared["data"]
        fields = identity.identity(
            site=self.site.name,
            program=self.study.workload or list(self.study.command or ()),
            params=params,
            nodes=shape.nodes,
            ranks_per_node=shape.ranks_per_node,
            cpus_per_rank=shape.cpus_per_rank,
            gpus_per_rank=shape.gpus_per_rank,
            repeat=repeat,
            data=data and {"digest": data["digest"], "options": data["options"]},
            staging={"mode": shared["staging"], "redirect": shared["redirect"]},
            concurrent=self.study.pack == "concurrent",
            image=shared["image_digest"],
            revision=self.study.revision,
        )
        node = self.site.node_of(shape.partition)
        strategy = params.get("strategy")
        return PlannedRun(
            run_id=identity.run_id(fields),
            series=part.series,
            command=self._command(part, params, repeat),
            params=params,
            axes=point.axes,
            strategy=None if strategy is None else str(strategy),
            nodes=shape.nodes,
            ranks_per_node=shape.ranks_per_node,
            cpus_per_rank=shape.cpus_per_rank,
            gpus_per_rank=shape.gpus_per_rank,
            world_size=shape.world_size,
            local_batch=part.local_batch,
            global_batch=part.global_batch,
            repeat=repeat,
            oversubscribed=not shape.gpus_per_rank and node.cores is not None and shape.ranks_per_node > node.cores,
            partition=shape.partition,
            qos=shape.qos,
            memory_bytes=shape.memory_bytes,
            price=part.price,
            problems=part.problems,
            **shared,
        )

    def _command(self, part: _Part, params: Mapping[str, Any], repeat: int) -> tuple[str, ...] | None:
        """argv with placeholders filled in; never a shell line."""
        if self.study.command is None:
            return None
        shape = part.shape
        fields = {
            "site": self.site.name,
            "study": self.study.name,
            "repeat": repeat,
            "data": self.data.value["path"] if self.data.value else "",
            "world_size": shape.world_size,
            "local_batch": part.local_batch,
            "global_batch": part.global_batch,
            **params,
            **{name: getattr(shape, name) for name in SHAPE},
        }
        texts = {name: _word(value) for name, value in fields.items()}
        return tuple(word.format_map(texts) for word in self.study.command)


def _word(value: Any) -> str:
    """A value as one word of argv: strings as they are, everything else as JSON (true, 0.001, [1,2])."""
    if value is None:
        return ""
    return value if isinstance(value, str) else identity.canonical(value)


def _image_digest(image: str | None) -> str | None:
    """The digest of an image reference that names one (`...@sha256:<hex>`)."""
    name, _, hexadecimal = (image or "").partition("@sha256:")
    return hexadecimal if name and hexadecimal else None
