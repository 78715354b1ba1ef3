"""What agents and ranks are started with. Pure functions, and the machine's own topology."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.job.launch import Launcher, cpus_per_node, srun_argv, step_env
from campaign.job.oom import oom_kills
from campaign.job.rankenv import core_slices, physical_cores
from campaign.redirect import REDIRECTIONS, redirected
from tests.job.jobs import Site
from tests.needs import needs


@pytest.mark.parametrize(
    ("environ", "cpus"),
    [
        ({"SLURM_JOB_CPUS_PER_NODE": "48(x3),24"}, 24),
        ({"SLURM_JOB_CPUS_PER_NODE": "96"}, 96),
        ({"SLURM_JOB_CPUS_PER_NODE": "8(x2)", "SLURM_CPUS_ON_NODE": "4"}, 8),
        ({"SLURM_CPUS_ON_NODE": "4"}, 4),
        ({}, None),
    ],
)
def test_cpus_of_the_smallest_node(environ: dict[str, str], cpus: int | None) -> None:
    assert cpus_per_node(environ) == cpus


def test_the_step_has_one_agent_per_node_and_no_secret(site: Site) -> None:
    spec = site.spec(["true"], nodes=3, srun_args=["--cpu-bind=cores", "--kill-on-bad-exit=1"], scheduler="slurm")
    argv = srun_argv(spec, {"SLURM_JOB_CPUS_PER_NODE": "48(x3)"}, "/opt/python")
    assert argv[0] == "srun"
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=48", "--mpi=none"} < set(argv)
    # the later one of two options wins: the site's binding over ours, our exit rule over the site's
    assert argv.index("--cpu-bind=cores") > argv.index("--cpu-bind=none")
    assert argv.index("--kill-on-bad-exit=0") > argv.index("--kill-on-bad-exit=1")
    assert argv[-4:] == ["/opt/python", "-P", "-m", "campaign.job.agent"]
    assert spec.token not in " ".join(argv)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_agents_that_end_between_two_looks(nodes: int, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class EndsAfterALook(subprocess.Popen[bytes]):
        """Runs when it is asked, and has ended when it is asked again."""

        def poll(self) -> int | None:
            seen = super().poll()
            if seen is None:
                os.kill(self.pid, signal.SIGKILL)
                self.wait()
            return seen

    monkeypatch.setattr(subprocess, "Popen", EndsAfterALook)
    launcher = Launcher(site.spec(["true"], nodes=nodes), ["127.0.0.1:1"], 60.0, lambda _: None)
    launcher.end(wait_s=5.0)
    assert launcher.ended()
    launcher.close()


def test_the_step_inherits_no_options_of_the_job() -> None:
    kept = {
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_NODELIST": "n1",
        "PATH": "/bin",
        "MY_SLURM": "x",
    }
    dropped = (
        "SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_NTASKS SLURM_NTASKS_PER_NODE "
        "SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_HINT SLURM_EXPORT_ENV SLURM_DISTRIBUTION SRUN_CPUS_PER_TASK "
        "SLURM_GPUS_PER_TASK SLURM_THREADS_PER_CORE SLURM_STEP_ID"
    ).split()
    assert step_env(kept | dict.fromkeys(dropped, "1")) == kept


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 64), st.integers(1, 2))
def test_slices_are_disjoint_and_within_the_cores(cores: int, ranks: int, per_rank: int, threads: int) -> None:
    groups = [[core + thread * cores for thread in range(threads)] for core in range(cores)]
    slices = core_slices(groups, ranks, per_rank)
    if ranks > cores:
        assert slices is None
        return
    assert slices is not None
    assert len(slices) == ranks
    assert sum(len(part) for part in slices) == len(set().union(*slices))
    assert {len(part) for part in slices} == {min(per_rank, cores // ranks) * threads}


def test_hardware_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n", encoding="utf-8")
    assert physical_cores(range(8), tmp_path) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    # a job that was given one thread of each core
    assert physical_cores([0, 1, 2], tmp_path) == [[0], [1], [2]]
    assert core_slices(physical_cores(range(8), tmp_path), 2, 1) == [{0, 4}, {2, 6}]


def test_ranks_sit_on_their_own_cores(site: Site) -> None:
    script = site.script("import os\nprint(*sorted(os.sched_getaffinity(0)))")
    spec = site.spec(script, ranks_per_node=2)
    ended = site.run(spec)
    allowed = sorted(os.sched_getaffinity(0))
    affinity = ended.record["host"]["affinity"]
    slices = core_slices(physical_cores(allowed), 2, 1)
    if slices is None:
        assert affinity is None
    else:
        assert {int(cpu) for cpu in ended.console().split()} == slices[0]
        assert len(set(affinity)) == 2


def test_ranks_begin_where_the_site_says(site: Site) -> None:
    script = site.script("import os\nprint(*sorted(os.sched_getaffinity(0)))")
    cores = physical_cores(sorted(os.sched_getaffinity(0)))
    if len(cores) < 2:
        cores = [*cores, *cores]
    last, first = cores[-1], cores[0]
    ended = site.run(site.spec(script, ranks_per_node=2, cpus_per_rank=1, cpu_bind=[last[0], first[0]]))
    shown = {int(cpu) for cpu in ended.console().split()}
    # rank 0's console: the last core; a machine of one core binds nobody
    assert shown == (set(last) if last != first else os.sched_getaffinity(0))


def test_every_redirection_goes_below_the_folder_and_a_users_cache_stays() -> None:
    setting, kept, folders = redirected("/local/x", {"TRITON_CACHE_DIR": "/seeded", "TMPDIR": "/scratch/tmp"})
    assert kept == {"TRITON_CACHE_DIR": "/seeded"}
    assert setting["TMPDIR"] == "/local/x/t"
    assert all(folder.startswith("/local/x/") for folder in folders)
    read = {row.variable for row in REDIRECTIONS if row.access == "read"}
    assert not read & set(setting)
    assert "PYTHONPYCACHEPREFIX" not in {row.variable for row in REDIRECTIONS}
    assert len({row.variable for row in REDIRECTIONS}) == len(REDIRECTIONS)


def test_agents_import_little() -> None:
    """Thousands of nodes import the agent at once from one file system."""
    code = "import campaign.job.agent, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert not loaded & {"pyarrow", "numpy", "click", "pydantic", "duckdb", "asyncio", "ssl", "http", "hashlib"}


@needs("memory-cgroup")
def test_a_kill_for_memory_is_seen() -> None:
    """A control group of 64 MiB, a process that takes more: the counter rises. Cgroup v1 of the test's own."""
    group = Path("/sys/fs/cgroup/memory") / f"campaign-test-{os.getpid()}" / "job_1"
    code = """
        import subprocess, sys
        from campaign.job.oom import oom_kills
        before = oom_kills()
        hog = subprocess.run([sys.executable, "-c", "x = bytearray(256 << 20); print(sum(x[::4096]))"])
        print(before, oom_kills(), hog.returncode)
    """
    group.mkdir(parents=True)
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        enter = f'echo $$ > {group}/cgroup.procs; exec {sys.executable} -c "$0"'
        answer = subprocess.run(
            ["sh", "-c", enter, textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.stdout.split() == ["0", "1", "-9"], answer.stderr
    finally:
        group.rmdir()
        group.parent.rmdir()
    assert oom_kills() is None or oom_kills() >= 0  # type: ignore[operator]
