"""The test bed is what the tests on it believe it to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import needs
from tests.slurm.testbed import Cluster, Testbed

pytestmark = needs("slurm")
ALL = pytest.mark.parametrize("cluster", ["juwels", "vega", "jupiter"], indirect=True)


@ALL
def test_every_node_is_up(cluster: Cluster) -> None:
    states = cluster.node_states()
    assert sorted(states) == sorted(cluster.nodes)
    assert len(states) == 4
    assert not [node for node, state in states.items() if state.rstrip("*") in ("down", "drained", "unknown", "inval")]


@ALL
def test_sixteen_ranks_on_four_nodes(cluster: Cluster, shared: Path) -> None:
    script = "echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURMD_NODENAME"
    argv = ("srun", "-Q", "-N4", "--ntasks-per-node=4", "-t5", "--mem=100M", "sh", "-c", script)
    lines = cluster.run(*argv, cwd=shared).stdout.splitlines()
    expected = [f"{4 * node + local} {node} {local} {cluster.nodes[node]}" for node in range(4) for local in range(4)]
    assert sorted(lines) == sorted(expected)


def test_bed_is_whole(testbed: Testbed) -> None:
    assert testbed.complete
