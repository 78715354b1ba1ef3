"""Entry points that a study names as `workload: training.workloads.<name>`."""
