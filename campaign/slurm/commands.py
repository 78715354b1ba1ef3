"""The one module that runs Slurm's programs. Every call has a deadline, and a failed query is its own answer."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from campaign.slurm.jobscope import JOB_SCOPED
from campaign.slurm.queries import (
    CHARGE_FIELDS,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    Charge,
    ClusterConfig,
    JobReport,
    parse_charges,
    parse_config,
    parse_job_id,
    parse_sacct,
    parse_squeue,
)
from campaign.slurm.states import SACCT_ENDED

QUERY_TIMEOUT_S = 60.0
SBATCH_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answered. `ok` False means: nothing is known, which is never the same as "no jobs"."""

    ok: bool
    stdout: str
    stderr: str
    timed_out: bool = False


def slurm_conf(site: str) -> str | None:
    """SLURM_CONF for a site: `CAMPAIGN_SLURM_CONF_<SITE>` where one login node serves several clusters, else None."""
    return os.environ.get("CAMPAIGN_SLURM_CONF_" + site.upper().replace("-", "_"))


def environment(site: str) -> dict[str, str]:
    """Environment for Slurm's programs: job-scoped variables out, times in UTC, the site's SLURM_CONF if it has one."""
    env = {name: value for name, value in os.environ.items() if name not in JOB_SCOPED}
    env["TZ"] = "UTC"
    env["SLURM_TIME_FORMAT"] = "standard"
    conf = slurm_conf(site)
    if conf:
        env["SLURM_CONF"] = conf
    return env


def run(site: str, argv: Sequence[str], timeout_s: float = QUERY_TIMEOUT_S) -> Answer:
    """Run one of Slurm's programs. A program that fails, hangs or is missing is an `Answer` with ok=False."""
    try:
        done = subprocess.run(
            list(argv),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment(site),
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        return Answer(False, "", f"{argv[0]}: command not found")
    except subprocess.TimeoutExpired:
        return Answer(False, "", f"{argv[0]} gave no answer within {timeout_s:.0f} s", timed_out=True)
    return Answer(done.returncode == 0, done.stdout, done.stderr.strip())


def user_name() -> str:
    """Who Slurm takes us for: the name of the effective user id ($LOGNAME survives su and sudo)."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def squeue(site: str, users: Iterable[str]) -> list[JobReport] | Answer:
    """All jobs of `users` that the controller knows, one row an array element; an `Answer` when the query failed.

    Those that have ended stay there for the cluster's MinJobAge, and are known here before accounting has them.
    """
    answer = run(site, ["squeue", "-h", "-r", "-t", "all", "-u", ",".join(users), "-o", SQUEUE_FORMAT])
    return parse_squeue(answer.stdout) if answer.ok else answer


def sacct(site: str, users: Iterable[str], since: str) -> list[JobReport] | Answer:
    """Jobs of `users` that have ended since `since` (UTC, ISO 8601); an `Answer` when the query failed.

    Without states sacct leaves out jobs that were cancelled while they were held or before their begin time.
    """
    # clocks differ: what ended "tomorrow" has ended
    until = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S")
    answer = run(site, ["sacct", "-X", "-P", "-n", "-u", ",".join(users), "-S", since[:19], "-E", until, "-s",
                        ",".join(SACCT_ENDED), "-o", SACCT_FIELDS])  # fmt: skip
    return parse_sacct(answer.stdout) if answer.ok else answer


def charges(site: str, job_ids: Sequence[str], since: str) -> list[Charge] | Answer:
    """What these jobs (arrays whole) held, from accounting since `since` (UTC); an `Answer` when the query failed."""
    command = ["sacct", "-X", "-P", "-n", "-j", ",".join(job_ids), "-S", since[:19], "-o", CHARGE_FIELDS]
    answer = run(site, command)
    return parse_charges(answer.stdout) if answer.ok else answer


def scancel(site: str, target: str) -> Answer:
    """Cancel a job or elements of an array (`12_[0-4,7]`).

    Never with a filter such as --name: scancel then looks for jobs that fit, among which the pending elements of an
    array are one, and ends all of them (seen on 22.05).
    """
    return run(site, ["scancel", target])


def show_config(site: str) -> ClusterConfig | Answer:
    """The cluster's configuration; an `Answer` when the controller is away."""
    answer = run(site, ["scontrol", "show", "config"])
    return parse_config(answer.stdout) if answer.ok else answer


def show(site: str, *what: str) -> Answer:
    """`scontrol --all --oneliner show WHAT`; `--all` shows partitions that are hidden or closed to this user, too."""
    return run(site, ["scontrol", "--all", "--oneliner", "show", *what])


def sacctmgr_show(site: str, *what: str) -> Answer:
    """`sacctmgr show WHAT` as rows with `|` between the fields."""
    return run(site, ["sacctmgr", "--noheader", "--parsable2", "show", *what])


def sbatch(site: str, script: str) -> str | Answer:
    """Queue a script file; the job id, or an `Answer` when sbatch gave none."""
    answer = run(site, ["sbatch", "--parsable", script], SBATCH_TIMEOUT_S)
    job_id = parse_job_id(answer.stdout) if answer.ok else None
    return answer if job_id is None else job_id
