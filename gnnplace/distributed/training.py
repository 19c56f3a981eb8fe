"""Training over the hosts of a cluster: rank 0 is this process, every other rank a Ray actor."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnplace.distributed.cluster import Node, connected, host_options, nodes, take_usual_priority
from gnnplace.errors import ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.policy.network import one_thread
from gnnplace.training.process_group import ProcessGroup, StartGroup, joined, process_group

__all__ = ["cores_of_cluster", "hosts_process_group"]

_THREADS = 2  # one trains, the other answers calls
_BEGIN_S = 120.0


class RankActor:
    """One rank of a group, as a Ray actor."""

    def join(
        self, rank: int, size: int, rendezvous: str, work: Callable[..., object], arguments: Sequence[Any]
    ) -> None:
        """Does the work of a rank; arguments that are files arrive as (name, content)."""
        take_usual_priority()
        with one_thread(), temporary_folder() as folder, joined(rank, size, rendezvous) as group:
            work(group, *(_written(argument, folder) for argument in arguments))

    def host(self) -> str:
        """The address of its host."""
        return _address()


def hosts_process_group(address: str) -> StartGroup:
    """Starts groups of processes on the hosts of a cluster, in place of `process_group`.

    Each rank goes to the host with the fewest ranks per core. Rank 0, which writes the files, is the calling process and
    counts for its own host. Means are over the same ranks in the same order as on one machine, so weights are the same.
    """

    @contextmanager
    def start(size: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> Iterator[ProcessGroup]:
        if size == 1:
            with process_group(size, work, arguments) as group:
                yield group
            return
        with connected(address), one_thread():
            yield from _group(size, work, [_read(argument) for argument in arguments])

    return start


def cores_of_cluster(address: str) -> int:
    """Number of cores of all hosts.

    Raises:
        GnnplaceError: there is no cluster.
    """
    with connected(address):
        return sum(node.cores for node in nodes())


def _group(size: int, work: Callable[..., object], arguments: Sequence[Any]) -> Iterator[ProcessGroup]:
    import ray

    made: Any = ray.remote(RankActor)
    here = ray.get_runtime_context().get_node_id()
    turns = _turns(nodes(), here, size - 1)
    ranks = Counter([here, *(node.node_id for node in turns)])
    actors = [
        made.options(
            **host_options(node.node_id),
            num_cpus=min(1, node.cores / ranks[node.node_id]),
            max_concurrency=_THREADS,
        ).remote()
        for node in turns
    ]
    try:
        with _actors_there():
            ray.get([actor.host.remote() for actor in actors], timeout=_BEGIN_S)  # the group would wait half an hour
        rendezvous = f"tcp://{_address()}:{_free_port()}"
        working = [
            actor.join.remote(rank, size, rendezvous, work, arguments) for rank, actor in enumerate(actors, start=1)
        ]
        with joined(0, size, rendezvous) as group:
            yield group
        with _actors_there():
            ray.get(working)
    finally:
        for actor in actors:
            ray.kill(actor)


@contextmanager
def _actors_there() -> Iterator[None]:
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise ProcessLost(
            f"a training process on another host has ended ({type(error).__name__}); go on with --resume"
        ) from None


def _turns(found: Sequence[Node], here: str, count: int) -> list[Node]:
    """The host of each of `count` ranks."""
    ranks = {node.node_id: int(node.node_id == here) for node in found}
    turns = []
    for _ in range(count):
        least = min(found, key=lambda node: ranks[node.node_id] / max(node.cores, 1))
        ranks[least.node_id] += 1
        turns.append(least)
    return turns


def _read(argument: Any) -> Any:
    return (argument.name, argument.read_bytes()) if isinstance(argument, Path) else argument


def _written(argument: Any, folder: Path) -> Any:
    if not (isinstance(argument, tuple) and len(argument) == 2 and isinstance(argument[1], bytes)):
        return argument
    path = folder / str(argument[0])
    path.write_bytes(argument[1])
    return path


def _address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
