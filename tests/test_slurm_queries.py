"""What squeue, sacct, sbatch and scontrol print, read as values; recorded output under tests/data/slurm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from campaign.slurm.jobscope import JOB_SCOPED
from campaign.slurm.queries import classify_refusal, parse_config, parse_sacct, parse_squeue
from campaign.slurm.states import FINAL, RUN_STATES, SLURM_STATES, run_state
from tests.needs import needs


@needs("slurm")
def test_every_state_that_squeue_knows_is_in_the_table(tmp_path: Path) -> None:
    """The oracle is the installed squeue, which lists its states when it is given a wrong one."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    env = {**os.environ, "SLURM_CONF": str(conf)}
    said = subprocess.run(["squeue", "-t", "nonsense"], capture_output=True, text=True, env=env, check=False).stderr
    listed = set(re.findall(r"\b[A-Z_]{6,}\b", said.split("include:")[1]))
    assert len(listed) > 15
    assert listed <= set(SLURM_STATES), listed - set(SLURM_STATES)


def test_a_state_with_words_behind_it_is_the_state() -> None:
    assert run_state("CANCELLED by 1000") == ("cancelled", None)
    assert run_state("CANCELLED+") == ("cancelled", None)
    assert run_state("NODE_FAIL") == ("failed", "node")
    assert run_state("SOMETHING_NEW") == ("unknown", None)
    assert {state for state, _ in SLURM_STATES.values()} <= set(RUN_STATES)


def test_squeue_rows_with_commas_and_pipes_in_the_reason() -> None:
    text = (
        "1000020|3|c0123456789ab|PENDING|N/A|N/A||booster|demo|ReqNodeNotAvail, UnavailableNodes:gn04\n"
        "1000021|N/A|other job|RUNNING|2026-11-01T10:00:00|2026-11-01T11:00:00|jwb[0001-0002]|booster|demo|None\n"
        "1000022|0|cffffffffffff|PENDING|2026-11-02T10:00:00|N/A||booster|demo|odd|reason\n"
        "slurm_load_jobs error: Invalid job id specified\n"
    )
    first, second, third = parse_squeue(text)
    assert (first.job_id, first.array_index, first.name) == ("1000020", 3, "c0123456789ab")
    assert first.reason == "ReqNodeNotAvail, UnavailableNodes:gn04"
    assert second.array_index is None
    assert (second.started, second.nodelist, second.reason) == ("2026-11-01T10:00:00Z", "jwb[0001-0002]", None)
    assert third.started is None  # of a pending job it is only the expected start
    assert third.reason == "odd|reason"


def test_sacct_rows_of_arrays() -> None:
    text = (
        "12_3|c1|COMPLETED|0:0|2026-11-01T10:00:00|2026-11-01T10:01:00|2026-11-01T10:02:00|booster|demo|juwels|jwb0001|None\n"
        "12_[4-6,9%2]|c1|PENDING|0:0|2026-11-01T10:00:00|Unknown|Unknown|booster|demo|juwels|None assigned|Resources\n"
        "13|c2|CANCELLED by 0|0:15|2026-11-01T10:00:00|None|2026-11-01T10:02:00|booster|demo|juwels|gn01|None\n"
        "14+1|het|FAILED|2:0|2026-11-01T10:00:00|2026-11-01T10:00:00|2026-11-01T10:02:00|booster|demo|juwels|gn01|None\n"
        "12_[0-7,...]|c3|PENDING|0:0|x|Unknown|Unknown|booster|demo|juwels||Priority\n"
        "12_3.batch|c1|COMPLETED|0:0||||||||\n"
    )
    reports = parse_sacct(text)
    by_place = {(report.name, report.array_index): report for report in reports}
    assert sorted(index for name, index in by_place if name == "c1" and index is not None) == [3, 4, 5, 6, 9]
    assert by_place["c1", 3].ended == "2026-11-01T10:02:00Z"
    assert by_place["c1", 4].started is None
    assert (by_place["c2", None].exit_code, by_place["c2", None].signal) == (0, 15)
    assert by_place["het", None].exit_code == 2
    assert sorted(index for name, index in by_place if name == "c3" and index is not None) == list(range(8))


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
            "accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "limit",
        ),
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates", "limit"),
        ("sbatch: error: QOSGrpCPUMinutesLimit\nsbatch: error: Batch job submission failed: Job violates "
         "accounting/QOS policy (job submit limit, user's size and/or time limits)", "refused"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "refused"),
        ("sbatch: error: invalid partition specified: nope", "refused"),
        ("sbatch: error: Batch job submission failed: Node count specification invalid", "refused"),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
         "uncertain"),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", "uncertain"),
        ("sbatch: error: Batch job submission failed: Connection reset by peer", "uncertain"),
        ("sbatch: error: Batch job submission failed: Unexpected message received", "uncertain"),
        ("", "uncertain"),
        ("Killed", "uncertain"),
        ("sbatch: unrecognized option '--gpu'", "refused"),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", "limit"),
    ],
)  # fmt: skip
def test_why_sbatch_said_no(stderr: str, kind: str) -> None:
    assert classify_refusal(stderr) == kind


def test_config_of_a_cluster() -> None:
    text = "ClusterName             = juwels\nKillWait                = 30 sec\nMaxArraySize            = 1001\n"
    config = parse_config(text + "SLURM_VERSION           = 22.05.8\n")
    assert (config.name, config.max_array_size, config.kill_wait_s) == ("juwels", 1001, 30)
    assert parse_config("").name is None


def test_the_scrub_list_names_jobs_and_never_the_configuration() -> None:
    """Every name sbatch(1) and srun(1) give to one job or step; never what selects the cluster."""
    assert "SLURM_CONF" not in JOB_SCOPED
    assert not [name for name in JOB_SCOPED if not re.fullmatch(r"(SLURM|SBATCH|SLURMD|SRUN|PMI|PMIX|PMI2)_\w+", name)]
    assert {"SLURM_CPU_BIND", "SLURM_JOB_ID", "SBATCH_PARTITION", "SLURM_MEM_PER_CPU", "SLURM_NTASKS"} <= JOB_SCOPED


def test_every_final_state_is_a_run_state() -> None:
    assert set(RUN_STATES) >= FINAL
