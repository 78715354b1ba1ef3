"""Sites x studies -> a plan: expanded, checked, priced, ordered. Queues nothing, writes nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaign.errors import BadInput, Problem
from campaign.plan import identity, places, quota, stray
from campaign.plan.check import check_site, check_study
from campaign.plan.expand import barren, points
from campaign.plan.ground import Findings, Ground
from campaign.plan.maker import Part, RunMaker
from campaign.plan.merge import merge
from campaign.plan.model import Plan, PlannedRun, SourceFile
from campaign.plan.order import repeated, smallest
from campaign.plan.progress import Progress, counted, silent
from campaign.plan.store import load_plan, save_plan
from campaign.plan.walltime import Pilots
from campaign.project import Project, SitePaths, sha256_of
from campaign.site import Site
from campaign.study import Study
from campaign.validate import suggestion

__all__ = ["build_plan", "load_plan", "plan_id", "save_plan"]


def build_plan(
    project: Project,
    sites: Sequence[Path | str],
    studies: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    account: str | None = None,
    *,
    pilots: Pilots = lambda site, series: (),
    note: Callable[[str], None] = lambda _: None,
    progress: Progress = silent,
) -> Plan:
    """The plan of these sites (files or names) and studies (default: those that each site lists).

    `overrides`: `--set` by key. `pilots`: measured runs by site and series, for `walltime: auto`. Raises
    `BadInput` with every error of every file; a run that is fine but doesn't fit its site is part of
    the plan, with its reasons in `problems`.
    """
    overrides = dict(overrides or {})
    builder = _Builder(project, overrides, account, pilots, note, progress)
    for site, names in builder.chosen(sites, studies):
        for name in names:
            builder.add(site, name)
    builder.finish()
    if not builder.runs:
        raise BadInput(Problem("the plan has no runs", hint="campaign plan SITE --study NAME"))
    plan = Plan(
        plan_id="",
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        sites=builder.site_files,
        studies=builder.study_files,
        overrides=overrides,
        runs=tuple(builder.runs.values()),
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
        path = run.data and run.data["path"]
        placed = (run.run_id, run.study, run.gate, run.gated, run.ladder, run.shape(), path, len(run.problems))
        hashed.update(repr(placed).encode())
    return hashed.hexdigest()[:12]


class _Builder:
    """Collects runs and errors of all sites and studies, so that the user sees every error at once."""

    def __init__(
        self,
        project: Project,
        overrides: dict[str, Any],
        account: str | None,
        pilots: Pilots,
        note: Callable[[str], None],
        progress: Progress,
    ) -> None:
        self.project = project
        self.overrides = overrides
        self.account = account
        self.pilots = pilots
        self.note = note
        self.progress = progress
        self.runs: dict[str, PlannedRun] = {}
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.site_files: dict[str, SourceFile] = {}
        self.study_files: dict[str, SourceFile] = {}
        self._studies: dict[str, Study | None] = {}
        self._unseen: dict[tuple[str, str | None], Problem] = {}
        self._site_needs: dict[str, tuple[str | None, SitePaths | None]] = {}
        self._grounds: dict[str, tuple[Ground, Findings]] = {}

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
            self.errors.append(self._no_study(site, name))
            names.remove(name)
        return names

    def _no_study(self, site: Site, name: str) -> Problem:
        """A study that the site's file lists and the project doesn't have."""
        known = self._study_names()
        there = f"campaign plan {site.name} --study {known[0]}, or" if known else "a study file in studies/, or"
        hint = suggestion(name, known) or f"{there} change `studies` in {site.source.place(('studies',))[0]}"
        message = f"there is no study `{name}` in studies/"
        return site.problem(("studies", name), message, allowed=", ".join(known) or None, value=None, hint=hint)

    def _study_names(self) -> list[str]:
        return self.project.study_names()

    def finish(self) -> None:
        """Raise every error that was found."""
        self.warnings += stray.of_config(self.project)
        for ground, _ in self._grounds.values():
            self._check_quota(ground)
        self.warnings += self._unseen.values()
        if self.errors:
            raise BadInput(list(dict.fromkeys(self.errors)))

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
            self._studies[name] = found = self.project.load_study(name)
            self.warnings += stray.of_study(self.project, found)
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
                self.errors += places.malformed(Ground(self.project, site, paths))
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
        account, paths = self._needs(site)
        if paths is None:
            return
        ground, everywhere = self._ground(site, paths)
        own = check_study(ground, study)
        self.warnings += own.warnings
        maker = RunMaker(ground, study, account, [*everywhere.problems, *own.problems])
        found = points(study)
        self.warnings += [*stray.of_axes(study), *barren(study, found)]
        if maker.data.warning:
            self._unseen.setdefault((site.name, study.data.name if study.data else None), maker.data.warning)
        parts = maker.parts(found, self.pilots, self.progress)
        self.warnings += maker.unknowns
        self._keep(maker, parts)

    def _ground(self, site: Site, paths: SitePaths) -> tuple[Ground, Findings]:
        """A site's file systems, and what was found against all runs there."""
        if site.name not in self._grounds:
            ground = Ground(self.project, site, paths)
            self._grounds[site.name] = ground, check_site(ground)
            self.warnings += self._grounds[site.name][1].warnings
        return self._grounds[site.name]

    def _check_quota(self, ground: Ground) -> None:
        """All runs of the plan on one site against the room for their records."""
        shapes = Counter(run.shape() for run in self.runs.values() if run.can_run and run.site == ground.site.name)
        if not shapes:
            return
        arrays = quota.submissions(shapes.values(), ground.site.elements_per_array)
        found = quota.check(ground, shapes.total(), arrays)
        self.warnings += found.warnings
        if found.problems:
            for run_id, run in self.runs.items():
                if run.site == ground.site.name:
                    self.runs[run_id] = dataclasses.replace(run, problems=(*run.problems, *found.problems))

    def _keep(self, maker: RunMaker, parts: list[Part]) -> None:
        """The runs of these points in their order, the gate run first. Studies that share a run measure it once."""
        study = maker.study
        own: dict[str, tuple[Part, int]] = {}
        twins: dict[str, int] = {}
        for part, repeat in repeated(parts, study.repeats, study.order):
            run_id = maker.run_id(part, repeat)
            if run_id in self.runs or run_id in own:
                first = self.runs[run_id].study if run_id in self.runs else study.name
                twins[first] = twins.get(first, 0) + 1
            else:
                own[run_id] = part, repeat
        for other, count in twins.items():
            where = "there twice, because `when` makes points equal" if other == study.name else f"in study {other} too"
            message = f"{maker.site.name}: {count} runs of study {study.name} are {where}, and are measured once"
            self.warnings.append(Problem(message))
        if study.pack == "serial":
            own = dict(zip(own, maker.packed(list(own.values())), strict=True))
        ids, gates = _opening(study, own)
        # within a ladder the head itself holds back what follows a gate that failed
        held = bool(gates) and study.pack != "serial"
        what = f"planning {study.name} on {maker.site.name}"
        for run_id in counted(ids, self.progress, what, "runs"):
            part, repeat = own[run_id]
            gate = run_id in gates
            self.runs[run_id] = maker.run(
                part, repeat, run_id, order=len(self.runs), gate=gate, gated=held and not gate
            )


def _opening(study: Study, own: Mapping[str, tuple[Part, int]]) -> tuple[list[str], set[str]]:
    """(run ids in their order, those that open a gate): the smallest run, moved to the front; of a ladder its first."""
    ids = list(own)
    if not study.gate:
        return ids, set()
    if study.pack == "serial":
        first: dict[int, str] = {}
        for run_id, (part, _) in own.items():
            if part.ladder is not None:
                first.setdefault(part.ladder, run_id)
        return ids, set(first.values())
    index = smallest([part.size for part, _ in own.values()])
    if index is None:
        return ids, set()
    ids.insert(0, ids.pop(index))
    return ids, {ids[0]}
