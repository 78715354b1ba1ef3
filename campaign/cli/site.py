"""`campaign site`: is a site file true, a first file for a new site, and what its compute nodes say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags, require
from campaign.cli.sitefile import NamedSite, fail_once, print_findings, write_new
from campaign.cli.siteprobe import probe
from campaign.errors import EXIT_NOT_NOW, NotNow, Problem

if TYPE_CHECKING:
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


@click.group()
def site() -> None:
    """Check a site file, make a first one, probe compute nodes."""


site.add_command(probe)


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
    found = [NamedSite.find(context, name) for name in sites]
    require(
        not (found[0].site.local and (picture_path or save_path)),
        Problem(f"{found[0].site.name} has no scheduler to ask", hint="leave out --from and --save"),
    )
    context.data = {"sites": []}
    for named in found:
        try:
            _check(context, named, picture_path, save_path)
        except NotNow as error:
            context.data["sites"].append(named.head() | {"cluster": None, "counts": None, "findings": []})
            for problem in error.problems:
                context.fail(Problem(f"{named.site.name}: {problem.message}", hint=problem.hint),
                             exit_code=EXIT_NOT_NOW)  # fmt: skip


def _check(context: Context, named: NamedSite, picture_path: Path | None, save_path: Path | None) -> None:
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
        against = "this host"
        if picture is not None:
            against = f"cluster {picture.config.name} (Slurm {picture.config.version}, {picture.taken})"
        title = f"{named.shown} against {against}"
        print_findings(context, title, findings, everything=context.verbose > 0)
        if wrong:
            fail_once(context, named, wrong)


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
        write_new(out, text)
    context.note(f"next: campaign site check {out or f'sites/{chosen}.yaml'}")


def _validate(text: str, path: Path) -> None:
    """Raises `BadInput` when the text is no site file, as with a --name that isn't one."""
    from campaign.site import Site
    from campaign.validate import FileSource, validate
    from campaign.yamlfile import parse

    validate(FileSource(parse(text, path), str(path)), Site)
