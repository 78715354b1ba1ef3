"""Three real Slurm clusters on one machine; see README.md beside this file."""

from tests.slurm.testbed.bed import Testbed, TestbedError
from tests.slurm.testbed.cluster import Cluster
from tests.slurm.testbed.settings import Settings

__all__ = ["Cluster", "Settings", "Testbed", "TestbedError"]
