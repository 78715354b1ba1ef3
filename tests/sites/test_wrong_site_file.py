"""A wrong site file is refused with file, line, key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.errors import BadInput, Problem
from campaign.site import Site, load_site

SITE = """\
schema: 1
name: tiny
scheduler:
  kind: slurm
  gpu_request: gres
  sbatch_args: {hint: nomultithread}
default_partition: batch
partition_by_size: [batch]
partitions:
  batch:
    node: fat
    max_nodes: 8
    max_time: "1-00:00:00"
    qos: {short: {max_time: "01:00:00"}}
nodes:
  fat: {gpu: a100, gpus: 4, cores: 48, memory_bytes: 512e9}
gpus:
  a100: {vendor: nvidia}
filesystems:
  scratch: {path: "/scratch/{project}", kind: gpfs, shared: true, on_compute: true}
  shm: {path: /dev/shm, kind: tmpfs, shared: false, on_compute: true}
  login: {path: /login, kind: nfs, shared: true, on_compute: false}
paths: {run_root: "scratch:runs", node_local: "shm:me", data: "scratch:data"}
env: {NCCL_IB_TIMEOUT: 18}
"""

# what is replaced, by what, line, key, words of the message or hint
WRONG: dict[str, tuple[str, str, int, str, str]] = {
    "unknown key": ("partition_by_size:", "partitions_by_size:", 8, "partitions_by_size", "`partition_by_size`"),
    "unknown key below": ("gpu_request: gres", "gpu_requst: gres", 5, "scheduler.gpu_requst", "`gpu_request`"),
    "unknown key in a named entry": ("max_nodes: 8", "max_node: 8", 12, "partitions.batch.max_node", "`max_nodes`"),
    "wrong type": ("max_nodes: 8", "max_nodes: many", 12, "partitions.batch.max_nodes", "whole number"),
    "quoted number": ("max_nodes: 8", 'max_nodes: "8"', 12, "partitions.batch.max_nodes", "whole number"),
    "not positive": ("max_nodes: 8", "max_nodes: 0", 12, "partitions.batch.max_nodes", "positive"),
    "unquoted time": ('max_time: "1-00:00:00"', "max_time: 24:00:00", 13, "partitions.batch.max_time", '"24:00:00"'),
    "no time": ('max_time: "1-00:00:00"', 'max_time: "1 day"', 13, "partitions.batch.max_time", "Slurm time"),
    "not one of the values": ("kind: slurm", "kind: pbs", 4, "scheduler.kind", "'slurm' or 'local'"),
    "list for a mapping": ("env: {NCCL_IB_TIMEOUT: 18}", "env: [a]", 24, "env", "mapping"),
    "boolean for text": ("NCCL_IB_TIMEOUT: 18", "NCCL_IB_TIMEOUT: true", 24, "env.NCCL_IB_TIMEOUT", "string"),
    "not a variable": ("NCCL_IB_TIMEOUT: 18", "NCCL-IB: 18", 24, "env.NCCL-IB", "environment variable"),
    "newer schema": ("schema: 1", "schema: 2", 1, "schema", "1"),
    "not a name": ("name: tiny", "name: Tiny Site", 2, "name", "not a valid name"),
    "unknown partition": ("[batch]", "[batch, bach]", 8, "partition_by_size[1]", "did you mean `batch`"),
    "unknown default": ("default_partition: batch", "default_partition: x", 7, "default_partition", "no partition"),
    "unknown node type": ("node: fat", "node: fast", 11, "partitions.batch.node", "did you mean `fat`"),
    "unknown GPU type": ("gpu: a100,", "gpu: h100,", 16, "nodes.fat.gpu", "GPU type"),
    "GPUs without a type": ("gpu: a100, ", "", 16, "nodes.fat.gpus", "needs `gpu`"),
    "own sbatch option": ("{hint: nomultithread}", "{time: 10}", 6, "scheduler.sbatch_args.time", "walltime"),
    "sbatch dashes": ("{hint: nomultithread}", "{--hint: x}", 6, "scheduler.sbatch_args.--hint", "without dashes"),
    "unknown file system": ('"scratch:runs"', '"scrach:runs"', 23, "paths.run_root", "did you mean `scratch`"),
    "no file system": ('"scratch:runs"', "runs", 23, "paths.run_root", "filesystem:folder"),
    "login file system": ('"scratch:runs"', '"login:runs"', 23, "paths.run_root", "not mounted on compute nodes"),
    "records on a node": ('"scratch:runs"', '"shm:runs"', 23, "paths.run_root", "must be on shared storage"),
    "shared node-local": ('"shm:me"', '"scratch:me"', 23, "paths.node_local", "node-local storage"),
    "unknown placeholder": ("{project}", "{group}", 20, "filesystems.scratch.path", "{project}, {user}"),
    "open brace": ("/{project}", "/{project", 20, "filesystems.scratch.path", "braces"),
    "relative path": ("path: /dev/shm", "path: dev/shm", 21, "filesystems.shm.path", "absolute"),
    "line break in an account": (
        "name: tiny",
        'name: tiny\naccount: "a\\n#SBATCH --wrap=x"',
        3,
        "account",
        "one word",
    ),
    "blank in a partition's name": ("  batch:\n", "  ba tch:\n", 10, "partitions.ba tch", "one word"),
    "line break in a path": ('"/scratch/{project}"', '"/scratch\\nrm"', 20, "filesystems.scratch.path", "one line"),
    "missing key": ("default_partition: batch\n", "", 1, "default_partition", "missing"),
    "unknown QOS": (
        'qos: {short: {max_time: "01:00:00"}}',
        'qos: {short: {max_time: "01:00:00"}}\n    qos_by_size: [short, shrt]',
        15,
        "partitions.batch.qos_by_size[1]",
        "did you mean `short`",
    ),
    "one CPU for two ranks": ("cores: 48,", "cores: 48, cpu_bind: [0, 12, 12],", 16, "nodes.fat.cpu_bind", "same CPU"),
    "CPUs as text": ("cores: 48,", 'cores: 48, cpu_bind: "map_cpu:0,12",', 16, "nodes.fat.cpu_bind", "a list"),
    "a rate without a unit": (
        "name: tiny",
        "name: tiny\nbilling: {per_node_hour: 4}",
        3,
        "billing.per_node_hour",
        "needs `unit`",
    ),
    "unknown vendor": ("vendor: nvidia", "vendor: intel", 18, "gpus.a100.vendor", "'nvidia' or 'amd'"),
    "internet by word": (
        "name: tiny",
        'name: tiny\ncompute_internet: "no"',
        3,
        "compute_internet",
        "true or false",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_site_file_is_refused_with_file_line_and_key(tmp_path: Path, name: str) -> None:
    old, new, line, key, words = WRONG[name]
    assert SITE.count(old) >= 1
    problem = only_problem(tmp_path, SITE.replace(old, new, 1))
    assert (problem.file, problem.line, problem.key) == (str(tmp_path / "tiny.yaml"), line, key)
    assert words in f"{problem.message} {problem.allowed} {problem.hint}"


def only_problem(folder: Path, text: str) -> Problem:
    """The one error of a site file."""
    path = folder / "tiny.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_site(path)
    assert len(caught.value.problems) == 1, caught.value
    return caught.value.problems[0]


def test_all_errors_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(SITE.replace("kind: slurm", "kind: pbs").replace("max_nodes: 8", "max_nodes: -8") + "colour: red\n")
    with pytest.raises(BadInput) as caught:
        load_site(path)
    assert [problem.line for problem in caught.value.problems] == [4, 12, 25]


def test_a_right_site_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(SITE)
    site = load_site(path)
    assert isinstance(site, Site)
    assert site.partitions["batch"].max_time == 86400
    assert site.partitions["batch"].qos["short"].max_time == 3600
    assert site.node_of("batch").memory_bytes == 512 * 10**9
    assert site.env == {"NCCL_IB_TIMEOUT": "18"}
    assert site.gpu_of("batch") is site.gpus["a100"]
