"""Training over the hosts of a cluster: rank 0 is this process, every other rank a Ray actor."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gnnplace.distributed.calls import SentFiles, sent_files, write_sent_files
from gnnplace.distributed.cluster import Node, connected, host_options, nodes, take_usual_priority
from gnnplace.errors import ProcessLost
from gnnplace.files import temporary_folder
from gnnplace.policy.network import one_thread
from gnnplace.training.process_group import ProcessGroup, joined, process_group

_THREADS = 2  # one trains, the other answers calls
_BEGIN_S = 120.0


class RankActor:
    """One rank of a group, as a Ray actor."""

    def __init__(self, arguments: Sequence[Any], files: SentFiles) -> None:
        self._arguments, self._files = arguments, files

    def join(self, rank: int, size: int, rendezvous: str, work: Callable[..., object]) -> None:
        """Does the work of a rank; files among the arguments are written on this host."""
        take_usual_priority()
        with one_thread(), temporary_folder() as folder, joined(rank, size, rendezvous) as group:
            write_sent_files(self._files, folder)
            work(group, *(folder / each.name if isinstance(each, Path) else each for each in self._arguments))


@contextmanager
def hosts_process_group(
    address: str, size: int, work: Callable[..., object], arguments: tuple[Any, ...]
) -> Iterator[ProcessGroup]:
    """A group of processes on the hosts of a cluster, in place of `process_group`.

    Each rank goes to the host with the fewest ranks per core. Rank 0, which writes the files, is the calling process and
    counts for its own host. Means are over the same ranks in the same order as on one machine, so weights are the same.

    Raises:
        ProcessLost: a process has ended.
    """
    with ExitStack() as stack:
        if size == 1:
            yield stack.enter_context(process_group(size, work, arguments))
            return
        stack.enter_context(connected(address))
        stack.enter_context(one_thread())
        import ray

        files = sent_files({each.name: each for each in arguments if isinstance(each, Path)})
        here = ray.get_runtime_context().get_node_id()
        turns = _turns(nodes(), here, size - 1)
        ranks = Counter([here, *(node.node_id for node in turns)])
        make: Any = ray.remote(RankActor)
        actors = []
        for node in turns:
            options = {**host_options(node.node_id), "num_cpus": min(1, node.cores / ranks[node.node_id])}
            actors.append(make.options(**options, max_concurrency=_THREADS).remote(arguments, files))
            stack.callback(ray.kill, actors[-1])
        with _losses_reported():
            begun = [actor.__ray_ready__.remote() for actor in actors]
            ray.get(begun, timeout=_BEGIN_S)  # torch would wait half an hour
        rendezvous = f"tcp://{ray.util.get_node_ip_address()}:{_free_port()}"
        working = [actor.join.remote(rank, size, rendezvous, work) for rank, actor in enumerate(actors, start=1)]
        with joined(0, size, rendezvous) as group:
            yield group
        with _losses_reported():
            ray.get(working)


@contextmanager
def _losses_reported() -> Iterator[None]:
    import ray

    try:
        yield
    except ray.exceptions.RayError as error:
        raise ProcessLost(
            f"a training process on another host has ended, or found no free core ({type(error).__name__}); continue with --resume"
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
