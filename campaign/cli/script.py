"""`campaign script RUN`: the job script of one run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, flags
from campaign.errors import BadInput, Problem
from campaign.submit.ledger import Ledger

if TYPE_CHECKING:
    from sqlite3 import Row

    from campaign.project import Project

EXAMPLES = """\b
Examples:
  campaign script 3f2a                            what `campaign submit --run 3f2a` sends
  campaign script 3f2a --standalone               a plain sbatch + srun script, without campaign
  campaign script 3f2a --standalone --out job.sh && sbatch job.sh
"""


@click.command(epilog=EXAMPLES)
@flags
@click.argument("run")
@click.option("--standalone", is_flag=True, help="A script that needs no campaign on the cluster; it leaves no record.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file.")
def script(context: Context, run: str, standalone: bool, out: Path | None) -> None:
    """Print the job script of a run.

    RUN is a run id or its first letters; a run that is only planned will do.
    """
    from campaign.submit.select import one_run

    project = context.project
    with Ledger.open(project.ledger_path) as ledger:
        row = ledger.run_rows([one_run(ledger, run)])[0]
        text = _standalone(project, ledger, row) if standalone else _sent(project, ledger, row)
    _warn_changed(context, project, row)
    if out is not None:
        _write(out, text)
        context.note(f"written to {out}")
    context.data = {
        "run_id": row["run_id"],
        "site": row["site"],
        "study": row["study"],
        "standalone": standalone,
        "path": None if out is None else str(out),
        "text": text,
    }
    if out is None:
        context.say(text.rstrip("\n"))


def _standalone(project: Project, ledger: Ledger, row: Row) -> str:
    from campaign.submit.standalone import standalone_text

    planned = ledger.planned_runs([row["run_id"]])[row["run_id"]]
    return standalone_text(project, project.load_site(row["site"]), planned)


def _sent(project: Project, ledger: Ledger, row: Row) -> str:
    """The script of the next attempt at this run alone, as `submit` would make it."""
    from campaign.submit.attempts import next_items
    from campaign.submit.batch import make_batches
    from campaign.submit.executors import script_text

    site = project.load_site(row["site"])
    if site.local:
        raise BadInput(Problem(f"run {row['run_id']} is one of site {site.name}: its runs start without a script",
                               key="RUN", hint="campaign show RUN  says what it runs"))  # fmt: skip
    (batch,) = make_batches(project, site, next_items(ledger, [row]))
    return script_text(batch, site)


def _warn_changed(context: Context, project: Project, row: Row) -> None:
    from campaign.project import sha256_of

    for kind, path in (("site", project.site_path(row["site"])), ("study", project.study_path(row["study"]))):
        if sha256_of(path) != row[f"{kind}_sha256"]:
            hint = f"campaign plan {row['site']} --study {row['study']}"
            context.warn(Problem(f"{kind} {row[kind]} has changed since the plan", project.shown(path), hint=hint))


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and executable."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.chmod(0o755 & ~_umask())
    part.replace(path)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
