"""Skill of the surrogate against its baselines on the test years, over several seeds.

    python -m training.evaluate hydrology --seeds 1 2 3

The configuration was chosen on the validation years. With it, the surrogate trains once per seed on all years before
the test years, for a fixed number of epochs. The baselines see the same samples; least squares sees the same inputs
and is fitted to all samples before the test years. Differences are resampled over test years (paired bootstrap): the
cells of a year are no independent samples, and its scenarios stay together. Ends with 1 unless every seed is below
every baseline.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from campaign.errors import CampaignError
from campaign.record import Recorder
from training import baselines, distributed, samples, settings
from training.data.layout import DatasetInfo, read_info
from training.loop import predict, train
from training.samples import Part, Samples, Split
from training.settings import Settings
from training.workloads.hydrology import default_path, json_object

CONFIGURATION: dict[str, Any] = {
    "global_batch": 256,
    "epochs": 5,
    "fraction": 0.1,
    "window": 12,
    "lr_schedule": "cosine",
}
"""Chosen on the validation years; everything else is the default, which is the CERN report's."""
BOOTSTRAPS = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """The surrogate against one baseline; negative differences: the surrogate is better."""

    name: str
    rmse: float
    difference: float
    """RMSE of the surrogate (root of the mean over seeds of its squared errors) less that of the baseline."""
    low: float
    high: float
    """95 % interval of the difference over resampled years."""
    worst_seed: float
    """Largest difference of a single seed."""


@dataclass(frozen=True, slots=True)
class Skill:
    """What one evaluation found; RMSE in `units` over the test samples."""

    units: str
    years: tuple[int, int]
    samples: int
    seeds: dict[int, float]
    """Seed -> RMSE of the surrogate."""
    comparisons: list[Comparison]

    @property
    def beats_all(self) -> bool:
        """Every seed is below every baseline."""
        return all(comparison.worst_seed < 0 for comparison in self.comparisons)


def evaluate(info: DatasetInfo, chosen: Settings, seeds: Sequence[int], *, quiet: bool = False) -> Skill:
    """Train once per seed in this process, on all years before the test years, and compare on those."""
    series = samples.load(info)
    test_from = samples.split_years(series.year).test
    parts = samples.build(series, chosen.window, Split(test_from, test_from))
    test = parts["test"]
    references = baseline_errors(parts)
    errors = {}
    with distributed.process_group(chosen.init_timeout_s) as world:
        for seed in seeds:
            started = time.monotonic()
            model = train(dataclasses.replace(chosen, seed=seed, validate=False), parts, world, Recorder(None)).model
            errors[seed] = predict(model, test, world, torch.arange(len(test))).double().numpy()
            if not quiet:
                rmse = baselines.rmse(errors[seed])
                print(f"seed {seed}: test RMSE {rmse:.4f}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    years = test.years()
    comparisons = [compare(name, list(errors.values()), reference, years) for name, reference in references.items()]
    return Skill(
        series.target_units,
        (int(years.min()), int(years.max())),
        len(test),
        {seed: baselines.rmse(values) for seed, values in errors.items()},
        comparisons,
    )


def baseline_errors(parts: dict[Part, Samples]) -> dict[str, baselines.Errors]:
    """Errors of the four baselines on the test part."""
    return {
        "persistence": baselines.past_mean(parts["test"], 1),
        "mean of 5 steps": baselines.past_mean(parts["test"], 5),
        "mean of 10 steps": baselines.past_mean(parts["test"], 10),
        "least squares": baselines.least_squares(parts["train"], parts["test"]),
    }


def compare(
    name: str, runs: list[baselines.Errors], reference: baselines.Errors, years: npt.NDArray[np.int32], seed: int = 0
) -> Comparison:
    """Paired bootstrap over years: whole years are drawn with replacement, for both sides at once."""
    unique, year_of = np.unique(years, return_inverse=True)
    count = np.bincount(year_of)
    squares = [np.bincount(year_of, weights=run**2) for run in runs]
    reference_squares = np.bincount(year_of, weights=reference**2)
    drawn = np.random.Generator(np.random.PCG64(seed)).integers(len(unique), size=(BOOTSTRAPS, len(unique)))

    def root(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.sqrt(values[drawn].sum(axis=1) / count[drawn].sum(axis=1))

    model_squares = np.mean(squares, axis=0)
    low, high = np.quantile(root(model_squares) - root(reference_squares), [0.025, 0.975])
    rmse = baselines.rmse(reference)
    model_rmse = float(np.sqrt(model_squares.sum() / count.sum()))
    worst = max(baselines.rmse(run) for run in runs) - rmse
    return Comparison(name, rmse, model_rmse - rmse, float(low), float(high), worst)


def table(info: DatasetInfo, skill: Skill) -> str:
    """The result as a Markdown table."""
    values = np.array(list(skill.seeds.values()))
    spread = ", ".join(f"{seed}: {rmse:.4f}" for seed, rmse in skill.seeds.items())
    lines = [
        f"{info.name} {info.digest[:12]}, test years {skill.years[0]} to {skill.years[1]}, {skill.samples} samples; "
        f"RMSE in {skill.units}; {len(values)} seeds ({spread})",
        "",
        "| prediction | RMSE | LSTM less this, mean of seeds | 95 % over years | worst seed less this |",
        "|---|---|---|---|---|",
        f"| LSTM, mean of seeds (lowest to highest) | {values.mean():.4f} ({values.min():.4f} to {values.max():.4f}) "
        "| | | |",
    ]
    lines += [
        f"| {c.name} | {c.rmse:.4f} | {c.difference:+.4f} | {c.low:+.4f} to {c.high:+.4f} | {c.worst_seed:+.4f} |"
        for c in skill.comparisons
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Print the table; 0 when every seed is below every baseline, 1 when not, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=["hydrology"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--data", type=Path, default=default_path(), help="the prepared data set")
    parser.add_argument("--params", default="{}", metavar="JSON", help="differences to the chosen ones")
    options = parser.parse_args(argv)
    try:
        info = read_info(options.data)
        skill = evaluate(info, settings.parse(CONFIGURATION | json_object(options.params, "--params")), options.seeds)
    except CampaignError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(table(info, skill))
    return 0 if skill.beats_all else 1


if __name__ == "__main__":
    sys.exit(main())
