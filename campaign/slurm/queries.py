"""What squeue, sacct and scontrol print, as values. Pure: text in, dataclasses out.

Times are asked for in UTC (TZ=UTC in the command's environment) and kept as ISO 8601 text ending in Z.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from campaign.slurm.states import FINAL, run_state

SQUEUE_FORMAT = "%F|%K|%j|%T|%S|%e|%N|%P|%a|%r"
"""array job id, index, name, state, start (of a pending job: the expected one), end, nodes, partition, account, reason
(last: it may hold anything)."""

SACCT_FIELDS = "JobID,JobName,State,ExitCode,Submit,Start,End,Partition,Account,Cluster,NodeList,Reason"

_NOT_STARTED = frozenset({"PENDING", "CONFIGURING"})
_NO_TIME = frozenset({"", "N/A", "Unknown", "None", "NONE"})


class JobReport(NamedTuple):
    """What one query says of one job array element."""

    job_id: str
    array_index: int | None
    name: str
    slurm_state: str
    source: str
    """squeue or sacct."""
    reason: str | None = None
    submitted: str | None = None
    started: str | None = None
    ended: str | None = None
    nodelist: str | None = None
    partition: str | None = None
    account: str | None = None
    cluster: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    expected_start: str | None = None
    """When Slurm's backfill thinks that a pending job will start; None: it hasn't thought so far."""


def parse_squeue(text: str) -> list[JobReport]:
    """Rows of `squeue -h -r -o SQUEUE_FORMAT`; lines that don't have that form are left out."""
    reports = []
    # elements of one array say the same but for their index
    known: dict[str, _Said | None] = {}
    for line in text.splitlines():
        job_id, _, rest = line.partition("|")
        index, _, tail = rest.partition("|")
        if tail not in known:
            known[tail] = _said(tail)
        said = known[tail]
        if said is not None:
            reports.append(JobReport(job_id.strip(), int(index) if index.strip().isdigit() else None, *said))
    return reports


_Said = tuple[Any, ...]
"""The fields of a JobReport behind its index."""


def _said(tail: str) -> _Said | None:
    """What a row of squeue says behind the index; None when it hasn't that form."""
    parts = tail.split("|", 7)
    if len(parts) != 8:
        return None
    name, state, start, _end, nodes, partition, account, reason = parts
    waits = state in _NOT_STARTED
    report = JobReport(
        job_id="",
        array_index=None,
        name=name,
        slurm_state=state,
        source="squeue",
        reason=_word(reason),
        started=None if waits else _time(start),
        expected_start=_time(start) if waits else None,
        nodelist=_word(nodes),
        partition=_word(partition),
        account=_word(account),
    )
    return report[2:]


CHARGE_FIELDS = "JobID,State,ElapsedRaw,AllocNodes,AllocCPUS,AllocTRES"


@dataclass(frozen=True, slots=True)
class Charge:
    """What accounting says that one ended job array element held."""

    job_id: str
    array_index: int | None
    elapsed_s: int
    nodes: int
    cpus: int
    """As this Slurm counts them: cores or hardware threads."""
    gpus: int | None
    """None: the cluster doesn't account for GPUs."""
    billing: int | None
    """The cluster's own weight of what was held (TRESBillingWeights); None: not said."""


def parse_charges(text: str) -> list[Charge]:
    """Rows of `sacct -X -P -n -o CHARGE_FIELDS` of jobs that have ended and held nodes.

    A run may have ended long before its job has (in a ladder, or while nodes are cleaned up): what such a job has held
    so far is not its charge.
    """
    charges = []
    for line in text.splitlines():
        parts = line.split("|")
        match = _SACCT_ID.match(parts[0])
        if len(parts) != 6 or match is None or match["indices"] or not all(part.isdigit() for part in parts[2:5]):
            continue
        held = _tres(parts[5])
        elapsed_s, nodes, cpus = (int(part) for part in parts[2:5])
        if run_state(parts[1])[0] not in FINAL or not nodes or "node" not in held:
            continue
        index = None if match["index"] is None else int(match["index"])
        charges.append(Charge(match["job"], index, elapsed_s, nodes, cpus, held.get("gres/gpu"), held.get("billing")))
    return charges


def _tres(text: str) -> dict[str, int]:
    """`billing=48,cpu=48,gres/gpu=4,mem=480000M,node=1` as integers; what isn't a plain number is left out."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(number) for name, _, number in pairs if number.isdigit()}


_SACCT_ID = re.compile(r"^(?P<job>\d+)(?:_(?:(?P<index>\d+)|\[(?P<indices>[^\]]*)\]))?(?:\+\d+)?$")


def parse_sacct(text: str) -> list[JobReport]:
    """Rows of `sacct -X -P -n -o SACCT_FIELDS`; a pending array's one row is given once per index it names."""
    reports = []
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) < 12:
            continue
        match = _SACCT_ID.match(parts[0])
        if match is None:
            continue
        exit_code, _, signal = parts[3].partition(":")
        for index in _indices(match):
            reports.append(
                JobReport(
                    job_id=match["job"],
                    array_index=index,
                    name=parts[1],
                    slurm_state=parts[2],
                    source="sacct",
                    submitted=_time(parts[4]),
                    started=_time(parts[5]),
                    ended=_time(parts[6]),
                    partition=_word(parts[7]),
                    account=_word(parts[8]),
                    cluster=_word(parts[9]),
                    nodelist=_word(parts[10]),
                    reason=_word("|".join(parts[11:])),
                    exit_code=int(exit_code) if exit_code.isdigit() else None,
                    signal=int(signal) if signal.isdigit() and signal != "0" else None,
                )
            )
    return reports


def _indices(match: re.Match[str]) -> list[int | None]:
    """The array indices an accounting id names: `12_3`, `12_[0-4,7%2]`, or none."""
    if match["index"] is not None:
        return [int(match["index"])]
    if match["indices"] is None:
        return [None]
    indices: list[int | None] = []
    for part in match["indices"].split("%")[0].split(","):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if numbers is None:  # `...`: Slurm has cut the list; squeue names the rest one by one
            continue
        first = int(numbers[1])
        indices.extend(range(first, int(numbers[2] or first) + 1, int(numbers[3] or 1)))
    return indices


def parse_job_id(text: str) -> str | None:
    """The job id that `sbatch --parsable` prints (`1234` or `1234;cluster`), after any lines of a site's own filter."""
    ids = re.findall(r"^[ \t]*(\d+)(?:;\S+)?[ \t]*$", text, re.MULTILINE)
    return ids[-1] if ids else None


def _word(text: str) -> str | None:
    text = text.strip()
    return None if text in {"", "N/A", "None", "None assigned", "(null)", "Unknown"} else text


def _time(text: str) -> str | None:
    text = text.strip()
    return None if text in _NO_TIME or not re.match(r"\d{4}-\d\d-\d\dT", text) else f"{text}Z"


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What `scontrol show config` says that submission depends on; None: not said."""

    name: str | None
    max_array_size: int | None
    kill_wait_s: int | None
    version: str | None
    accounting: bool | None = None
    """False: no job is accounted for (AccountingStorageType none)."""


def parse_config(text: str) -> ClusterConfig:
    """The needed lines of `scontrol show config`."""
    values = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in text.splitlines())}

    def number(key: str) -> int | None:
        match = re.match(r"\d+", values.get(key, ""))
        return int(match[0]) if match else None

    storage = values.get("AccountingStorageType")
    return ClusterConfig(
        name=values.get("ClusterName"),
        max_array_size=number("MaxArraySize"),
        kill_wait_s=number("KillWait"),
        version=values.get("SLURM_VERSION"),
        accounting=None if storage is None else storage.rpartition("/")[2] not in ("none", "(null)", ""),
    )


_LIMIT = re.compile(
    r"MaxSubmitJob|JobLimit|SubmitJobsLimit|job submit limit|MaxSubmit|AssocMaxJobs|QOSMax(?:Submit)?Job|"
    r"Slurm temporarily unable to accept job|Reached (?:the )?maximum number of jobs",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (?:refused|reset|timed out)|"
    r"Transport endpoint|Zero Bytes were transmitted|Communication connection failure|can't be reached now|"
    r"Unexpected message|Message (?:receive|send) failure|Incompatible versions|Unspecified error|Insane message",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"Batch job submission failed: \S|sbatch: fatal: |unrecognized option|invalid option|"
    r"sbatch: error: (?:Invalid|invalid|Unable to open|This does not look like a batch script|Unable to allocate)|"
    r"allocation failure: ",
)


_CLOSED = re.compile(r"Required partition not available \(inactive or drain\)")

_NO_CLUSTER = re.compile(
    r"Could not establish a configuration source|Unable to process configuration file|failed to fetch config|"
    r"DNS SRV lookup failed|cannot stat file|: command not found"
)


def no_cluster_here(stderr: str) -> bool:
    """True when one of Slurm's programs says that this machine belongs to no cluster: it never asked a controller."""
    return _NO_CLUSTER.search(stderr) is not None


def classify_refusal(stderr: str) -> str:
    """Why sbatch failed: `limit` (fewer, or later, will do), `closed` (the partition takes no jobs now), `refused` (it
    says itself that nothing was queued), `no cluster` (no controller was asked), else `uncertain`.

    "job submit limit, user's size and/or time limits" names several causes at once, so only a limit's own name counts
    where one is given.
    """
    if no_cluster_here(stderr):
        return "no cluster"
    if _NO_ANSWER.search(stderr):
        return "uncertain"
    names = re.findall(r"\b(?:QOS|Assoc)\w+Limit\b", stderr)
    if names:
        return "limit" if any(_LIMIT.search(name) for name in names) else "refused"
    if _LIMIT.search(stderr):
        return "limit"
    if _CLOSED.search(stderr):
        return "closed"
    return "refused" if _REFUSAL.search(stderr) else "uncertain"
