"""`campaign site check | discover | probe` on real clusters: what was changed there, or lied about, is found.

They change partitions, QOS and nodes, so they have a bed of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.site import load_site
from campaign.sitecheck.host import NODE_KINDS
from tests.conftest import Cli, Result, campaign_command
from tests.needs import needs
from tests.slurm.test_end_of_job import in_node
from tests.slurm.testbed import Settings, Testbed
from tests.waiting import wait_for

pytestmark = needs("slurm")
CLUSTERS = ("juwels", "vega", "jupiter")
NODES = 4
"""Of each cluster: probes of a true file take the first two, those of changed nodes the last two."""


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """Three clusters, for this file alone."""
    root = Path(tempfile.mkdtemp(prefix="slurmtb-", dir="/tmp"))
    bed = Testbed(Settings.from_environment(root=root, clusters=CLUSTERS, nodes_per_cluster=NODES))
    try:
        bed.start()
        yield bed
    finally:
        bed.stop()


def new_project(bed: Testbed, name: str) -> Path:
    """An empty project on the bed's parallel file system."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=bed.layout.shared))
    (folder / "sites").mkdir()
    return folder


@pytest.fixture
def project(bed: Testbed, request: pytest.FixtureRequest) -> Path:
    """The test's own empty project."""
    return new_project(bed, re.sub(r"\W+", "-", request.node.name)[:40])


def environment(bed: Testbed, cluster: str) -> dict[str, str]:
    return {"SLURM_CONF": str(bed.cluster(cluster).slurm_conf)}


def discovered(cli: Cli, bed: Testbed, project: Path, cluster: str, *changes: tuple[str, str]) -> Path:
    """The file that `discover` writes of a cluster, with the account and (old, new) pieces of text replaced."""
    path = project / "sites" / f"{cluster}.yaml"
    cli("site", "discover", "--out", path, cwd=project, env=environment(bed, cluster), code=0)
    text = path.read_text()
    for old, new in (("account: null", "account: demo"), ("poll_interval_s: 30", "poll_interval_s: 1"), *changes):
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    path.write_text(text)
    return path


def check(cli: Cli, bed: Testbed, project: Path, cluster: str, code: int = 0) -> dict[str, Any]:
    """The answer of `campaign site check`: {verdict: {(key, found)}}."""
    result = cli("site", "check", cluster, "--json", cwd=project, env=environment(bed, cluster), code=code)
    (site,) = result.json()["data"]["sites"]
    found: dict[str, Any] = {verdict: set() for verdict in site["counts"] or {}}
    for finding in site["findings"]:
        found[finding["verdict"]].add((finding["key"], finding["found"]))
    return found


# -- discover and check ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_discovered_file_is_true(bed: Testbed, project: Path, cli: Cli, cluster: str) -> None:
    path = discovered(cli, bed, project, cluster)
    site = load_site(path)
    # as tests/slurm/testbed/clusters.py describes them
    node, partition, cores, threads, unit, time_s = {
        "juwels": ("a100x4", "booster", 48, 2, "thread", 86400),
        "vega": ("a100x4", "gpu", 128, 2, "thread", 4 * 86400),
        "jupiter": ("gh200x4", "booster", 288, 1, "core", 12 * 3600),
    }[cluster]
    assert (site.name, site.cluster_name, site.default_partition) == (cluster, cluster, partition)
    assert (site.nodes[node].cores, site.nodes[node].threads_per_core, site.nodes[node].gpus) == (cores, threads, 4)
    assert (site.partitions[partition].max_time, site.partitions[partition].nodes) == (time_s, NODES)
    assert (site.cpu_unit, site.scheduler.limits.array_size) == (unit, 1001)
    assert site.visible_gpus == ("slurm" if cluster == "vega" else "all")
    found = check(cli, bed, project, cluster)
    assert found["wrong"] == found["missing"] == set()
    assert ("account", "demo") in found["right"]


def test_three_lies_are_exactly_three_findings(bed: Testbed, project: Path, cli: Cli) -> None:
    path = discovered(cli, bed, project, "juwels", ("cores: 48", "cores: 64"), ('"02:00:00"', '"04:00:00"'),
                      ("array_size: 1001", "array_size: 2000"))  # fmt: skip
    text = path.read_text()
    result = cli("site", "check", "sites/juwels.yaml", "--json", cwd=project, env=environment(bed, "juwels"), code=1)
    errors = result.json()["errors"]
    lines = text.splitlines()
    assert {(error["key"], error["allowed"].partition(" (")[0], error["hint"]) for error in errors} == {
        ("nodes.a100x4.cores", "48", "write  cores: 48"),
        ("partitions.develbooster.max_time", "02:00:00", 'write  max_time: "02:00:00"'),
        ("scheduler.limits.array_size", "1001", "write  array_size: 1001"),
    }
    for error in errors:
        assert error["file"] == "sites/juwels.yaml"
        assert error["key"].rpartition(".")[2] in lines[error["line"] - 1]
    shown = cli("site", "check", "juwels", cwd=project, env=environment(bed, "juwels"), code=1)
    print(shown.stdout)  # for docs/evidence/planner.md
    assert shown.stdout.count("wrong  ") == 3
    assert "3 things are wrong with sites/juwels.yaml" in shown.stderr
    assert path.read_text() == text  # nothing edits the file


def test_changes_of_a_partition_are_found(bed: Testbed, project: Path, cli: Cli) -> None:
    cluster = bed.cluster("juwels")
    discovered(cli, bed, project, "juwels")
    change = ("MaxTime=06:00:00", "MaxNodes=1", "State=DRAIN")
    cluster.run("scontrol", "update", "PartitionName=booster", *change)
    try:
        found = check(cli, bed, project, "juwels", code=1)
        assert found["wrong"] == {
            ("partitions.booster.max_time", "06:00:00"),
            ("partitions.booster.max_nodes", "1"),
            ("partitions.booster.down", "DRAIN"),
        }
    finally:
        back = ("MaxTime=24:00:00", "MaxNodes=384", "State=UP")
        cluster.run("scontrol", "update", "PartitionName=booster", *back)
    assert check(cli, bed, project, "juwels")["wrong"] == set()


def test_changes_of_a_qos_and_a_default_time_are_found(bed: Testbed, project: Path, cli: Cli) -> None:
    """On jupiter the 12 hours are the QOS's, not the partition's."""
    cluster = bed.cluster("jupiter")
    discovered(cli, bed, project, "jupiter")
    cluster.run("sacctmgr", "-i", "modify", "qos", "part_booster", "set", "MaxWall=06:00:00")
    cluster.run("scontrol", "update", "PartitionName=largebooster", "DefaultTime=00:10:00")
    try:
        found = check(cli, bed, project, "jupiter", code=1)
        assert found["wrong"] == {
            ("partitions.booster.max_time", "06:00:00"),
            ("partitions.largebooster.default_time", "00:10:00"),
        }
    finally:
        cluster.run("scontrol", "update", "PartitionName=largebooster", "DefaultTime=01:00:00")
        cluster.run("sacctmgr", "-i", "modify", "qos", "part_booster", "set", "MaxWall=12:00:00")


def test_limits_of_the_user_are_found(bed: Testbed, project: Path, cli: Cli) -> None:
    cluster = bed.cluster("vega")
    discovered(cli, bed, project, "vega")
    who = ("modify", "user", "where", "name=root", "account=demo", "cluster=vega", "set")
    cluster.run("sacctmgr", "-i", *who, "MaxSubmitJobs=7", "MaxJobs=3")
    try:
        found = check(cli, bed, project, "vega")
        assert found["missing"] == {("scheduler.limits.submit_jobs", "7"), ("scheduler.limits.running_jobs", "3")}
    finally:
        cluster.run("sacctmgr", "-i", *who, "MaxSubmitJobs=-1", "MaxJobs=-1")


def test_features_and_reservations(bed: Testbed, project: Path, cli: Cli) -> None:
    cluster = bed.cluster("vega")
    path = discovered(cli, bed, project, "vega", ("reservation: null", "constraint: a100&amd\nreservation: course"))
    nodes = ",".join(cluster.nodes)
    create = ("create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60", "Users=root")
    cluster.run("scontrol", *create, f"Nodes={nodes}")
    try:
        found = check(cli, bed, project, "vega")
        assert {("reservation", "ACTIVE"), ("constraint", None)} <= found["right"]
        cluster.run("scontrol", "update", f"NodeName={nodes}", "AvailableFeatures=gpu,a100", "ActiveFeatures=gpu,a100")
    finally:
        cluster.run("scontrol", "delete", "ReservationName=course")
    found = check(cli, bed, project, "vega", code=1)
    assert found["wrong"] == {("reservation", "none"), ("constraint", "a100, gpu")}
    cluster.run("scontrol", "update", f"NodeName={nodes}", "AvailableFeatures=gpu,a100,amd",
                "ActiveFeatures=gpu,a100,amd")  # fmt: skip
    path.write_text(path.read_text().replace("reservation: course", "reservation: null"))
    assert check(cli, bed, project, "vega")["wrong"] == set()


def test_the_login_node_of_another_cluster(bed: Testbed, project: Path, cli: Cli) -> None:
    discovered(cli, bed, project, "juwels", ("cores: 48", "cores: 64"))
    result = cli("site", "check", "juwels", "--json", cwd=project, env=environment(bed, "vega"), code=1)
    (site,) = result.json()["data"]["sites"]
    assert [(one["key"], one["found"]) for one in site["findings"]] == [("cluster_name", "vega")]


def test_an_account_that_is_not_ours(bed: Testbed, project: Path, cli: Cli) -> None:
    discovered(cli, bed, project, "juwels")
    words = ("site", "check", "juwels", "--account", "nobodys", "--json")
    errors = cli(*words, cwd=project, env=environment(bed, "juwels"), code=1).json()["errors"]
    assert [(error["key"], error["allowed"]) for error in errors] == [
        ("account", "demo, demo2, root (sacctmgr show assoc)")
    ]


def test_answers_that_were_saved_say_the_same_elsewhere(bed: Testbed, project: Path, cli: Cli) -> None:
    discovered(cli, bed, project, "vega", ("array_size: 1001", "array_size: 2000"))
    saved = project / "answers.json"
    cli("site", "check", "vega", "--save", saved, cwd=project, env=environment(bed, "vega"), code=1)
    result = cli("site", "check", "vega", "--from", saved, "--json", cwd=project, env={"PATH": "/nowhere"}, code=1)
    assert [error["key"] for error in result.json()["errors"]] == ["scheduler.limits.array_size"]


def test_accounting_that_does_not_answer_is_unknown(bed: Testbed, project: Path, cli: Cli) -> None:
    discovered(cli, bed, project, "jupiter")
    bed.dbd_stop()
    try:
        found = check(cli, bed, project, "jupiter")
    finally:
        bed.dbd_start()
    unknown = {key for key, _ in found["unknown"]}
    assert {"account", "qos", "partitions.booster.max_time"} <= unknown
    assert found["wrong"] == set()


def test_a_controller_that_does_not_answer(bed: Testbed, project: Path, cli: Cli) -> None:
    discovered(cli, bed, project, "vega")
    bed.ctld_stop("vega")
    try:
        words = ("site", "check", "vega", "--json")
        result = cli(*words, cwd=project, env=environment(bed, "vega"), code=3)
        assert "no answer from the cluster" in result.json()["errors"][0]["message"]
        assert result.json()["data"]["sites"][0]["findings"] == []
    finally:
        bed.ctld_start("vega")
    cluster = bed.cluster("vega")
    wait_for(lambda: set(cluster.node_states().values()) == {"idle"})


# -- probe -------------------------------------------------------------------------------------------------------------

HOSTILE = {"SBATCH_PARTITION": "nosuch", "SLURM_NTASKS": "99", "SLURM_CPU_BIND": "cores", "SBATCH_TIMELIMIT": "1"}


def probe_site(
    cli: Cli, bed: Testbed, project: Path, cluster: str, nodes: tuple[str, ...], *changes: tuple[str, str]
) -> Path:
    """A discovered file with an interface, a file system that is shared, and these nodes."""
    scratch = project / "scratch"
    scratch.mkdir()
    kind = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", scratch], capture_output=True, text=True, check=True)
    line = (
        f'  scratch: {{path: "{scratch}", kind: {kind.stdout.strip()}, shared: true, on_compute: true}}\n  shm: {{path'
    )
    return discovered(cli, bed, project, cluster, ("interface: null", "interface: ib0"), ("  shm: {path", line),
                      ("compute_internet: null", f"compute_internet: false\nnodelist: {','.join(nodes)}"),
                      *changes)  # fmt: skip


def probe(cli: Cli, bed: Testbed, project: Path, cluster: str, *words: str, code: int = 1) -> Result:
    env = environment(bed, cluster) | HOSTILE
    return cli("site", "probe", cluster, "--json", *words, cwd=project, env=env, code=code)


def verdicts(result: Result) -> dict[str, set[tuple[str, Any]]]:
    assert result.json()["data"]["state"] == "done", result.stdout
    found: dict[str, set[tuple[str, Any]]] = {verdict: set() for verdict in result.json()["data"]["counts"]}
    for finding in result.json()["data"]["findings"]:
        found[finding["verdict"]].add((finding["key"], finding["found"]))
    return found


def only_bed(cluster: str) -> set[str]:
    """What is wrong on every bed: its nodes claim cores and GPUs that this machine doesn't have, and where the bed lies
    in memory its shared storage is of a kind that each node has for itself on any real machine."""
    node, cores = {"juwels": ("a100x4", 48), "vega": ("a100x4", 128), "jupiter": ("gh200x4", 288)}[cluster]
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    real = len({path.read_text() for path in siblings})
    storage = {"filesystems.scratch.shared"} if storage_kind() in NODE_KINDS else set()
    return {f"nodes.{node}.gpus"} | (set() if real == cores else {f"nodes.{node}.cores"}) | storage


def storage_kind() -> str:
    """The file system below the bed."""
    command = ["findmnt", "-n", "-o", "FSTYPE", "-T", tempfile.gettempdir()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def module_cli(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """As `cli`, for fixtures of the module."""
    clean = bed.cluster("juwels").env | {"HOME": str(tmp_path_factory.mktemp("home"))}

    def run(*words: str | Path, cwd: Path, env: dict[str, str], code: int) -> Result:
        command = [campaign_command(), *map(str, words)]
        answer = subprocess.run(command, cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=240,
                                check=False)  # fmt: skip
        result = Result(tuple(command[1:]), answer.returncode, answer.stdout, answer.stderr)
        assert result.code == code, str(result)
        return result

    return run


def send(cli: Cli, bed: Testbed, project: Path, cluster: str) -> str:
    """Send a probe and go away; the job's id."""
    sent = probe(cli, bed, project, cluster, "--no-wait", code=0).json()["data"]
    assert sent["state"] == "queued"
    return str(sent["job_id"])


def away_twice(project: Path) -> tuple[str, str]:
    """A change of the site file: in the job, srun says twice what it says of an absent controller, before it runs."""
    folder = project / "bin"
    folder.mkdir()
    said = "srun: error: Unable to create step for job 1: Unable to contact slurm controller (connect failure)"
    lines = ["#!/bin/sh", f"mkdir {folder}/1 || mkdir {folder}/2 || exec {shutil.which('srun')} \"$@\"",
             f"echo '{said}' >&2", "exit 1"]  # fmt: skip
    (folder / "srun").write_text("\n".join(lines) + "\n")
    (folder / "srun").chmod(0o755)
    return "setup: []", f"setup: ['export PATH={folder}:$PATH']"


@pytest.fixture(scope="module")
def probes(bed: Testbed, module_cli: Cli) -> dict[str, dict[str, Result]]:
    """Six probes at the same time, by what they are of and by cluster: sent first, read by the same command afterwards.

    true: files that are true. changed: not so. juwels: the file lacks the names' `i`. vega: on the last node another
    file system lies over scratch, and /dev/shm is smaller; the probe is sent by a command that is interrupted.
    jupiter: on the last node another file system lies over the run root; true: the first two attempts to make a step
    there don't reach the controller.
    """
    projects = {kind: {cluster: new_project(bed, f"{kind}-{cluster}") for cluster in CLUSTERS}
                for kind in ("true", "changed")}  # fmt: skip
    for cluster in CLUSTERS:
        nodes = bed.cluster(cluster).nodes
        changes = [('master_addr_suffix: ""', "master_addr_suffix: i")] if cluster == "juwels" else []
        if cluster == "jupiter":
            changes.append(away_twice(projects["true"][cluster]))
        probe_site(module_cli, bed, projects["true"][cluster], cluster, nodes[:2], *changes)
        probe_site(module_cli, bed, projects["changed"][cluster], cluster, nodes[2:])
    vega, jupiter = (bed.cluster(name).nodes[-1] for name in ("vega", "jupiter"))
    scratch, runs = projects["changed"]["vega"] / "scratch", projects["changed"]["jupiter"] / "runs"
    runs.mkdir()
    in_node(bed, vega, "mount", "-t", "ramfs", "none", str(scratch))
    in_node(bed, vega, "mount", "-o", "remount,size=64m", "/dev/shm")
    in_node(bed, jupiter, "mount", "-t", "tmpfs", "none", str(runs))
    try:
        sent = [(kind, cluster) for kind in projects for cluster in CLUSTERS if (kind, cluster) != ("changed", "vega")]
        jobs = {(kind, cluster): send(module_cli, bed, projects[kind][cluster], cluster) for kind, cluster in sent}
        jobs["changed", "vega"] = interrupted(bed, projects["changed"]["vega"], "vega")
        results = {kind: {cluster: probe(module_cli, bed, project, cluster) for cluster, project in of.items()}
                   for kind, of in projects.items()}  # fmt: skip
    finally:
        in_node(bed, vega, "umount", str(scratch))
        in_node(bed, vega, "mount", "-o", f"remount,size={bed.settings.shm_mib}m", "/dev/shm")
        in_node(bed, jupiter, "umount", str(runs))
    read = {(kind, cluster): result.json()["data"]["job_id"] for kind, of in results.items()
            for cluster, result in of.items()}  # fmt: skip
    assert read == jobs
    return results


@pytest.fixture
def probed(probes: dict[str, dict[str, Result]]) -> dict[str, Result]:
    """The probes of true files, by cluster."""
    return probes["true"]


@pytest.fixture
def changed(probes: dict[str, dict[str, Result]]) -> dict[str, Result]:
    """The probes of changed nodes and of a wrong file, by cluster."""
    return probes["changed"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_true_file_on_compute_nodes(bed: Testbed, probed: dict[str, Result], cluster: str) -> None:
    result = probed[cluster]
    found = verdicts(result)
    assert {key for key, _ in found["wrong"]} == only_bed(cluster)
    messages = [finding["message"] for finding in result.json()["data"]["findings"] if finding["verdict"] == "right"]
    assert any(text.startswith("the warning signal reached the batch process") for text in messages)
    assert any(text.startswith("SIGTERM reached batch process and steps (3 of 3 processes)") for text in messages)
    assert any(text.endswith("(KillWait 5 s)") for text in messages)  # as the bed is configured
    assert ("staging.mode", True) in found["right"]
    assert ("network.interface", "ib0") in found["right"]
    first = bed.cluster(cluster).nodes[0]
    # on juwels the plain name doesn't route
    assert ("network.master_addr_suffix", f"{first}i" if cluster == "juwels" else first) in found["right"]
    assert ("paths.run_root", True) in found["right"]
    assert ("compute_internet", False) in found["right"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_facts_of_a_probe(bed: Testbed, probed: dict[str, Result], cluster: str) -> None:
    data = probed[cluster].json()["data"]
    facts = data["facts"]
    assert data["state"] == "done", probed[cluster].stdout
    assert [node["host"]["node"] for node in facts["nodes"].values()] == list(bed.cluster(cluster).nodes[:2])
    for node in facts["nodes"].values():
        assert node["shm"]["size_bytes"] == bed.settings.shm_mib * 2**20
        assert node["shm"]["kind"] == "tmpfs"
        assert node["sbcast"]["sha256"] == facts["broadcast_sha256"]
        assert node["internet"]["reached"] is False
        assert node["host"]["variables"]["SLURM_GPUS_ON_NODE"] == "4"
        assert node["gpus"]["devices"] == []
    assert len(facts["ranks"]) == 8  # two nodes, a rank for each of the four GPUs that they claim
    assert facts["kill_wait_s"] == bed.settings.kill_wait_s
    client = facts["nodes"]["1"]["pair"]
    assert [size["bytes"] for size in client["sizes"]] == [8, 16 * 2**20]
    kept = json.loads(Path(data["file"]).read_text())
    assert kept["facts"] == facts
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", kept["date"])
    assert Path(data["file"]).name.startswith(f"{cluster}-{kept['date'][:10]}")
    # what was read is removed from shared storage
    assert list((Path(data["file"]).parents[2] / "runs" / "probe").iterdir()) == []


def test_juwels_plain_names_do_not_route(probed: dict[str, Result]) -> None:
    names = probed["juwels"].json()["data"]["facts"]["nodes"]["1"]["pair"]["names"]
    assert [(name["name"], name["reached"]) for name in names] == [("jwb0001i", True), ("jwb0001", False)]


def test_a_change_of_one_nodes_mounts_is_found(bed: Testbed, changed: dict[str, Result]) -> None:
    data, nodes = changed["vega"].json()["data"], bed.cluster("vega").nodes
    found = verdicts(changed["vega"])
    here = {"filesystems.scratch.kind", "filesystems.scratch.shared"}
    assert {key for key, _ in found["wrong"]} == only_bed("vega") | here
    (kind,) = (one for one in data["findings"] if one["verdict"] == "wrong" and one["key"].endswith(".kind"))
    assert (kind["found"], kind["write"]) == ("ramfs", "kind: ramfs")
    assert f"on {nodes[-1]}" in kind["message"]
    sizes = {checks["host"]["node"]: checks["shm"]["size_bytes"] for checks in data["facts"]["nodes"].values()}
    assert sizes == {nodes[-2]: bed.settings.shm_mib * 2**20, nodes[-1]: 64 * 2**20}


def test_a_wrong_suffix_is_found(changed: dict[str, Result]) -> None:
    found = verdicts(changed["juwels"])
    assert {key for key, _ in found["wrong"]} - only_bed("juwels") == {"network.master_addr_suffix"}


def test_a_run_root_that_one_node_does_not_see_is_found(bed: Testbed, changed: dict[str, Result]) -> None:
    found = verdicts(changed["jupiter"])
    assert {key for key, _ in found["wrong"]} - only_bed("jupiter") >= {"paths.run_root"}
    messages = [one["message"] for one in changed["jupiter"].json()["data"]["findings"] if one["verdict"] == "wrong"]
    assert any(text.startswith(f"{bed.cluster('jupiter').nodes[-1]} left nothing in the run root") for text in messages)


def interrupted(bed: Testbed, project: Path, cluster: str) -> str:
    """Send a probe, press Ctrl-C while it is on its way; the job's id."""
    command = [campaign_command(), "site", "probe", cluster]
    env = bed.cluster(cluster).env
    told = project / "told"
    with told.open("w") as stderr:
        waiting = subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            wait_for(lambda: re.search(r"job \d+: (pending|running)", told.read_text()))
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(60) == 130
        finally:
            waiting.kill()
    match = re.search(r"sent job (\d+)", told.read_text())
    assert match
    assert f"job {match[1]} goes on" in told.read_text()
    assert f"campaign site probe {cluster}" in told.read_text()
    return match[1]


def test_a_probe_that_is_refused(bed: Testbed, project: Path, cli: Cli) -> None:
    probe_site(cli, bed, project, "jupiter", bed.cluster("jupiter").nodes[:2])
    result = probe(cli, bed, project, "jupiter", "--account", "nobodys")
    (error,) = result.json()["errors"]
    assert "Invalid account" in error["message"]
    assert not list((project / ".campaign").glob("probes/*.pending.json"))


def test_jobs_that_never_looked_at_anything(bed: Testbed, project: Path, cli: Cli, tmp_path: Path) -> None:
    """A Python that isn't there is named by the job's log; a run root that nodes don't see leaves none."""
    nodes = bed.cluster("vega").nodes[:2]
    path = probe_site(cli, bed, project, "vega", nodes, ("python: null", "python: /nowhere/python"))
    (error,) = probe(cli, bed, project, "vega").json()["errors"]
    assert "/nowhere/python: No such file or directory" in error["message"]
    path.write_text(path.read_text().replace("python: /nowhere/python", "python: null"))
    # below /tmp each node has its own files
    hidden = {"schema": 1, "paths": {"vega": {"run_root": str(tmp_path)}}}
    (project / "campaign.yaml").write_text(json.dumps(hidden))
    (error,) = probe(cli, bed, project, "vega").json()["errors"]
    assert (error["key"], "left no log" in error["message"]) == ("paths.run_root", True)
    assert not list((project / ".campaign").glob("probes/*.pending.json"))
