"""Tests against real Slurm clusters, and the test bed that starts them."""
