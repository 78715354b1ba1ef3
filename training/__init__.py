"""Real workloads for scaling measurements: data sets, models, strategies and the measured training loop."""
