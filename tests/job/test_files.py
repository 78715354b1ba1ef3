"""What a run leaves on shared storage, and what reaches a rank of what the user wrote."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.job.jobs import Site

BUSY = """
    import tempfile, warnings
    import helper
    from campaign.record import Recorder

    Recorder.from_env().observe("x", 1.0)
    warnings.warn("be careful")
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"left behind")
    tempfile.mkdtemp()
    print(helper.NAME)
"""


def files(*roots: Path) -> set[Path]:
    return {Path(folder) / name for root in roots for folder, _, names in os.walk(root) for name in names}


@pytest.mark.parametrize("ranks", [1, 4])
def test_files_do_not_depend_on_ranks(site: Site, home: Path, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    script = site.script(BUSY)
    site.script("NAME = 'helper'", name="helper.py")
    shared = (site.run_root, site.project, home)
    before = files(*shared)
    spec = site.spec(script, ranks_per_node=ranks)
    ended = site.run(spec)
    assert ended.state == ("done", None), ended.log
    new = {str(path.relative_to(site.root)) for path in files(*shared) - before}
    run = f"shared/runs/01/{spec.run_id}"
    assert new == {
        f"shared/submit/{spec.tag}/specs.jsonl",
        f"shared/submit/{spec.tag}/{spec.tag}_0.log",
        f"{run}/claim.a1",
        *(f"{run}/a1/{name}" for name in ("record.json", "events.parquet", "console.log")),
    }
    assert len(list(ended.folder.iterdir())) <= 8
    assert "be careful" in ended.console()
    assert site.local_leftovers() == []


NASTY = ["two words", 'it\'s "quoted"', "$(touch x)", "`touch y`", "a\nb", "naïve ☃ 海", "", "*", "-n", "\\", "%s{lr}"]


def test_arguments_arrive_unharmed_and_unexecuted(site: Site) -> None:
    script = site.script("import os, sys\nprint(*(os.fsencode(word).hex() or '-' for word in sys.argv[1:]))")
    ended = site.run(site.spec([*script, *NASTY]))
    assert ended.console().split() == [word.encode().hex() or "-" for word in NASTY]
    assert ended.record["argv"] == [sys.executable, *script[1:], *NASTY]
    assert not {"x", "y"} & {path.name for path in files(site.root)}


def test_the_users_own_packages_win(site: Site) -> None:
    for package in ("training", "analysis"):
        (site.project / package).mkdir()
        (site.project / package / "__init__.py").write_text(f"NAME = 'mine: {package}'\n", encoding="utf-8")
    script = site.script("import analysis, training\nprint(training.NAME, analysis.NAME)")
    assert site.run(site.spec(script)).console() == "mine: training mine: analysis\n"


@pytest.mark.parametrize("entry", ["mymodel.fit", "mymodel.fit:main"])
def test_a_workload_of_the_project_is_started_by_its_entry_point(site: Site, entry: str) -> None:
    (site.project / "mymodel").mkdir()
    (site.project / "mymodel" / "__init__.py").touch()
    (site.project / "mymodel" / "fit.py").write_text(
        "import sys\nfrom mymodel import data\n"
        "def main():\n    print('called', data.NAME, sys.argv[1:])\n"
        "if __name__ == '__main__':\n    print('run', data.NAME)\n",
        encoding="utf-8",
    )
    (site.project / "mymodel" / "data.py").write_text("NAME = 'data'\n", encoding="utf-8")
    ended = site.run(site.spec(None, workload=entry))
    assert ended.state == ("done", None), ended.log
    assert ended.console() == ("called data []\n" if ":" in entry else "run data\n")
    assert ended.events("python_up")


def test_a_workload_that_does_not_exist(site: Site) -> None:
    ended = site.run(site.spec(None, workload="training.workloads.no_such"))
    assert ended.state == ("failed", "config")


def test_environment_of_a_rank(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLCONFIGDIR")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/seeded")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("MY_OWN", "stays")
    script = site.script("""
        import json, os
        names = ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR OMP_NUM_THREADS CAMPAIGN_RUN_ID "
                 "CAMPAIGN_ATTEMPT NCCL_DEBUG GLOO_SOCKET_IFNAME TRITON_CACHE_DIR PMI_RANK MY_OWN TMPDIR "
                 "CAMPAIGN_HEAD_TOKEN CAMPAIGN_HEAD CUDA_VISIBLE_DEVICES PYTHONDONTWRITEBYTECODE "
                 "PYTHONPYCACHEPREFIX CAMPAIGN_METRICS CAMPAIGN_RANK_DIR").split()
        if os.environ["RANK"] == "0":
            print(json.dumps({name: os.environ.get(name) for name in names}))
            print(open(os.environ["CAMPAIGN_SPEC"]).read())
            print(os.getcwd(), os.stat(os.environ["CAMPAIGN_RANK_DIR"] + "/..").st_mode & 0o777)
    """)
    spec = site.spec(
        script,
        ranks_per_node=2,
        cpus_per_rank=3,
        env={"NCCL_DEBUG": "WARN", "GLOO_SOCKET_IFNAME": "lo"},
        gpu_vendor="nvidia",
        gpus_per_node=4,
    )
    ended = site.run(spec)
    first, visible, place = ended.console().splitlines()
    env = json.loads(first)
    folder = env["TMPDIR"].removesuffix("/t")
    assert folder.startswith(f"{site.node_local}/{spec.run_id}.a1.")
    assert env == {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "3",
        "CAMPAIGN_RUN_ID": spec.run_id,
        "CAMPAIGN_ATTEMPT": "1",
        "NCCL_DEBUG": "INFO",
        "GLOO_SOCKET_IFNAME": "lo",
        "TRITON_CACHE_DIR": "/somewhere/seeded",
        "PMI_RANK": None,
        "MY_OWN": "stays",
        "TMPDIR": f"{folder}/t",
        "CAMPAIGN_HEAD_TOKEN": None,
        "CAMPAIGN_HEAD": None,
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": None,
        "CAMPAIGN_METRICS": f"{folder}/r/0.metrics.jsonl",
        "CAMPAIGN_RANK_DIR": f"{folder}/r",
    }
    assert place == f"{site.project} {0o700}"
    assert json.loads(visible)["params"] == {"lr": 0.5}
    assert spec.token not in ended.console() + ended.log + json.dumps(ended.record)
    assert ended.record["env_kept"] == {"NCCL_DEBUG": "INFO", "TRITON_CACHE_DIR": "/somewhere/seeded"}
    assert ended.record["env_scrubbed"] == ["PMI_RANK"]
    assert ended.record["env_set"]["GLOO_SOCKET_IFNAME"] == "lo"


def test_without_redirection_nothing_is_moved(site: Site) -> None:
    script = site.script("import os\nprint(os.environ.get('TMPDIR'), os.environ.get('TRITON_CACHE_DIR'))")
    before = f"{os.environ.get('TMPDIR')} None\n"
    assert site.run(site.spec(script, redirect=False)).console() == before


@pytest.mark.parametrize("readable", [True, False])
def test_records_are_readable_by_the_group_when_asked(site: Site, readable: bool) -> None:
    before = os.umask(0o077)
    try:
        ended = site.run(site.spec(["true"], group_readable=readable))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o077 for path in [ended.folder, *ended.folder.iterdir()]}
    expected = {name: (0o050 if name == "a1" else 0o040) if readable else 0 for name in modes}
    assert modes == expected
    claim = ended.folder.parent / "claim.a1"
    assert claim.stat().st_mode & 0o070 == (0o040 if readable else 0)
