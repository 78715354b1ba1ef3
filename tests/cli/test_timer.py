"""What `campaign timer` prints works when cron or systemd runs it: in another folder, with a bare environment."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.waiting import wait_for

SITE = Path(__file__).resolve().parents[2] / "sites" / "local.yaml"
STUDY = """\
schema: 1
name: t
command: ["true"]
scaling: none
axes: {nodes: [1], ranks_per_node: [1]}
repeats: 1
gate: false
walltime: "00:01:00"
"""


@pytest.fixture
def project(tmp_path: Path, cli: Cli) -> Path:
    """A planned run in a folder with a blank, a quote and a percent sign in its name."""
    folder = tmp_path / "my $HOME 100% 'study'"
    (folder / "sites").mkdir(parents=True)
    (folder / "studies").mkdir()
    (folder / "sites" / "local.yaml").write_text(SITE.read_text())
    (folder / "studies" / "t.yaml").write_text(STUDY)
    (folder / "campaign.yaml").write_text(f"schema: 1\npaths: {{local: {{run_root: {tmp_path / 'runs'}}}}}\n")
    cli("plan", "local", "--study", "t", cwd=folder, code=0)
    return folder


def run(line: str, home: Path) -> None:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LOGNAME": "me"}
    subprocess.run(["/bin/sh", "-c", line], cwd="/", env=environment, check=True, timeout=120)


def done(cli: Cli, project: Path) -> bool:
    answer = cli("status", "--json", cwd=project, code=0).json()["data"]
    return bool(answer["groups"][0]["states"]["done"] == 1)


def test_the_cron_line(project: Path, home: Path, cli: Cli) -> None:
    line = cli("timer", "--every", "15m", cwd=project, code=0).stdout.strip()
    assert "\n" not in line
    when, command = " ".join(line.split()[:5]), line.split(None, 5)[5]
    assert when == "*/15 * * * *"
    assert re.search(r"(?<!\\)%", command) is None  # cron would end the line there
    run(command.replace(r"\%", "%"), home)
    wait_for(lambda: done(cli, project))
    assert (project / ".campaign" / "timer.log").exists()


def test_the_systemd_service(project: Path, home: Path, cli: Cli) -> None:
    texts = cli("timer", "systemd", "--every", "2h", "--max-queued", "3", "--json", cwd=project).json()["data"]["texts"]
    service, timer = texts.values()
    (command,) = re.findall(r"^ExecStart=(.*)$", service, re.M)
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]
    assert words[:2] == ["/bin/bash", "-lc"]
    assert words[2].endswith("--max-queued 3")
    run(shlex.join(words), home)
    wait_for(lambda: done(cli, project))
    assert "OnUnitInactiveSec=120min" in timer
    assert "SuccessExitStatus=3" in service
    names = list(texts)
    assert names[0].removesuffix(".service") == names[1].removesuffix(".timer")


def test_what_the_shell_knows_of_sites_is_carried(project: Path, cli: Cli) -> None:
    env = {
        "CAMPAIGN_SLURM_CONF_VEGA": "/etc/vega/slurm.conf",
        "CAMPAIGN_ACCOUNT": "mine",
        "CAMPAIGN_PROJECT": str(project),
    }
    command = cli("timer", "--json", env=env, code=0).json()["data"]["command"]
    assert command[:3] == ["env", "CAMPAIGN_ACCOUNT=mine", "CAMPAIGN_SLURM_CONF_VEGA=/etc/vega/slurm.conf"]
    assert not any(word.startswith("CAMPAIGN_PROJECT=") for word in command)


@pytest.mark.parametrize(
    ("every", "when"), [("1m", "*/1 * * * *"), ("60m", "0 * * * *"), ("1h", "0 * * * *"), ("12h", "0 */12 * * *")]
)
def test_intervals(project: Path, cli: Cli, every: str, when: str) -> None:
    assert cli("timer", "--every", every, cwd=project, code=0).stdout.startswith(f"{when} bash -lc ")


@pytest.mark.parametrize("every", ["7m", "0m", "90m", "5h", "48h", "soon", "10"])
def test_what_cron_cannot_keep(project: Path, cli: Cli, every: str) -> None:
    refused = cli("timer", "--every", every, cwd=project, code=2)
    assert "--every" in refused.stderr
    assert "30m" in refused.stderr
