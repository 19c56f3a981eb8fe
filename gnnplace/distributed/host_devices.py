"""The devices of several hosts as one topology, and probes of the links between hosts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.devices.real_names import host_of, means_real_devices, split_names
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.distributed.calls import called_on_all
from gnnplace.distributed.cluster import Host, Node, host_options, hosts, take_usual_priority
from gnnplace.errors import InvalidTopology, MeasurementFailed, did_you_mean
from gnnplace.measuring.timing import quiet_s
from gnnplace.running.devices import cuda_is_offered

if TYPE_CHECKING:  # workers, which import this file, need none of them
    from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts

# Estimates until a probe replaces them: the call of an actor's method, and a network of 1 Gbit/s.
HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S = 1e-3, 125e6


@dataclass(frozen=True)
class HostDevices:
    """The devices of one host."""

    host: Host
    topology: Topology
    """The devices under their names on the host."""

    @property
    def spec(self) -> str:
        """The device names as one text, for that host."""
        return ",".join(self.topology.device_names)


@dataclass(frozen=True)
class HostsTopology:
    """The devices of several hosts."""

    name: str
    parts: tuple[HostDevices, ...]

    @property
    def pairs(self) -> list[tuple[Host, Host]]:
        """Every pair of hosts, once."""
        return list(combinations([part.host for part in self.parts], 2))

    def topology(self, links: Mapping[tuple[str, str], LinkCosts] | None = None) -> Topology:
        """All devices, named HOST/DEVICE; `links` are costs between hosts by their names, and missing ones are estimated.

        Devices of a host are linked as they are on that host. All transfers from one host to another share one channel, as
        each host has one network card.
        """
        from gnnplace.cost.measured import LinkCosts

        devices: list[Device] = []
        found: list[Link] = []
        for part in self.parts:
            on = f"{part.host.name}/"
            devices += [
                replace(
                    device, name=on + device.name, resources=tuple(on + name for name in device.resources),
                    memory_pool=device.memory_pool and on + device.memory_pool,
                )
                for device in part.topology.devices
            ]  # fmt: skip
            found += [
                replace(
                    link, source=on + link.source, target=on + link.target, channel=link.channel and on + link.channel
                )
                for link in part.topology.links
            ]
        for one, other in permutations(self.parts, 2):
            here, there = one.host.name, other.host.name
            costs = (links or {}).get((here, there), LinkCosts(HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S))
            latency_s, bandwidth = costs.latency_s, costs.bandwidth_bytes_per_s
            found += [
                Link(f"{here}/{source}", f"{there}/{target}", latency_s, bandwidth, f"{here}->{there}")
                for source, target in product(one.topology.device_names, other.topology.device_names)
            ]
        return Topology(self.name, tuple(devices), tuple(found))

    def costs(self, measured: Iterable[CostStore]) -> CostStore:
        """The measurements of all hosts, in the order of `parts`, as one store; the first host that has a kind wins."""
        from gnnplace.cost.measured import CostStore

        kinds: dict[str, KindCosts] = {}
        of_kinds: dict[tuple[str, str], LinkCosts] = {}
        of_devices: dict[tuple[str, str], LinkCosts] = {}
        for part, store in zip(self.parts, measured, strict=True):
            own = store.of_devices(part.topology.devices)
            kinds = {**own.kinds, **kinds}
            of_kinds = {**own.links, **of_kinds}
            of_devices |= {
                (f"{part.host.name}/{source}", f"{part.host.name}/{target}"): costs
                for (source, target), costs in own.device_links.items()
            }
        return CostStore(kinds, of_kinds, of_devices)


def names_hosts(spec: str) -> bool:
    """The text names devices of hosts, such as `host1/cpu:0`."""
    return means_real_devices(spec) and any(host_of(name) for name in split_names(spec))


def devices_on_hosts(spec: str) -> HostsTopology:
    """The devices that a text names, such as `host1/cpu:0,host2/cuda:0`; `auto`: all devices of all live hosts.

    Raises:
        InvalidTopology: a host is not in the cluster, or does not have a device; a device names no host.
        ProcessLost: a host was lost during the call.
    """
    text, known = spec.strip(), {host.name: host for host in hosts()}
    named: dict[str, list[str]] = {host: ["auto"] for host in known} if text == "auto" else {}
    for name in split_names(text) if text != "auto" else ():
        host = host_of(name)
        if not host:
            raise InvalidTopology(
                f"devices {text!r}: {name!r} names no host; name one for every device, such as {next(iter(known), 'host1')}/{name}"
            )
        if host not in known:
            meant = did_you_mean(host, known, "choose among these")
            raise InvalidTopology(
                f"devices {text!r}: the cluster has no host {host!r}, but {', '.join(known)}; {meant}"
            )
        named.setdefault(host, []).append(name.removeprefix(f"{host}/"))
    found = called_on_all([(known[host], _own_topology, (",".join(own),)) for host, own in named.items()])
    return HostsTopology(text, tuple(HostDevices(known[host], own) for host, own in zip(named, found, strict=True)))


def _own_topology(spec: str) -> Topology:
    """Runs on a host: its devices."""
    return load_topology(spec, with_gpus=cuda_is_offered())


_WARMUP, _REPEATS = 3, 25
_THREADS = 4
_ANSWER_S = 60.0


class _LinkEnd:
    """A Ray actor that sends values to another one and back, as arguments of a method, like `HostWorker.deliver`."""

    def __init__(self) -> None:
        take_usual_priority()
        self._back: SimpleQueue[Mapping[str, NDArray[Any]]] = SimpleQueue()

    def take(self, sender: Any, values: Mapping[str, NDArray[Any]]) -> None:
        sender.take_back.remote(values)

    def take_back(self, values: Mapping[str, NDArray[Any]]) -> None:
        self._back.put(values)

    def round_trip_s(self, me: Any, other: Any, num_floats: int) -> float:
        """Seconds of a round trip of a tensor; infinite when one did not come back."""
        take_usual_priority()
        values, found = {"value": np.ones(num_floats, dtype=np.float32)}, []
        for _ in range(_WARMUP + _REPEATS):
            begin_s = time.perf_counter()
            other.take.remote(me, values)
            try:
                self._back.get(timeout=_ANSWER_S)
            except Empty:
                return math.inf
            found.append(time.perf_counter() - begin_s)
        return float(quiet_s(np.array(found[_WARMUP:])))


def probe_host_links(pairs: Iterable[tuple[Node, Node]]) -> dict[tuple[str, str], LinkCosts]:
    """The costs between the hosts of each pair, by their names in both directions: half of a round trip.

    Raises:
        MeasurementFailed: a host was lost.
    """
    import ray

    from gnnplace.measuring.link_probe import FLOATS, fitted_link

    make: Any = ray.remote(_LinkEnd)
    ends: dict[str, Any] = {}
    found: dict[tuple[str, str], LinkCosts] = {}
    try:
        for pair in pairs:
            for node in pair:
                options = {**host_options(node.node_id), "num_cpus": 0, "max_concurrency": _THREADS}
                ends[node.name] = ends.get(node.name) or make.options(**options).remote()
            source, target = (node.name for node in pair)
            one, other = ends[source], ends[target]
            trips_s = [ray.get(one.round_trip_s.remote(one, other, num_floats)) for num_floats in FLOATS]
            if math.inf in trips_s:
                raise MeasurementFailed(
                    f"the link between the hosts {source!r} and {target!r} cannot be probed: no answer"
                )
            found[source, target] = found[target, source] = fitted_link([seconds / 2 for seconds in trips_s])
    except ray.exceptions.RayError as error:
        raise MeasurementFailed(
            f"links between hosts cannot be probed: a host was lost ({type(error).__name__})"
        ) from None
    finally:
        for end in ends.values():
            ray.kill(end)
    return found
