"""The devices of several hosts as one topology, functions called on every host, and probes of links between hosts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts
from gnnplace.devices.real_names import host_of, means_real_devices, split_names
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Link, Topology
from gnnplace.distributed.cluster import Host, Node, host_options, hosts, last_line, take_usual_priority
from gnnplace.errors import GnnplaceError, InvalidTopology, MeasurementFailed, ProcessLost, did_you_mean
from gnnplace.measuring.link_probe import FLOATS, fitted_link
from gnnplace.measuring.timing import quiet_s
from gnnplace.running.devices import cuda_is_offered

__all__ = [
    "HostDevices",
    "HostsTopology",
    "called_on_all",
    "devices_on_hosts",
    "names_hosts",
    "probe_host_links",
    "sent_file",
    "written_files",
]


AUTO = "auto"
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
        known = links or {}
        within = [_named(link, part.host.name) for part in self.parts for link in part.topology.links]
        between = [
            _host_link(one, other, source.name, target.name, known.get((one.host.name, other.host.name)))
            for one, other in permutations(self.parts, 2)
            for source in one.topology.devices
            for target in other.topology.devices
        ]
        devices = [
            dataclasses.replace(device, name=f"{part.host.name}/{device.name}")
            for part in self.parts
            for device in part.topology.devices
        ]
        return Topology(self.name, tuple(devices), (*within, *between))

    def costs(self, measured: Iterable[CostStore]) -> CostStore:
        """The measurements of all hosts, in the order of `parts`, as one store; the first host that has a kind wins."""
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
    named: dict[str, list[str]] = {}
    for name in [f"{host}/{AUTO}" for host in known] if text == AUTO else split_names(text):
        host = name.removesuffix(f"/{AUTO}") if text == AUTO else host_of(name)
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
    specs = {host: ",".join(devices) for host, devices in named.items()}
    found = called_on_all([(known[host], _own_topology, ((own,),)) for host, own in specs.items()])
    return HostsTopology(text, tuple(HostDevices(known[host], own) for host, (own,) in zip(specs, found, strict=True)))


def _own_topology(spec: str) -> Topology:
    """Runs on a host: its devices."""
    return load_topology(spec, with_gpus=cuda_is_offered())


def _named(link: Link, host: str) -> Link:
    channel = None if link.channel is None else f"{host}/{link.channel}"
    return dataclasses.replace(link, source=f"{host}/{link.source}", target=f"{host}/{link.target}", channel=channel)


def _host_link(one: HostDevices, other: HostDevices, source: str, target: str, costs: LinkCosts | None) -> Link:
    costs = costs or LinkCosts(HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S)
    here, there = one.host.name, other.host.name
    return Link(
        f"{here}/{source}", f"{there}/{target}", costs.latency_s, costs.bandwidth_bytes_per_s, f"{here}->{there}"
    )


T = TypeVar("T")

_PIECE_BYTES = 1 << 24  # object stores may be small; Ray keeps the rest on disk


def called_on_all(tasks: Sequence[tuple[Node, Callable[..., T], Sequence[tuple[Any, ...]]]]) -> list[list[T]]:
    """Calls a module's function on each host, for one tuple of arguments after the other in one process; the results.

    Raises:
        GnnplaceError: an error of the function.
        ProcessLost: the process or the host was lost.
    """
    import ray

    run: Any = ray.remote(_run)
    references = [
        run.options(**host_options(node.node_id), num_cpus=0, max_retries=1).remote(function, calls)
        for node, function, calls in tasks
    ]
    found = []
    for (node, _, _), reference in zip(tasks, references, strict=True):
        try:
            answer: list[T] | GnnplaceError = ray.get(reference)
        except ray.exceptions.RayError as error:
            raise ProcessLost(f"host {node.name!r} did not do its part ({last_line(error)})") from None
        if isinstance(answer, GnnplaceError):
            raise type(answer)(f"host {node.name!r}: {answer}")
        found.append(answer)
    return found


def _run(function: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> list[T] | GnnplaceError:
    """Runs on a host; an error is returned instead of raised, as Ray would wrap it."""
    take_usual_priority()
    try:
        return [function(*arguments) for arguments in calls]
    except GnnplaceError as error:
        return error


def sent_file(content: Path | bytes) -> tuple[Any, ...]:
    """References to the pieces of a file in Ray's object store, which sends them to each host at most once."""
    import ray

    if isinstance(content, bytes):
        return (ray.put(content),)
    with content.open("rb") as file:
        return tuple(map(ray.put, iter(lambda: file.read(_PIECE_BYTES), b"")))


def written_files(files: Mapping[str, Sequence[Any]], folder: Path) -> None:
    """Writes files from their pieces in Ray's object store into a folder."""
    import ray

    for name, pieces in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                file.write(ray.get(piece))


_WARMUP, _REPEATS = 3, 25
_THREADS = 4
_ANSWER_S = 60.0


class LinkEnd:
    """A Ray actor that sends values to another one and back, as arguments of a method, like `HostWorker.deliver`."""

    def __init__(self) -> None:
        take_usual_priority()
        self._back: SimpleQueue[Mapping[str, NDArray[Any]]] = SimpleQueue()

    def take(self, sender: Any, values: Mapping[str, NDArray[Any]]) -> None:
        """Sends values back."""
        sender.take_back.remote(values)

    def take_back(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Takes values that were sent back."""
        self._back.put(values)

    def round_trips_s(self, me: Any, other: Any, num_floats: int) -> list[float]:
        """Seconds of each round trip of a tensor; empty when one did not come back."""
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
    """The costs between the hosts of each pair, by their names in both directions: half of a round trip.

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
