"""The text of standalone scripts, for machines that no test bed imitates; that bash reads it as it is meant."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.errors import BadInput
from campaign.plan.build import build_plan
from campaign.project import Project
from campaign.submit.standalone import standalone_text
from tests.slurm.projects import make_project, study
from tests.slurm.testbed.settings import REPOSITORY


def text_for(folder: Path, site: str, *changes: tuple[str, str], **more: Any) -> str:
    """The script of the one run of a study of 2 nodes; `changes` to the site file are (pattern, text)."""
    axes = {"nodes": [2]}
    make_project(folder, site, studies={"s": study(["python", "train.py"], **{"axes": axes, **more})})
    path = folder / "sites" / f"{site}.yaml"
    for pattern, new in changes:
        changed, count = re.subn(pattern, new, path.read_text(), flags=re.MULTILINE)
        assert count == 1, pattern
        path.write_text(changed)
    project = Project(folder)
    (run,) = build_plan(project, [site], ["s"]).runs
    return standalone_text(project, project.load_site(site), run)


def directives(text: str) -> dict[str, str]:
    """#SBATCH lines by option, without their comments."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            name, _, value = line.removeprefix("#SBATCH --").partition("#")[0].strip().partition("=")
            found[name] = value
    return found


def test_lumi(tmp_path: Path) -> None:
    """GPU n of LUMI isn't next to the n-th cores; the masks are those of LUMI's own documentation (7 cores a GCD)."""
    image = (r"image: null", "image: /scratch/my project/torch.sif")
    text = text_for(tmp_path, "lumi", image)
    asked = directives(text)
    assert (asked["nodes"], asked["ntasks-per-node"], asked["cpus-per-task"]) == ("2", "8", "7")
    assert (asked["gpus-per-node"], asked["hint"], asked["account"]) == ("8", "nomultithread", "demo")
    assert asked["exclusive"] == ""
    assert "export ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 " in text
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert "MASTER_ADDR=$first\n" in text
    masks = "fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
    wanted = "--cpu-bind=mask_cpu:" + ",".join(f"0x{mask}" for mask in masks.split(","))
    step = shlex.split(text[text.index("\nsrun ") :])
    assert [word for word in step if word.startswith("--cpu-bind")] == [wanted]
    start = step.index("singularity")
    assert step[start:] == [
        "singularity", "exec", "--bind=/pfs", "--bind=/scratch", "--bind=/flash", "/scratch/my project/torch.sif",
        "python", "train.py",
    ]  # fmt: skip


def test_juwels_beside_jupiter(tmp_path: Path) -> None:
    juwels, jupiter = (text_for(tmp_path / site, site) for site in ("juwels", "jupiter"))
    assert "}i$" in juwels
    assert "getent ahostsv4" in jupiter  # no suffix there, but an address
    assert "}i$" not in jupiter
    assert directives(juwels)["gres"] == directives(jupiter)["gres"] == "gpu:4"
    assert (directives(juwels)["cpus-per-task"], directives(jupiter)["cpus-per-task"]) == ("12", "72")
    assert '[ -n "${NCCL_SOCKET_IFNAME+set}" ] || export NCCL_SOCKET_IFNAME=ib0' in juwels
    for text in (juwels, jupiter):
        assert not {"signal", "array", "error"} & directives(text).keys()
        assert "campaign.job" not in text


def test_vega_counts_threads_and_keeps_slurm_s_gpus(tmp_path: Path) -> None:
    """128 cores, 4 ranks: 32 cores are 64 of its CPUs."""
    text = text_for(tmp_path, "vega")
    assert directives(text)["cpus-per-task"] == "64"
    assert " --cpus-per-task=64 " in text
    assert "export OMP_NUM_THREADS=32" in text
    assert "VISIBLE_DEVICES" not in text


def test_a_local_run_has_none(tmp_path: Path) -> None:
    for folder in ("sites", "studies"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sites" / "local.yaml").write_text((REPOSITORY / "sites" / "local.yaml").read_text())
    (tmp_path / "studies" / "s.yaml").write_text('{"schema": 1, "name": "s", "command": ["true"], "walltime": "5"}')
    project = Project(tmp_path)
    run = build_plan(project, ["local"], ["s"]).runs[0]
    with pytest.raises(BadInput, match="which has no Slurm"):
        standalone_text(project, project.load_site("local"), run)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Any]:
    folder = tmp_path_factory.mktemp("words")
    make_project(folder, "vega", studies={"s": study(["true"], axes={"nodes": [1]})})
    project = Project(folder)
    return project, build_plan(project, ["vega"], ["s"]).runs[0]


@settings(max_examples=30, deadline=None)
@given(words=st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")), max_size=4))
def test_bash_hands_on_every_word(planned: tuple[Project, Any], words: list[str]) -> None:
    """The script's last command, with srun replaced by a function that does what srun does with its words."""
    project, run = planned
    command = ("printf", r"%s\0", "-", *words)
    text = standalone_text(project, project.load_site("vega"), dataclasses.replace(run, command=command))
    step = text[text.index("# Each task becomes a rank") :]
    fake = 'srun() { while [ "${1#-}" != "$1" ]; do shift; done; "$@"; }\n'
    done = subprocess.run(["bash", "-c", fake + step], capture_output=True, timeout=20, check=True)
    assert done.stdout.split(b"\0")[:-1] == [b"-", *(word.encode() for word in words)]
