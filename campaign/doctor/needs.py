"""What the project's sites and studies need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from campaign.doctor.check import Need
from campaign.errors import BadInput, OutsideProject, Problem

if TYPE_CHECKING:
    from campaign.cli.common import Context
    from campaign.project import Project
    from campaign.site import Site


def find_need(context: Context, names: tuple[str, ...]) -> tuple[Need, list[Problem]]:
    """(need, warnings). Outside a project only campaign itself is needed; a broken file is a warning.

    `names`: sites to look at, by name or file; empty: `sites:` of campaign.yaml, else the sites with a local scheduler.
    Raises `BadInput` when a named site doesn't exist.
    """
    try:
        project = context.project
    except OutsideProject:
        if names:
            raise
        return Need(), [Problem("not in a project folder: only campaign itself is looked at", hint="campaign init")]
    warnings: list[Problem] = []
    sites = [project.load_site(name) for name in names] if names else _sites(project, warnings)
    return _need(project, sites, warnings), warnings


def _sites(project: Project, warnings: list[Problem]) -> list[Site]:
    try:
        chosen = project.config.sites
    except BadInput as error:
        warnings.extend(error.problems)
        chosen = []
    found: list[Site] = []
    for path in chosen or project.site_files():
        try:
            found.append(project.load_site(path))
        except BadInput as error:
            warnings.extend(error.problems)
    return found if chosen else [site for site in found if site.local]


def _need(project: Project, sites: list[Site], warnings: list[Problem]) -> Need:
    workloads: set[str] = set()
    for path in project.study_files():
        try:
            study = project.load_study(path)
        except BadInput as error:
            warnings.extend(error.problems)
            continue
        if study.workload and any(study.name in site.studies for site in sites):
            workloads.add(study.workload)
    folders: dict[Path, None] = {project.root: None}
    for site in sites:
        try:
            paths = project.site_paths(site)
        except BadInput as error:
            warnings.extend(error.problems)
            continue
        folders.update(dict.fromkeys((paths.run_root, paths.data)))
    slurm = [site for site in sites if not site.local]
    own = project.root
    return Need(
        sites=tuple(site.name for site in sites),
        slurm=bool(slurm),
        accounting=any(site.accounting for site in slurm),
        training=any(workload.startswith("training.") for workload in workloads),
        container=next((site.container.runtime for site in sites if site.container.image), None),
        cluster_name=slurm[0].cluster_name if len(slurm) == 1 else None,
        # folders below the project share its file system, unless they are mounts of their own
        folders=tuple(path for path in folders if path == own or not path.is_relative_to(own) or path.is_mount()),
    )
