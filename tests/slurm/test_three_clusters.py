"""One project over three clusters: where it stands, why jobs wait, one query each whatever the number of jobs."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Testbed
from tests.waiting import wait_for

SITES = ("juwels", "vega", "jupiter")
SHELL = 'case "$1" in fail) echo broken on purpose >&2; exit 1;; wait) sleep 600;; esac'


@needs("slurm")
def test_status_of_three_clusters(testbed: Testbed, shared: Path, cli: Cli) -> None:
    """On each site one run ends well and one badly, one runs, and one is too large for what is free."""
    one = {"nodes": [1], "ranks_per_node": [1], "what": ["ok", "fail", "wait"]}
    studies = {
        "ends": study(["sh", "-c", SHELL, "sh", "{what}"], axes=one),
        "waits": study(["sleep", "600"], axes={"nodes": [4], "ranks_per_node": [1]}, walltime="00:20:00"),
    }
    project = make_project(shared / "p", *SITES, studies=studies)
    conf = {f"CAMPAIGN_SLURM_CONF_{name.upper()}": str(testbed.cluster(name).slurm_conf) for name in SITES}
    cli("plan", *SITES, "--study", "ends", cwd=project, env=conf, code=0)
    for name in SITES:
        cli("submit", "--site", name, cwd=project, env=conf, code=0)

    def states(study: str) -> list[dict[str, int]]:
        groups = cli("status", "--force", "--json", cwd=project, env=conf, code=0).json()["data"]["groups"]
        return [{name: count for name, count in group["states"].items() if count} for group in groups
                if group["study"] == study]  # fmt: skip

    ended = [{"running": 1, "done": 1, "failed": 1}] * 3
    wait_for(lambda: states("ends") == ended, 240, what=lambda: str(states("ends")))
    cli("plan", *SITES, "--study", "waits", cwd=project, env=conf, code=0)
    for name in SITES:
        cli("submit", "--site", name, cwd=project, env=conf, code=0)

    def shown() -> str:
        return cli("status", "--force", cwd=project, env=conf, code=0).stdout

    def all_wait() -> bool:
        lines = shown().splitlines()
        return all(any(line.startswith(f"{name}: 1 pending: ") for line in lines) for name in SITES)

    wait_for(all_wait, 120, what=shown)
    text = shown()
    print(text)
    assert all(f"{name}: as of " in text for name in SITES)
    failed = cli("status", "--where", "state = 'failed'", "--json", cwd=project, env=conf, code=0).json()["data"][
        "runs"
    ]
    assert [run["site"] for run in failed] == sorted(SITES)
    print(cli("show", failed[0]["run_id"], cwd=project, env=conf, code=0).stdout)
    stranger = conf | {"CAMPAIGN_SLURM_CONF_JUWELS": conf["CAMPAIGN_SLURM_CONF_VEGA"]}
    answer = cli("status", "--force", "--json", cwd=project, env=stranger, code=3).json()
    (error,) = answer["errors"]
    assert error["message"] == "juwels: this is cluster `vega`, and the jobs are on `juwels`"
    assert {site["site"]: site["error"] is None for site in answer["data"]["sites"]} == {
        "juwels": False, "vega": True, "jupiter": True}  # fmt: skip
    report = cli("cancel", "--all", "--json", cwd=project, env=conf, code=0).json()["data"]
    assert report["jobs"] == 6
    wait_for(lambda: [*states("ends"), *states("waits")] == [{"done": 1, "failed": 1, "cancelled": 1}] * 3
             + [{"cancelled": 1}] * 3, 240, what=lambda: str([*states("ends"), *states("waits")]))  # fmt: skip
