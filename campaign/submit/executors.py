"""submitit's executors, sending our own command: nothing is pickled, nothing is read back.

`_submit_command` of submitit writes the script, calls sbatch (or starts its local controller) and gives the job id.
"""

from __future__ import annotations

import contextlib
import io
import math
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from campaign.errors import CampaignError, Problem
from campaign.site import Site
from campaign.slurm.commands import SBATCH_TIMEOUT_S, slurm_conf
from campaign.slurm.jobscope import JOB_SCOPED
from campaign.slurm.queries import classify_refusal, parse_job_id
from campaign.submit.batch import Batch, head_command, node_gpus
from campaign.words import count as number

MIB = 2**20
REFUSING = (1, 2)
"""Exit codes of sbatch when it refuses; others (a signal, the deadline) say nothing about the job."""
MISSING = 127
QUEUE_START_S = 60


class Refused(CampaignError):
    """sbatch said no, or couldn't ask; nothing was queued.

    `limit` is True where later (or elsewhere) will do; `whole_site` where it would of a single job, too, so that a
    smaller array is no help: this machine belongs to no cluster, or the partition takes no jobs now.
    """

    def __init__(self, problem: Problem, *, limit: bool, whole_site: bool = False) -> None:
        super().__init__(problem)
        self.limit = limit
        self.whole_site = whole_site


class Uncertain(CampaignError):
    """No answer that settles it: the job may exist. It is looked up by its tag before anything is queued again."""


class SlurmExecutor(submitit.SlurmExecutor):
    """submitit's Slurm executor with a scrubbed environment, a deadline on sbatch and `--parsable` output."""

    site: str = ""
    sent: bool = False
    """True once sbatch may have been called."""
    answer: str | None = None
    """The job id that sbatch gave."""

    @classmethod
    def name(cls) -> str:
        """submitit's registry name of this kind."""
        return "slurm"

    @classmethod
    def affinity(cls) -> int:
        """Scripts are also made where there is no Slurm (`plan --show-script`)."""
        return 2

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        self.sent = True
        unset = [part for name in sorted(JOB_SCOPED) for part in ("-u", name)]
        conf = slurm_conf(self.site)
        extra = [f"SLURM_CONF={conf}"] if conf else []
        deadline = ["timeout", "-k", "5", str(SBATCH_TIMEOUT_S)]
        return ["env", *unset, *extra, *deadline, "sbatch", "--parsable", str(submission_file_path)]

    # submitit's is a static method; ours keeps what it has found, should anything fail afterwards
    def _get_job_id_from_submission_command(self, string: str | bytes) -> str:  # type: ignore[override]
        """Job id from `sbatch --parsable`: `1234` or `1234;cluster`, after any lines that a site's filter prints."""
        text = string.decode() if isinstance(string, bytes) else string
        job_id = parse_job_id(text)
        if job_id is None:
            raise FailedSubmissionError(f"sbatch answered without a job id: {text[:200]!r}")
        self.answer = job_id
        return job_id


def slurm_executor(batch: Batch, site: Site) -> SlurmExecutor:
    """The executor whose script is this batch's: every parameter comes from the plan and the site file."""
    executor = SlurmExecutor(folder=batch.submit_dir)
    executor.site = site.name
    run = batch.first
    parameters: dict[str, Any] = {
        "job_name": batch.tag,
        "account": run.account,
        "partition": run.partition,
        "qos": run.qos,
        "nodes": batch.nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": cpus_per_node(site, batch.cores, run.partition),
        "time": math.ceil(batch.walltime_s / 60),
        "constraint": run.constraint,
        "exclude": run.exclude,
        "nodelist": run.nodelist,
        "wckey": site.scheduler.wckey,
        "array_parallelism": site.scheduler.limits.running_jobs or len(batch.elements),
        "stderr_to_stdout": True,
        "use_srun": False,
        "setup": setup_lines(site),
        "additional_parameters": _additional(batch, site),
    }
    gpus = max(node_gpus(site, item.run) for _, item in batch.placed())
    if gpus and site.scheduler.gpu_request == "gres":
        parameters["gres"] = f"gpu:{gpus}"
    elif gpus and site.scheduler.gpu_request == "gpus-per-node":
        parameters["gpus_per_node"] = gpus
    executor.update_parameters(**parameters)
    executor.parameters["wckey"] = site.scheduler.wckey  # None leaves it out; submitit's default would write its own
    executor.parameters["map_count"] = len(batch.elements)
    return executor


def cpus_per_node(site: Site, cores: int, partition: str | None) -> int:
    """Cores as the site's Slurm counts them: hardware threads where `cpu_unit` is thread."""
    if site.cpu_unit != "thread" or partition is None:
        return cores
    node = site.nodes.get(site.partitions[partition].node)
    return cores * (node.threads_per_core or 1) if node is not None else cores


def setup_lines(site: Site) -> list[str]:
    """Lines of the batch script before the head: once per job, never per rank."""
    modules = [f"module load {shlex.join(site.software.modules)}"] if site.software.modules else []
    return ["ulimit -c 0", *[_or_end(line) for line in (*modules, *site.setup)]]


def _or_end(line: str) -> str:
    """A line that ends the job when it fails: a run in the wrong environment would be measured as a good one."""
    said = shlex.quote(f"campaign: this line of the set-up failed: {line}")
    return "{\n" + line + "\n} || { echo " + said + " >&2; exit 3; }"


def _additional(batch: Batch, site: Site) -> dict[str, Any]:
    """Options that submitit has no name for; the site's `sbatch_args` come last and win."""
    run = batch.first
    options: dict[str, Any] = {
        "signal": f"B:USR2@{batch.signal_lead_s}",  # to the head alone; without B: every rank would be shot by it
        "no-requeue": True,
    }
    named = {
        "reservation": run.reservation or site.reservation,
        "switches": run.switches,
        "mail-user": run.mail,
        "mail-type": "END,FAIL" if run.mail else None,
        "mem": f"{math.ceil(batch.memory_bytes / MIB)}M" if batch.memory_bytes else None,
    }
    options.update({name: value for name, value in named.items() if value is not None})
    options.update(site.scheduler.sbatch_args)
    return options


def script_text(batch: Batch, site: Site) -> str:
    """The very script that `submit` sends."""
    executor = slurm_executor(batch, site)
    text: str = executor._make_submission_file_text("exec " + shlex.join(head_command(batch, site)), "")
    return text


def sbatch(batch: Batch, site: Site) -> str:
    """Queue the batch; gives the job id. Raises Refused when nothing was queued, Uncertain when nobody knows."""
    executor = slurm_executor(batch, site)
    noise = io.StringIO()
    try:
        with contextlib.redirect_stderr(noise):  # submitit prints what we say better below
            job = executor._submit_command("exec " + shlex.join(head_command(batch, site)))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        if executor.answer is not None:  # the job is queued; what failed is where submitit keeps the script
            return executor.answer
        raise _explain(error, batch, site, sent=executor.sent) from error
    finally:
        # submitit leaves a link (or, when sbatch failed, the script) under a random name
        for left in batch.submit_dir.glob(".submission_file_*.sh"):
            left.unlink(missing_ok=True)
    return str(job.job_id)


def _explain(error: Exception, batch: Batch, site: Site, *, sent: bool) -> CampaignError:
    """What a failed submission means. Only what sbatch itself calls a refusal is one: anything else may be a job."""
    cause = error.__cause__
    code = cause.returncode if isinstance(cause, subprocess.CalledProcessError) else None
    text = str(error).strip()
    command = f"sbatch for {site.name} ({number(len(batch.elements), 'job')}, tag {batch.tag})"
    if isinstance(error, OSError) and not sent:
        return Refused(Problem(f"{command}: the script can't be written: {text}", str(batch.submit_dir),
                               key="paths.run_root", hint="make room, or set paths.run_root in campaign.yaml"),
                       limit=False)  # fmt: skip
    kind = classify_refusal(text) if code in REFUSING else "uncertain"
    if code == MISSING or kind == "no cluster":
        return Refused(Problem(f"{command}: this is no login node of {site.name}: {text or 'no sbatch here'}",
                               hint="submit on a login node of the site; `campaign doctor` says what is here"),
                       limit=True, whole_site=True)  # fmt: skip
    if kind == "uncertain":
        return Uncertain(Problem(f"{command}: no clear answer: {text or f'exit {code}'}",
                                 hint="campaign submit  (looks the tag up first)"))  # fmt: skip
    if kind == "closed":
        later = Problem(f"{command} was refused: {text}", hint="campaign submit  again when the partition is open")
        return Refused(later, limit=True, whole_site=True)
    hint = (
        "the rest stays planned: `campaign submit` again when jobs have ended"
        if kind == "limit"
        else f"mend {site.name}'s site file, campaign.yaml or --account, then `campaign plan` again"
    )
    return Refused(Problem(f"{command} was refused: {text}", hint=hint), limit=kind == "limit")


def start_local_queue(batch: Batch, site: Site) -> str:
    """Start the local queue of this batch through submitit's local executor; gives the controller's pid.

    `campaign.submit.detach` runs the executor in a session of its own, so Ctrl-C in this terminal doesn't reach it.
    """
    slots = site.scheduler.limits.running_jobs or 1
    queue = [sys.executable, "-P", "-m", "campaign.job.localqueue", str(batch.submit_dir), "--slots", str(slots)]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "campaign.submit.detach", str(batch.submit_dir), shlex.join(queue)],
            capture_output=True,
            text=True,
            timeout=QUEUE_START_S,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Uncertain(Problem(f"the local queue gave no sign within {QUEUE_START_S} s",
                                hint="campaign status")) from error  # fmt: skip
    pid = done.stdout.strip()
    if done.returncode or not pid.isdigit():
        raise Refused(Problem(f"the local queue didn't start: {done.stderr.strip()[-500:]}"), limit=False)
    return pid
