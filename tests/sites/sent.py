"""What would be sent to each site for a fixed plan: script, spec, the step that starts agents, ranks' environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.job.launch import srun_argv
from campaign.job.rankenv import NodePlace, node_env
from campaign.job.spec import RunSpec
from campaign.plan.build import build_plan
from campaign.plan.model import PlannedRun
from campaign.project import Project
from campaign.redirect import redirected
from campaign.site import Site
from campaign.submit.batch import Batch, Item, make_batches, make_spec
from campaign.submit.executors import script_text

ROOT = Path(__file__).resolve().parents[2]
SITES = sorted((ROOT / "sites").glob("*.yaml"))
SLURM_SITES = [path.stem for path in SITES if path.stem != "local"]

PYTHON = "/group/venv/bin/python"
TAG = "c0123456789ab"

CONFIG = "schema: 1\n" + "".join(
    f"{key}: {{{', '.join(f'{site}: {value}' for site in SLURM_SITES)}}}\n"
    for key, value in (("accounts", "budget"), ("projects", "proj"))
)
STUDY = """\
schema: 1
name: strong_scaling
workload: training.workloads.hydrology
params: {global_batch: 122880, lr: 1e-3}
scaling: strong
axes: {nodes: [1, 8]}
walltime: "00:30:00"
"""


def make_project(folder: Path) -> Project:
    """A project with the shipped sites, whose account, project and interpreter are fixed, and one study."""
    (folder / "sites").mkdir(parents=True)
    (folder / "studies").mkdir()
    (folder / "campaign.yaml").write_text(CONFIG, encoding="utf-8")
    (folder / "studies" / "strong_scaling.yaml").write_text(STUDY, encoding="utf-8")
    for path in SITES:
        text = path.read_text(encoding="utf-8")
        if path.stem in SLURM_SITES:
            assert text.count("python: null}") == 1, path
            text = text.replace("python: null}", f"python: {PYTHON}}}")
        (folder / "sites" / path.name).write_text(text, encoding="utf-8")
    return Project(folder)


@dataclass
class Sent:
    """One batch of one run."""

    site: Site
    run: PlannedRun
    batch: Batch
    spec: RunSpec
    text: str
    """The script, with a fixed tag."""
    options: dict[str, str | bool] = field(init=False)
    """The #SBATCH lines: name -> value, True for a flag."""
    before: list[str] = field(init=False)
    """The lines of the script between the #SBATCH lines and the head's."""
    head: str = field(init=False)
    """The line that becomes the head."""

    def __post_init__(self) -> None:
        lines = self.text.splitlines()
        given = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH ")]
        self.options = {name: value if equals else True for name, equals, value in given}
        assert len(self.options) == len(given), "an option is given twice"
        own = [line for line in lines if line.strip() and not line.startswith("#")]
        self.before, self.head = own[:-1], own[-1]

    @property
    def srun(self) -> list[str]:
        """argv of the step that starts one agent a node, in a job that has what it asked for."""
        return srun_argv(self.spec, {"SLURM_JOB_CPUS_PER_NODE": str(self.options["cpus-per-task"])}, PYTHON)

    @property
    def rank(self) -> dict[str, str]:
        """The environment that ranks of the first node share, on top of an empty one."""
        place = NodePlace(0, "master", 20000, "/local/x")
        setting, kept, _ = redirected(place.folder, {})
        return node_env(self.spec, place, {}, (setting, kept)).variables


def sent(project: Project, site_name: str, nodes: int, walltime: str = "00:30:00") -> Sent:
    """What is sent for one run of the study; the run must be able to run."""
    (run,) = planned(project, site_name, {"nodes": [nodes], "walltime": walltime})
    assert run.can_run, run.problems
    site = project.load_site(site_name)
    (batch,) = make_batches(project, site, [Item(run, 1)])
    spec = make_spec(
        batch, 0, Item(run, 1), site, project.site_paths(site), Path("/group/project"), "token", {"commit": None}
    )
    assert re.fullmatch(r"c[0-9a-f]{12}", batch.tag)
    return Sent(site, run, batch, spec, script_text(batch, site).replace(batch.tag, TAG))


def planned(
    project: Project, site_name: str, overrides: dict[str, Any], account: str | None = None
) -> list[PlannedRun]:
    """The runs of the study on a site, each once."""
    plan = build_plan(project, [site_name], ["strong_scaling"], {**overrides, "repeats": 1})
    return list(plan.runs)
