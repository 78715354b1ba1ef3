"""The LSTM surrogate of the CERN openlab report, trained with PyTorch DDP on a data set that `campaign data` prepared.

Under campaign it is started once per rank and reads its parameters from the run's spec. By hand:

    python -m training.workloads.hydrology --params '{"global_batch": 256, "fraction": 0.02}'
    torchrun --nproc-per-node 2 -m training.workloads.hydrology --params '{"global_batch": 256, "fraction": 0.02}'
    python -m training.workloads.hydrology --baselines          the RMSE of the baselines on the test years
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, CampaignError, Problem
from campaign.record import Recorder

if TYPE_CHECKING:
    from training.loop import EpochResult

NAME = "hydrology"


def main(argv: list[str] | None = None) -> int:
    """Run the workload; returns the exit code (2 for bad input, 1 for anything else that failed)."""
    recorder = Recorder.from_env()  # notes the phase python_up
    try:
        options = _arguments(argv)
        if options.baselines:
            from training.evaluate import print_baselines

            print_baselines(options.data)
        else:
            _run(options.params, options.data, recorder)
    except CampaignError as error:
        rank = os.environ.get("RANK")
        print(f"{'' if rank is None else f'rank {rank}: '}error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        recorder.close()
    return 0


def _run(params: dict[str, Any], path: Path, recorder: Recorder) -> None:
    from training import distributed, samples, settings
    from training.data.layout import read_info

    recorder.phase("imports_done")
    chosen = settings.parse(params)
    info = read_info(path)
    with distributed.process_group(chosen.init_timeout_s) as world:
        import torch
        import torch.distributed as dist

        recorder.phase("pg_ready")
        recorder.world(world.rank, world.size)
        dist.all_reduce(torch.zeros(1, device=world.device))
        recorder.phase("first_collective")
        from training.loop import train

        chosen.batches(world.size)
        parts = samples.build(samples.load(info), chosen.window)
        if world.rank == 0:
            print(
                f"{info.name} {info.digest[:12]}: {len(parts['train'])} training samples, "
                f"share taken {chosen.fraction:g}; {world.size} ranks on {world.device.type} ({world.backend}), {torch.get_num_threads()} threads each",
                flush=True,
            )
        train(chosen, parts, world, recorder, report=_report if world.rank == 0 else lambda result: None)


def _report(result: EpochResult) -> None:
    validation = "" if result.val_loss is None else f", validation RMSE {result.val_loss:.4f}"
    print(
        f"epoch {result.epoch}: {result.epoch_time_s:.3f} s, {result.steps} steps, loss {result.loss:.4f}{validation}, "
        f"{result.samples_seen} samples read, {result.samples_unique} different",
        flush=True,
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parameters and data set: from the command line, else from the run's spec."""
    parser = argparse.ArgumentParser(
        prog="python -m training.workloads.hydrology",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--params", metavar="JSON", help="parameters, as `params` of a study")
    parser.add_argument("--data", metavar="DIR", type=Path, help="the prepared data set")
    parser.add_argument("--baselines", action="store_true", help="print the baselines' RMSE on the test years and end")
    options = parser.parse_args(argv)
    spec: dict[str, Any] = {}
    if "CAMPAIGN_SPEC" in os.environ and options.params is None:
        from campaign.record import spec as read_spec

        spec = read_spec()
    data = spec.get("data") or {}
    options.params = _json(options.params) if options.params else spec.get("params", {})
    # options of the data set that say how much of it is used are parameters of the training
    options.params = options.params | (data.get("options") or {})
    for key in ("global_batch", "local_batch"):
        if "global_batch" not in options.params and "local_batch" not in options.params and spec.get(key):
            options.params[key] = spec[key]
    options.data = options.data or Path(data.get("path") or default_path())
    return options


def default_path() -> Path:
    """Where the data set is when nobody says: $CAMPAIGN_DATA/hydrology, else data/hydrology here."""
    return Path(os.environ.get("CAMPAIGN_DATA") or "data") / NAME


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(Problem(f"no JSON: {error}", key="--params", value=text)) from None
    if not isinstance(value, dict):
        raise BadInput(Problem("not an object", key="--params", value=text, allowed='{"name": value, ...}'))
    return value


if __name__ == "__main__":
    sys.exit(main())
