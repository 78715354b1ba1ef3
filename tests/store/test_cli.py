"""`campaign collect` and `campaign sql` as a user calls them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from referencing import Registry, Resource

from campaign.cli import cli as command_line
from tests.conftest import Cli, Result, campaign_command
from tests.store.test_locks import holder
from tests.store.world import World, full_id, step_rows

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


def valid(result: Result, command: str) -> dict[str, Any]:
    """The envelope, after it was held against the command's JSON schema."""
    registry: Registry[Any] = Registry().with_resources(
        (path.name, Resource.from_contents(json.loads(path.read_text(encoding="utf-8"))))
        for path in SCHEMAS.glob("*.json")
    )
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema, registry=registry).validate(result.json())
    return result.json()


def call(
    world: World, *argv: str, code: int = 0, input: str | None = None, env: dict[str, str] | None = None
) -> Result:
    """The command in this process (a hundred processes would take a minute); some tests below start real ones."""
    arguments = (argv[0], "--project", str(world.folder), *argv[1:])
    answer = CliRunner().invoke(command_line, arguments, input=input, env=env, prog_name="campaign")
    result = Result(argv, answer.exit_code, answer.stdout, answer.stderr)
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exc_info
    assert result.code == code, str(result)
    return result


@pytest.fixture
def scaled(world: World) -> World:
    """Two points, each measured twice."""
    for nodes, time in {1: 10.0, 2: 6.0}.items():
        for repeat in range(2):
            world.measured(f"{nodes}-{repeat}", [99.0, time + repeat], nodes=nodes, repeat=repeat)
    return world


def test_sql_collects_and_prints_csv_where_there_is_no_terminal(scaled: World, cli: Cli) -> None:
    query = "SELECT site, world_size, n, epoch_time_s, speedup, energy_wh_per_epoch FROM scaling"
    result = cli("sql", query, cwd=scaled.folder, code=0)
    assert list(csv.DictReader(io.StringIO(result.stdout))) == [
        {"site": "alpha", "world_size": "1", "n": "2", "epoch_time_s": "10.5", "speedup": "1.0",
         "energy_wh_per_epoch": ""},
        {"site": "alpha", "world_size": "2", "n": "2", "epoch_time_s": "6.5", "speedup": str(10.5 / 6.5),
         "energy_wh_per_epoch": ""},
    ]  # fmt: skip
    assert result.stderr == ""


def test_sql_json(scaled: World) -> None:
    query = (
        "SELECT run_id, params, valid, fail_class, node_h, TIMESTAMP '2026-01-02 03:04:05' AS t, 'nan'::DOUBLE AS nan, "
        "-'inf'::DOUBLE AS inf, MAP {'a': 1} AS m, [1, NULL] AS l, 1.5 AS d, INTERVAL 90 SECOND AS i, "
        "'\\xAA'::BLOB AS b, DATE '2026-01-02' AS day FROM runs LIMIT 1"
    )
    data = valid(call(scaled, "sql", query, "--json"), "sql")["data"]
    row = dict(zip([column["name"] for column in data["columns"]], data["rows"][0], strict=True))
    assert row.pop("run_id") in {full_id(f"{nodes}-{repeat}") for nodes in (1, 2) for repeat in range(2)}
    assert row.pop("node_h") > 0
    assert row == {
        "params": {"lr": 0.001, "strategy": "ddp"}, "valid": True, "fail_class": None, "t": "2026-01-02T03:04:05Z",
        "nan": "NaN", "inf": "-Infinity", "m": {"a": 1}, "l": [1, None], "d": 1.5, "i": 90.0, "b": "aa",
        "day": "2026-01-02",
    }  # fmt: skip
    types = {column["name"]: column["type"] for column in data["columns"]}
    assert (types["params"], types["valid"], types["t"]) == ("JSON", "BOOLEAN", "TIMESTAMP")
    assert (data["row_count"], data["truncated"]) == (1, False)


def test_sql_max_rows(scaled: World) -> None:
    answer = valid(call(scaled, "sql", "FROM range(10)", "--json", "--max-rows", "3"), "sql")
    assert answer["data"]["rows"] == [[0], [1], [2]]
    assert answer["data"]["truncated"]
    assert "3 rows" in answer["warnings"][0]["message"]
    assert len(call(scaled, "sql", "FROM range(3000)").stdout.splitlines()) == 3001
    table = call(scaled, "sql", "FROM range(3000)", "-f", "table")
    assert len(table.stdout.splitlines()) == 1001
    assert "first 1000 rows" in table.stderr


def test_null_and_empty_text_differ_in_csv(world: World) -> None:
    query = "SELECT NULL AS n, '' AS e, 'a,b' AS c, 'say \"hi\"' AS q, E'two\\nlines' AS l, 1e-3 AS f, true AS t"
    result = call(world, "sql", query)
    assert result.stdout == 'n,e,c,q,l,f,t\n,"","a,b","say ""hi""","two\nlines",0.001,true\n'


def test_jsonl_and_markdown_and_expanded(world: World) -> None:
    query = "SELECT 'a|b' AS text, 1.0/3 AS third, NULL::INTEGER AS nothing"
    assert json.loads(call(world, "sql", query, "-f", "jsonl").stdout) == {
        "text": "a|b", "third": pytest.approx(1 / 3), "nothing": None
    }  # fmt: skip
    assert call(world, "sql", query, "-f", "markdown").stdout == (
        "| text | third | nothing |\n| --- | ---: | ---: |\n| a\\|b | 0.333333 |  |\n"
    )
    assert call(world, "sql", query, "-f", "expanded").stdout == (
        "row 1\n  text     a|b\n  third    0.333333\n  nothing  NULL\n"
    )


@pytest.mark.parametrize("name", ["answer.csv", "answer.parquet", "it's.jsonl"])
def test_output_writes_a_file_of_any_size(world: World, name: str) -> None:
    path = world.folder / name
    result = call(world, "sql", "SELECT range AS i, NULL AS n FROM range(20000);", "-o", str(path), "--json")
    assert valid(result, "sql")["data"] == {
        "columns": [], "rows": [], "row_count": 20000, "truncated": False, "output": str(path)
    }  # fmt: skip
    if path.suffix == ".parquet":
        assert pq.read_table(path).column("i").to_pylist() == list(range(20000))
    else:
        assert len(path.read_text().splitlines()) == 20000 + (path.suffix == ".csv")
    assert [file.name for file in world.folder.iterdir() if file.name.endswith(".part")] == []


def test_a_query_comes_from_stdin(world: World) -> None:
    assert call(world, "sql", "-", input="SELECT 1 AS x -- remark").stdout == "x\n1\n"
    assert call(world, "sql", input="SELECT 2 AS x;\n").stdout == "x\n2\n"


def on_terminal(folder: Path, columns: int, *argv: str) -> str:
    """What `campaign` prints on a terminal so wide."""
    parent, child = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    process = subprocess.Popen([campaign_command(), *argv], cwd=folder, stdout=child, stdin=child, env=environment)
    os.close(child)
    chunks = []
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(parent)
    assert process.wait(60) == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_on_a_terminal_there_is_a_table_and_a_wide_one_is_turned(scaled: World) -> None:
    query = "SELECT site, world_size, epoch_time_s, energy_wh_per_epoch AS wh FROM scaling"
    assert on_terminal(scaled.folder, 80, "sql", query) == (
        "site   world_size  epoch_time_s    wh\n"
        "alpha           1          10.5  NULL\n"
        "alpha           2           6.5  NULL\n"
    )  # fmt: skip
    turned = on_terminal(scaled.folder, 80, "sql", "FROM scaling")
    assert turned.startswith("row 1\n  site ")
    long = on_terminal(scaled.folder, 60, "sql", f"SELECT 1 AS a, '{'x' * 200}' AS b, 2 AS c")
    assert max(len(line) for line in long.splitlines()) <= 60
    assert "…" in long
    assert "(no rows)" in on_terminal(scaled.folder, 80, "sql", "FROM rejects")


def test_control_characters_do_not_reach_the_terminal(world: World) -> None:
    shown = on_terminal(world.folder, 80, "sql", "SELECT chr(27) || '[31mred' || chr(10) AS x")
    assert "\x1b" not in shown
    assert "\\x1b[31mred\\n" in shown


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM data.runs", "INSERT INTO data.rejects VALUES ('x', now(), 'y')", "CREATE TABLE t AS SELECT 1",
        "CREATE TEMP TABLE t AS SELECT 1", "DROP VIEW runs", "COPY runs TO 'stolen.csv'", "ATTACH 'other.duckdb'",
        "EXPLAIN ANALYZE COPY runs TO 'stolen.csv'", "SET threads = 1", "INSTALL httpfs", "EXPORT DATABASE 'x'",
        "CHECKPOINT", "VACUUM",
    ],
)  # fmt: skip
def test_statements_that_write_are_refused(world: World, statement: str) -> None:
    before = sorted(path.name for path in world.folder.iterdir())
    result = call(world, "sql", statement, "--json", "--no-collect", code=2)
    [error] = valid(result, "sql")["errors"]
    assert "refused: the store is only read here" in error["message"]
    assert error["value"] == statement
    assert sorted(path.name for path in world.folder.iterdir()) == before


@pytest.mark.parametrize(
    "statement", ["DESCRIBE scaling", "SHOW TABLES", "SUMMARIZE runs", "EXPLAIN FROM runs", "EXPLAIN ANALYZE FROM runs",
                  "WITH a AS (SELECT 1) FROM a", "VALUES (1)", "PIVOT (FROM runs) ON state IN ('done') USING count(*)"],
)  # fmt: skip
def test_statements_that_read_are_not(scaled: World, statement: str) -> None:
    assert call(scaled, "sql", statement, "--no-collect").stdout


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("SELECT epoch_tim_s FROM scaling", 'Referenced column "epoch_tim_s" not found', "epoch_time_s (in epochs, sc"),
        ("FROM scalling", "scalling does not exist", "nearest: scaling"),
        ("SELECT s.worldsize FROM scaling s", "worldsize", 'campaign sql "FROM docs"'),
        ("SELECT FROM runs", "without selection list", 'campaign sql "FROM docs"'),
        ("SELECT 1; SELECT 2", "2 statements", "campaign sql"),
        ("/* nothing */", "no SQL", "campaign sql"),
        ("SELECT 'x'::INTEGER", "Could not convert", "campaign sql"),
        ("FROM 'missing.csv'", "No files found", "campaign sql"),
    ],
)
def test_wrong_sql_is_told_with_its_place_and_near_names(world: World, statement: str, message: str, hint: str) -> None:
    [error] = valid(call(world, "sql", statement, "--json", "--no-collect", code=2), "sql")["errors"]
    assert message in error["message"]
    assert hint in error["hint"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [(("-o", "x.xlsx", "FROM runs"), "unknown kind of file"), (("-o", "no/x.csv", "FROM runs"), "no such folder"),
     (("-o", "x.csv", "FROM rnus"), "rnus does not exist")],
)  # fmt: skip
def test_outputs_that_cannot_be(world: World, argv: tuple[str, ...], message: str) -> None:
    assert message in call(world, "sql", "--no-collect", *argv, code=2).stderr
    assert not (world.folder / "x.csv").exists()


def test_outside_a_project(tmp_path: Path, cli: Cli) -> None:
    for command in (("sql", "FROM runs"), ("collect",)):
        assert "campaign init" in cli(*command, cwd=tmp_path, code=2).stderr


# -- locks, versions -------------------------------------------------------------------------------------------------


def test_a_locked_store_is_exit_3_with_its_holder(scaled: World) -> None:
    with holder(scaled.store, write=True) as other:
        for command in (("sql", "FROM runs"), ("sql", "FROM runs", "--no-collect"), ("collect",)):
            result = call(scaled, *command, "--json", "--wait", "0.1", code=3)
            [error] = valid(result, command[0])["errors"]
            assert f"PID {other.pid}" in error["message"]
            assert f"PID {other.pid}" in result.stderr, "what is waited for is said meanwhile"


def test_beside_a_reader_sql_reads_what_is_there(scaled: World) -> None:
    """A notebook has the store open: nothing new can be collected, and the hint says how to read on."""
    with holder(scaled.store, write=False):
        result = call(scaled, "sql", "SELECT count(*) FROM runs", "--wait", "0.1", code=3)
        assert "--no-collect" in result.stderr
        assert call(scaled, "sql", "SELECT count(*) AS n FROM runs", "--no-collect").stdout == "n\n0\n"
    call(scaled, "collect")
    with holder(scaled.store, write=False):
        assert call(scaled, "sql", "SELECT count(*) AS n FROM runs").stdout == "n\n4\n"


def test_a_store_of_a_newer_schema_is_refused_and_can_be_rebuilt(scaled: World) -> None:
    with duckdb.connect(str(scaled.store)) as connection:
        connection.execute("INSERT INTO data.schema_version VALUES (99, now()::TIMESTAMP, '9.9')")
    for command in (("sql", "FROM runs"), ("sql", "FROM runs", "--no-collect"), ("collect",)):
        [error] = valid(call(scaled, *command, "--json", code=2), command[0])["errors"]
        assert "schema 99, this campaign knows 1" in error["message"]
        assert "pip install -U campaign" in error["hint"]
    assert valid(call(scaled, "collect", "--rebuild", "--json"), "collect")["data"]["final"] == 4


def test_views_of_an_older_version_are_renewed_on_the_way(scaled: World) -> None:
    call(scaled, "collect")
    with duckdb.connect(str(scaled.store)) as connection:
        connection.execute("CREATE OR REPLACE VIEW scaling AS SELECT 1 AS old")
        connection.execute("UPDATE data.facts SET value = 'older' WHERE key = 'views'")
    answer = call(scaled, "sql", "SELECT count(*) AS n, max(speedup) > 1 AS s FROM scaling", "--no-collect")
    assert answer.stdout == "n,s\n2,true\n", answer


def test_a_store_named_by_flag_or_environment(scaled: World, tmp_path: Path) -> None:
    for argv, environment in (
        (("--store", str(tmp_path / "a.duckdb")), {}),
        ((), {"CAMPAIGN_STORE": str(tmp_path / "b.duckdb")}),
    ):
        query = "SELECT count(*) AS n FROM runs"
        assert call(scaled, "sql", query, *argv, env=environment).stdout == "n\n4\n"
    assert sorted(path.name for path in tmp_path.glob("*.duckdb")) == ["a.duckdb", "b.duckdb"]


# -- collect ---------------------------------------------------------------------------------------------------------


def test_collect_says_what_it_did(scaled: World) -> None:
    scaled.plan_run("dead", state="timeout", repeat=5)
    scaled.queue("dead", state="timeout")
    scaled.partial("dead", tables={"steps": step_rows(3)})
    data = valid(call(scaled, "collect", "--json"), "collect")["data"]
    assert {key: data[key] for key in ("final", "partial", "rows", "runs", "rejects", "rebuilt")} == {
        "final": 4, "partial": 1, "rows": 4 * 2 + 3, "runs": 5, "rejects": [], "rebuilt": False
    }  # fmt: skip
    again = call(scaled, "collect")
    assert "collected 0 records, 0 rows; 5 runs in the ledger" in again.stdout
    assert "rebuilt with 4 records and 1 partial" in call(scaled, "collect", "--rebuild").stdout


def test_collect_goes_on_when_the_schedulers_cannot_be_asked(scaled: World) -> None:
    """The site of a running job has no file any more: its state stays as it is, records are taken all the same."""
    scaled.plan_run("runs", state="running", repeat=5)
    scaled.queue("runs", state="running", ended=None)
    scaled.partial("runs", tables={"steps": step_rows(3)})
    answer = valid(call(scaled, "collect", "--json"), "collect")
    assert (answer["data"]["final"], answer["data"]["partial"]) == (4, 1)
    assert "no site `alpha`" in answer["warnings"][0]["message"]


def test_collect_of_a_selection(scaled: World) -> None:
    data = valid(call(scaled, "collect", "--where", "nodes = 2", "--json"), "collect")["data"]
    assert data["final"] == 2
    assert "whole store" in call(scaled, "collect", "--rebuild", "--site", "alpha", code=2).stderr


def test_a_broken_record_makes_collect_exit_1_and_sql_warn(scaled: World) -> None:
    bad = scaled.run_dir("1-0") / "a1"
    (bad / "record.json").write_text("{")
    answer = valid(call(scaled, "collect", "--json", code=1), "collect")
    assert answer["data"]["final"] == 3
    assert [reject["path"] for reject in answer["data"]["rejects"]] == [str(bad)]
    assert answer["errors"][0]["file"] == str(bad)
    assert "not JSON" in answer["errors"][0]["message"]
    result = call(scaled, "sql", "SELECT path FROM rejects")
    assert result.stdout == f"path\n{bad}\n"
    assert "1 record set aside" in result.stderr
    shutil.rmtree(bad)
    call(scaled, "collect")


def test_a_reader_that_leaves_early_is_no_error(world: World) -> None:
    command = f"{sys.executable} -m campaign sql 'FROM range(1000000)' | head -n 2"
    answer = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=world.folder, capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "range\n0\n", "")
