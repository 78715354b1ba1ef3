"""Which cluster answers here decides where runs go: no site's runs on another's cluster, nothing written before."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster, Testbed
from tests.waiting import wait_for

STUDIES = {"t": study(["true"])}


def states(cli: Cli, project: Path) -> dict[str, dict[str, int]]:
    groups = cli("status", "--force", "--json", cwd=project).json()["data"]["groups"]
    return {group["site"]: {name: n for name, n in group["states"].items() if n} for group in groups}


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text())
    assert count == 1, f"{path}: {count} times {pattern}"
    path.write_text(text)


def renamed(project: Path, site: str, name: str) -> None:
    """Give a site of the project another name; its paths and accounts go with it."""
    edit(project / "sites" / f"{site}.yaml", rf"(?m)^name: {site}\b", f"name: {name}")
    config: dict[str, Any] = json.loads((project / "campaign.yaml").read_text())
    for key in ("accounts", "projects", "paths"):
        config[key][name] = config[key].pop(site)
    (project / "campaign.yaml").write_text(json.dumps(config))


@needs("slurm")
@pytest.mark.parametrize("cluster", ["jupiter"], indirect=True)
def test_the_cluster_of_another_site_is_refused(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """The shipped files name no cluster. On jupiter nothing of juwels is queued: not by name, not unnamed."""
    project = make_project(shared / "p", "juwels", "jupiter", studies=STUDIES)
    cli("plan", "juwels", "--study", "t", cwd=project, code=0)
    refused = cli("submit", "--site", "juwels", cwd=project, code=2)
    assert "this is cluster `jupiter`, not the one of site juwels" in refused.stderr
    alone = cli("submit", "--json", cwd=project, code=3).json()
    assert [(one["site"], one["count"]) for one in alone["data"]["elsewhere"]] == [("juwels", 1)]
    assert "juwels: 1 run stays planned" in alone["errors"][0]["message"]
    assert cli("run", "juwels", "--study", "t", "--no-plots", cwd=project).code == 2
    assert not (project / "runs").exists()
    assert states(cli, project) == {"juwels": {"planned": 1}}


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_only_the_runs_of_the_site_that_is_here_are_queued(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = make_project(shared / "p", "juwels", "vega", "jupiter", studies=STUDIES)
    cli("plan", "juwels", "vega", "jupiter", "--study", "t", cwd=project, code=0)
    sent = cli("submit", cwd=project, code=0)
    assert "1 run queued" in sent.stdout
    for away in ("juwels", "jupiter"):
        assert f"{away}: 1 run stays planned: this is cluster `vega`" in sent.stderr
    assert "vega: 1 run in 1 job, at most " in sent.stderr
    assert "names no cluster; the one that answers here is `vega`: cluster_name: vega" in sent.stderr
    wait_for(lambda: states(cli, project)["vega"] == {"done": 1}, what=lambda: str(states(cli, project)))
    after = states(cli, project)
    assert (after["juwels"], after["jupiter"]) == ({"planned": 1}, {"planned": 1})


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_a_site_stays_on_the_cluster_of_its_jobs(
    cluster: Cluster, testbed: Testbed, shared: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites whose names say nothing: the first job settles the cluster, for the site and against the others."""
    project = make_project(shared / "p", "juwels", "vega", studies=STUDIES)
    renamed(project, "juwels", "north")
    renamed(project, "vega", "south")
    cli("plan", "north", "south", "--study", "t", cwd=project, code=0)
    doubt = cli("submit", cwd=project, code=3)
    assert "cluster `vega`, which may be north or south" in doubt.stderr
    cli("submit", "--site", "south", cwd=project, code=0)
    taken = cli("submit", "--site", "north", cwd=project, code=2)
    assert "jobs of site south are there" in taken.stderr
    monkeypatch.setenv("SLURM_CONF", str(testbed.cluster("juwels").slurm_conf))
    cli("plan", "south", "--study", "t", "--set", "revision=2", cwd=project, code=0)
    strayed = cli("submit", "--site", "south", cwd=project, code=2)
    assert "its jobs so far are on `vega`" in strayed.stderr
    # what the message says to type, where the cluster is the site's after all
    edit(project / "sites" / "vega.yaml", r"cluster_name: \S+", "cluster_name: juwels")
    cli("plan", "south", "--study", "t", "--set", "revision=2", cwd=project, code=0)
    # sbatch of juwels is asked now: it has no partition of vega's
    assert "Invalid partition" in cli("submit", "--site", "south", cwd=project, code=2).stderr


@needs("slurm")
def test_a_site_s_file_system_is_never_made(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """`run_root: scratch:campaign` where the project has no folder on scratch: refused, and no folder comes up."""
    project = make_project(shared / "p", "juwels", studies=STUDIES)
    scratch = shared / "scratch"
    scratch.mkdir()
    edit(project / "sites" / "juwels.yaml", r'"/p/scratch/\{project\}"', f'"{scratch}/{{project}}"')
    config = json.loads((project / "campaign.yaml").read_text())
    del config["paths"]["juwels"]["run_root"]
    (project / "campaign.yaml").write_text(json.dumps(config))
    cli("plan", "juwels", "--study", "t", cwd=project, code=0)
    refused = cli("submit", cwd=project, code=2)
    said = f"file system scratch of juwels, {scratch}/demo, is not here or the project has no folder there"
    assert said in refused.stderr
    assert said in cli("try", "t", "juwels", cwd=project, code=2).stderr
    assert not list(scratch.iterdir())
    (scratch / "demo").mkdir()
    cli("run", "juwels", "--study", "t", "--no-plots", cwd=project, code=0)
    assert len(list((scratch / "demo" / "campaign" / "runs").glob("*/*/a1/record.json"))) == 1
