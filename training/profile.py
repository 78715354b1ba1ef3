"""The profiler mode (`profile: true`): what a step does, never how long it takes.

Counting and profiling distort times, so such a run gives none: no steps, no epochs, nothing that a scaling figure could
take. It leaves observations (per optimizer step): `collectives_per_step` and `collective_bytes_per_step`, by
`operation`, and `itwinai_computation_fraction`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from campaign.record import Recorder
from training.collectives import Collectives
from training.distributed import World
from training.loop import make_stepper
from training.samples import Batch, Part, Samples
from training.settings import Settings
from training.sharding import Shard

WARM_STEPS = 3
"""DDP makes its buckets anew after the first step; ZeRO-3 learns in it which parameters come when."""
COUNTED_STEPS = 4
COMPUTING = re.compile(r"(aten|at|c10|autograd)::")
"""itwinai 0.4.2 calls these computation, and everything else "other"."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a step does, as this rank sees it."""

    collectives: dict[str, float]
    """Collectives of one step, by name."""
    bytes: dict[str, float]
    """Bytes of one step, by name."""
    computation_fraction: float


def profile(settings: Settings, parts: dict[Part, Samples], world: World, recorder: Recorder) -> Profile:
    """Make some steps and look at them; a collective call. Rank 0 records what it saw."""
    stepper = make_stepper(settings, parts, world, Recorder(None, world.rank))
    stepper.strategy.model.train()
    batches = _endless(stepper.shard)

    def steps(count: int) -> None:
        for step in range(count):
            stepper.clock.begin()
            batch = next(batches)
            stepper.clock.batch_here()
            stepper.step(0, min(step, len(stepper.shard) - 2), batch)

    steps(WARM_STEPS)
    counter = Collectives()
    with stepper.strategy.counting(counter.add), counter:
        steps(COUNTED_STEPS)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if world.on_gpu else [])]
    with profiler(activities=activities) as seen:
        steps(COUNTED_STEPS)
    fraction = _computation_fraction(seen, on_gpu=world.on_gpu)
    stepper.strategy.close()
    found = Profile(
        {name: count / COUNTED_STEPS for name, count in counter.calls.items()},
        {name: size / COUNTED_STEPS for name, size in counter.bytes.items()},
        fraction,
    )
    if world.rank == 0:
        _record(found, recorder)
    return found


def _endless(shard: Shard) -> Iterator[Batch]:
    """Full batches, epoch after epoch."""
    epoch = 0
    while True:
        shard.set_epoch(epoch)
        for batch in shard.loader:
            if len(batch.index) == shard.local_batch:
                yield batch
        epoch += 1


def _computation_fraction(seen: profiler, *, on_gpu: bool) -> float:
    """Share of itwinai's "computation" in all self times, on the GPU where there is one."""
    times: dict[bool, float] = {True: 0.0, False: 0.0}
    for event in seen.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        times[COMPUTING.match(event.key) is not None] += float(spent)
    total = times[True] + times[False]
    return times[True] / total if total else float("nan")


def _record(found: Profile, recorder: Recorder) -> None:
    for name in sorted(found.collectives):
        recorder.observe("collectives_per_step", found.collectives[name], operation=name)
        recorder.observe("collective_bytes_per_step", found.bytes[name], unit="B", operation=name)
    recorder.observe(
        "itwinai_computation_fraction",
        found.computation_fraction,
        definition="self time of aten, at, c10 and autograd operators in that of all (itwinai 0.4.2); ranks nothing",
    )
