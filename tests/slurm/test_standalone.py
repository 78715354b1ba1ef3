"""`campaign script RUN --standalone`: plain jobs on the three clusters, sent by sbatch, without campaign in them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.needs import needs
from tests.slurm.projects import make_project, study
from tests.slurm.testbed import Cluster

MEETS = """
import json, os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
end = time.monotonic() + 60
told = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
told |= {"node": os.environ["SLURMD_NODENAME"], "campaign": any("campaign" in name for name in sys.modules),
         "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "omp": os.environ["OMP_NUM_THREADS"],
         "ifname": os.environ.get("NCCL_SOCKET_IFNAME"), "addr": address[0], "words": sys.argv[1:]}
if rank == 0:
    server = socket.create_server(("", address[1]))
    ranks = [told]
    while len(ranks) < size:
        server.settimeout(max(0.1, end - time.monotonic()))
        peer, _ = server.accept()
        with peer, peer.makefile() as lines:
            ranks.append(json.loads(lines.readline()))
    print("MET " + json.dumps(ranks), flush=True)
else:
    while True:
        try:
            peer = socket.create_connection(address, timeout=5)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    with peer:
        peer.sendall(json.dumps(told).encode() + b"\\n")
"""


def planned(cli: Cli, project: Path, site: str, name: str) -> str:
    """The id of the one run of a study; it is planned, and never queued."""
    plan = cli("plan", site, "--study", name, "--json", cwd=project, code=0).json()["data"]
    (run,) = plan["runs"]
    return str(run["run_id"])


def finished(cluster: Cluster, script: Path, **env: str) -> str:
    """Send a script as a user does; what the job printed once it is COMPLETED."""
    job = cluster.submit(f"--chdir={script.parent}", str(script), env=env)
    state = cluster.wait_job(job)
    output = "".join(path.read_text() for path in script.parent.glob(f"*-{job}.out"))
    assert state == "COMPLETED", output
    return output


def met(output: str) -> list[dict[str, Any]]:
    ranks: list[dict[str, Any]] = json.loads(output.split("MET ")[1].splitlines()[0])
    return sorted(ranks, key=lambda told: int(told["RANK"]))


@needs("slurm")
@pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)
def test_a_plain_job_of_two_nodes_finishes_and_its_ranks_meet(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """By hand: 8 ranks, four a node, in blocks; GPUs and cores as the site files of 2026 have them."""
    size = {"nodes": [2], "ranks_per_node": [4]}
    project = make_project(shared / "p", cluster.name, studies={"meet": study(["python", "meet.py"], axes=size)})
    (project / "meet.py").write_text(MEETS)
    run = planned(cli, project, cluster.name, "meet")
    script = shared / "jobs" / "job.sh"
    script.parent.mkdir()
    cli("script", run, "--standalone", "--out", script, cwd=project, code=0)
    assert os.access(script, os.X_OK)
    # an interpreter that has no campaign: the base of this environment
    bare = Path(sys.base_prefix) / "bin" / "python3"
    output = finished(cluster, script, PYTHON=str(bare), NCCL_SOCKET_IFNAME="mine")
    ranks = met(output)
    assert [told["RANK"] for told in ranks] == [str(rank) for rank in range(8)]
    assert [told["LOCAL_RANK"] for told in ranks] == ["0", "1", "2", "3"] * 2
    assert [told["NODE_RANK"] for told in ranks] == ["0"] * 4 + ["1"] * 4
    assert len({told["node"] for told in ranks[:4]}) == 1
    assert {told["node"] for told in ranks[:4]}.isdisjoint(told["node"] for told in ranks[4:])
    assert {told["WORLD_SIZE"] for told in ranks} == {"8"}
    assert {told["LOCAL_WORLD_SIZE"] for told in ranks} == {"4"}
    assert {told["campaign"] for told in ranks} == {False}
    assert {told["ifname"] for told in ranks} == {"mine"}  # the user's own value wins over the site's
    cores = {"juwels": 48, "vega": 128, "jupiter": 288}[cluster.name]
    assert {told["omp"] for told in ranks} == {str(cores // 4)}
    assert {told["gpus"] for told in ranks} == {"0,1,2,3"}
    addresses = {told["addr"] for told in ranks}
    assert len(addresses) == 1
    if cluster.name == "vega":
        assert addresses == {ranks[0]["node"]}
    else:  # resolve_ip
        assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+", addresses.pop())
    assert not (project / "runs").exists()


@needs("slurm")
@pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)
def test_hostile_words_arrive_unharmed_and_unexecuted(cluster: Cluster, shared: Path, cli: Cli) -> None:
    nasty = "sp ace 'quote\" $(touch x) `touch y` ;touch z\n#SBATCH --nodes=9\nüñí \\ %j {brace} * EOF $PYTHON \\\n"
    writes = "import sys; print('hex', *(word.encode('utf-8', 'surrogateescape').hex() for word in sys.argv[1:]))"
    words = ["{value}", "", "-x", "--", "a\tb"]
    hostile = study(["python", "-c", writes, *words], params={"value": nasty})
    project = make_project(shared / "p", cluster.name, studies={"nasty": hostile})
    run = planned(cli, project, cluster.name, "nasty")
    script = shared / "jobs" / "a job's script.sh"
    script.parent.mkdir()
    cli("script", run, "--standalone", "--out", script, cwd=project, code=0)
    output = finished(cluster, script)
    wanted = [nasty, "", "-x", "--", "a\tb"]
    assert output.split("hex ")[1].rstrip("\n").split(" ") == [word.encode().hex() for word in wanted]
    assert not [path for path in shared.rglob("*") if path.name in ("x", "y", "z")]


@needs("slurm")
def test_a_workload_of_the_project_reads_its_parameters(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """The JSON in the script is what `campaign.record.spec()` gives; the file goes with the job."""
    reads = (
        "import json, os\nfrom campaign.record import Recorder, spec\nrecorder = Recorder.from_env()\n"
        "recorder.step(0, 0)\n"
        "def main():\n"
        "    print('SPEC', json.dumps([spec()['params'], spec()['nodes'], os.environ['RANK']]), flush=True)\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    text = "JSON\n$(touch x) 'ü"
    whole = {"params": {"text": text, "lr": 1e-3}, "axes": {"nodes": [1], "ranks_per_node": [2]}}
    studies = {
        name: {key: value for key, value in study([], **whole, workload=entry).items() if key != "command"}
        for name, entry in (("module", "mine.train"), ("function", "mine.train:main"))
    }
    project = make_project(shared / "p", cluster.name, studies=studies)
    (project / "mine").mkdir()
    (project / "mine" / "train.py").write_text(reads)
    jobs = shared / "jobs"
    jobs.mkdir()
    for name in studies:
        run = planned(cli, project, cluster.name, name)
        text_out = cli("script", run, "--standalone", cwd=project, code=0).stdout
        assert "pip install campaign" in text_out
        (jobs / f"{name}.sh").write_text(text_out)
        told = finished(cluster, jobs / f"{name}.sh").split("SPEC ")[1:]
        assert [json.loads(line.splitlines()[0])[:2] for line in told] == [[{"text": text, "lr": 0.001}, 1]] * 2
        assert sorted(json.loads(line.splitlines()[0])[2] for line in told) == ["0", "1"]
    assert not list(project.glob("campaign-spec-*"))
    assert not list(shared.rglob("x"))


@needs("slurm", "torch", "zarr")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_our_own_workload_trains_without_the_manager(cluster: Cluster, shared: Path, cli: Cli) -> None:
    """DDP over two nodes, met over the site's network; 880 training samples, as the set of 8 cells and 14 years has."""
    size = {"nodes": [2], "ranks_per_node": [1]}
    ddp = {key: value for key, value in study([], axes=size).items() if key != "command"} | {
        "workload": "training.workloads.hydrology", "scaling": "strong", "data": {"name": "hydrology_synthetic"},
        "params": {"global_batch": 16, "hidden": 8, "epochs": 1, "warmup_epochs": 0},
    }  # fmt: skip
    project = make_project(shared / "p", "vega", studies={"ddp": ddp})
    cli("data", "prepare", "hydrology", "--synthetic", "--cells", "8", "--years", "14", cwd=project, code=0)
    run = planned(cli, project, "vega", "ddp")
    script = shared / "job.sh"
    cli("script", run, "--standalone", "--out", script, cwd=project, code=0)
    assert "pip install 'campaign[train]'" in script.read_text()
    output = finished(cluster, script)
    assert "880 training samples" in output
    assert "2 ranks on cpu (gloo)" in output
    assert re.search(r"epoch 0: .* 55 steps, .* 880 samples read, 880 different", output), output


@needs("slurm")
def test_without_standalone_it_is_what_submit_sends(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = make_project(shared / "p", cluster.name, studies={"one": study(["true"])})
    run = planned(cli, project, cluster.name, "one")
    shown = cli("script", run[:6], cwd=project, code=0).stdout
    cli("submit", cwd=project, code=0)
    (sent,) = (project / "runs" / "submit").glob("*/*_submission.sh")
    assert sent.read_text().strip() == shown.strip()


@needs("slurm")
@pytest.mark.parametrize("cluster", ["vega"], indirect=True)
def test_set_up_that_fails_ends_the_job(cluster: Cluster, shared: Path, cli: Cli) -> None:
    project = make_project(shared / "p", cluster.name, studies={"one": study(["touch", "ran"])})
    site = project / "sites" / "vega.yaml"
    site.write_text(re.sub(r"^setup: \[\]", "setup: [module load no/such]", site.read_text(), flags=re.MULTILINE))
    run = planned(cli, project, "vega", "one")
    script = shared / "job.sh"
    cli("script", run, "--standalone", "--out", script, cwd=project, code=0)
    job = cluster.submit(f"--chdir={shared}", str(script))
    assert cluster.wait_job(job) == "FAILED"
    (output,) = shared.glob(f"*-{job}.out")
    assert "this line of the set-up failed: module load no/such" in output.read_text()
    assert not (project / "ran").exists()
