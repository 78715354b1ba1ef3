"""The bed by hand: `python -m tests.slurm.testbed --help`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys

from tests.slurm.testbed.bed import Testbed, TestbedError
from tests.slurm.testbed.lease import alone
from tests.slurm.testbed.network import roots
from tests.slurm.testbed.settings import Settings

DRILLS = {
    "node-down": "a node loses power",
    "node-up": "switch it on again",
    "link-down": "unplug a node",
    "link-up": "plug it in again",
    "ctld-stop": "end a controller in order",
    "ctld-kill": "kill a controller",
    "ctld-start": "start it again",
    "dbd-stop": "end slurmdbd",
    "dbd-start": "start it again",
}


def main(arguments: list[str] | None = None) -> int:
    """Parse and do; the exit code."""
    options = _parser().parse_args(arguments)
    settings = Settings.from_environment()
    try:
        return _do(options, settings)
    except (TestbedError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"error: {error}; start and stop need root", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.slurm.testbed",
        description="Three real Slurm clusters (juwels, vega, jupiter) on this machine. Settings: see README.md.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("start", help="start it and wait until all nodes are idle; nothing when it runs already")
    stop = commands.add_parser("stop", help="end it and remove every trace")
    stop.add_argument("--force", action="store_true", help="even while tests use it")
    status = commands.add_parser("status", help="what runs; exit code 1 unless all does")
    status.add_argument("--json", action="store_true", dest="as_json")
    commands.add_parser("list", help="the roots of all beds on this machine; TESTBED_ROOT=... stop ends one of them")
    for name, text in (("env", "print `export` lines for eval"), ("shell", "open a shell, or run a command")):
        command = commands.add_parser(name, help=f"{text} on a cluster's login side")
        command.add_argument("cluster")
        if name == "shell":
            command.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    for name, text in DRILLS.items():
        command = commands.add_parser(name, help=f"drill: {text}")
        if not name.startswith("dbd"):
            command.add_argument("cluster")
        if name.startswith(("node", "link")):
            command.add_argument("node")
    return parser


def _do(options: argparse.Namespace, settings: Settings) -> int:
    bed = Testbed(settings)
    match options.command:
        case "start":
            _start(settings)
        case "stop" if options.force:
            bed.stop()
        case "stop":
            with alone(settings):
                bed.stop()
        case "status":
            return _status(bed, as_json=options.as_json)
        case "list":
            print("\n".join(roots()))
        case "env":
            cluster = _running(bed).cluster(options.cluster)
            print(f"export SLURM_CONF={shlex.quote(str(cluster.slurm_conf))}")
        case "shell":
            _shell(_running(bed), options.cluster, options.argv)
        case drill:
            _drill(_running(bed), drill, options)
    return 0


def _running(bed: Testbed) -> Testbed:
    if not bed.exists:
        raise TestbedError(f"there is no test bed at {bed.settings.root}; `make testbed` starts one")
    return bed


def _start(settings: Settings) -> None:
    if os.geteuid() != 0:
        raise TestbedError("the test bed makes namespaces and network links: start it as root (sudo)")
    bed = Testbed(settings)
    if not (bed.complete and bed.serves(settings)):
        with alone(settings):
            bed.stop()
            bed = Testbed(settings)
            bed.start(print)
    bed.mark_by_hand()
    _status(bed, as_json=False)
    first = bed.clusters[0].name
    print(f"\nA shell on a cluster:  make testbed-shell CLUSTER={first}\nIts end:               make testbed-stop")


def _status(bed: Testbed, *, as_json: bool) -> int:
    clusters = {cluster.name: cluster.node_states() for cluster in bed.clusters} if bed.exists else {}
    dead = bed.dead if bed.exists else []
    if as_json:
        data = {"root": str(bed.settings.root), "complete": bed.complete, "dead": dead, "nodes": clusters}
        print(json.dumps(data | {"memory_limits": bed.memory_limits}))
    elif not bed.exists:
        print(f"no test bed at {bed.settings.root}")
    else:
        limits = "job memory is limited" if bed.memory_limits else "job memory is NOT limited"
        print(f"{bed.settings.root}: {limits}; shared folder: {bed.layout.shared}")
        for cluster in bed.clusters:
            nodes = ", ".join(f"{node} {state}" for node, state in clusters[cluster.name].items())
            print(f"  {cluster.name:8} SLURM_CONF={cluster.slurm_conf}\n           {nodes or 'no answer'}")
        if dead:
            print(f"  not running: {', '.join(dead)}")
    return 0 if bed.complete else 1


def _shell(bed: Testbed, cluster: str, argv: list[str]) -> None:
    target = bed.cluster(cluster)
    env = target.env | {"PS1": f"[{cluster}] \\w \\$ "}
    os.chdir(target.shared)
    argv = argv or ["/bin/bash", "--norc", "-i"]
    os.execvpe(argv[0], argv, env)


def _drill(bed: Testbed, drill: str, options: argparse.Namespace) -> None:
    name = drill.replace("node-down", "node-kill").replace("-", "_")
    values = (getattr(options, key) for key in ("cluster", "node") if hasattr(options, key))
    getattr(bed, name)(*values)


if __name__ == "__main__":
    sys.exit(main())
