"""Our own speed, against peers and limits, as ratios: `make bench`.

Each `benchmarks/bench_*.py` has `run() -> list[dict]`; `benchmarks.harness.row` makes such a row.
"""
