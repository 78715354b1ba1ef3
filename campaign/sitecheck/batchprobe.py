"""The probe's batch process, on the job's first node. Standard library only, copied into the probe's folder.

    batchprobe.py FOLDER

Broadcasts a file, runs nodeprobe.py on every node and as ranks, waits for the warning signal, then cancels its own job
to see how jobs end here. result.json grows with each step, so a job that is cut short still says what it found.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__:
    from campaign.sitecheck import nodeprobe
else:  # on a compute node, where the programs lie beside each other and there is no campaign
    import nodeprobe  # type: ignore[import-not-found,no-redef]

STEP_DEADLINE_S = 150.0
STEP_TRIES = 4
STEP_PAUSE_S = 3.0
LINGER_READY_S = 15.0


class Batch:
    """One probe job, from its start to its end."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.started = time.time()
        self.spec = json.loads((self.folder / "probe.json").read_text(encoding="utf-8"))
        self.sent = self.destination()
        self.result: dict[str, Any] = {"state": "running", "started": self.started, "signals": {}, "steps": {}}
        signal.signal(signal.SIGUSR2, self._warned)
        self.write()

    def _warned(self, *_: Any) -> None:
        self.result["signals"].setdefault("usr2", time.time())

    def write(self) -> None:
        """What is known so far."""
        new = self.folder / "result.json.new"
        with new.open("w", encoding="utf-8") as file:
            json.dump(self.result, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / "result.json")

    def run(self) -> None:
        """All steps, one after another."""
        names = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CLUSTER_NAME", "SLURM_JOB_END_TIME", "SLURM_MPI_TYPE")
        self.result["host"] = socket.gethostname()
        self.result["variables"] = {name: os.environ.get(name) for name in names}
        self.write()
        self.broadcast()
        self.step("nodes", self.spec["nodes"], ["node", self.head(), str(self.port()), str(self.sent)], "node")
        if self.spec["ranks_per_node"] > 1:
            self.step("ranks", self.spec["nodes"] * self.spec["ranks_per_node"], ["rank"], "rank")
        self.result["state"] = "checked"
        self.write()
        self.wait_for_warning()
        self.end()

    def head(self) -> str:
        """The first node, as Slurm names it."""
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]

    def destination(self) -> Path:
        """Where sbcast puts its file: a folder that all nodes have, whatever earlier jobs left on some of them."""
        local = Path(self.spec["node_local"])
        mount = Path(nodeprobe.mount_of(str(local))[0])
        if mount == Path("/") or not os.access(mount, os.W_OK | os.X_OK):
            mount = next(folder for folder in (local, *local.parents) if folder.is_dir())
        return mount / f"campaign-probe-{self.spec['token']}"

    def port(self) -> int:
        """A port that is free now, below those that Linux gives to outgoing connections."""
        start = int(os.environ.get("SLURM_JOB_ID", "0")) % 12000
        for turn in range(12000):
            port = 20000 + (start + turn) % 12000
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
                try:
                    sock.bind(("", port))
                except OSError:
                    continue
                return port
        return 0

    def broadcast(self) -> None:
        """sbcast of a small file; the nodes compare its digest."""
        source = str(self.folder / "broadcast.bin")
        start = time.monotonic()
        code, said = nodeprobe.run(["sbcast", "-f", source, str(self.sent)], 60.0)
        self.result["sbcast"] = {"exit": code, "said": said, "seconds": time.monotonic() - start}
        self.write()

    def srun(self, tasks: int, output: str) -> list[str]:
        """argv of a step, as the node agents' own step is started."""
        spec = self.spec
        per_node = tasks // spec["nodes"]
        cpus = max(1, spec["cpus_per_node"] // per_node)
        return [
            "srun",
            f"--nodes={spec['nodes']}",
            f"--ntasks={tasks}",
            f"--ntasks-per-node={per_node}",
            f"--cpus-per-task={cpus}",
            "--mem=0",
            "--mpi=none",
            "--export=ALL",
            "--input=none",
            "--quiet",
            *spec["srun_args"],
            "--kill-on-bad-exit=0",
            "--wait=0",
            f"--output={self.folder / output}-%t.jsonl",
            f"--error={self.folder / output}-%t.err",
            spec["python"],
            "-EsB",
            str(self.folder / "nodeprobe.py"),
            str(self.folder),
        ]

    def environment(self) -> dict[str, str]:
        """Without what srun would read as an option of the step."""
        inputs = re.compile(self.spec["step_inputs"])
        return {name: value for name, value in os.environ.items() if not inputs.fullmatch(name)}

    def step(self, name: str, tasks: int, arguments: Sequence[str], output: str) -> None:
        """Run a step to its end; each task prints into a file of its own.

        A step of which no task has started (the controller was away, an answer got lost) is made again.
        """
        start = time.monotonic()
        said: list[str] = []
        for _ in range(STEP_TRIES):
            code, words = self.srun_once(tasks, arguments, output, STEP_DEADLINE_S - (time.monotonic() - start))
            said.append(words)
            if code in (0, None) or any(path.stat().st_size for path in self.folder.glob(f"{output}-*.jsonl")):
                break
            time.sleep(STEP_PAUSE_S)
        text = "\n".join(filter(None, said))
        self.result["steps"][name] = {"exit": code, "said": text, "seconds": time.monotonic() - start}
        self.write()

    def srun_once(self, tasks: int, arguments: Sequence[str], output: str, timeout_s: float) -> tuple[int | None, str]:
        """(exit code, what srun said) of one try; code None: it took too long, or there is no srun."""
        try:
            done = subprocess.run(
                [*self.srun(tasks, output), *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        return done.returncode, done.stdout.decode("utf-8", "replace")[-1000:]

    def wait_for_warning(self) -> None:
        """Slurm looks at time limits every half minute or so."""
        end = self.started + self.spec["warning_by_s"]
        while "usr2" not in self.result["signals"] and time.time() < end:
            time.sleep(0.2)
        self.write()

    def end(self) -> None:
        """Cancel this job with a step running, and stay until the end."""
        tasks = self.spec["nodes"]
        step = subprocess.Popen([*self.srun(tasks, "linger-step"), "linger"], env=self.environment(),
                                stdin=subprocess.DEVNULL)  # fmt: skip
        # nodes that see this folder
        seen = [task for task in range(tasks) if (self.folder / f"node-{task}.jsonl").exists()]
        wanted = [self.folder / f"linger-{task}.jsonl" for task in seen]
        end = time.monotonic() + LINGER_READY_S
        while time.monotonic() < end and not all(path.exists() for path in wanted):
            time.sleep(0.1)

        def cancel() -> None:
            self.result["state"] = "ending"
            self.result["cancelled"] = time.time()
            self.write()
            code, said = nodeprobe.run(["scancel", os.environ["SLURM_JOB_ID"]], 30.0)
            if code != 0:
                self.result["scancel"] = said
                self.write()

        nodeprobe.linger(self.spec, str(self.folder / "linger-batch.jsonl"), cancel)
        # only where the job wasn't cancelled
        step.terminate()


if __name__ == "__main__":
    Batch(sys.argv[1]).run()
