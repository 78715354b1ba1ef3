"""`campaign logs RUN`: what a run printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Row

import click

from campaign.cli.common import Context, flags
from campaign.cli.show import attempt_dir, job_log
from campaign.errors import BadInput, CampaignError, Problem
from campaign.slurm.states import ACTIVE
from campaign.submit.ledger import Ledger

EXAMPLES = """\b
Examples:
  campaign logs 3f2a              rank 0: its first and last 512 KiB
  campaign logs 3f2a -f           follow it while it runs
  campaign logs 3f2a --failed     the last lines of every failing rank
  campaign logs 3f2a --job        what the job itself said, outside the ranks
"""

PAUSE_S = 0.5
CHUNK_BYTES = 1 << 16
TAIL_BYTES = 256


@click.command(epilog=EXAMPLES)
@flags
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the run has ended.")
@click.option("--failed", "kind", flag_value="failed", help="Last lines of the failing ranks.")
@click.option("--job", "kind", flag_value="job", help="The job's own log.")
@click.option("--attempt", type=int, help="Attempt to show. Default: the newest.")
def logs(context: Context, run: str, follow: bool, kind: str | None, attempt: int | None) -> None:
    """Print what a run printed."""
    from campaign.submit.select import one_run

    with Ledger.open(context.project.ledger_path) as ledger:
        run_id = one_run(ledger, run)
        job = _job(ledger, run_id, attempt)
        if follow and not context.as_json:
            for text in _follow(context, ledger, job, kind):
                click.echo(text, nl=False)
            return
        path = _path(job, kind)
    if path is None:
        what = "no failing rank left any output" if kind == "failed" else "nothing was printed that was kept"
        raise CampaignError(Problem(f"run {run_id}: {what}", hint=_instead(run_id, kind)))
    text = path.read_text(encoding="utf-8", errors="replace")
    context.data = {"run_id": run_id, "attempt": job["attempt"], "path": str(path), "text": text}
    if not context.as_json:
        click.echo(text, nl=not text.endswith("\n"))


def _job(ledger: Ledger, run_id: str, attempt: int | None) -> Row:
    known = ledger.jobs_of(run_id)
    if not known:
        raise CampaignError(Problem(f"run {run_id} has no attempt yet", hint="campaign submit"))
    jobs = [job for job in known if attempt in (None, job["attempt"])]
    if not jobs:
        attempts = ", ".join(str(number) for number in sorted({job["attempt"] for job in known}))
        raise BadInput(Problem(f"run {run_id} has no such attempt", key="--attempt", value=attempt, allowed=attempts))
    return jobs[-1]


def _path(job: Row, kind: str | None) -> Path | None:
    """The file to print; without a console the job's own log says why."""
    if kind == "job":
        return job_log(job)
    folder = attempt_dir(job)
    wanted = "failed.log" if kind == "failed" else "console.log"
    if folder is not None and (folder / wanted).exists():
        return folder / wanted
    return None if kind == "failed" else job_log(job)


def _instead(run_id: str, kind: str | None) -> str:
    if kind == "failed":
        return f"campaign logs {run_id} --job  is what the job itself said; campaign show {run_id}  names nodes"
    return f"campaign logs {run_id}" if kind else f"campaign show {run_id}"


def _follow(context: Context, ledger: Ledger, job: Row, kind: str | None) -> Iterator[str]:
    """New text as it comes, until the run has ended. The file may be renamed on the way: it is opened anew."""
    from campaign.submit.refresh import refresh

    offset = 0
    tail = b""
    shown: Path | None = None
    while True:
        refresh(context.project, ledger)
        ended = ledger.run_rows([job["run_id"]])[0]["state"] not in ACTIVE
        path = _path(job, kind)
        if path is not None:
            if shown is not None and path.name != shown.name:
                offset = 0  # the console has come up after the job's log
            shown = path
            with path.open("rb") as file:
                if path.stat().st_size < offset:
                    offset = _found_again(file.read(), tail)
                file.seek(offset)
                while data := file.read(CHUNK_BYTES):
                    offset += len(data)
                    tail = (tail + data)[-TAIL_BYTES:]
                    yield data.decode("utf-8", errors="replace")
        if ended:
            return
        time.sleep(PAUSE_S)


def _found_again(content: bytes, tail: bytes) -> int:
    """Where to go on in a console that was cut in its middle: after what was printed last, else near the end."""
    place = content.rfind(tail)
    return place + len(tail) if place >= 0 else max(0, len(content) - CHUNK_BYTES)
