"""`campaign doctor --site` against real clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import Cli, Result
from tests.needs import needs
from tests.slurm.testbed import Testbed

pytestmark = needs("slurm")
ROOT = Path(__file__).resolve().parents[2]


def doctor(
    cli: Cli, folder: Path, testbed: Testbed, cluster: str, expected: str | None
) -> tuple[Result, dict[str, Any]]:
    """The check of the cluster, asked on `cluster`'s login side for a site that says it is `expected`."""
    (folder / "sites").mkdir()
    site = (
        (ROOT / "sites" / "vega.yaml").read_text().replace("cluster_name: null", f"cluster_name: {expected or 'null'}")
    )
    (folder / "sites" / "vega.yaml").write_text(site)
    (folder / "campaign.yaml").write_text(
        f"schema: 1\npaths: {{vega: {{run_root: {folder}/runs, data: {folder}/data}}}}\n"
    )
    env = {"SLURM_CONF": str(testbed.cluster(cluster).slurm_conf)}
    result = cli("doctor", "--site", "vega", "--json", cwd=folder, env=env)
    return result, next(check for check in result.json()["data"]["checks"] if check["name"] == "cluster")


def test_cluster_answers(testbed: Testbed, tmp_path: Path, cli: Cli) -> None:
    result, cluster = doctor(cli, tmp_path, testbed, "vega", "vega")
    assert result.code == 0, str(result)
    assert cluster["ok"] is True
    assert cluster["found"].startswith("vega, Slurm ")


def test_login_node_of_another_cluster(testbed: Testbed, tmp_path: Path, cli: Cli) -> None:
    result, cluster = doctor(cli, tmp_path, testbed, "juwels", "vega")
    assert result.code == 1
    assert cluster["ok"] is False
    assert "the site file says vega" in cluster["found"]
    assert "log in to a login node of vega" in result.json()["errors"][0]["hint"]
