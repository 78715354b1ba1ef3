"""`campaign show RUN`: all that is known of one run, from the ledger and the run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from campaign.cli.common import Context, flags
from campaign.cli.render import state, table
from campaign.slurm.durations import format_duration
from campaign.slurm.reasons import words
from campaign.slurm.states import ACTIVE
from campaign.submit import outcome
from campaign.submit.advice import advice
from campaign.submit.ledger import Ledger
from campaign.submit.outcome import Job
from campaign.words import count as number

EXAMPLES = """\b
Examples:
  campaign show 3f2a             the first letters of a run id are enough
  campaign show 3f2a --script    the script that was sent
  campaign show 3f2a --json | jq .data.record
"""

TAIL_LINES = 20


@click.command(epilog=EXAMPLES)
@flags
@click.argument("run")
@click.option("--script", is_flag=True, help="Print the script of the newest attempt.")
def show(context: Context, run: str, script: bool) -> None:
    """Show all that is known of one run."""
    from campaign.submit.select import one_run

    with Ledger.open(context.project.ledger_path) as ledger:
        run_id = one_run(ledger, run)
        if any(job["state"] in ACTIVE for job in ledger.jobs_of(run_id)):
            _refresh(context, ledger)
        row = dict(ledger.run_rows([run_id])[0])
        jobs = [dict(job) for job in ledger.jobs_of(run_id)]
    newest = jobs[-1] if jobs else None
    record = outcome.record(newest) if newest is not None else None
    if newest is not None and newest["state"] in ACTIVE:
        _settle(row, newest)
    context.data = {
        "run": {name: _plain(name, value) for name, value in row.items() if name != "spec"},
        "planned": json.loads(row["spec"]),
        "jobs": jobs,
        "record": record,
        "epochs": _epochs(newest),
        "failed_log": _tail(newest, "failed.log"),
        "paths": _paths(newest),
        "next": advice(row),
    }
    if script:
        context.say(_script(newest))
        return
    _print(context, row, jobs, record)


def _refresh(context: Context, ledger: Ledger) -> None:
    from campaign.submit.refresh import refresh

    for warning in refresh(context.project, ledger).warnings:
        context.warn(warning)


def _settle(row: dict[str, Any], job: dict[str, Any]) -> None:
    """Where the scheduler's word is older than the attempt's final record, the record decides."""
    ended = outcome.from_record(job)
    if ended is not None:
        job_values, run_values = ended
        job.update(job_values)
        row.update(run_values)


def _plain(name: str, value: Any) -> Any:
    if name == "params":
        return json.loads(value)
    if name in ("valid", "gate", "gated", "oversubscribed") and value is not None:
        return bool(value)
    return value


def attempt_dir(job: Job) -> Path | None:
    """Folder of the attempt's record: the final one, else the partial one, else None."""
    base = outcome.run_dir(job)
    for name in (f"a{job['attempt']}", f"a{job['attempt']}.partial"):
        if (base / name).is_dir():
            return base / name
    return None


def _paths(job: Job | None) -> dict[str, str | None]:
    if job is None:
        return {"record": None, "submit": None, "job_log": None}
    folder = attempt_dir(job)
    log = job_log(job)
    return {
        "record": str(folder) if folder else None,
        "submit": job["submit_dir"],
        "job_log": str(log) if log else None,
    }


def job_log(job: Job) -> Path | None:
    """What the head itself printed (one file per array index), or None when it never began."""
    submit_dir = Path(job["submit_dir"])
    index = job["array_index"]
    patterns = (f"*_{index}_0_log.out",) if job["scheduler"] == "slurm" else (f"{job['tag']}_{index}.log",)
    for pattern in patterns:
        for path in sorted(submit_dir.glob(pattern)):
            return path
    return None


def _script(job: Job | None) -> str:
    if job is None:
        return "not submitted yet; `campaign submit --dry-run` prints what would be sent"
    scripts = sorted(Path(job["submit_dir"]).glob("*_submission.sh"))
    return scripts[-1].read_text(encoding="utf-8") if scripts else f"local queue in {job['submit_dir']}"


def _epochs(job: Job | None) -> list[dict[str, Any]]:
    """Rows of the record's epochs table; empty when there is none."""
    folder = attempt_dir(job) if job is not None else None
    if folder is None or not (folder / "epochs.parquet").exists():
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(folder / "epochs.parquet").to_pylist()
    except (pa.ArrowException, OSError):
        return []  # damaged: `campaign collect` sets the record aside and says why
    return rows


def _tail(job: Job | None, name: str) -> list[str]:
    folder = attempt_dir(job) if job is not None else None
    if folder is None or not (folder / name).exists():
        return []
    return (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()[-200:]


def _print(context: Context, row: dict[str, Any], jobs: list[dict[str, Any]], record: dict[str, Any] | None) -> None:
    context.say(
        f"run {row['run_id']}  {state(row['state'])}" + (f"  ({row['fail_class']})" if row["fail_class"] else "")
    )
    for label, text in _facts(row, jobs, record):
        context.say(f"  {label:<11} {text}")
    if jobs:
        header = ["try", "site", "job", "state", "Slurm", "nodes", "exit", "seen"]
        rows = [
            [str(job["attempt"]), job["site"], f"{job['job_id'] or '?'}_{job['array_index']}", state(job["state"]),
             job["slurm_state"] or "-", (job["nodelist"] or "-")[:40], _exit(job), (job["state_seen_at"] or "-")[:19]]
            for job in jobs
        ]  # fmt: skip
        context.say(table(header, rows))
    epochs = context.data["epochs"]
    if epochs:
        header = ["epoch", "time s", "slowest rank", "samples", "unique", "loss", "val loss"]
        context.say(table(header, [_epoch_row(epoch) for epoch in epochs], right=range(7)))
    failed = context.data["failed_log"]
    if failed:
        context.say(click.style(f"last lines of failing ranks ({len(failed)} in failed.log):", bold=True))
        context.say("\n".join(failed[-TAIL_LINES:]))
        context.say(f"  the script  campaign show {row['run_id'][:8]} --script")
    for label, path in context.data["paths"].items():
        if path:
            context.say(f"  {label:<11} {path}")
    for line in context.data["next"]:
        context.say(f"next: {line}")


def _facts(row: dict[str, Any], jobs: list[dict[str, Any]], record: dict[str, Any] | None) -> list[tuple[str, str]]:
    params = ", ".join(f"{name}={value}" for name, value in json.loads(row["params"]).items())
    facts = [
        ("study", f"{row['study']} on {row['site']}, repeat {row['repeat']}, plan {row['plan_id']}"),
        ("workload", row["workload"]),
        ("size", f"{number(row['nodes'], 'node')} x {number(row['ranks_per_node'], 'rank')}"),
        ("parameters", params or "-"),
    ]
    if row["reason"]:
        facts.append(("reason", row["reason"]))
    if row["valid"] is not None:
        facts.append(("valid", "yes" if row["valid"] else f"no: {row['why_invalid']}"))
    if jobs and jobs[-1]["failed_nodes"]:
        facts.append(("suspect", jobs[-1]["failed_nodes"]))
    if jobs and jobs[-1]["again"]:
        facts.append(("tried again", jobs[-1]["again"].replace("again: ", "yes, ").replace("not by itself: ", "no: ")))
    if row["walltime_s"]:
        facts.append(("walltime", f"{format_duration(row['walltime_s'])} of the next attempt"))
    if jobs and jobs[-1]["avoided"]:
        facts.append(("avoids", jobs[-1]["avoided"]))
    if row["state"] == "queued" and jobs:
        facts.append(("pending", _waits(jobs[-1])))
    old = row["state"] == "planned" and row["attempts"] > 0
    if old and jobs:
        last = jobs[-1]
        facts.append((f"try {last['attempt']}", ": ".join(filter(None, (last["state"], last["reason"])))))
    if record is not None:
        leaving = record.get("exit") or {}
        if record["state"] != "done":
            said = ", ".join(f"{name} {value}" for name, value in leaving.items() if value is not None)
            facts.append(("its exit" if old else "exit", said or "no rank failed by itself"))
        if record.get("missing_nodes"):
            facts.append(("missing", ", ".join(record["missing_nodes"])))
        if record.get("commit"):
            facts.append(("commit", record["commit"][:12] + (" (dirty)" if record.get("dirty") else "")))
    return facts


def _waits(job: Job) -> str:
    meaning = words(job["reason"])
    text = f"{meaning} ({job['reason']})" if meaning else job["reason"] or "Slurm gives no reason yet"
    start = job["expected_start"]
    return f"{text}; expected to start {start[:16].replace('T', ' ')} UTC" if start else text


def _exit(job: Job) -> str:
    if job["signal"]:
        return f"signal {job['signal']}"
    return "-" if job["exit_code"] is None else str(job["exit_code"])


def _epoch_row(epoch: dict[str, Any]) -> list[str]:
    def number(name: str, form: str) -> str:
        return "-" if epoch[name] is None else format(epoch[name], form)

    warm = " (warm-up)" if epoch["warmup"] else ""
    return [f"{epoch['epoch']}{warm}", number("epoch_time_s", ".3f"), number("slowest_rank", "d"),
            number("samples_seen", "d"), number("samples_unique", "d"), number("loss", ".5g"),
            number("val_loss", ".5g")]  # fmt: skip
