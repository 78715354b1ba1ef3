"""`campaign site`: is a site file true, a first file for a new site, and what its compute nodes say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags, require
from campaign.errors import EXIT_NOT_NOW, BadInput, NotNow, OutsideProject, Problem

if TYPE_CHECKING:
    from campaign.project import Project
    from campaign.site import Site
    from campaign.sitecheck.findings import Finding
    from campaign.sitecheck.picture import Picture

CHECK_EXAMPLES = """\b
Examples:
  campaign site check sites/juwels.yaml             on a login node of JUWELS Booster
  campaign site check juwels vega -v                also what was found right
  campaign site check juwels --save juwels.json     keep the cluster's answers ...
  campaign site check juwels --from juwels.json     ... and compare with them anywhere
"""
DISCOVER_EXAMPLES = """\b
Examples:
  campaign site discover > sites/mysite.yaml           on a login node of the site
  campaign site discover --name mysite --out sites/mysite.yaml
  campaign site discover --save answers.json           keep the cluster's answers ...
  campaign site discover --from answers.json           ... and make the file anywhere
"""
COLOURS = {"wrong": "red", "missing": "yellow", "unknown": "magenta", "note": "cyan", "right": "green"}


@click.group()
def site() -> None:
    """Compare a site file with its cluster, write a first one, ask compute nodes."""


@site.command(epilog=CHECK_EXAMPLES)
@click.argument("sites", nargs=-1, required=True, metavar="SITE...")
@click.option("--from", "picture_path", type=click.Path(path_type=Path), help="Compare with answers that --save kept.")
@click.option("--save", "save_path", type=click.Path(path_type=Path), help="Keep the cluster's answers in this file.")
@flags
def check(context: Context, sites: tuple[str, ...], picture_path: Path | None, save_path: Path | None) -> None:
    """Say whether a site file is true.

    Asks the cluster (scontrol, sacctmgr) and this host, and holds the file against it line by line: wrong (they
    differ), missing (null in the file, and the cluster says it), unknown (can't be seen here). The file is never
    changed: each finding says the line to type. What only compute nodes know, `campaign site probe` finds out.

    Exit code 0 when nothing is wrong (unknowns are allowed), 1 when something is, 3 when the cluster didn't answer.
    """
    require(
        len(sites) == 1 or not (picture_path or save_path),
        Problem("--from and --save are for one site at a time", hint=f"campaign site check {sites[0]} ..."),
    )
    found = [_Named.find(context, name) for name in sites]
    context.data = {"sites": []}
    for named in found:
        try:
            _check(context, named, picture_path, save_path)
        except NotNow as error:
            context.data["sites"].append(named.head() | {"cluster": None, "counts": None, "findings": []})
            for problem in error.problems:
                context.fail(Problem(f"{named.site.name}: {problem.message}", hint=problem.hint),
                             exit_code=EXIT_NOT_NOW)  # fmt: skip


class _Named:
    """A site as the command line names it: one of the project, or a file anywhere."""

    def __init__(self, site: Site, path: Path, shown: str, project: Project | None) -> None:
        self.site, self.path, self.shown, self.project = site, path, shown, project

    @classmethod
    def find(cls, context: Context, name: str) -> _Named:
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


def _check(context: Context, named: _Named, picture_path: Path | None, save_path: Path | None) -> None:
    from campaign.sitecheck.compare import compare
    from campaign.sitecheck.findings import VERDICTS, count
    from campaign.sitecheck.host import look

    the_site = named.site
    findings: list[Finding] = []
    picture = None
    if not the_site.local:
        picture = _picture(context, the_site.name, picture_path, save_path)
        findings += compare(the_site, picture, named.account(context))
    right_cluster = picture is None or the_site.cluster_name in (None, picture.config.name)
    if picture_path is None and right_cluster:
        context.note(f"{the_site.name}: looking at this host ...")
        findings += look(the_site, named.fill)
    findings.sort(key=lambda finding: (VERDICTS.index(finding.verdict), finding.line or 0))
    context.data["sites"].append(
        named.head()
        | {
            "cluster": None if picture is None else _cluster(picture),
            "counts": count(findings),
            "findings": [finding.to_json() for finding in findings],
        }
    )
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    if context.as_json:
        for finding in wrong:
            context.fail(finding.problem())
    else:
        _print(context, named, picture, findings)
        if wrong:
            lines = "1 line is" if len(wrong) == 1 else f"{len(wrong)} lines are"
            context.fail(Problem(f"{lines} wrong in {named.shown}", hint=f"edit {named.shown}; nothing was changed"))


def _picture(context: Context, name: str, picture_path: Path | None, save_path: Path | None) -> Picture:
    """The cluster's answers, from a file or by asking it. Raises `NotNow`, `BadInput`."""
    from campaign.sitecheck.picture import ask, read

    if picture_path is not None:
        return read(picture_path)
    context.note(f"{name or 'this host'}: asking the cluster ...")
    picture = ask(name)
    if save_path is not None:
        picture.save(save_path)
        context.note(f"kept the answers in {save_path}")
    return picture


def _cluster(picture: Picture) -> dict[str, Any]:
    config = picture.config
    return {"name": config.name, "slurm": config.version, "asked": picture.taken, "user": picture.user,
            "failed": dict(picture.failed)}  # fmt: skip


def _print(context: Context, named: _Named, picture: Picture | None, findings: list[Finding]) -> None:
    from campaign.cli.render import table
    from campaign.sitecheck.findings import count

    against = "this host"
    if picture is not None:
        against = f"cluster {picture.config.name} (Slurm {picture.config.version}, {picture.taken})"
    context.say(click.style(f"{named.shown} against {against}", bold=True))
    shown = [finding for finding in findings if context.verbose or finding.verdict != "right"]
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


@site.command(epilog=DISCOVER_EXAMPLES)
@click.option("--name", help="Name of the site. Default: that of the cluster.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a new file, instead of printing it.")
@click.option("--from", "picture_path", type=click.Path(path_type=Path), help="Take the answers that --save kept.")
@click.option("--save", "save_path", type=click.Path(path_type=Path), help="Keep the cluster's answers in this file.")
@flags
def discover(
    context: Context, name: str | None, out: Path | None, picture_path: Path | None, save_path: Path | None
) -> None:
    """Write a first site file from what the cluster says.

    Asks scontrol, sacctmgr and this host (mounts, interfaces) and prints a site file. What nobody said is null;
    every entry says in a comment where it comes from. --out never overwrites a file. Then: `campaign site check` and
    `campaign site probe`.

    Exit code 3 when the cluster didn't answer.
    """
    from campaign.sitecheck.discover import site_file, site_name
    from campaign.sitecheck.hostfacts import HostFacts, look

    require(
        out is None or not out.exists(),
        Problem("there is a file already, and it is never overwritten", str(out), key="--out",
                hint="another --out, or remove the file"),
    )  # fmt: skip
    picture = _picture(context, name or "", picture_path, save_path)
    # saved answers are of another host
    host = look(picture.user) if picture_path is None else HostFacts()
    chosen = name or site_name(picture.config.name)
    try:
        text = site_file(picture, host, chosen)
    except ValueError as error:
        raise NotNow(Problem(f"no site file can be made: {error}", hint="ask again later")) from None
    _validate(text, out or Path(f"{chosen}.yaml"))
    for question, reason in picture.failed.items():
        context.warn(Problem(f"{question}: no answer ({reason}); the file has null there"))
    context.data = {"name": chosen, "file": None if out is None else str(out), "text": text,
                    "cluster": _cluster(picture)}  # fmt: skip
    if out is None:
        context.say(text.rstrip("\n"))
    else:
        _write_new(out, text)
    context.note(f"next: campaign site check {out or f'sites/{chosen}.yaml'}")


def _validate(text: str, path: Path) -> None:
    """Raises `BadInput` when the text is no site file, as with a --name that isn't one."""
    from campaign.site import Site
    from campaign.validate import FileSource, validate
    from campaign.yamlfile import parse

    validate(FileSource(parse(text, path), str(path)), Site)


def _write_new(path: Path, text: str) -> None:
    """Write a file that isn't there yet, group-readable as the umask says. Raises `BadInput` when it is there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(Problem("there is a file already, and it is never overwritten", str(path),
                               key="--out")) from None  # fmt: skip
