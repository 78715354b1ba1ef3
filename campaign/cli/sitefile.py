"""What the commands of `campaign site` share: the site they are about, and the table of findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context
from campaign.errors import BadInput, OutsideProject, Problem

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site
    from campaign.sitecheck.findings import Finding

COLOURS = {"wrong": "red", "missing": "yellow", "unknown": "magenta", "note": "cyan", "right": "green"}


class NamedSite:
    """A site as the command line names it: one of the project, or a file anywhere."""

    def __init__(self, site: Site, path: Path, shown: str, project: Project | None) -> None:
        self.site, self.path, self.shown, self.project = site, path, shown, project

    @classmethod
    def find(cls, context: Context, name: str) -> NamedSite:
        """Raises `BadInput`."""
        from campaign.site import load_site

        try:
            project = context.project
            path = project.site_path(name)
            return cls(project.load_site(name), path, project.shown(path), project)
        except BadInput as error:
            file = Path(name)
            if name.endswith((".yaml", ".yml")) and file.is_file() and _not_of_project(error, context):
                return cls(load_site(file, shown=name), file, name, None)
            raise

    def head(self) -> dict[str, Any]:
        """What every answer about this site starts with."""
        return {"site": self.site.name, "file": self.shown}

    def account(self, context: Context) -> str | None:
        """What would be charged; None when nobody has said it."""
        if self.project is None:
            return context.account or self.site.account
        try:
            return self.project.resolve_account(self.site, context.account)
        except BadInput:
            return None

    def fill(self, path: str) -> str | None:
        """A path with {project} and {user} put in; None when the project isn't given."""
        from campaign.project import user_name

        own = self.project.config.projects.get(self.site.name) if self.project else None
        project = own or self.site.project
        if "{project}" in path and not project:
            return None
        return path.replace("{project}", project or "").replace("{user}", user_name())


def _not_of_project(error: BadInput, context: Context) -> bool:
    """True when the file isn't one of the project's, rather than one that is wrong."""
    if isinstance(error, OutsideProject):
        return True
    return any("is not a site file of the project" in problem.message for problem in error.problems)


def print_findings(context: Context, title: str, findings: list[Finding], *, everything: bool) -> None:
    """A table of the findings, and the lines to type. `everything`: also what is right."""
    from campaign.cli.render import table
    from campaign.sitecheck.findings import count

    context.say(click.style(title, bold=True))
    shown = [finding for finding in findings if everything or finding.verdict != "right"]
    rows = [
        (
            click.style(f"{finding.verdict:7}", fg=COLOURS[finding.verdict]),
            f"{finding.line or ''}",
            finding.key,
            "" if finding.value is None else _short(finding.value),
            finding.message,
        )
        for finding in shown
    ]
    if rows:
        context.say(table(("", "line", "key", "file", "found"), rows, right=(1,)))
    typed = [finding for finding in shown if finding.write]
    if typed:
        context.say(click.style("What to type", bold=True))
        context.say(
            table(("line", "key", "write"), [(str(one.line or ""), one.key, one.write or "") for one in typed],
                  right=(0,))
        )  # fmt: skip
    counted = count(findings)
    context.say(", ".join(f"{many} {verdict}" for verdict, many in counted.items()))


def _short(value: Any, limit: int = 24) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def fail_once(context: Context, named: NamedSite, wrong: list[Finding]) -> None:
    """One error for people, who have the table above it."""
    lines = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
    context.fail(Problem(f"{lines} wrong with {named.shown}", hint=f"edit {named.shown}; nothing was changed"))


def write_new(path: Path, text: str) -> None:
    """Write a file that isn't there yet, group-readable as the umask says. Raises `BadInput` when it is there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(Problem("there is a file already, and it is never overwritten", str(path),
                               key="--out")) from None  # fmt: skip
