"""What it costs to send a value from one host to another, measured as placed models send them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.cost.measured import LinkCosts
from gnnplace.distributed.cluster import Node, host_options
from gnnplace.distributed.priority import take_usual_priority
from gnnplace.errors import MeasurementFailed
from gnnplace.executors.link_probe import FLOATS, fitted_link
from gnnplace.executors.measure import quiet_s

__all__ = ["probe_host_links"]

_WARMUP, _REPEATS = 3, 25
_THREADS = 4
_ANSWER_S = 60.0


class LinkEnd:
    """A Ray actor on a host, which sends values to another one and gets them back, as arguments of a method like `HostWorker.deliver`."""

    def __init__(self) -> None:
        take_usual_priority()
        self._back: SimpleQueue[Mapping[str, NDArray[Any]]] = SimpleQueue()

    def take(self, sender: Any, values: Mapping[str, NDArray[Any]]) -> None:
        """Sends back what has come."""
        sender.take_back.remote(values)

    def take_back(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Takes what was sent back."""
        self._back.put(values)

    def round_trips_s(self, me: Any, other: Any, num_floats: int) -> list[float]:
        """Seconds of each round trip of a tensor; empty where one did not come back."""
        take_usual_priority()
        values, found = {"value": np.ones(num_floats, dtype=np.float32)}, []
        for _ in range(_WARMUP + _REPEATS):
            begin_s = time.perf_counter()
            other.take.remote(me, values)
            try:
                self._back.get(timeout=_ANSWER_S)
            except Empty:
                return []
            found.append(time.perf_counter() - begin_s)
        return found[_WARMUP:]


def probe_host_links(pairs: Sequence[tuple[Node, Node]]) -> dict[tuple[str, str], LinkCosts]:
    """The costs between the hosts of each pair, by their names, in both directions: half of what the way there and back takes.

    Raises:
        MeasurementFailed: a host was lost.
    """
    import ray

    made: Any = ray.remote(LinkEnd)
    nodes = {node.name: node for pair in pairs for node in pair}
    ends = {
        name: made.options(**host_options(node.node_id), num_cpus=0, max_concurrency=_THREADS).remote()
        for name, node in nodes.items()
    }
    found: dict[tuple[str, str], LinkCosts] = {}
    try:
        for source, target in ((one.name, other.name) for one, other in pairs):
            one, other = ends[source], ends[target]
            trips = [ray.get(one.round_trips_s.remote(one, other, num_floats)) for num_floats in FLOATS]
            if not all(trips):
                raise MeasurementFailed(
                    f"the link between the hosts {source!r} and {target!r} cannot be probed: no answer"
                )
            costs = fitted_link([float(quiet_s(np.array(seconds))) / 2 for seconds in trips])
            found[source, target] = found[target, source] = costs
    except ray.exceptions.RayError as error:
        raise MeasurementFailed(
            f"links between hosts cannot be probed: a host was lost ({type(error).__name__})"
        ) from None
    finally:
        for end in ends.values():
            ray.kill(end)
    return found
