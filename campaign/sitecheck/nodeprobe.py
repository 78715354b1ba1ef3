"""What one compute node says of itself. Standard library only (Python 3.8 and later), copied into the probe's folder.

    nodeprobe.py FOLDER node HOST PORT FILE   all checks, one JSON line each; HOST: the first node; FILE: of sbcast
    nodeprobe.py FOLDER rank                  what one rank may use
    nodeprobe.py FOLDER linger                stay, and note the signals that arrive

Every check runs in a thread of its own with a deadline: one that fails or hangs in a dead file system loses no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__:
    from campaign.sitecheck import pairprobe
else:  # on a compute node, where the programs lie beside each other and there is no campaign
    import pairprobe  # type: ignore[import-not-found,no-redef]

Spec = Any
"""The probe's specification, as probe.json holds it."""
CHECK_DEADLINE_S = 20.0
VARIABLES = re.compile(
    r"(CUDA|ROCR|HIP|GPU|ZE)_\w*(VISIBLE_DEVICES|DEVICE_ORDINAL|AFFINITY_MASK)|"
    r"SLURM_(GPUS_ON_NODE|JOB_GPUS|STEP_GPUS|CPUS_ON_NODE|CPUS_PER_TASK|JOB_END_TIME|MPI_TYPE|PROCID|LOCALID|NODEID)"
)


# -- small tools -------------------------------------------------------------------------------------------------------


def run(argv: Sequence[str], timeout_s: float = CHECK_DEADLINE_S) -> tuple[int | None, str]:
    """(exit code, or None after the deadline or when it can't start; last line of what it printed)."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return done.returncode, lines[-1][:300] if lines else ""


def mount_of(path: str) -> tuple[str, str]:
    """(mount point, kind) under a path, from /proc/self/mountinfo."""
    resolved = os.path.realpath(path)
    best = ("/", "unknown")
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            fields, after = left.split(), right.split()
            if len(fields) < 5 or not after:
                continue
            point = re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
            inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, after[0])
    return best


def space(path: str) -> dict[str, Any]:
    """What the file system under an existing path is."""
    point, kind = mount_of(path)
    stat = os.statvfs(path)
    return {
        "path": path,
        "mount": point,
        "kind": kind,
        "size_bytes": stat.f_blocks * stat.f_frsize,
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "writable": os.access(path, os.W_OK | os.X_OK),
    }


# -- checks of one node ------------------------------------------------------------------------------------------------


def host(spec: Spec) -> dict[str, Any]:
    """Who this node is."""
    return {
        "hostname": socket.gethostname(),
        "node": os.environ.get("SLURMD_NODENAME"),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "variables": variables(),
        "time": time.time(),
    }


def variables() -> dict[str, str]:
    """What Slurm set about GPUs and CPUs."""
    return {name: value for name, value in sorted(os.environ.items()) if VARIABLES.fullmatch(name)}


def cpus(spec: Spec) -> dict[str, Any]:
    """CPUs that this process may run on, and the cores they are threads of."""
    allowed = sorted(os.sched_getaffinity(0))
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(cpu))
    return {"allowed": len(allowed), "cores": len(cores), "first": allowed[0], "last": allowed[-1],
            "online": os.cpu_count()}  # fmt: skip


def memory(spec: Spec) -> dict[str, Any]:
    """Memory as the operating system counts it."""
    return {"total_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}


def shm(spec: Spec) -> dict[str, Any]:
    """The node's /dev/shm."""
    return space("/dev/shm")


def node_local(spec: Spec) -> dict[str, Any]:
    """Whether the ranks' folder can be made on this node; it is gone again afterwards if it wasn't there."""
    path = Path(spec["node_local"])
    nearest = next(folder for folder in (path, *path.parents) if folder.is_dir())
    found = space(str(nearest))
    own = nearest / f".campaign-probe-{spec['token']}"
    own.mkdir()
    (own / "file").write_bytes(b"x" * 4096)
    shutil.rmtree(own)
    return dict(found, path=str(path))


def filesystems(spec: Spec) -> dict[str, Any]:
    """The site's file systems as this node sees them."""
    found: dict[str, Any] = {}
    for name, path in spec["filesystems"].items():
        found[name] = dict(space(path), there=True) if Path(path).is_dir() else {"path": path, "there": False}
    return found


def sbcast(spec: Spec) -> dict[str, Any]:
    """The file that sbcast brought here; it is removed."""
    path = Path(spec["sbcast_file"])
    if not path.is_file():
        return {"path": str(path), "there": False}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with contextlib.suppress(OSError):
        path.unlink()
    return {"path": str(path), "there": True, "sha256": digest}


def network_interfaces(spec: Spec) -> dict[str, Any]:
    """Interfaces of this node."""
    return dict(pairprobe.interfaces())


def gpus(spec: Spec) -> dict[str, Any]:
    """Device files, and what NVIDIA's tool lists."""
    devices = sorted(str(path) for pattern in spec["gpu_devices"] for path in Path("/").glob(pattern.lstrip("/")))
    listed = None
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "-L"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=15, check=False)
        listed = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else None
    return {"devices": devices, "nvidia_smi": listed}


def container(spec: Spec) -> dict[str, Any]:
    """The runtime's version, and whether the site's image starts."""
    wanted = spec["container"]
    names = [wanted["runtime"]] if wanted["runtime"] else ["apptainer", "singularity"]
    runtime = next((name for name in names if shutil.which(name)), None)
    if runtime is None:
        return {"runtime": None, "version": None, "starts": None}
    code, said = run([runtime, "--version"])
    starts = None
    if wanted["image"]:
        start, last = run([runtime, "exec", *wanted["args"], wanted["image"], "true"], 60.0)
        starts = start == 0
        said = said if starts else last
    return {"runtime": runtime, "version": said if code == 0 else None, "starts": starts}


def trace(spec: Spec) -> dict[str, Any]:
    """Whether a process may be traced, which strace rests on."""
    scope = None
    with contextlib.suppress(OSError, ValueError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    program = shutil.which("strace")
    works = run([program, "-f", "-o", os.devnull, "true"])[0] == 0 if program else None
    return {"ptrace": _ptrace_works(), "yama_scope": scope, "strace": program, "strace_works": works}


PTRACE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.ptrace(0, 0, 0, 0) == 0 else 7)
"""


def _ptrace_works() -> bool:
    """A child asks to be traced; True when the kernel lets it."""
    code, said = run([sys.executable, "-I", "-c", PTRACE])
    if code not in (0, 7):
        raise OSError(said)
    return code == 0


def internet(spec: Spec) -> dict[str, Any] | None:
    """Whether a well-known host can be reached; nothing is sent."""
    if not spec["internet"]:
        return None
    name, port = spec["internet"]
    try:
        with socket.create_connection((name, port), timeout=2.0):
            return {"host": name, "reached": True, "error": None}
    except OSError as error:
        return {"host": name, "reached": False, "error": str(error)}


CHECKS = (
    host,
    cpus,
    memory,
    shm,
    node_local,
    filesystems,
    sbcast,
    network_interfaces,
    gpus,
    container,
    trace,
    internet,
)


# -- running them ------------------------------------------------------------------------------------------------------


def say(name: str, value: Any) -> None:
    """Print one finding, as one line."""
    print(json.dumps({"check": name, "value": value}), flush=True)


def guarded(name: str, function: Callable[..., Any], *arguments: Any, deadline_s: float = CHECK_DEADLINE_S) -> None:
    """Run one check and print what it found, or why it found nothing."""
    found: list[Any] = []

    def body() -> None:
        try:
            found.append(function(*arguments))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"})

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(deadline_s)
    say(name, found[0] if found else {"error": f"no answer within {deadline_s:.0f} s"})


def node(spec: Spec, head: str, port: int) -> None:
    """All checks of this node."""
    rank = int(os.environ.get("SLURM_PROCID", "0"))
    pair = None
    if spec["nodes"] > 1 and rank < 2:
        # beside the other checks, so that both nodes are there at the same time
        pair = threading.Thread(
            target=guarded,
            args=("pair", pairprobe.serve, spec, port) if rank == 0 else ("pair", pairprobe.call, spec, head, port),
            kwargs={"deadline_s": pairprobe.PAIR_DEADLINE_S},
        )
        pair.start()
    if spec["nodes"] > 1:
        guarded("run_root", pairprobe.shared, spec, rank)
    for check in CHECKS:
        deadline_s = 90.0 if check is container else CHECK_DEADLINE_S
        guarded(check.__name__, check, spec, deadline_s=deadline_s)
    if pair is not None:
        pair.join(pairprobe.PAIR_DEADLINE_S)
    say("end", True)


def rank(spec: Spec) -> None:
    """What one rank may use."""
    guarded("rank", lambda: {"variables": variables(), "cpus": cpus(spec), "node": socket.gethostname()})


def linger(spec: Spec, path: str, ready: Callable[[], None] | None = None) -> None:
    """Note the end of this job: SIGTERM's time, and then the time again and again, until SIGKILL."""
    terms: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: terms.append(time.time()))
    with Path(path).open("a", buffering=1) as file:
        file.write(json.dumps({"ready": time.time()}) + "\n")
        if ready is not None:
            ready()
        end = time.monotonic() + spec["end_s"]
        while not terms and time.monotonic() < end:
            time.sleep(0.05)
        if not terms:
            return
        file.write(json.dumps({"sigterm": terms[0]}) + "\n")
        while time.monotonic() < end:
            file.write(json.dumps({"alive": time.time()}) + "\n")
            time.sleep(0.1)


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says, and end at once."""
    folder, mode, *rest = arguments
    spec = json.loads((Path(folder) / "probe.json").read_text(encoding="utf-8"))
    if mode == "node":
        node(dict(spec, sbcast_file=rest[2]), rest[0], int(rest[1]))
    elif mode == "rank":
        rank(spec)
    else:
        linger(spec, str(Path(folder) / f"linger-{os.environ.get('SLURM_PROCID', '0')}.jsonl"))
    sys.stdout.flush()
    os._exit(0)  # a thread that hangs in a file system would keep the interpreter here


if __name__ == "__main__":
    main(sys.argv[1:])
