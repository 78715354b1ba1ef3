"""The test bed is what the tests on it believe it to be."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.needs import needs
from tests.slurm.testbed import Cluster, Testbed
from tests.slurm.testbed.settings import REPOSITORY
from tests.waiting import wait_for

pytestmark = needs("slurm")
ALL = pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)
SMALL = ("-Q", "-t5", "--mem=200M")


def on_nodes(cluster: Cluster, script: str, *options: str) -> dict[str, str]:
    """Run a shell script once on every node; what each printed."""
    count = len(cluster.nodes)
    argv = ("srun", *SMALL, f"-N{count}", f"-n{count}", "--label", *options, "sh", "-c", script)
    lines: dict[str, list[str]] = {node: [] for node in cluster.nodes}
    for line in cluster.run(*argv).stdout.splitlines():
        rank, _, text = line.partition(":")
        lines[cluster.nodes[int(rank)]].append(text.strip())
    return {node: "\n".join(text) for node, text in lines.items()}


def test_bed_is_whole(testbed: Testbed) -> None:
    assert testbed.complete
    assert [cluster.name for cluster in testbed.clusters] == ["juwels", "vega", "jupiter"]


@ALL
def test_every_node_is_up(cluster: Cluster) -> None:
    states = {node: state.rstrip("*") for node, state in cluster.node_states().items()}
    assert sorted(states) == sorted(cluster.nodes)
    assert len(states) == 4
    assert set(states.values()) <= {"idle", "mixed", "allocated", "completing"}


@ALL
def test_sixteen_ranks_on_four_nodes(cluster: Cluster) -> None:
    script = "echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    argv = ("srun", *SMALL, "-N4", "--ntasks-per-node=4", "--gres=gpu:4", "sh", "-c", script)
    lines = cluster.run(*argv).stdout.splitlines()
    ranks = itertools.product(range(4), range(4))
    assert sorted(lines) == sorted(f"{4 * node + i} {node} {i} {cluster.nodes[node]} 0,1,2,3" for node, i in ranks)


def test_nodes_share_only_the_shared_folder(cluster: Cluster, shared: Path) -> None:
    # every node writes its name into the same three paths, then waits for the others before it reads
    script = f"""
    for folder in /dev/shm /tmp; do echo $SLURMD_NODENAME > $folder/{shared.name}; done
    echo $SLURMD_NODENAME > {shared}/$SLURMD_NODENAME
    until [ $(ls {shared} | wc -l) = 4 ]; do sleep 0.05; done
    cat /dev/shm/{shared.name} /tmp/{shared.name}
    rm /dev/shm/{shared.name} /tmp/{shared.name}
    """
    assert on_nodes(cluster, script) == {node: f"{node}\n{node}" for node in cluster.nodes}
    assert sorted(path.name for path in shared.iterdir()) == sorted(cluster.nodes)
    assert not (Path("/dev/shm") / shared.name).exists()


def test_nodes_have_their_own_processes(cluster: Cluster) -> None:
    commands = on_nodes(cluster, "cat /proc/1/cmdline | tr '\\0' ' '; echo; ps -e -o comm= | grep -c '^slurmd$'")
    for text in commands.values():
        init, count = text.splitlines()
        assert init.split()[1].endswith("node-init.sh")
        assert count == "1"


def test_sbcast_reaches_every_node(cluster: Cluster, shared: Path) -> None:
    (shared / "file").write_bytes(bytes(range(256)) * 4096)
    (shared / "job").write_text(
        "#!/bin/sh\nsbcast -f file /dev/shm/from-sbcast\n"
        "srun -n4 sh -c 'echo $SLURMD_NODENAME $(wc -c </dev/shm/from-sbcast); rm /dev/shm/from-sbcast'\n"
    )
    cluster.submit("-W", "-N4", "-n4", "-t5", "-o", "out", "job", cwd=shared)
    assert sorted((shared / "out").read_text().split()) == sorted([*cluster.nodes, *["1048576"] * 4])


@ALL
def test_network_is_what_the_sites_have(cluster: Cluster) -> None:
    suffix = {"juwels": "i"}.get(cluster.name, "")
    names = " ".join(node + suffix for node in cluster.nodes)
    script = f"ls /sys/class/net | xargs; ip -4 -o addr show ib0 | cut -d' ' -f7; getent ahostsv4 {names}"
    ours = dict.fromkeys(cluster.nodes, "")
    resolved = {}
    for node, text in on_nodes(cluster, script.replace("getent ahostsv4", "getent hosts")).items():
        interfaces, address, *hosts = text.splitlines()
        assert interfaces == "ib0 lo"
        ours[node] = address.partition("/")[0]
        resolved[node] = [line.split()[0] for line in hosts]
    assert len(set(ours.values())) == 4
    assert set(map(tuple, resolved.values())) == {tuple(ours.values())}


@ALL
def test_host_names_are_those_of_the_sites(cluster: Cluster) -> None:
    domain = {"juwels": ".juwels", "jupiter": ".jupiter.internal"}.get(cluster.name, "")
    assert on_nodes(cluster, "hostname; getent hosts $(hostname) | wc -l") == {
        node: f"{node}{domain}\n1" for node in cluster.nodes
    }


@pytest.mark.parametrize(
    ("cluster", "name", "reached"),
    [
        ("juwels", "{}i", True),
        ("juwels", "{}", False),
        ("vega", "{}", True),
        ("jupiter", "{}", True),
        ("jupiter", "{}.jupiter.internal", True),
    ],
    indirect=["cluster"],
)
def test_ranks_reach_the_first_node_by_the_sites_name(cluster: Cluster, shared: Path, name: str, reached: bool) -> None:
    server = cluster.nodes[0]
    (shared / "meet.py").write_text(
        f"""
import os, pathlib, socket, time
name, port = {name.format(server)!r}, pathlib.Path({str(shared / "port")!r})
done = port.with_name("done")
if os.environ["SLURM_PROCID"] == "0":
    with socket.create_server(("", 0)) as listener:
        new = port.with_suffix(".new")
        new.write_text(str(listener.getsockname()[1]))
        new.rename(port)
        while not done.exists():
            time.sleep(0.02)
else:
    while not port.exists():
        time.sleep(0.02)
    try:
        socket.create_connection((name, int(port.read_text())), timeout=20).close()
        print("reached")
    except OSError as error:
        print(error.strerror)
    done.touch()
"""
    )
    options = ("-N2", "-n2", "-w", server, "python3", str(shared / "meet.py"))
    answer = cluster.run("srun", *SMALL, *options).stdout.strip()
    assert answer == ("reached" if reached else "No route to host")


def test_nodes_have_no_internet(cluster: Cluster) -> None:
    script = (
        "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as e: print(e.strerror)\n"
        "try: socket.getaddrinfo('pypi.org', 443)\nexcept OSError: print('unknown name')"
    )
    answer = cluster.run("srun", *SMALL, "-n1", "python3", "-c", script)
    assert answer.stdout.split("\n")[:2] == ["Network is unreachable", "unknown name"]


def test_jobs_reach_accounting(cluster: Cluster, shared: Path) -> None:
    job = cluster.submit("-n1", "-t5", "-J", "c0123456789ab", "-o", "out", "--wrap", "exit 3", cwd=shared)
    # for some seconds sacct may call a job "allocation": slurmdbd heard of its step first
    row = (job, "FAILED", "3:0", "c0123456789ab", "demo")
    wait_for(lambda: row in cluster.accounting(job, "JobID", "State", "ExitCode", "JobName", "Account"))


REFUSED = [
    ("juwels", "-N5", "Node count specification invalid"),
    ("juwels", "-p develbooster -t 03:00:00", "Requested time limit is invalid"),
    ("juwels", "-t 25:00:00", "Requested time limit is invalid"),
    ("juwels", "--gres=gpu:5", "Requested node configuration is not available"),
    ("juwels", "-A nobody", "Invalid account or account/partition combination specified"),
    ("juwels", "-q urgent", "Invalid qos specification"),
    ("juwels", "-p batch", "Invalid partition name specified"),
    ("juwels", "--array=0-1001", "Invalid job array specification"),
    ("vega", "-c 257", "Requested node configuration is not available"),
    ("vega", "--mem=600G", "Memory specification can not be satisfied"),
    ("jupiter", "-t 13:00:00", "QOSMaxWallDurationPerJobLimit"),
]


@pytest.mark.parametrize(("cluster", "options", "message"), REFUSED, indirect=["cluster"])
def test_sbatch_refuses_what_the_site_would(cluster: Cluster, options: str, message: str) -> None:
    answer = cluster.run("sbatch", "-N1", "-t1", *options.split(), "--wrap", "true", check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert message in answer.stderr


@ALL
def test_partitions_and_nodes_match_the_site_file(cluster: Cluster) -> None:
    """Whatever the site file says of partitions and nodes, this cluster has (the node counts apart)."""
    site = YAML(typ="safe", pure=True).load(REPOSITORY / "sites" / f"{cluster.name}.yaml")
    shown = cluster.run("scontrol", "show", "partition", "--oneliner").stdout.splitlines()
    partitions = {}
    for line in shown:
        fields = dict(word.split("=", 1) for word in line.split())
        partitions[fields["PartitionName"]] = fields
    assert set(site["partitions"]) <= set(partitions)
    for name, said in site["partitions"].items():
        real = partitions[name]
        assert (real["OverSubscribe"] == "EXCLUSIVE") == said["exclusive"], name
        if said["max_nodes"] is not None:
            assert real["MaxNodes"] in ("UNLIMITED", str(said["max_nodes"])), name
        node = site["nodes"][said["node"]]
        hardware = cluster.run("scontrol", "show", "node", cluster.nodes[0], "--oneliner").stdout
        values = dict(re.findall(r"(\w+)=(\S+)", hardware))
        assert int(values["CPUTot"]) == node["cores"] * node["threads_per_core"]
        assert int(values["ThreadsPerCore"]) == node["threads_per_core"]
        assert values["Gres"].endswith(f":{node['gpus']}")
    assert partitions[site["default_partition"]]["Default"] == "YES"


@needs("memory-cgroup")
def test_a_step_that_takes_too_much_memory(testbed: Testbed, shared: Path) -> None:
    vega = testbed.cluster("vega")
    (shared / "hog.py").write_text("import sys\ndata = bytearray(600 * 2**20)\nprint(len(data), sys.argv)\n")
    job = vega.submit("-n1", "--mem=200M", "-t5", "-o", "out", "--wrap", "srun python3 hog.py", cwd=shared)
    rows = wait_for(lambda: [row for row in vega.accounting(job, "JobID", "State") if row[1] == "OUT_OF_MEMORY"])
    assert (f"{job}.0", "OUT_OF_MEMORY") in rows
    assert "oom-kill" in (shared / "out").read_text()


def test_clusters_know_each_other(testbed: Testbed, shared: Path) -> None:
    juwels, vega = testbed.cluster("juwels"), testbed.cluster("vega")
    answer = juwels.run("sbatch", "-M", "vega", "-n1", "-t5", "-o", "out", "--wrap", "echo $SLURM_CLUSTER_NAME",
                        cwd=shared).stdout  # fmt: skip
    job = answer.split()[3]
    assert job.startswith("2")
    vega.wait_job(job, "COMPLETED")
    assert (shared / "out").read_text() == "vega\n"


def test_configuration_can_be_read_by_a_program(testbed: Testbed) -> None:
    from tests.slurm.testbed.__main__ import main

    assert main(["status", "--json"]) == 0
    state = json.loads((testbed.layout.root / "testbed.json").read_text())
    assert state["ready"] is True
