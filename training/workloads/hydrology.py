"""The LSTM surrogate of the CERN openlab report, trained on a data set that `campaign data` prepared.

Under campaign it is started once per rank and reads its parameters from the run's spec. By hand:

    python -m training.workloads.hydrology --params '{"global_batch": 256, "fraction": 0.02}'
    torchrun --nproc-per-node 2 -m training.workloads.hydrology --params '{"global_batch": 256, "fraction": 0.02}'

How good it is against its baselines: python -m training.evaluate hydrology
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, CampaignError, Problem
from campaign.record import Recorder

if TYPE_CHECKING:
    from training.loop import EpochResult
    from training.profile import Profile

NAME = "hydrology"


def main(argv: list[str] | None = None) -> int:
    """Run the workload; returns the exit code (2 for bad input, 1 for anything else that failed)."""
    recorder = Recorder.from_env()  # notes the phase python_up
    try:
        params, path = _arguments(argv)
        _run(params, path, recorder)
    except CampaignError as error:
        rank = os.environ.get("RANK")
        print(f"{'' if rank is None else f'rank {rank}: '}error: {error}", file=sys.stderr)
        return _failed(error.exit_code, recorder)
    except Exception:
        traceback.print_exc()
        return _failed(1, recorder)
    recorder.close()
    return 0


def _failed(code: int, recorder: Recorder) -> int:
    """Close the record; end this process at once if it is one of several ranks.

    Anything slower could last for ever: freeing the failed step's collectives, at the latest when Python ends, waits
    for their peers, of which one may be stuck. This rank's end is what tells the others.
    """
    recorder.close()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(params: dict[str, Any], path: Path, recorder: Recorder) -> None:
    import torch
    import torch.distributed as dist

    from training import distributed, samples, settings, strategies
    from training.data.layout import read_info
    from training.loop import train
    from training.profile import profile

    chosen = settings.parse(params)
    strategies.load(chosen.strategy)
    recorder.phase("imports_done")
    info = read_info(path)
    with distributed.process_group(chosen.init_timeout_s) as world:
        recorder.phase("pg_ready")
        recorder.world(world.rank, world.size)
        dist.all_reduce(torch.zeros(1, device=world.device))
        recorder.phase("first_collective")
        chosen.batches(world.size)
        parts = samples.build(samples.load(info), chosen.window)
        if world.rank == 0:
            print(
                f"{info.name} {info.digest[:12]}: {len(parts['train'])} training samples, "
                f"share taken {chosen.fraction:g}; {world.size} ranks on {world.device.type} ({world.backend}), "
                f"{torch.get_num_threads()} threads each",
                flush=True,
            )
        if chosen.profile:
            _tell(profile(chosen, parts, world, recorder), world.rank)
        else:
            train(chosen, parts, world, recorder, report=_report if world.rank == 0 else lambda result: None)


def _report(result: EpochResult) -> None:
    validation = "" if result.val_loss is None else f", validation RMSE {result.val_loss:.4f}"
    print(
        f"epoch {result.epoch}: {result.epoch_time_s:.3f} s, {result.steps} steps, loss {result.loss:.4f}{validation}, "
        f"{result.samples_seen} samples read, {result.samples_unique} different",
        flush=True,
    )


def _tell(found: Profile, rank: int) -> None:
    if rank:
        return
    for name, count in sorted(found.collectives.items()):
        print(f"{name}: {count:g} a step, {found.bytes[name]:g} bytes", flush=True)
    print(f"computation fraction as itwinai counts it: {found.computation_fraction:.3f}", flush=True)


def _arguments(argv: list[str] | None) -> tuple[dict[str, Any], Path]:
    """Parameters and data set: from the command line, else from the run's spec."""
    parser = argparse.ArgumentParser(
        prog="python -m training.workloads.hydrology",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--params", metavar="JSON", help="parameters, as `params` of a study")
    parser.add_argument("--data", metavar="DIR", type=Path, help="the prepared data set")
    options = parser.parse_args(argv)
    if options.params is not None or "CAMPAIGN_SPEC" not in os.environ:
        return json_object(options.params or "{}", "--params"), options.data or default_path()
    from campaign.record import spec as read_spec

    spec = read_spec()
    data = spec.get("data") or {}
    # options of the data set say how much of it is used: parameters of the training
    params = spec["params"] | (data.get("options") or {})
    return params, options.data or Path(data.get("path") or default_path())


def default_path() -> Path:
    """Where the data set is when nobody says: $CAMPAIGN_DATA/hydrology, else data/hydrology here."""
    return Path(os.environ.get("CAMPAIGN_DATA") or "data") / NAME


def json_object(text: str, key: str) -> dict[str, Any]:
    """The JSON object that the option `key` was given. Raises BadInput."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(Problem(f"no JSON: {error}", key=key, value=text)) from None
    if not isinstance(value, dict):
        raise BadInput(Problem("not an object", key=key, value=text, allowed='{"name": value, ...}'))
    return value


if __name__ == "__main__":
    sys.exit(main())
