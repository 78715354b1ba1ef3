"""What a rank writes with: `Recorder`, and `spec()` for what the rank was told.

    from campaign.record import Recorder

    with Recorder.from_env() as recorder:
        recorder.phase("imports_done")
        recorder.world(rank, world_size)
        recorder.step(epoch, step, samples=64, step_s=0.12, loss=0.3)
        recorder.epoch(epoch, epoch_time_s=12.5, steps=100, samples_seen=6400)
        recorder.observe("val_accuracy", 0.91, step=epoch)

Outside a campaign the same calls do nothing. In `campaign try` ($CAMPAIGN_MAX_STEPS) `step` ends the program after so
many steps, as `sys.exit(0)` would: `finally` blocks run. Standard library only, no thread, no lock, no socket: records
are packed into a buffer, which is appended to `$CAMPAIGN_RANK_DIR/<rank>.bin` (node-local) when it is full, at most
once a second, and at every phase, epoch and close. What a killed rank had flushed is there for the node agent, which
reads the file as it grows and punches holes into what it has read. A full disk never ends a training: what can't be
written is counted.

One recorder belongs to one thread of one process. A forked child's recorder does nothing, so nothing is written twice.

File format (native byte order, read on the same node): `HEADER` (magic, rank, unused, bytes dropped), then records that
begin with a tag byte: `STEP` for a step; `JSON_HEAD` (tag, length) and as many bytes of JSON for all else.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

MAGIC = b"CRECv1\0\0"
HEADER = struct.Struct("=8siIQ")
"""magic, rank, unused, bytes dropped; written when the file is made, so that it can be updated on a full disk."""
DROPPED_OFFSET = 16
STEP_TAG = 0x53
STEP = struct.Struct("=Bixxxqqidddddddd")
"""tag, epoch, step, end of the step (CLOCK_MONOTONIC, ns), samples, the seven step parts (s), loss."""
JSON_TAG = 0x4A
JSON_HEAD = struct.Struct("=BI")
FILE_CAP_BYTES = 64 << 20
"""Largest part of a rank's file that may wait to be read; beyond it records are dropped and counted."""
BUFFER_BYTES = 64 << 10
LIBRARIES = ("torch", "numpy", "deepspeed", "horovod", "zarr", "h5py", "jax", "tensorflow")
FLUSH_NS = 1_000_000_000
STEP_LIMIT = "step_limit"
"""The phase that a rank notes when $CAMPAIGN_MAX_STEPS ends it."""

_NAN = float("nan")
_of_process: list[Recorder] = []
_pack_step = STEP.pack_into
_now_ns = time.monotonic_ns
_STEP_SIZE = STEP.size


class Recorder:
    """Writes the records of one rank. Use `Recorder.from_env()`; `Recorder(path, rank)` writes to a file of your own.

    A path of None gives a recorder that does nothing.
    """

    __slots__ = ("_buffer", "_cap_bytes", "_dropped", "_fd", "_flush_at", "_limit", "_path", "_position", "_rank")

    def __init__(self, path: str | os.PathLike[str] | None, rank: int = 0, *, cap_bytes: int = FILE_CAP_BYTES) -> None:
        self._path = None if path is None else os.fspath(path)
        self._rank = rank
        self._cap_bytes = cap_bytes
        self._buffer = bytearray(BUFFER_BYTES)
        self._limit = BUFFER_BYTES - _STEP_SIZE
        self._position = 0
        self._dropped = 0
        self._fd = -1
        self._flush_at = _now_ns() + FLUSH_NS
        if self._path is not None:
            self._open()
            _recorders.append(self)

    @classmethod
    def from_env(cls) -> Recorder:
        """The recorder of this process, the same one at every call; the first call notes the phase `python_up`.

        Outside a campaign ($CAMPAIGN_RANK_DIR unset) it does nothing. The rank is $RANK (0 when unset).
        """
        if not _of_process:
            folder = os.environ.get("CAMPAIGN_RANK_DIR")
            rank = int(os.environ.get("RANK") or 0)
            path = rank_file(folder, rank) if folder else None
            steps = int(os.environ.get("CAMPAIGN_MAX_STEPS") or 0) if folder else 0
            _of_process.append(_LimitedRecorder(path, rank, max_steps=steps) if steps else cls(path, rank))
            _of_process[0].phase("python_up")
        return _of_process[0]

    @property
    def bytes_dropped(self) -> int:
        """Bytes of records that could not be written."""
        return self._dropped

    def phase(self, name: str) -> None:
        """Note that start-up or the end has reached `name` (contract section 2, or a name of your own)."""
        self._json({"k": "phase", "t": _now_ns(), "name": name})
        self.flush()

    def world(self, rank: int, world_size: int) -> None:
        """Note rank and world size as the process group reports them, and (rank 0) the versions of what is loaded."""
        record = {"k": "world", "t": _now_ns(), "rank": int(rank), "world_size": int(world_size)}
        if rank == 0:
            record["versions"] = _versions()
        self._json(record)
        self.flush()

    def step(
        self,
        epoch: int,
        step: int,
        *,
        samples: int = 0,
        data_wait_s: float = _NAN,
        h2d_s: float = _NAN,
        forward_s: float = _NAN,
        backward_s: float = _NAN,
        comm_exposed_s: float = _NAN,
        optimizer_s: float = _NAN,
        step_s: float = _NAN,
        loss: float = _NAN,
    ) -> None:
        """Note one optimizer step of this rank: `step` counts from 0 over all epochs; parts in s, NaN unmeasured."""
        now = _now_ns()
        position = self._position
        try:
            _pack_step(
                self._buffer,
                position,
                STEP_TAG,
                epoch,
                step,
                now,
                samples,
                data_wait_s,
                h2d_s,
                forward_s,
                backward_s,
                comm_exposed_s,
                optimizer_s,
                step_s,
                loss,
            )
        except struct.error as error:
            raise TypeError(f"step(): epoch, step, samples must be int and the rest float: {error}") from None
        self._position = position = position + _STEP_SIZE
        if position > self._limit or now >= self._flush_at:
            self.flush()

    def epoch(
        self,
        epoch: int,
        *,
        epoch_time_s: float,
        steps: int,
        samples_seen: int,
        warmup: bool = False,
        samples_unique: int | None = None,
        order_hash: str | None = None,
        loss: float | None = None,
        val_loss: float | None = None,
    ) -> None:
        """Note one epoch of this rank.

        epoch_time_s: wall time without validation and checkpoint, in seconds. samples_seen: of this rank, duplicates
        counted. samples_unique: distinct samples over ALL ranks, from the workload's audit (any rank may give it).
        order_hash: hash of the order in which samples were visited. Losses: means over the epoch.
        """
        self._json(
            {
                "k": "epoch",
                "t": _now_ns(),
                "epoch": int(epoch),
                "warmup": bool(warmup),
                "epoch_time_s": float(epoch_time_s),
                "steps": int(steps),
                "samples_seen": int(samples_seen),
                "samples_unique": None if samples_unique is None else int(samples_unique),
                "order_hash": None if order_hash is None else str(order_hash),
                "loss": None if loss is None else float(loss),
                "val_loss": None if val_loss is None else float(val_loss),
            }
        )
        self.flush()

    def observe(self, name: str, value: float, *, unit: str = "", step: int | None = None, **labels: object) -> None:
        """Note anything else: a number with a unit, and labels that tell it from others of that name."""
        record = {"k": "observe", "t": _now_ns(), "name": str(name), "value": float(value), "unit": str(unit)}
        if step is not None:
            record["step"] = int(step)
        if labels:
            record["labels"] = {key: str(label) for key, label in labels.items()}
        self._json(record)

    def flush(self) -> None:
        """Hand what is buffered to the file. Never raises: what can't be written is dropped and counted."""
        size = self._position
        self._position = 0
        self._flush_at = _now_ns() + FLUSH_NS
        if self._path is None or size == 0:
            return
        written = 0
        try:
            if self._fd < 0:
                self._open()
            if self._fd < 0 or os.fstat(self._fd).st_blocks * 512 > self._cap_bytes:
                self._drop(size)
                return
            with memoryview(self._buffer) as view:
                while written < size:
                    written += os.write(self._fd, view[written:size])
        except OSError:
            self._cut(written)
            self._drop(size)

    def close(self) -> None:
        """Flush and close. Further calls do nothing; closing twice is fine."""
        self.flush()
        self._path = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self in _recorders:
            _recorders.remove(self)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _json(self, record: dict[str, Any]) -> None:
        if self._path is None:
            return
        import json

        text = json.dumps(record, separators=(",", ":")).encode()
        size = JSON_HEAD.size + len(text)
        if size > BUFFER_BYTES:
            self._drop(size)
            return
        if self._position + size > BUFFER_BYTES:
            self.flush()
        start = self._position
        JSON_HEAD.pack_into(self._buffer, start, JSON_TAG, len(text))
        self._buffer[start + JSON_HEAD.size : start + size] = text
        self._position = start + size
        if self._position > self._limit or record["t"] >= self._flush_at:
            self.flush()

    def _open(self) -> None:
        assert self._path is not None
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            if os.fstat(fd).st_size < HEADER.size:
                os.ftruncate(fd, 0)
                os.write(fd, HEADER.pack(MAGIC, self._rank, 0, self._dropped))
        except OSError:
            os.close(fd)
            return
        self._fd = fd

    def _cut(self, written: int) -> None:
        """Take a half-written record off the end, so that the next one begins where a record may begin."""
        if written:
            try:
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            except OSError:
                os.close(self._fd)
                self._fd = -1
                self._path = None

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._path is None:
            return
        try:
            # a descriptor of its own: pwrite on an O_APPEND descriptor appends (Linux)
            fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.pwrite(fd, struct.pack("=Q", self._dropped), DROPPED_OFFSET)
        except OSError:
            pass
        finally:
            os.close(fd)


class _LimitedRecorder(Recorder):
    """A recorder that ends its program after a number of steps: all ranks, which make the same steps, end together.

    A class of its own, so that counting costs other runs nothing.
    """

    __slots__ = ("_steps_left",)

    def __init__(self, path: str | os.PathLike[str] | None, rank: int = 0, *, max_steps: int) -> None:
        super().__init__(path, rank)
        self._steps_left = max_steps

    def step(self, epoch: int, step: int, **parts: Any) -> None:
        """Note the step; after the last one raise SystemExit(0)."""
        if self._steps_left <= 0:
            # the program has caught SystemExit, or it was raised in a thread, where it ends only that
            self.close()
            os._exit(0)
        super().step(epoch, step, **parts)
        self._steps_left -= 1
        if self._steps_left == 0:
            self.phase(STEP_LIMIT)
            _left.append(sys._getframe())
            raise SystemExit(0)


def rank_file(folder: str, rank: int) -> str:
    """Where a rank's records go: `<folder>/<rank>.bin`."""
    return f"{folder}/{rank}.bin"


def spec() -> dict[str, Any]:
    """What this run was told: the JSON at $CAMPAIGN_SPEC (params, data, nodes, ranks_per_node, ...).

    Raises `campaign.errors.BadInput` outside a campaign.
    """
    path = os.environ.get("CAMPAIGN_SPEC")
    if not path:
        from campaign.errors import BadInput, Problem

        raise BadInput(
            Problem(
                "campaign.record.spec() was called outside a campaign",
                key="CAMPAIGN_SPEC",
                allowed="the environment variable that campaign sets in every rank",
                hint="start the workload with `campaign run`, or give it its parameters another way",
            )
        )
    import json

    with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib would double the import time)
        data: dict[str, Any] = json.load(file)
    return data


def _versions() -> dict[str, str]:
    """Versions of Python and of the libraries that this process has imported, never importing any."""
    found = {"python": sys.version.split()[0]}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    builds = getattr(sys.modules.get("torch"), "version", None)
    for name in ("cuda", "hip"):
        if getattr(builds, name, None):
            found[name] = str(getattr(builds, name))
    return found


def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close()
    if _left:
        # freeing a process group that was at work may last for ever (gloo's threads and Python's lock): it is left
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if getattr(sys, "last_value", None) is None else 1)


def _forget_in_child() -> None:
    """In a forked child: what the parent has buffered is the parent's to write."""
    for recorder in _recorders:
        recorder._path = None
        recorder._position = 0
        if recorder._fd >= 0:
            os.close(recorder._fd)
            recorder._fd = -1
    _recorders.clear()


_recorders: list[Recorder] = []
_left: list[FrameType] = []
"""Where the step limit was met: it keeps what the program had at hand from being freed before `_close_all`."""
atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_in_child)
