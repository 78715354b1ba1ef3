"""The starter sites are true to their sources, and a wrong site file is refused with file and line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from campaign.errors import BadInput, Problem
from campaign.site import Site, load_site, site_schema
from campaign.study import load_study, study_schema
from campaign.yamlfile import Document, load, without_marks

ROOT = Path(__file__).resolve().parent.parent
SITES = sorted((ROOT / "sites").glob("*.yaml"))
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
SLURM_SITES = [path for path in SITES if path.stem != "local"]

# [grade date source]: official, measured, repository, public; K, a datasheet, needs no date
_DATE = r"(?:20\d\d(?:-\d\d){0,2}|undated)"
GRADE = re.compile(rf"# \[(?:[OMRP] {_DATE} \S[^\]]*|[OMRP] {_DATE}|K \S[^\]]*)\]")
GRADED = ("partitions", "nodes", "gpus", "filesystems")


def without_grade(document: Document) -> list[str]:
    """Entries below the graded sections whose line has no `# [grade date source]`."""
    lines = document.text.splitlines()
    entries = [(section, name) for section in GRADED for name in document.data.get(section) or {}]
    return [f"{entry[0]}.{entry[1]}" for entry in entries if not GRADE.search(lines[document.line_of(entry) - 1])]


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_every_entry_says_where_it_is_from(path: Path) -> None:
    document = load(path)
    assert without_grade(document) == []
    assert set(GRADED) & set(document.data), "nothing was looked at"


@pytest.mark.parametrize(
    "comment",
    ["", "# from the web", "# [O JPY]", "# [X 2021 JPY]", "# [K]", "# O 2021 JPY", "# [M yesterday me]"],
)
def test_an_entry_without_a_grade_is_found(tmp_path: Path, comment: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"partitions:\n  a: {{node: n}}  # [O 2021-09-09 JPY]\n  b: {{node: n}}  {comment}\n")
    assert without_grade(load(path)) == ["partitions.b"]


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_a_starter_site_is_valid_and_named_like_its_file(path: Path) -> None:
    assert load_site(path).name == path.stem


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_starter_study_is_valid_and_named_like_its_file(path: Path) -> None:
    assert load_study(path).name == path.stem


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_a_starter_site_lists_studies_that_exist(path: Path) -> None:
    assert set(load_site(path).studies) <= {study.stem for study in STUDIES}


# facts of the sites' documents, written down here a second time by hand
FACTS: dict[str, dict[str, Any]] = {
    "juwels": {
        "arch": "x86_64",
        "partitions.booster.nodes": 936,
        "partitions.booster.max_nodes": 384,
        "partitions.booster.max_time": 24 * 3600,
        "partitions.develbooster.max_nodes": 4,
        "partitions.develbooster.max_time": 2 * 3600,
        "partitions.largebooster.max_nodes": None,
        "partitions.largebooster.max_time": None,
        "nodes.a100x4.cores": 48,
        "nodes.a100x4.threads_per_core": 2,
        "nodes.a100x4.gpus": 4,
        "nodes.a100x4.memory_bytes": 512_000_000_000,
        "gpus.a100-40.peak_flops.bf16": 312e12,
        "network.master_addr_suffix": "i",
        "network.interface": "ib0",
        "scheduler.sbatch_args.hint": "nomultithread",
        "scheduler.gpu_request": "gres",
        "visible_gpus": "all",
        "cpu_unit": "core",
        "env.GLOO_SOCKET_IFNAME": "ib0",
        "filesystems.scratch.quota_inodes": 4_000_000,
        "filesystems.project.quota_inodes": 3_000_000,
        "filesystems.scratch.purge_days": 90,
        "cluster_name": None,
    },
    "vega": {
        "arch": "x86_64",
        "partitions.gpu.nodes": 60,
        "partitions.gpu.max_time": None,
        "partitions.gpu.exclusive": False,
        "nodes.a100x4.cores": 128,
        "nodes.a100x4.disk_bytes": 1_920_000_000_000,
        "nodes.a100x4.usable_bytes": 384 * 1024**3,
        "network.master_addr_suffix": "",
        "visible_gpus": "slurm",
        "cpu_unit": "thread",
        "filesystems.scratch.kind": "lustre",
        "filesystems.scratch.quota_bytes": None,
        "filesystems.scratch.purge_days": None,
    },
    "jupiter": {
        "arch": "aarch64",
        "partitions.booster.max_time": 12 * 3600,
        "partitions.booster.default_time": 3600,
        "partitions.largebooster.down": True,
        "nodes.gh200x4.cores": 288,
        "nodes.gh200x4.threads_per_core": 1,
        "nodes.gh200x4.memory_bytes": 480_000_000_000,
        "gpus.gh200-96.memory_bytes": 96_000_000_000,
        "gpus.gh200-96.power_cap_w": 680,
        "network.master_addr_suffix": "",
        "network.resolve_ip": True,
        "visible_gpus": "all",
        "billing.unit": "core-h",
        "filesystems.fscratch.purge_days": 30,
        "filesystems.just.on_compute": False,
        "filesystems.scratch.quota_inodes": 8_000_000,
    },
}


@pytest.mark.parametrize(("site", "key"), [(site, key) for site, facts in FACTS.items() for key in facts], ids=str)
def test_a_fact_of_the_site_is_in_its_file(site: str, key: str) -> None:
    value: Any = load_site(ROOT / "sites" / f"{site}.yaml")
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert value == FACTS[site][key]


def test_no_account_is_shipped() -> None:
    assert [site.account for site in map(load_site, SITES)] == [None] * len(SITES)


# -- editors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "schema"), [("site", site_schema), ("study", study_schema)])
def test_the_exported_json_schema_is_up_to_date(name: str, schema: Any) -> None:
    written = json.loads((ROOT / "docs" / "schema" / f"{name}.json").read_text())
    assert written == json.loads(json.dumps(schema())), "run: python -m campaign.schema docs/schema"


@pytest.mark.parametrize("path", [*SITES, *STUDIES], ids=lambda path: path.stem)
def test_an_editor_accepts_the_starter_files(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match
    schema = json.loads((path.parent / match[1]).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(without_marks(load(path).data), schema)


def test_an_editor_shows_an_unknown_key() -> None:
    data = without_marks(load(ROOT / "sites" / "juwels.yaml").data)
    data["scheduler"]["gpu_requests"] = "gres"
    with pytest.raises(jsonschema.ValidationError, match="gpu_requests"):
        jsonschema.validate(data, site_schema())


# -- wrong files -----------------------------------------------------------------------------------------------------

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


def test_threads_are_counted_where_the_site_counts_threads() -> None:
    assert load_site(ROOT / "sites/vega.yaml").slurm_cpus("gpu", 32) == 64
    assert load_site(ROOT / "sites/juwels.yaml").slurm_cpus("booster", 12) == 12


def test_a_local_site_has_the_cores_of_this_process() -> None:
    node = load_site(ROOT / "sites/local.yaml").node_of("local")
    allowed = len(os.sched_getaffinity(0))
    assert node.cores is not None
    assert 1 <= node.cores <= allowed
    assert node.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    quota = Path("/sys/fs/cgroup/cpu.max")
    if not quota.exists() or quota.read_text().startswith("max"):
        assert node.cores == allowed
