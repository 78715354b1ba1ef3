"""Horovod: a replica on each rank; gradients are averaged by its own background thread while backward goes on.

Its ranks meet through a server of its own, which rank 0 starts here; where, the process group tells the others.

Exposed communication: how long the host waited, after the backward pass, for averages that weren't there yet.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from training.distributed import World
from training.strategies.base import Count, Exposed, Request, Strategy, applies, installed, scale_and_clip
from training.strategies.waits import Waits


class Horovod(Strategy):
    """The strategy `horovod`. It counts a step's backward passes itself, so `no_sync` has nothing to do."""

    name = "horovod"

    def __init__(self, model: nn.Module, world: World, request: Request) -> None:
        self._hvd = hvd = load()
        self._server, self._told = _join(world)
        os.environ |= self._told
        hvd.init()
        self.dp_size = hvd.size()
        self.plain = self.model = model.to(world.device)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self._parameters = list(model.parameters())
        self.optimizer = hvd.DistributedOptimizer(
            request.make_optimizer(self._parameters),
            named_parameters=model.named_parameters(),
            backward_passes_per_step=request.micro_batches,
            op=hvd.Average,
        )
        self._waits = Waits(world, host=True)
        self._count: Count | None = None
        self._wait = self._waits.around(self.optimizer.synchronize)

    def step(self, factor: torch.Tensor, max_norm: float, *, check: bool = False) -> bool:
        """See `Strategy`."""
        self._wait()
        norm = scale_and_clip([p.grad for p in self._parameters if p.grad is not None], factor, max_norm)
        if applied := applies(norm, check=check):
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None
        return applied

    def sum_async(self, tensor: torch.Tensor) -> Callable[[], None]:
        """See `Strategy`. By Horovod: two libraries' collectives at once can block each other on a GPU."""
        if self._count is not None:
            self._count("all_reduce", tensor.nbytes)
        handle = self._hvd.allreduce_async_(tensor, name="loss", op=self._hvd.Sum)
        return lambda: self._hvd.synchronize(handle)

    def _exposed(self, step: int) -> Exposed | None:
        """See `Strategy`."""
        return self._waits.take()

    @contextmanager
    def counting(self, add: Count) -> Iterator[None]:
        """See `Strategy`. Requests, of which Horovod puts several into one collective."""
        make = self.optimizer._allreduce_grad_async

        def counted(parameter: nn.Parameter) -> Any:
            add("all_reduce", 0 if parameter.grad is None else parameter.grad.nbytes)
            return make(parameter)

        self._count, self.optimizer._allreduce_grad_async = add, counted
        try:
            yield
        finally:
            self._count, self.optimizer._allreduce_grad_async = None, make

    def close(self) -> None:
        """See `Strategy`."""
        self._hvd.shutdown()
        for name in self._told:  # the next one in this process meets elsewhere
            os.environ.pop(name, None)
        if self._server is not None:
            self._server.stop()


def load() -> Any:
    """Import the package. Raises BadInput without it."""
    installed("horovod", "Horovod", "horovod", "make horovod builds it (see README), or strategy: ddp")
    import horovod.torch

    return horovod.torch


def _join(world: World) -> tuple[Any, dict[str, str]]:
    """(server, on rank 0; variables by which Horovod's ranks find each other); a collective call.

    Nothing when a launcher (horovodrun) has set such variables.
    """
    if "HOROVOD_RANK" in os.environ:
        return None, {}
    places: list[Any] = [None] * world.size
    dist.all_gather_object(places, (socket.gethostname(), int(os.environ.get("LOCAL_RANK", "0"))))
    hosts = list(dict.fromkeys(host for host, _ in places))
    on_host = {host: [rank for rank, place in enumerate(places) if place[0] == host] for host in hosts}
    server, told = None, [("", 0)]
    if world.rank == 0:
        server, port = _serve({host: len(ranks) for host, ranks in on_host.items()})
        told = [(os.environ.get("MASTER_ADDR", "127.0.0.1"), port)]
    dist.broadcast_object_list(told, src=0)
    host = places[world.rank][0]
    local_rank = on_host[host].index(world.rank)
    peers = [name for name in hosts if len(on_host[name]) > local_rank]
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": told[0][0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(told[0][1]),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_RANK": str(world.rank),
        "HOROVOD_SIZE": str(world.size),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(len(on_host[host])),
        "HOROVOD_CROSS_RANK": str(peers.index(host)),
        "HOROVOD_CROSS_SIZE": str(len(peers)),
    }
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface and "HOROVOD_GLOO_IFACE" not in os.environ:
        variables["HOROVOD_GLOO_IFACE"] = interface
    return server, variables


def _serve(ranks_on: dict[str, int]) -> tuple[Any, int]:
    """Start the rendezvous for hosts with so many ranks each; (server, port)."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(verbose=0)
    port = server.start()
    hosts = ",".join(f"{host}:{ranks}" for host, ranks in ranks_on.items())
    server.init(get_host_assignments(parse_hosts(hosts), sum(ranks_on.values())))
    return server, port
