"""Recorded output of Slurm's programs (tests/data/slurm/README.md), parsed and held against values written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.slurm.queries import JobReport, classify_refusal, parse_sacct, parse_squeue
from campaign.slurm.states import SLURM_STATES, run_state

DATA = Path(__file__).parent / "data" / "slurm"
REFUSALS = [
    (path.parent.name, *line.split("|", 1))
    for path in sorted(DATA.glob("2[34].*/sbatch.txt"))
    for line in path.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def printed(name: str) -> str:
    """What the program printed: the file without our lines."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def exit_code(name: str) -> int:
    """Exit code of a recorded command."""
    (line,) = (line for line in (DATA / name).read_text(encoding="utf-8").splitlines() if "exit code" in line)
    return int(line.rpartition(" ")[2])


def by_id(reports: list[JobReport]) -> dict[tuple[str, int | None], JobReport]:
    return {(report.job_id, report.array_index): report for report in reports}


@pytest.mark.parametrize("version", ["23.11", "24.11"])
def test_every_state_of_newer_versions_is_in_the_table(version: str) -> None:
    words = printed(f"{version}/states.txt").split()
    assert len(words) == 28
    assert set(words) <= set(SLURM_STATES)


@pytest.mark.parametrize(("version", "kind", "stderr"), REFUSALS)
def test_refusals_of_newer_versions(version: str, kind: str, stderr: str) -> None:
    assert classify_refusal(stderr) == kind, version


def test_there_are_refusals_of_both_versions() -> None:
    assert {version for version, _, _ in REFUSALS} == {"23.11", "24.11"}


def test_how_jobs_ended_on_23_11() -> None:
    found = by_id(parse_sacct(printed("23.11/sacct.txt")))
    assert len(found) == 7
    expected = {
        "1": ("timeout", None, 0, None),
        "3": ("failed", None, 3, None),
        "5": ("done", None, 0, None),
        "6": ("cancelled", None, 0, None),
        "7": ("cancelled", None, 0, None),
        "8": ("failed", None, 0, 9),
        "9": ("failed", "node", 0, None),
    }
    for job, (state, fail_class, code, number) in expected.items():
        report = found[job, None]
        assert run_state(report.slurm_state) == (state, fail_class)
        assert (report.exit_code, report.signal) == (code, number)
    assert found["6", None].nodelist is None  # cancelled before it had nodes
    assert found["6", None].started is None
    assert found["7", None].nodelist == "lulu"


def test_array_ids_of_24_11() -> None:
    reports = parse_sacct(printed("24.11/arrays.txt"))
    indices = {name: [report.array_index for report in reports if report.name == name] for name in ("cut", "step")}
    assert len([report for report in reports if report.job_id == "1080"]) == 1021
    assert indices["step"] == [0, 3, 6, 9]
    # the last number was cut in two: it must not be taken for another
    assert indices["cut"] == [169, 504, 591, 1008, 1208, 1209, 1315, 1452, 1533, 1601, 1725, 1803]
    assert by_id(reports)["1080", 1].started == "2025-05-07T10:00:00Z"


# -- 22.05, recorded -------------------------------------------------------------------------------------------------
# Ids, names and times differ each time they are recorded; what is compared here doesn't.


SQUEUE = {
    "array_waits": [
        (0, "RUNNING", None, "gn08"),
        (1, "PENDING", "Resources", None),
        (2, "PENDING", "Resources", None),
        (3, "PENDING", "Resources", None),
    ],
    "drained": [(0, "PENDING", "ReqNodeNotAvail, UnavailableNodes:gn09", None)],
    "head_killed": [(0, "FAILED", "JobLaunchFailure", "gn01")],
    "held": [(0, "PENDING", "JobHeldAdmin", None)],
    "partition_down": [(0, "PENDING", "PartitionDown", None)],
    "preempted": [(0, "PREEMPTED", None, "gn08")],
    "requeued": [(0, "PENDING", "BeginTime", None)],
}
SACCT = {
    # index, state, run state and class, exit code, signal, node, reason
    "array_waits": [
        (0, "RUNNING", ("running", None), 0, None, "gn08", None),
        (1, "PENDING", ("queued", None), 0, None, None, None),
        (2, "PENDING", ("queued", None), 0, None, None, None),
        (3, "PENDING", ("queued", None), 0, None, None, None),
    ],
    "drained": [(0, "PENDING", ("queued", None), 0, None, None, "ReqNodeNotAvail")],
    "head_killed": [(0, "FAILED", ("failed", None), 0, 9, "gn01", None)],
    "held": [(0, "PENDING", ("queued", None), 0, None, None, "ReqNodeNotAvail")],
    "killed_after_submit": [],
    "out_of_memory": [(0, "FAILED", ("failed", None), 1, None, "gn01", None)],
    "partition_down": [(0, "PENDING", ("queued", None), 0, None, None, "PartitionDown")],
    "preempted": [(0, "PREEMPTED", ("interrupted", "preempted"), 0, None, "gn08", None)],
    "purged": [],
    "requeued": [(0, "PENDING", ("queued", None), 0, None, None, None)],
}


@pytest.mark.parametrize("name", SQUEUE)
def test_squeue_while_a_fault_lasts(name: str) -> None:
    reports = parse_squeue(printed(f"22.05/{name}.squeue.txt"))
    seen = [(report.array_index, report.slurm_state, report.reason, report.nodelist) for report in reports]
    assert sorted(seen, key=str) == SQUEUE[name]
    for report in reports:
        # of a job that waits it is only the time at which it may start
        assert (report.started is None) == (report.slurm_state == "PENDING")
        assert report.started is None or report.started.endswith("Z")


@pytest.mark.parametrize("name", SACCT)
def test_sacct_after_a_fault(name: str) -> None:
    reports = parse_sacct(printed(f"22.05/{name}.sacct.txt"))
    seen = [
        (report.array_index, report.slurm_state, run_state(report.slurm_state), report.exit_code, report.signal,
         report.nodelist, report.reason)
        for report in reports
    ]  # fmt: skip
    assert sorted(seen, key=str) == SACCT[name]
    assert {report.cluster for report in reports} <= {"vega"}


def test_both_queries_of_a_node_that_died() -> None:
    """One run's only node, and one of the two nodes of another whose head lived to fail it."""
    ended = {report.slurm_state: report for report in parse_sacct(printed("22.05/node_died.sacct.txt"))}
    assert set(ended) == {"NODE_FAIL", "FAILED"}
    assert (ended["NODE_FAIL"].exit_code, ended["NODE_FAIL"].signal, ended["FAILED"].exit_code) == (0, None, 1)
    live = {report.slurm_state: report.reason for report in parse_squeue(printed("22.05/node_died.squeue.txt"))}
    assert live == {"NODE_FAIL": "NodeDown", "FAILED": "NonZeroExitCode"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("refused__account_nobody", "refused"),
        ("refused__qos_nope", "refused"),
        ("refused__partition_nope", "refused"),
        ("refused_inactive", "closed"),
    ],
)
def test_refusals_as_recorded(name: str, kind: str) -> None:
    assert exit_code(f"22.05/{name}.sbatch.txt") == 1
    assert classify_refusal(printed(f"22.05/{name}.sbatch.txt")) == kind


@pytest.mark.parametrize("name", ["controller_away.squeue", "database_away.sacct", "killed_after_submit.squeue"])
def test_a_query_that_failed_holds_no_job_and_says_so_by_its_exit_code(name: str) -> None:
    assert exit_code(f"22.05/{name}.txt") == 1
    text = printed(f"22.05/{name}.txt")
    assert text.strip()
    assert parse_squeue(text) == []
    assert parse_sacct(text) == []
