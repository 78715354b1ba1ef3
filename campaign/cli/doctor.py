"""`campaign doctor`: what is installed, what is missing for what, and the line that installs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags
from campaign.errors import Problem

if TYPE_CHECKING:
    from campaign.doctor.check import Check

EPILOG = """\b
Examples:
  campaign doctor                        this machine, and the project around the working directory
  campaign doctor --site juwels          what a site needs: run it on that site's login node
  campaign doctor --json | jq '.data.checks[] | select(.ok == false)'
"""

AREAS = {
    "base": "campaign itself",
    "train": "training workloads",
    "deepspeed": "training with DeepSpeed",
    "horovod": "training with Horovod",
    "plots": "figures",
    "io": "storage studies",
    "mlflow": "MLflow",
    "slurm": "Slurm",
    "container": "containers and images",
    "storage": "storage",
}


@click.command(epilog=EPILOG)
@click.option("--site", "sites", multiple=True, help="Also look at what this site of the project needs; repeatable.")
@flags
def doctor(context: Context, sites: tuple[str, ...]) -> None:
    """Say what is installed, what is missing, and what installs it.

    Exit code 0 when campaign and the project's sites have what they need, 1 when something they need is missing.
    Which sites: those of --site, else `sites:` in campaign.yaml, else those with a local scheduler (what a Slurm site
    needs is on its login node).
    """
    from campaign.doctor import scheduler, software, storage
    from campaign.doctor.needs import find_need

    need, warnings = find_need(context, sites)
    for warning in warnings:
        context.warn(warning)
    context.note("looking (asking torch for its GPUs takes some seconds) ...")
    cluster = need.sites[0] if len(need.sites) == 1 else ""
    checks = [*software.look(need), *scheduler.look(need, cluster), *storage.look(need)]
    checks.sort(key=lambda check: list(AREAS).index(check.area))

    context.data = {"sites": list(need.sites), "checks": [check.to_json() for check in checks]}
    if not context.as_json:
        _print(context, checks)
    for check in checks:
        if check.failed:
            needed = ", ".join(check.needed_by)
            context.fail(Problem(f"{check.name}: {check.found}; needed by {needed}", hint=check.install))


def _print(context: Context, checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    marks = {True: ("ok", "green"), False: ("missing", "red"), None: ("-", "dim")}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    area = None
    for check in checks:
        if check.area != area:
            area = check.area
            table.add_row(Text(AREAS[area], style="bold"))
        mark, style = marks[check.ok]
        table.add_row(Text(f"  {check.name}"), Text(mark, style=style), Text(check.found))
    console = context.console()
    console.print(table)
    missing = [check for check in checks if check.install and check.ok is not True]
    lines: dict[str, list[str]] = {}
    for check in missing:
        lines.setdefault(check.install or "", []).append(f"{check.name} ({', '.join(check.needed_by)})")
    if lines:
        console.print(Text("What is missing here, for what, and what installs it", style="bold"))
    for line, names in lines.items():
        console.print(Text(f"  {'; '.join(names)}"))
        console.print(Text(f"      {line}", style="cyan"), soft_wrap=True)
