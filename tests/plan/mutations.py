# ruff: noqa: E501  a table: one mutation a line
"""Named mutations of three valid files, each with what must come of it. Cases only; `mutation_table` judges them.

`old` is replaced by `new` (its first occurrence); a mutation without `old` is the whole file. The verdict:
SAME: read with the same meaning. Reads(path, value): read, with this meaning. Refused(line, words): refused there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.plan.conftest import SITE, STUDY

CONFIG = """\
schema: 1
accounts: {tiny: budget}
caps: {gpu_hours: 1000, queued: 10}
paths: {tiny: {run_root: "scratch:runs"}}
group_readable: false
"""
BASE = {"site": SITE, "study": STUDY, "campaign": CONFIG}


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused at this line, with these words in message, allowed or hint."""

    line: int
    words: str


@dataclass(frozen=True, slots=True)
class Reads:
    """Read: at `path` stands `value` (and of the same type)."""

    path: str
    value: Any


class Same:
    """Read with the same meaning as the file before the mutation."""


SAME = Same()
Verdict = Refused | Reads | Same


@dataclass(frozen=True, slots=True)
class Mutation:
    """One changed file."""

    file: str
    name: str
    text: bytes
    verdict: Verdict


def _changed(file: str, old: str, new: str) -> bytes:
    text = BASE[file]
    assert old in text, (file, old)
    return text.replace(old, new, 1).encode()


def _group(file: str, *rows: tuple[str, str, str, Verdict]) -> list[Mutation]:
    return [Mutation(file, name, _changed(file, old, new), verdict) for name, old, new, verdict in rows]


def _whole(file: str, *rows: tuple[str, bytes, Verdict]) -> list[Mutation]:
    return [Mutation(file, name, text, verdict) for name, text, verdict in rows]


_STUDY, _SITE = STUDY.encode(), SITE.encode()
_DEEP = "[" * 70 + "1" + "]" * 70
_BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + above] * 10)}]\n" for above, name in zip("abcdef", "bcdefg", strict=True)
)

TEXT = [
    *_whole(
        "study",
        ("byte order mark", b"\xef\xbb\xbf" + _STUDY, SAME),
        ("CRLF line ends", _STUDY.replace(b"\n", b"\r\n"), SAME),
        ("line ends of an old Mac", _STUDY.replace(b"\n", b"\r"), SAME),
        ("no newline at the end", _STUDY.rstrip(b"\n"), SAME),
        ("blank lines at the end", _STUDY + b"\n\n\n", SAME),
        ("comments", b"# a study\n" + _STUDY.replace(b"\n", b"   # said\n"), SAME),
        ("document start", b"---\n" + _STUDY, SAME),
        ("document end", _STUDY + b"...\n", SAME),
        ("%YAML 1.2", b"%YAML 1.2\n---\n" + _STUDY, SAME),
        ("%YAML 1.1", b"%YAML 1.1\n---\n" + _STUDY, Refused(1, "%YAML 1.1 is not read")),
        ("two documents", _STUDY + b"---\n" + _STUDY, Refused(11, "a second YAML document")),
        ("empty file", b"", Refused(1, "the file is empty")),
        ("only a comment", b"# nothing\n", Refused(1, "the file is empty")),
        ("only blanks", b"  \n \n", Refused(1, "the file is empty")),
        ("only a document start", b"---\n", Refused(1, "the file is empty")),
        ("a list at the top", b"- " + _STUDY.replace(b"\n", b"\n  "), Refused(1, "the top level is a list")),
        ("a word at the top", b"study\n", Refused(1, "the top level is a single value")),
        ("an empty mapping", b"{}\n", Refused(1, "is missing")),
        ("Latin-1", _STUDY + b"# \xfcber\n", Refused(11, "not UTF-8 text (byte 0xfc)")),
        ("UTF-16", _STUDY.decode().encode("utf-16"), Refused(1, "not UTF-8 text (byte 0xff)")),
        ("NUL byte", _STUDY + b"\0", Refused(11, "not valid YAML")),
        ("bell in a comment", _STUDY + b"# \x07\n", Refused(11, "not valid YAML")),
        ("a tab for indentation", _STUDY.replace(b"  nodes", b"\tnodes"), Refused(7, "not valid YAML")),
        ("one blank too many", _STUDY.replace(b"  strategy", b"   strategy"), Refused(8, "not valid YAML")),
        ("no indentation", _STUDY.replace(b"  nodes", b"nodes"), Refused(8, "not valid YAML")),
        ("indented as a whole", b"  " + _STUDY.replace(b"\n", b"\n  ").rstrip(b" "), SAME),
        ("a merge conflict", _STUDY + b"<<<<<<< HEAD\nrepeats: 3\n=======\n", Refused(12, "not valid YAML")),
        ("cut within a list", _STUDY[: _STUDY.index(b"4]")], Refused(7, "not valid YAML")),
        ("cut within quotes", _STUDY[:-5], Refused(10, "not valid YAML")),
        ("aliases that grow without end", _STUDY + _BOMB.encode(), Refused(15, "too large")),
        ("JSON instead of YAML",
         b'{"schema": 1, "name": "sweep", "command": ["python", "train.py", "--lr", "{lr}"], "params": {"global_batch":'
         b' 256, "lr": 1e-3, "hidden": 64}, "scaling": "strong", "axes": {"nodes": [1, 2, 4], "strategy": ["ddp",'
         b' "fsdp2"]}, "repeats": 2, "walltime": "00:30:00"}', SAME),
    ),
    *_whole(
        "site",
        ("CRLF line ends", _SITE.replace(b"\n", b"\r\n"), SAME),
        ("two documents", _SITE + b"---\n{}\n", Refused(22, "a second YAML document")),
        ("keys in another order", b"\n".join(reversed(_SITE.split(b"partitions:\n")[0].splitlines()))
         + b"\npartitions:\n" + _SITE.split(b"partitions:\n", 1)[1].split(b"partitions:\n")[-1], SAME),
    ),
    *_whole("campaign", ("empty file", b"", Refused(1, "the file is empty")), ("an empty mapping", b"{}\n", Reads("accounts", {}))),
]  # fmt: skip

VALUES = _group(
    "study",
    # numbers
    ("a number with a plus", "repeats: 2", "repeats: +2", SAME),
    ("a hexadecimal number", "repeats: 2", "repeats: 0x2", SAME),
    ("an octal number", "hidden: 64", "hidden: 0o100", SAME),
    ("an octal number of YAML 1.1", "hidden: 64", "hidden: 0100", Reads("params.hidden", 100)),
    ("a binary number of YAML 1.1", "repeats: 2", "repeats: 0b10", Refused(9, "an integer")),
    ("a number with underscores", "repeats: 2", "repeats: 0_2", Refused(9, "an integer")),
    ("a whole float", "repeats: 2", "repeats: 2.0", Refused(9, "an integer")),
    ("a fraction", "repeats: 2", "repeats: 2.5", Refused(9, "an integer")),
    ("a negative number", "repeats: 2", "repeats: -2", Refused(9, "at least 1")),
    ("zero", "repeats: 2", "repeats: 0", Refused(9, "at least 1")),
    ("a number in quotes", "repeats: 2", 'repeats: "2"', Refused(9, "write it without quotes")),
    ("a number with a tag", "repeats: 2", "repeats: !!int 2", SAME),
    ("a text with a number's tag", "repeats: 2", "repeats: !!int two", Refused(9, "not an integer")),
    ("a number with a text's tag", "repeats: 2", "repeats: !!str 2", Refused(9, "an integer")),
    ("a number of 40 digits", "repeats: 2", "repeats: " + "9" * 40, Refused(9, "runs")),
    ("a number of 200 digits", "repeats: 2", "repeats: " + "9" * 200, Refused(9, "an integer of 200 digits")),
    ("an exponent without a point", "lr: 1e-3", "lr: 0.001", SAME),
    ("an exponent in capitals", "lr: 1e-3", "lr: 1.0E-3", SAME),
    ("a number too large for a float", "lr: 1e-3", "lr: 1e999", Refused(4, "too large for a 64-bit float")),
    ("infinity", "lr: 1e-3", "lr: .inf", Refused(4, "finite")),
    ("minus infinity", "lr: 1e-3", "lr: -.INF", Refused(4, "finite")),
    ("not a number", "lr: 1e-3", "lr: .nan", Refused(4, "finite")),
    ("NaN as Python writes it", "lr: 1e-3", "lr: nan", Reads("params.lr", "nan")),
    ("a thousands separator", "global_batch: 256", "global_batch: 2,56", Refused(4, "key '56' is not a string")),
    # booleans and null
    ("a boolean of YAML 1.1", "repeats: 2", "repeats: 2\ngate: yes", Refused(10, "true or false")),
    ("off", "repeats: 2", "repeats: 2\ngate: off", Refused(10, "true or false")),
    ("on as a parameter is text", "hidden: 64", "hidden: on", Reads("params.hidden", "on")),
    ("Norway", "hidden: 64", "hidden: no", Reads("params.hidden", "no")),
    ("True", "repeats: 2", "repeats: 2\ngate: True", SAME),
    ("TRUE", "repeats: 2", "repeats: 2\ngate: TRUE", SAME),
    ("tRUE", "repeats: 2", "repeats: 2\ngate: tRUE", Refused(10, "true or false")),
    ("a boolean in quotes", "repeats: 2", 'repeats: 2\ngate: "true"', Refused(10, "write it without quotes")),
    ("one for true", "repeats: 2", "repeats: 2\ngate: 1", Refused(10, "true or false")),
    ("true for a number", "repeats: 2", "repeats: true", Refused(9, "an integer")),
    # times
    ("a time without quotes", '"00:30:00"', "00:30:00", Refused(10, 'write it quoted: "00:30:00"')),
    ("minutes and seconds without quotes", '"00:30:00"', "30:00", Refused(10, '"00:30:00" (30 minutes)')),
    ("a time in single quotes", '"00:30:00"', "'00:30:00'", SAME),
    ("the same time in minutes", '"00:30:00"', '"30"', SAME),
    ("the same time in minutes and seconds", '"00:30:00"', '"30:00"', SAME),
    ("the same time with days", '"00:30:00"', '"0-0:30"', SAME),
    ("a time with blanks around it", '"00:30:00"', '" 00:30:00 "', SAME),
    ("minutes as a number", '"00:30:00"', "30", Refused(10, '"00:30:00" is 30 minutes')),
    ("a time in hours", '"00:30:00"', '"0.5h"', Refused(10, "not a Slurm time")),
    ("a time in ISO 8601", '"00:30:00"', '"PT30M"', Refused(10, "not a Slurm time")),
    ("a negative time", '"00:30:00"', '"-00:30:00"', Refused(10, "not a Slurm time")),
    ("no time at all", '"00:30:00"', '"00:00:00"', Refused(10, "more than zero")),
    ("an endless time", '"00:30:00"', "infinite", Refused(10, "not a Slurm time")),
    ("Arabic digits", '"00:30:00"', '"٣٠"', Refused(10, "not a Slurm time")),
    ("full-width digits", "repeats: 2", "repeats: \uff12", Refused(9, "an integer")),
    # text
    ("a name with capitals", "name: sweep", "name: Sweep", Refused(2, "not a valid name")),
    ("a name with umlauts", "name: sweep", "name: übung", Refused(2, "not a valid name")),
    ("a name that is a number", "name: sweep", "name: 1", Refused(2, "a string")),
    ("an empty name", "name: sweep", 'name: ""', Refused(2, "not a valid name")),
    ("a word of another script", "[ddp, fsdp2]", "[ddp, fsdp2, 分散]", Reads("axes.strategy", ["ddp", "fsdp2", "分散"])),
    ("an emoji by two escapes", '"{lr}"', r'"{lr}\ud83d\ude00"', Reads("command", ["python", "train.py", "--lr", "{lr}😀"])),
    ("half an emoji", '"{lr}"', r'"{lr}\ud83d"', Refused(3, "a lone surrogate")),
    ("NUL by an escape", '"{lr}"', r'"{lr}\0"', Refused(3, "NUL")),
    ("a bad escape", '"{lr}"', r'"{lr}\q"', Refused(3, "not valid YAML")),
    ("typographic quotes", '"00:30:00"', "“00:30:00”", Refused(10, "not a Slurm time")),
    ("a no-break space for a blank", "repeats: 2", "repeats: 2\u00a0", Refused(9, "an integer")),
    ("a block scalar", 'walltime: "00:30:00"', "walltime: >-\n  00:30:00", SAME),
    ("a block scalar that keeps its newline", "scaling: strong", "scaling: |\n  strong", Refused(5, "allowed values")),
    ("a brace that isn't closed", '"{lr}"', '"{lr"', Refused(3, "braces don't pair")),
    ("an unquoted placeholder", '"{lr}"', "{lr}", Refused(3, 'write it quoted: "{lr}"')),
    # lists and mappings
    ("a block list for a flow list", "nodes: [1, 2, 4]", "nodes:\n    - 1\n    - 2\n    - 4", SAME),
    ("a list less indented", "nodes: [1, 2, 4]", "nodes:\n  - 1\n  - 2\n  - 4", SAME),
    ("a comma at the end", "[1, 2, 4]", "[1, 2, 4,]", SAME),
    ("a comma too many", "[1, 2, 4]", "[1,, 2, 4]", Refused(7, "not valid YAML")),
    ("a list in a list", "[1, 2, 4]", "[[1], 2, 4]", Refused(7, "a single value")),
    ("a value for a list", "[1, 2, 4]", "4", Refused(7, "a list")),
    ("a mapping for a list", "[1, 2, 4]", "{1: 2}", Refused(7, "not a string")),
    ("a list for a mapping", "params: {global_batch: 256, lr: 1e-3, hidden: 64}", "params: [1]", Refused(4, "a mapping")),
    ("a list of mappings for axes", "axes:\n  nodes: [1, 2, 4]\n  strategy: [ddp, fsdp2]",
     "axes:\n  - nodes: [1, 2, 4]\n  - strategy: [ddp, fsdp2]", Refused(6, "a mapping")),
    ("a text for a command", 'command: [python, train.py, --lr, "{lr}"]', 'command: "python train.py --lr {lr}"', Refused(3, "a list")),
    ("an empty command", 'command: [python, train.py, --lr, "{lr}"]', "command: []", Refused(3, "command: [python, train.py]")),
    ("an empty program", "[python,", '["",', Refused(3, "without a program")),
    ("an empty axis", "[ddp, fsdp2]", "[]", Refused(8, "no values")),
    ("a value twice", "[ddp, fsdp2]", "[ddp, ddp]", Refused(8, "twice")),
    ("seventy brackets", "hidden: 64", f"hidden: {_DEEP}", Refused(4, "nested too deeply")),
    ("a question mark for a key", "repeats: 2", "? repeats\n: 2", SAME),
    ("a key in quotes", "repeats: 2", '"repeats": 2', SAME),
    ("a key that is a list", "repeats: 2", "[a]: 2", Refused(9, "a single string")),
    ("a key that is a number", "hidden: 64", "64: 64", Refused(4, "not a string")),
    ("a key that is null", "hidden: 64", "~: 64", Refused(4, "not a string")),
    ("an empty key", "hidden: 64", '"": 64', Refused(4, "letters, digits and _")),
    ("no blank after the colon", "repeats: 2", "repeats:2", Refused(10, "not valid YAML")),
    ("an equals sign for the colon", "repeats: 2", "repeats = 2", Refused(10, "not valid YAML")),
    # keys twice, anchors, tags
    ("a key twice", "repeats: 2", "repeats: 2\nrepeats: 3", Refused(10, "stands twice (first on line 9)")),
    ("a key twice in a flow mapping", "hidden: 64", "hidden: 64, lr: 2", Refused(4, "stands twice")),
    ("a key twice by an escape", "repeats: 2", 'repeats: 2\n"rep\\x65ats": 2', Refused(10, "stands twice")),
    ("an anchor and its alias", "[1, 2, 4]", "&n [1, 2, 4]\n  nodes2: *n", Reads("axes.nodes2", [1, 2, 4])),
    ("an alias without an anchor", "[1, 2, 4]", "*n", Refused(7, "has no anchor")),
    ("an alias within its own anchor", "[1, 2, 4]", "&n [*n]", Refused(7, "inside its own anchor")),
    ("a merge key", "repeats: 2", "<<: {repeats: 2}", Refused(9, "merge keys")),
    ("a tag that builds an object", "lr: 1e-3", "lr: !!python/object/apply:os.getcwd []", Refused(4, "no tag may build")),
    ("a tag of one's own", "lr: 1e-3", "lr: !lr 1e-3", Refused(4, "no tag may build")),
    ("a date's tag", "lr: 1e-3", "lr: !!timestamp 2026-01-01", Refused(4, "no tag may build")),
    ("a date", "hidden: 64", "hidden: 2026-01-01", Reads("params.hidden", "2026-01-01")),
    ("a set", "[1, 2, 4]", "!!set {1, 2}", Refused(7, "no tag may build")),
    ("binary data", "hidden: 64", "hidden: !!binary aGk=", Refused(4, "no tag may build")),
    ("a tag without a prefix", "repeats: 2", "repeats: !<tag:yaml.org,2002:int> 2", SAME),
    # keys at their places
    ("a misspelt key", "repeats: 2", "repeat: 2", Refused(9, "did you mean `repeats`")),
    ("a key in capitals", "repeats: 2", "Repeats: 2", Refused(9, "did you mean `repeats`")),
    ("a key with a blank at its end", "repeats: 2", "repeats : 2", SAME),
    ("a key too deep", "repeats: 2", "resources:\n  repeats: 2", Refused(10, "unknown key `repeats` in `resources`")),
    ("a key too shallow", "repeats: 2", "ranks_per_node: 2", Refused(9, "unknown key")),
    ("a misspelt key of resources", "repeats: 2", "repeats: 2\nresources: {node: 1}", Refused(10, "did you mean `nodes`")),
    ("a misspelt key of record", "repeats: 2", "repeats: 2\nrecord: {window: 1}", Refused(10, "did you mean `window_steps`")),
    ("a misspelt key of retry", "repeats: 2", "repeats: 2\nretry: {infra: 1}", Refused(10, "infrastructure")),
    ("a misspelt key of staging", "repeats: 2", "repeats: 2\nstaging: {mod: none}", Refused(10, "did you mean `mode`")),
    ("a misspelt key of a site's override", "repeats: 2", "repeats: 2\nsites: {tiny: {axis: {}}}", Refused(10, "did you mean `axes`")),
    ("a misspelt choice", "scaling: strong", "scaling: stong", Refused(5, "'strong'")),
    ("a choice in capitals", "scaling: strong", "scaling: Strong", Refused(5, "'strong'")),
    ("a version of the future", "schema: 1", "schema: 2", Refused(1, "1")),
    ("a version in quotes", "schema: 1", 'schema: "1"', Refused(1, "1")),
    ("no version", "schema: 1\n", "", Refused(1, "key `schema` is missing")),
    ("no name", "name: sweep\n", "", Refused(1, "key `name` is missing")),
    ("no walltime", 'walltime: "00:30:00"\n', "", Refused(1, "key `walltime` is missing")),
    ("no axes", "axes:\n  nodes: [1, 2, 4]\n  strategy: [ddp, fsdp2]\n", "", Reads("axes", {})),
    ("keys of axes gone", "axes:\n  nodes: [1, 2, 4]\n  strategy: [ddp, fsdp2]", "axes:", Refused(6, "a mapping")),
)  # fmt: skip

NULLS = [
    *_group(
        "study",
        ("null: schema", "schema: 1", "schema: null", Refused(1, "1")),
        ("null: name", "name: sweep", "name: ~", Refused(2, "a string")),
        ("null: command", 'command: [python, train.py, --lr, "{lr}"]', "command:", Refused(3, "either `workload` or")),
        ("null: params", "params: {global_batch: 256, lr: 1e-3, hidden: 64}", "params: Null", Refused(4, "a mapping")),
        ("null: a parameter", "hidden: 64", "hidden: null", Reads("params.hidden", None)),
        ("a value left out in a flow mapping", "hidden: 64", "hidden:", Refused(4, "`hidden:` can't be the name")),
        ("null: scaling", "scaling: strong", "scaling: NULL", Refused(5, "'strong'")),
        ("null: an axis", "[1, 2, 4]", "null", Refused(7, "a list")),
        ("null: a value of an axis", "[1, 2, 4]", "[1, 2, null]", Refused(7, "integers of 1 or more")),
        ("null: repeats", "repeats: 2", "repeats: null", Refused(9, "an integer")),
        ("null: walltime", '"00:30:00"', "null", Refused(10, "a time in quotes")),
    ),
    *_group(
        "site",
        ("null: name", "name: tiny", "name: null", Refused(2, "a string")),
        ("null: account", "account: budget", "account: null", Reads("account", None)),
        ("null: studies", "studies: {sweep: {}}", "studies: null", Refused(5, "a mapping")),
        ("null: scheduler", "scheduler: {kind: slurm, gpu_request: gres}", "scheduler: null", Refused(6, "a mapping")),
        ("null: default_partition", "default_partition: batch", "default_partition: null", Refused(7, "a string")),
        ("null: partition_by_size", "[devel, batch, large]", "null", Refused(8, "a list")),
        ("null: a partition", '{node: fat, max_nodes: 2, max_time: "02:00:00"}', "null", Refused(10, "a mapping")),
        ("null: a limit", "max_nodes: 2", "max_nodes: null", Reads("partitions.devel.max_nodes", None)),
        ("null: nodes", "nodes:\n  fat:", "nodes:\ngone:\n  fat:", Refused(14, "a mapping")),
        ("null: paths", 'paths: {run_root: "scratch:runs", node_local: /dev/shm/me, data: "scratch:data"}',
         "paths: null", Refused(20, "a mapping")),
        ("null: billing", "billing: {unit: core-h, whole_nodes: true}", "billing: null", Refused(21, "a mapping")),
    ),
    *_group(
        "campaign",
        ("null: accounts", "accounts: {tiny: budget}", "accounts: null", Refused(2, "a mapping")),
        ("null: a cap", "gpu_hours: 1000", "gpu_hours: null", Reads("caps.gpu_hours", None)),
        ("null: group_readable", "group_readable: false", "group_readable: null", Refused(5, "true or false")),
    ),
]  # fmt: skip

SITES = _group(
    "site",
    ("a misspelt key", "account: budget", "acount: budget", Refused(3, "did you mean `account`")),
    ("a misspelt key of a partition", "max_nodes: 2", "max_node: 2", Refused(10, "did you mean `max_nodes`")),
    ("a misspelt key of a QOS", "max_nodes: 4}}", "nodes: 4}}", Refused(11, "max_nodes")),
    ("a misspelt key of a node", "cores: 48", "core: 48", Refused(15, "did you mean `cores`")),
    ("a misspelt key of a GPU", "memory_bytes: 40e9", "memory: 40e9", Refused(17, "did you mean `memory_bytes`")),
    ("a misspelt key of a file system", "on_compute: true", "oncompute: true", Refused(19, "did you mean `on_compute`")),
    ("a misspelt key of the scheduler", "gpu_request: gres", "gpu_requests: gres", Refused(6, "did you mean `gpu_request`")),
    ("a misspelt path", "run_root:", "runroot:", Refused(20, "did you mean `run_root`")),
    ("a partition that isn't there", "default_partition: batch", "default_partition: bach", Refused(7, "did you mean `batch`")),
    ("a partition by size that isn't there", "[devel, batch,", "[dev, batch,", Refused(8, "did you mean `devel`")),
    ("a node type that isn't there", "devel: {node: fat", "devel: {node: fast", Refused(10, "did you mean `fat`")),
    ("a GPU type that isn't there", "gpu: a100", "gpu: a10", Refused(15, "did you mean `a100`")),
    ("GPUs without a type", "gpu: a100, ", "", Refused(15, "needs `gpu`")),
    ("a file system that isn't there", '"scratch:runs"', '"scrach:runs"', Refused(20, "did you mean `scratch`")),
    ("a relative path", '"scratch:runs"', "runs", Refused(20, "absolute path")),
    ("a relative file system", '"/nowhere/{project}"', '"nowhere/{project}"', Refused(19, "absolute path")),
    ("an unknown placeholder", "{project}", "{proj}", Refused(19, "unknown placeholder {proj}")),
    ("a run root that nodes don't see", "on_compute: true", "on_compute: false", Refused(20, "not mounted on compute nodes")),
    ("node-local storage for the run root", "shared: true", "shared: false", Refused(20, "shared storage")),
    ("a study that isn't there", "{sweep: {}}", "{swep: {}}", Refused(5, "there is no study `swep`")),
    ("a study without a mapping", "{sweep: {}}", "{sweep: [1]}", Refused(5, "a mapping")),
    ("an axis of a study without values", "{sweep: {}}", "{sweep: {nodes: []}}", Refused(5, "at least one value")),
    ("a whole float for a count", "gpus: 4,", "gpus: 4.0,", SAME),
    ("a fraction for a count", "gpus: 4,", "gpus: 4.5,", Refused(15, "whole number")),
    ("bytes as digits", "512e9", "512000000000", SAME),
    ("bytes with a unit", "512e9", "512G", Refused(15, "whole number")),
    ("a negative count", "gpus: 4,", "gpus: -4,", Refused(15, "negative")),
    ("infinite memory", "usable_bytes: 480e9", "usable_bytes: .inf", Refused(15, "whole number")),
    ("no nodes allowed", "max_nodes: 2", "max_nodes: 0", Refused(10, "1 or more")),
    ("more at least than at most", "min_nodes: 1, max_nodes: 8", "min_nodes: 9, max_nodes: 8", Refused(11, "larger than max_nodes")),
    ("more to use than there is", "usable_bytes: 480e9", "usable_bytes: 513e9", Refused(15, "larger than memory_bytes")),
    ("an endless partition", '"02:00:00"', "UNLIMITED", Reads("partitions.devel.max_time", float("inf"))),
    ("a time without quotes", '"02:00:00"', "02:00:00", Refused(10, "write it quoted")),
    ("an account of two words", "account: budget", "account: my budget", Refused(3, "one word")),
    ("an account with a newline", "account: budget", 'account: "a\\n#SBATCH --wrap=x"', Refused(3, "one word")),
    ("an account that is a number", "account: budget", "account: 0123", Refused(3, "with its leading zeros")),
    ("an sbatch option of campaign's own", "gpu_request: gres", "gpu_request: gres, sbatch_args: {time: 5}", Refused(6, "walltime of the study")),
    ("an sbatch option with dashes", "gpu_request: gres", 'gpu_request: gres, sbatch_args: {"--hint": x}', Refused(6, "without dashes")),
    ("an sbatch option that is false", "gpu_request: gres", "gpu_request: gres, sbatch_args: {exclusive: false}", Refused(6, "true for a flag")),
    ("an environment variable with a dash", "account: budget", "account: budget\nenv: {A-B: 1}", Refused(4, "environment variable")),
    ("an environment variable with a newline", "account: budget", 'account: budget\nenv: {A: "b\\nc"}', Refused(4, "one line")),
    ("an environment variable that is a number", "account: budget", "account: budget\nenv: {A: 18}", Reads("env.A", "18")),
    ("an environment variable that is a float", "account: budget", "account: budget\nenv: {A: 1.50}", Refused(4, "digit by digit")),
    ("ssh without a host", "account: budget", "account: budget\ntransport: {kind: ssh}", Refused(4, "needs `host`")),
    ("an architecture by its other name", "account: budget", "account: budget\narch: arm64", Refused(4, "'aarch64'")),
    ("a scheduler of another kind", "kind: slurm", "kind: pbs", Refused(6, "'slurm'")),
    ("one partition twice", "  devel: {", "  batch: {node: fat}\n  devel: {", Refused(12, "stands twice")),
    ("partitions as a list", "partitions:\n  devel:", "partitions:\n  - devel:", Refused(11, "not valid YAML")),
    ("no partitions", SITE[SITE.index("partitions:"): SITE.index("nodes:\n")], "partitions: {}\n", Refused(9, "empty")),
)  # fmt: skip

CONFIGS = _group(
    "campaign",
    ("a misspelt key", "accounts:", "acounts:", Refused(2, "did you mean `accounts`")),
    ("a misspelt cap", "gpu_hours:", "gpuhours:", Refused(3, "did you mean `gpu_hours`")),
    ("a misspelt path", "run_root:", "root:", Refused(4, "run_root")),
    ("a cap of nothing", "gpu_hours: 1000", "gpu_hours: 0", Refused(3, "more than 0")),
    ("a cap of infinity", "gpu_hours: 1000", "gpu_hours: .inf", Refused(3, "finite")),
    ("a cap that is not a number", "gpu_hours: 1000", "gpu_hours: .nan", Refused(3, "finite")),
    ("a cap with a unit", "gpu_hours: 1000", "gpu_hours: 1000h", Refused(3, "a number")),
    ("a cap as a float", "gpu_hours: 1000", "gpu_hours: 1.0e3", SAME),
    ("a fraction of a job", "queued: 10", "queued: 1.5", Refused(3, "whole number")),
    ("a relative run root", '"scratch:runs"', "runs", Refused(4, "relative path")),
    ("an empty run root", '"scratch:runs"', '""', Refused(4, "is empty")),
    ("a run root below the process files", '"scratch:runs"', "/proc/nope", Reads("paths.tiny.run_root", "/proc/nope")),
    ("a run root without its colon", '"scratch:runs"', "scratch", Refused(4, "relative path")),
    ("a run root on no file system", '"scratch:runs"', '"scrach:runs"', Refused(4, "no file system `scrach`")),
    ("a boolean of YAML 1.1", "group_readable: false", "group_readable: off", Refused(5, "true or false")),
    ("an account of two words", "budget}", "my budget}", Refused(2, "one word")),
    ("a site's name in capitals", "accounts: {tiny:", "accounts: {TINY:", Refused(2, "not a valid name")),
    ("a value for a list", "schema: 1", "schema: 1\nsites: tiny", Refused(2, "a list")),
)  # fmt: skip

MUTATIONS = [*TEXT, *VALUES, *NULLS, *SITES, *CONFIGS]
