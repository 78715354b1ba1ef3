"""Data sets of the workloads: where they come from, how they are stored, and how they are read."""
