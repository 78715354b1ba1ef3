"""Real jobs on this machine: specs, heads as processes of their own, and what they leave."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from campaign.job.spec import SPECS_FILE, RunSpec
from tests.waiting import wait_for

RUN_ID = "0123456789abcdef"


@dataclass
class Site:
    """A place for jobs: shared storage, node-local storage, a project folder."""

    root: Path
    run_root: Path = field(init=False)
    node_local: Path = field(init=False)
    project: Path = field(init=False)
    heads: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run_root = self.root / "shared"
        self.node_local = self.root / "local"
        self.project = self.root / "project"
        for folder in (self.run_root, self.node_local, self.project):
            folder.mkdir()

    def script(self, text: str, name: str = "train.py") -> list[str]:
        """Write a user's script; the command that runs it."""
        (self.project / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return ["python", name]

    def spec(self, command: list[str] | None, **changes: Any) -> RunSpec:
        """A spec of a local run with one rank on one node, and what the test changes."""
        values: dict[str, Any] = {
            "schema": 1,
            "array_index": 0,
            "run_id": RUN_ID,
            "attempt": 1,
            "token": secrets.token_hex(16),
            "tag": "c0123456789ab",
            "site": "local",
            "study": "test",
            "workload": None,
            "command": command,
            "metrics": [],
            "params": {"lr": 0.5},
            "data": None,
            "nodes": 1,
            "ranks_per_node": 1,
            "cpus_per_rank": 1,
            "gpus_per_rank": 0,
            "local_batch": None,
            "global_batch": None,
            "walltime_s": 120.0,
            "signal_lead_s": 10.0,
            "scheduler": "local",
            "run_root": str(self.run_root),
            "project_dir": str(self.project),
            "node_local": str(self.node_local),
            "staging": "none",
            "redirect": True,
            "network": {"interface": None, "master_addr_suffix": None, "resolve_ip": False},
            "env": {},
            "gpu_vendor": None,
            "visible_gpus": "all",
            "gpus_per_node": 0,
            "srun_args": [],
            "record": {"fail_grace_s": 0.5},
            "group_readable": False,
            "python": sys.executable,
            "provenance": {"commit": "abc", "dirty": False, "versions": {"campaign": "0"}},
        }
        return RunSpec(**(values | changes))

    def submit(self, *specs: RunSpec) -> Path:
        """Write the specs as `submit` does; the submit folder."""
        folder = self.run_root / "submit" / specs[0].tag
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SPECS_FILE).write_text("".join(spec.to_line() + "\n" for spec in specs), encoding="utf-8")
        return folder

    def start(self, *specs: RunSpec, index: int = 0) -> Running:
        """Start a head for the specs."""
        folder = self.submit(*specs)
        log = folder / f"{specs[0].tag}_{index}.log"
        with log.open("ab") as output:
            head = subprocess.Popen(
                [sys.executable, "-P", "-m", "campaign.job.head", str(folder), "--index", str(index)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.heads.append(head)
        return Running(self, specs[0], head, log)

    def run(self, *specs: RunSpec) -> Ended:
        """Run the specs to their end; the first one's record."""
        return self.start(*specs).wait()

    def run_dir(self, spec: RunSpec) -> Path:
        """Folder of a run."""
        return spec.run_dir

    def local_leftovers(self) -> list[str]:
        """What is left in the node-local place."""
        return sorted(entry.name for entry in self.node_local.iterdir())

    def end_all(self) -> None:
        """End heads that a failed test has left."""
        for head in self.heads:
            if head.poll() is None:
                os.killpg(head.pid, signal.SIGKILL)
                head.wait()


@dataclass
class Running:
    """A head that runs."""

    site: Site
    spec: RunSpec
    head: subprocess.Popen[bytes]
    log: Path

    @property
    def partial(self) -> Path:
        """The attempt's partial folder."""
        return self.spec.run_dir / f"a{self.spec.attempt}.partial"

    def console(self) -> str:
        """What rank 0 has printed so far, as `campaign logs -f` reads it."""
        path = self.partial / "console.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def wait_for_console(self, text: str) -> None:
        """Wait until rank 0 has printed this."""
        wait_for(lambda: text in self.console(), what=lambda: f"{text!r} in the console; log: {self.log.read_text()}")

    def rank_pids(self) -> list[int]:
        """Processes that carry the run's node-local folder in their environment."""
        return list(marked(str(self.site.node_local / self.spec.run_id)))

    def agent_pids(self) -> list[int]:
        """Agents of this head."""
        return [pid for pid in children(self.head.pid) if "campaign.job.agent" in command_line(pid)]

    def wait(self, timeout: float = 120) -> Ended:
        """Wait for the head's end; its record."""
        code = self.head.wait(timeout)
        return Ended(self.spec, code, self.log.read_text(encoding="utf-8"))


@dataclass
class Ended:
    """A head that has ended."""

    spec: RunSpec
    code: int
    log: str

    @property
    def folder(self) -> Path:
        """The final record's folder."""
        return self.spec.run_dir / f"a{self.spec.attempt}"

    @property
    def record(self) -> dict[str, Any]:
        """record.json. Fails when there is none."""
        path = self.folder / "record.json"
        assert path.exists(), self.log
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return data

    @property
    def state(self) -> tuple[str, str | None]:
        """(state, fail_class)."""
        return self.record["state"], self.record["fail_class"]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of one table; none when it was empty and so not written."""
        path = self.folder / f"{table}.parquet"
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist() if path.exists() else []
        return rows

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of one name."""
        return [row for row in self.rows("events") if row["name"] == name]

    def console(self) -> str:
        """console.log."""
        return (self.folder / "console.log").read_text(encoding="utf-8")


def children(pid: int) -> Iterator[int]:
    """Child processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                yield int(entry.name)


def command_line(pid: int) -> str:
    """argv, joined by blanks; empty when the process has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def marked(text: str) -> Iterator[int]:
    """Living processes whose environment holds `text`."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            alive = "\nState:\tZ" not in (entry / "status").read_text(encoding="utf-8")
            if alive and text.encode() in (entry / "environ").read_bytes():
                yield int(entry.name)
        except OSError:
            continue


def gone(pids: list[int]) -> Callable[[], bool]:
    """A condition: none of these processes lives."""

    def condition() -> bool:
        return not any(_alive(pid) for pid in pids)

    return condition


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
