"""Devices, links between them, and the routes of tensors between any two devices."""

import heapq
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, frozen
from gnnplace.errors import InvalidTopology

HOST_KIND_PREFIX = "cpu"
"""Prefix of the kinds of hosts."""

UNLIMITED_BYTES = 2**62
_ROUTING_BYTES = 1 << 20  # size of the tensor whose fastest route is chosen


@dataclass(frozen=True)
class Device:
    """A processor that runs one op at a time.

    >>> Device("gpu:0", kind="k40", memory_bytes=12 * 2**30).kind, Device("x").kind
    ('k40', 'x')
    """

    name: str
    kind: str = ""
    """Devices of one kind take equal seconds for every op; by default the name."""
    memory_bytes: int | None = None
    """Capacity; None: unlimited."""
    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Peak rate by dtype; an absent dtype has the rate of float32."""
    memory_bandwidth_bytes_per_s: float | None = None
    dispatch_overhead_s: float = 0.0
    """Paid by an op that starts after its device waited for a remote input."""
    segment_overhead_s: float = 0.0
    """Paid by an op that begins a segment: the first after copies have arrived or after an op that sent a tensor."""
    intake_bandwidth_bytes_per_s: float | None = None
    """Rate at which that op reads the arrived copies, in addition to the transfer; None: at no cost."""
    slots: int = 1
    resources: tuple[str, ...] = ()
    """What the device occupies while it computes, such as cores; devices that share one never compute at the same time.
    By default one resource with the device's name."""
    memory_pool: str | None = None
    """Devices of one pool share a memory of `memory_bytes`, where each weight and tensor counts once; None: a memory of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resources", tuple(self.resources))
        if not self.kind:
            object.__setattr__(self, "kind", self.name)
        if self.slots != 1:
            raise InvalidTopology(
                f"device {self.name!r} has {self.slots} slots; a device runs one op at a time, so list it several times"
            )
        if len(set(self.resources)) < len(self.resources):
            raise InvalidTopology(f"device {self.name!r} lists a resource twice: {', '.join(self.resources)}")
        if self.memory_bytes is not None and not 0 <= self.memory_bytes <= UNLIMITED_BYTES:
            raise InvalidTopology(
                f"device {self.name!r} has {self.memory_bytes} bytes of memory; expected 0 to 2**62, or none for no limit"
            )
        rates = {f"peak_flops_per_s[{dtype}]": rate for dtype, rate in self.peak_flops_per_s.items()}
        for label in ("memory_bandwidth_bytes_per_s", "intake_bandwidth_bytes_per_s"):
            rates[label] = getattr(self, label)
        for label, rate in rates.items():
            if rate is not None and not _is_rate(rate):
                raise InvalidTopology(f"device {self.name!r}: {label} is {rate}; a rate is finite and above zero")
        for label in ("dispatch_overhead_s", "segment_overhead_s"):
            if not 0 <= getattr(self, label) < math.inf:
                raise InvalidTopology(f"device {self.name!r}: {label} is {getattr(self, label)}")

    @property
    def is_host(self) -> bool:
        """The device computes on CPU cores and forwards tensors between devices without a link."""
        return self.kind.startswith(HOST_KIND_PREFIX)


@dataclass(frozen=True)
class Link:
    """A directed connection; links that name the same channel share its bandwidth.

    >>> Link("a", "b", latency_s=1e-5, bandwidth_bytes_per_s=1e9).transfer_s(10_000)
    2e-05
    """

    source: str
    target: str
    latency_s: float
    bandwidth_bytes_per_s: float
    channel: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s < math.inf:
            raise InvalidTopology(f"link {self.source!r} -> {self.target!r}: latency_s is {self.latency_s}")
        if not _is_rate(self.bandwidth_bytes_per_s):
            raise InvalidTopology(
                f"link {self.source!r} -> {self.target!r}: bandwidth_bytes_per_s is {self.bandwidth_bytes_per_s}; "
                "a bandwidth is finite and above zero"
            )

    def transfer_s(self, num_bytes: float) -> float:
        """Seconds that a tensor of `num_bytes` occupies the link."""
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Topology:
    """`D` devices and `L` directed links.

    >>> topology = Topology("pair", (Device("a"), Device("b")), (Link("a", "b", 1e-6, 1e9),))
    >>> topology.num_devices, topology.route(0, 1), topology.route(1, 0)
    (2, (0,), None)
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if not self.devices:
            raise InvalidTopology(f"topology {self.name!r} has no device; at least one is needed")
        if len(self.device_index) < len(self.devices):
            twice = next(name for name in self.device_names if self.device_names.count(name) > 1)
            raise InvalidTopology(f"topology {self.name!r}: two devices are named {twice!r}")
        ends: set[tuple[str, str]] = set()
        for link in self.links:
            for end in (link.source, link.target):
                if end not in self.device_index:
                    raise InvalidTopology(
                        f"topology {self.name!r}: a link names the device {end!r}; known are {', '.join(self.device_index)}"
                    )
            if link.source == link.target:
                raise InvalidTopology(f"topology {self.name!r}: device {link.source!r} has a link to itself; remove it")
            if (link.source, link.target) in ends:
                raise InvalidTopology(f"topology {self.name!r}: two links lead from {link.source!r} to {link.target!r}")
            ends.add((link.source, link.target))
        for device, first in zip(self.devices, self.memory_home.tolist(), strict=True):
            if device.memory_bytes != self.devices[first].memory_bytes:
                raise InvalidTopology(
                    f"topology {self.name!r}: devices {self.devices[first].name!r} and {device.name!r} share the memory pool "
                    f"{device.memory_pool!r} and state different memory_bytes; state the pool's capacity at each"
                )

    @property
    def num_devices(self) -> int:
        """`D`, the number of devices."""
        return len(self.devices)

    @cached_property
    def device_index(self) -> Mapping[str, int]:
        """Index of each device by its name."""
        return {device.name: index for index, device in enumerate(self.devices)}

    @property
    def device_names(self) -> tuple[str, ...]:
        """`[D]`."""
        return tuple(device.name for device in self.devices)

    @cached_property
    def resource_names(self) -> tuple[str, ...]:
        """`[R]` resources of all devices, in order of first use."""
        return tuple(dict.fromkeys(name for device in self.devices for name in device.resources or (device.name,)))

    @cached_property
    def uses_resource(self) -> BoolArray:
        """`[D, R]` true where the device occupies the resource while it computes."""
        used = [device.resources or (device.name,) for device in self.devices]
        return frozen([[name in names for name in self.resource_names] for names in used], np.bool_)

    @cached_property
    def excludes(self) -> BoolArray:
        """`[D, D]` true where two devices share a resource, so that only one of them computes at a time; false for one device.

        >>> one, two = Device("cpu:0", resources=("core:0",)), Device("cpu:0-1", resources=("core:0", "core:1"))
        >>> Topology("set", (one, two)).excludes.tolist()
        [[False, True], [True, False]]
        """
        used = self.uses_resource.astype(np.int64)
        return frozen((used @ used.T > 0) & ~np.eye(self.num_devices, dtype=np.bool_), np.bool_)

    @cached_property
    def shares_resources(self) -> bool:
        """Some devices exclude each other."""
        return bool(self.excludes.any())

    @cached_property
    def apart(self) -> IntArray:
        """Devices of which no two exclude each other: the smallest first, so that all resources are used by as many as can be."""
        chosen: list[int] = []
        for device in np.argsort(self.uses_resource.sum(axis=1), kind="stable").tolist():
            if not self.excludes[device, chosen].any():
                chosen.append(device)
        return frozen(sorted(chosen), np.int64)

    @cached_property
    def memory_home(self) -> IntArray:
        """`[D]` the first device of each device's memory pool; the device itself if its memory is its own."""
        first: dict[str, int] = {}
        pools = [device.memory_pool for device in self.devices]
        homes = [at if pool is None else first.setdefault(pool, at) for at, pool in enumerate(pools)]
        return frozen(homes, np.int64)

    def at_home(self, num_bytes: IntArray) -> IntArray:
        """`[D]` bytes of each memory at the first device of its pool and 0 at the others, so that a sum counts it once."""
        return np.where(self.memory_home == np.arange(self.num_devices), num_bytes, 0)

    @cached_property
    def shares_memory(self) -> bool:
        """Some devices have one memory."""
        return bool((self.memory_home != np.arange(self.num_devices)).any())

    @cached_property
    def memory_bytes(self) -> IntArray:
        """`[D]` capacities, of a pool at each of its devices; a very large number if unlimited."""
        return frozen([UNLIMITED_BYTES if d.memory_bytes is None else d.memory_bytes for d in self.devices], np.int64)

    @cached_property
    def dispatch_overhead_s(self) -> FloatArray:
        """`[D]`."""
        return frozen([d.dispatch_overhead_s for d in self.devices], np.float64)

    @cached_property
    def segment_overhead_s(self) -> FloatArray:
        """`[D]`."""
        return frozen([d.segment_overhead_s for d in self.devices], np.float64)

    @cached_property
    def intake_bandwidth_bytes_per_s(self) -> FloatArray:
        """`[D]` intake rates; infinite if intake costs nothing."""
        return frozen([d.intake_bandwidth_bytes_per_s or np.inf for d in self.devices], np.float64)

    @cached_property
    def latency_s(self) -> FloatArray:
        """`[L]`."""
        return frozen([link.latency_s for link in self.links], np.float64)

    @cached_property
    def bandwidth_bytes_per_s(self) -> FloatArray:
        """`[L]`."""
        return frozen([link.bandwidth_bytes_per_s for link in self.links], np.float64)

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        """Channel names in order of first use; a link without a channel has its own, named after its ends."""
        return tuple(dict.fromkeys(_channel(link) for link in self.links))

    @cached_property
    def link_channel(self) -> IntArray:
        """`[L]` channel index of each link."""
        index = {name: i for i, name in enumerate(self.channel_names)}
        return frozen([index[_channel(link)] for link in self.links], np.int64)

    def route(self, source: int, target: int) -> tuple[int, ...] | None:
        """The links of the route in order: the direct one, else through hosts; None if there is no route."""
        return self._routes[source][target]

    @cached_property
    def _routes(self) -> tuple[tuple[tuple[int, ...] | None, ...], ...]:
        return tuple(self._routes_from(source) for source in range(self.num_devices))

    def _routes_from(self, source: int) -> tuple[tuple[int, ...] | None, ...]:
        """Shortest paths (Dijkstra) that only hosts forward; a direct link always wins."""
        if len(self._outgoing[source]) == self.num_devices - 1:
            direct = {target: (index,) for index, target in self._outgoing[source]}
            return tuple(direct.get(target, ()) for target in range(self.num_devices))
        found: dict[int, tuple[int, ...]] = {}
        queue: list[tuple[float, int, tuple[int, ...]]] = [(0.0, source, ())]
        while queue:
            elapsed_s, device, path = heapq.heappop(queue)
            if device in found:
                continue
            found[device] = path
            if device != source and not self.devices[device].is_host:
                continue
            for index, target in self._outgoing[device]:
                if target not in found:
                    step_s = self.links[index].transfer_s(_ROUTING_BYTES)
                    heapq.heappush(queue, (elapsed_s + step_s, target, (*path, index)))
        for index, target in self._outgoing[source]:
            found[target] = (index,)
        return tuple(found.get(target) for target in range(self.num_devices))

    @cached_property
    def _outgoing(self) -> list[list[tuple[int, int]]]:
        """`[D]` (link, target) of the links from each device."""
        rows: list[list[tuple[int, int]]] = [[] for _ in self.devices]
        for index, link in enumerate(self.links):
            rows[self.device_index[link.source]].append((index, self.device_index[link.target]))
        return rows

    @cached_property
    def route_offsets(self) -> IntArray:
        """`[D * D + 1]` offsets in `route_links`; the route from `s` to `t` begins at that of `s * D + t`."""
        lengths = [len(route or ()) for row in self._routes for route in row]
        return frozen(np.concatenate([[0], np.cumsum(lengths)]), np.int64)

    @cached_property
    def route_links(self) -> IntArray:
        """Link indices of all routes, concatenated."""
        return frozen([link for row in self._routes for route in row for link in route or ()], np.int64)

    @cached_property
    def route_latency_s(self) -> FloatArray:
        """`[D, D]` latency of each route, summed over its links; infinite where there is no route."""
        return self._summed_over_routes(self.latency_s)

    @cached_property
    def route_s_per_byte(self) -> FloatArray:
        """`[D, D]` seconds per byte of each route, summed over its links; infinite where there is no route."""
        return self._summed_over_routes(1.0 / self.bandwidth_bytes_per_s)

    def transfer_s(self, num_bytes: float) -> FloatArray:
        """`[D, D]` seconds of a transfer over each route, link by link; infinite where there is no route."""
        return self._summed_over_routes(self.latency_s + num_bytes / self.bandwidth_bytes_per_s)

    @cached_property
    def exchanges(self) -> BoolArray:
        """`[D, D]` true where tensors can go both ways between two devices."""
        connected = np.isfinite(self.route_latency_s)
        return frozen(connected & connected.T, np.bool_)

    def _summed_over_routes(self, per_link: FloatArray) -> FloatArray:
        rows = [[np.inf if route is None else per_link[list(route)].sum() for route in row] for row in self._routes]
        return frozen(rows, np.float64)

    @cached_property
    def mean_transfer(self) -> tuple[float, float]:
        """Mean latency and mean seconds per byte of the routes between different devices."""
        routes = [route for row in self._routes for route in row if route]
        if not routes:
            return 0.0, 0.0
        used = [self.links[index] for route in routes for index in route]
        latency_s = sum(link.latency_s for link in used) / len(routes)
        return latency_s, sum(1.0 / link.bandwidth_bytes_per_s for link in used) / len(routes)


def _is_rate(rate: float) -> bool:
    """True if the rate is finite and its reciprocal too."""
    return math.isfinite(rate) and rate >= sys.float_info.min


def _channel(link: Link) -> str:
    return link.channel if link.channel is not None else f"{link.source}->{link.target}"
