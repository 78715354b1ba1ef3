"""Names that lead nowhere: a site that the project doesn't have, an axis that the command doesn't use.

None of them is an error: site files may live in another project, and a program may read its axes from the run's
folder. A typing mistake looks the same, so it is said.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator

from campaign.errors import Problem
from campaign.plan import expression
from campaign.project import Project
from campaign.study import BATCHES, SHAPE, Study
from campaign.validate import nearest, suggestion

OWN_USE = (*SHAPE, *BATCHES, "strategy")
"""Axes that mean something to campaign itself: resources, batch sizes, and what figures compare."""


def of_config(project: Project) -> Iterator[Problem]:
    """Sites of campaign.yaml that the project doesn't have."""
    config, known = project.config, project.site_names()
    for key in ("accounts", "projects", "paths"):
        for name in getattr(config, key):
            if name not in known:
                yield config.problem((key, name), _no_site(name), **_site_hint(name, known))


def of_study(project: Project, study: Study) -> Iterator[Problem]:
    """Sites in the study's `sites` that the project doesn't have. `study`: as its file says."""
    known = project.site_names()
    for name in study.sites:
        if name not in known:
            yield study.problem(("sites", name), _no_site(name), value=None, **_site_hint(name, known))


def of_axes(study: Study) -> Iterator[Problem]:
    """Axes of a `command:` that change nothing of what runs. `study`: as it is on one site."""
    if study.command is None:
        return
    used = {name for word in study.command for _, name, _, _ in string.Formatter().parse(word) if name}
    used |= {name for rule in study.when for name in rule.if_}
    for name in SHAPE:
        amount = getattr(study.resources, name)
        if isinstance(amount, str) and amount != "site":
            used |= expression.parse(amount).names
    for name, path in study.axis_paths().items():
        if name in used or name in OWN_USE:
            continue
        meant = nearest(name, {*used, *OWN_USE} - set(study.axis_paths()))
        hint = f"did you mean `{meant}`?" if meant else f'"{{{name}}}" as a word of `command`'
        yield study.problem(path, f"axis `{name}` is used nowhere in `command`", hint=hint)


def _no_site(name: str) -> str:
    return f"the project has no site `{name}`, so this is not used"


def _site_hint(name: str, known: Collection[str]) -> dict[str, str | None]:
    return {"allowed": ", ".join(known) or None, "hint": suggestion(name, known)}
