"""The runs of one study on one site: points with resources, prices and reasons against them; repeats with their ids."""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.errors import Problem
from campaign.plan import dataset, identity
from campaign.plan.check import check, unknowns
from campaign.plan.expand import Point
from campaign.plan.ground import Ground
from campaign.plan.ladder import Ladder, Rung, ladders
from campaign.plan.model import PlannedRun, Price
from campaign.plan.order import smallest
from campaign.plan.price import price
from campaign.plan.progress import Progress, counted
from campaign.plan.shape import Shape, Shaper, batches
from campaign.plan.walltime import PILOT_S, WAITS, Pilot, Pilots, estimate
from campaign.slurm.durations import format_duration
from campaign.study import SHAPE, Study

_SCHEDULING = ("reservation", "constraint", "switches", "exclude", "nodelist", "mail")


@dataclass(frozen=True, slots=True)
class Part:
    """A point with all that its repeats share."""

    point: Point
    shape: Shape
    price: Price
    series: str
    params: dict[str, Any]
    """Parameters and axes, without nodes and ranks_per_node."""
    fields: dict[str, Any]
    """The identity, without the repeat."""
    local_batch: int | None
    global_batch: int | None
    problems: tuple[Problem, ...]
    words: dict[str, str]
    """What a command's placeholders stand for, without the repeat."""
    walltime_why: str | None
    """How `walltime: auto` came to its value."""
    ladder: int | None = None
    allocation_nodes: int | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """(ranks, nodes) of a point that can run, else None."""
        return None if self.problems else (self.shape.world_size, self.shape.nodes)


class RunMaker:
    """Makes the runs of one study on one site; what all of them share is made once."""

    def __init__(self, ground: Ground, study: Study, account: str | None, against: Sequence[Problem] = ()) -> None:
        """`against`: what makes every run of the study impossible here."""
        self.site = site = ground.site
        self.study, self.account, self.against = study, account, tuple(against)
        self.data = dataset.find(ground, study)
        self.unknowns: list[Problem] = []
        self._shaper = Shaper(site, study)
        self._checked: dict[Shape, list[Problem]] = {}
        self._prices: dict[Shape, Price] = {}
        self._shared = self._make_shared()
        words = study.command or ()
        self._placeholders = {name for word in words for _, name, _, _ in string.Formatter().parse(word) if name}

    def _make_shared(self) -> dict[str, Any]:
        """The fields that all runs of the study have in common."""
        site, study = self.site, self.study
        staging = study.staging.mode if study.staging.mode != "site" else site.staging.mode
        redirect = study.staging.redirect if study.staging.redirect != "site" else site.staging.redirect
        chosen = {name: getattr(study.resources, name) or getattr(site, name) for name in _SCHEDULING}
        return {
            "site": site.name,
            "study": study.name,
            "workload": study.workload,
            "metrics": tuple(metric.model_dump(exclude_none=True) for metric in study.metrics),
            "scaling": study.scaling,
            "data": self.data.value,
            "staging": staging,
            "redirect": redirect,
            "record": study.record.model_dump(exclude_none=True),
            "retry": study.retry.model_dump(),
            "pack": study.pack,
            "account": self.account,
            "revision": study.revision,
            "image_digest": _image_digest(site.container.image),
            "baseline": study.baseline,
            **chosen,
        }

    def parts(self, found: Sequence[Point], pilots: Pilots, progress: Progress) -> list[Part]:
        """All points with their resources, prices and problems. `pilots`: what was measured of a series."""
        auto = self.study.walltime == "auto"
        walltime_s = self._pilot_s() if auto else int(self.study.walltime)
        what = f"checking {self.study.name} on {self.site.name}"
        parts = [self._part(point, walltime_s) for point in counted(found, progress, what, "points")]
        return self._timed(parts, pilots) if auto else parts

    def _pilot_s(self) -> int:
        """Walltime of a run that nothing is known of."""
        partition = self.site.partitions[self.site.default_partition]
        return int(min(partition.default_time or PILOT_S, partition.max_time or math.inf))

    def _timed(self, parts: Sequence[Part], pilots: Pilots) -> list[Part]:
        """`walltime: auto`: from pilots of the series; without one its smallest point is the pilot, others wait."""
        series: dict[str, list[Part]] = {}
        for part in parts:
            series.setdefault(part.series, []).append(part)
        first = {name: smallest([part.size for part in group]) for name, group in series.items()}
        leads = {id(series[name][index]) for name, index in first.items() if index is not None}
        return [self._timed_part(part, pilots(self.site.name, part.series), id(part) in leads) for part in parts]

    def _timed_part(self, part: Part, measured: Sequence[Pilot], lead: bool) -> Part:
        if part.problems:
            return part
        if measured:
            scales = self.study.scaling != "none"
            sizes = {"nodes": part.shape.nodes, "world_size": part.shape.world_size}
            found = estimate(measured, **sizes, scales=scales)
            return self._part(part.point, found.walltime_s, found.text)
        if lead:
            return dataclasses.replace(part, walltime_why="pilot: nothing of its series has been measured yet")
        hint = (
            "`campaign submit` queues the smallest point; when it is done, plan again (`campaign run` does it itself)"
        )
        waits = self.study.problem(("walltime",), WAITS, hint=hint)
        return dataclasses.replace(part, problems=(waits,))

    def _part(self, point: Point, walltime_s: int, why: str | None = None) -> Part:
        shape = self._shaper.shape(point, walltime_s)
        problems = list(self._problems(shape))
        local, whole, wrong = batches(self.study, point.params, shape.world_size)
        problems += wrong
        problems += self.against
        if self.data.problem is not None:
            problems.append(self.data.problem)
        series = identity.series(point.axes, point.params, (self.data.value or {}).get("options", {}))
        params = {name: value for name, value in point.params.items() if name not in SHAPE[:2]}
        fields = self._identity(shape, params)
        words = self._words(shape, params, local, whole)
        if self.study.pack == "concurrent":
            message = "runs can't be packed side by side by this version"
            problems.append(self.study.problem(("pack",), message, allowed="false | serial"))
        problems += self._unfilled(words)
        price = self._price(shape)
        return Part(point, shape, price, series, params, fields, local, whole, tuple(problems), words, why)

    def packed(self, own: Sequence[tuple[Part, int]]) -> list[tuple[Part, int]]:
        """`pack: serial`: the runs that can run, placed in shared allocations; all others as they were."""
        able = [index for index, (part, _) in enumerate(own) if not part.problems]
        rungs = [
            Rung(own[index][0].shape, own[index][1], self._shaper.named_partition(own[index][0].point))
            for index in able
        ]
        placed = list(own)
        for number, ladder in enumerate(ladders(self.site, rungs, self._shaper.named_qos)):
            for member in ladder.members:
                part, repeat = own[able[member]]
                placed[able[member]] = self._on(ladder, number, part), repeat
        return placed

    def _on(self, ladder: Ladder, number: int, part: Part) -> Part:
        """A part as a rung of this ladder: its partition, the price of the whole allocation."""
        whole = dataclasses.replace(
            part.shape,
            partition=ladder.partition,
            qos=ladder.qos,
            nodes=ladder.nodes,
            walltime_s=ladder.walltime_s,
        )
        if ladder.refused is None:
            problems = self._problems(whole)
        else:
            message = (
                f"a ladder of {len(ladder.members)} runs on {ladder.nodes} nodes takes "
                f"{format_duration(ladder.walltime_s)}, and no partition of {self.site.name} admits it"
            )
            hint = "a shorter walltime, fewer points, or pack: false"
            problems = [self.study.problem(("pack",), message, allowed=ladder.refused, hint=hint)]
        shape = dataclasses.replace(part.shape, partition=ladder.partition, qos=ladder.qos)
        charged = self._price(dataclasses.replace(shape, nodes=ladder.nodes))
        return dataclasses.replace(
            part, shape=shape, price=charged, problems=tuple(problems), ladder=number, allocation_nodes=ladder.nodes
        )

    def _identity(self, shape: Shape, params: dict[str, Any]) -> dict[str, Any]:
        data = self.data.value
        return identity.identity(
            site=self.site.name,
            program=self.study.workload or list(self.study.command or ()),
            params=params,
            nodes=shape.nodes,
            ranks_per_node=shape.ranks_per_node,
            cpus_per_rank=shape.cpus_per_rank,
            gpus_per_rank=shape.gpus_per_rank,
            data=data and {"digest": data["digest"], "options": data["options"]},
            staging={"mode": self._shared["staging"], "redirect": self._shared["redirect"]},
            concurrent=self.study.pack == "concurrent",
            image=self._shared["image_digest"],
            revision=self.study.revision,
        )

    def _words(self, shape: Shape, params: Mapping[str, Any], local: int | None, whole: int | None) -> dict[str, str]:
        """Texts of the placeholders that the command uses."""
        values = {
            "site": self.site.name,
            "study": self.study.name,
            "data": self.data.value["path"] if self.data.value else "",
            "world_size": shape.world_size,
            "local_batch": local,
            "global_batch": whole,
            **params,
            **{name: getattr(shape, name) for name in SHAPE},
        }
        return {name: _word(values[name]) for name in self._placeholders if name in values}

    def _unfilled(self, words: dict[str, str]) -> Iterator[Problem]:
        """Placeholders without a value at this point: `when` sets them elsewhere only."""
        for name in sorted(self._placeholders - words.keys() - {"repeat"}):
            words[name] = ""
            message = f"placeholder {{{name}}} has no value at this point"
            yield self.study.problem(("command",), message, hint=f"params: {{{name}: VALUE}} as the default")

    def _problems(self, shape: Shape) -> list[Problem]:
        if shape not in self._checked:
            self._checked[shape] = check(self.site, self.study, shape)
            self.unknowns += () if shape.problems else unknowns(self.site, shape)
        return self._checked[shape]

    def _price(self, shape: Shape) -> Price:
        key = dataclasses.replace(shape, problems=())
        if key not in self._prices:
            self._prices[key] = price(
                self.site,
                shape.partition,
                nodes=shape.nodes,
                ranks_per_node=shape.ranks_per_node,
                cpus_per_rank=shape.cpus_per_rank,
                gpus_per_rank=shape.gpus_per_rank,
                hours=shape.walltime_s / 3600,
            )
        return self._prices[key]

    def run_id(self, part: Part, repeat: int) -> str:
        """Who this repeat is."""
        return identity.run_id({**part.fields, "repeat": repeat})

    def run(self, part: Part, repeat: int, run_id: str, *, order: int, gate: bool, gated: bool) -> PlannedRun:
        """One repeat of a point."""
        shape, strategy = part.shape, part.params.get("strategy")
        node = self.site.node_of(shape.partition)
        return PlannedRun(
            run_id=run_id,
            series=part.series,
            command=self._command(part, repeat),
            params=part.params,
            axes=part.point.axes,
            strategy=None if strategy is None else str(strategy),
            nodes=shape.nodes,
            ranks_per_node=shape.ranks_per_node,
            cpus_per_rank=shape.cpus_per_rank,
            gpus_per_rank=shape.gpus_per_rank,
            world_size=shape.world_size,
            local_batch=part.local_batch,
            global_batch=part.global_batch,
            repeat=repeat,
            order=order,
            gate=gate,
            gated=gated,
            oversubscribed=not shape.gpus_per_rank and node.cores is not None and shape.ranks_per_node > node.cores,
            partition=shape.partition,
            qos=shape.qos,
            memory_bytes=shape.memory_bytes,
            walltime_s=shape.walltime_s,
            walltime_why=part.walltime_why,
            ladder=part.ladder,
            allocation_nodes=part.allocation_nodes,
            price=part.price,
            problems=part.problems,
            **self._shared,
        )

    def _command(self, part: Part, repeat: int) -> tuple[str, ...] | None:
        """argv with placeholders filled in; never a shell line."""
        if self.study.command is None:
            return None
        words = {**part.words, "repeat": str(repeat)}
        return tuple(word.format_map(words) for word in self.study.command)


def _word(value: Any) -> str:
    """A value as one word of argv: strings as they are, everything else as JSON (true, 0.001, [1,2])."""
    if value is None:
        return ""
    return value if isinstance(value, str) else identity.canonical(value)


def _image_digest(image: str | None) -> str | None:
    """The digest of an image reference that names one (`...@sha256:<hex>`)."""
    name, _, hexadecimal = (image or "").partition("@sha256:")
    return hexadecimal if name and hexadecimal else None
