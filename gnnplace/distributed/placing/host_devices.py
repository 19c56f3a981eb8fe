"""`host1/cpu:0,host2/cuda:0`, or `auto`, as a topology: each host says what its devices are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations

from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts
from gnnplace.devices.real_names import host_of, means_real_devices, split_names
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Link, Topology
from gnnplace.distributed.cluster import Host, hosts
from gnnplace.distributed.placing.remote_call import called_on_all
from gnnplace.errors import InvalidTopology, did_you_mean
from gnnplace.executors.devices import cuda_is_offered

__all__ = ["HostDevices", "HostsTopology", "devices_on_hosts", "names_hosts"]

AUTO = "auto"
# Estimates until a probe replaces them: a call of an actor's method, and a network of 1 Gbit/s.
HOST_LATENCY_S, HOST_BANDWIDTH_BYTES_PER_S = 1e-3, 125e6


@dataclass(frozen=True)
class HostDevices:
    """What one host puts in."""

    host: Host
    topology: Topology
    """Under the names that the host has for its devices."""

    @property
    def spec(self) -> str:
        """The same as a text, for that host."""
        return ",".join(self.topology.device_names)


@dataclass(frozen=True)
class HostsTopology:
    """Devices of several hosts."""

    name: str
    parts: tuple[HostDevices, ...]

    @property
    def pairs(self) -> list[tuple[Host, Host]]:
        """Every two hosts, once."""
        return list(combinations([part.host for part in self.parts], 2))

    def topology(self, links: Mapping[tuple[str, str], LinkCosts] | None = None) -> Topology:
        """All devices, named HOST/DEVICE; `links` are the costs between hosts by their names, absent ones estimated.

        Devices of a host are linked as they are on that host. All that one host sends to another takes turns on one channel, as both
        have one network card.
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
        """What each host has measured, in the order of `parts`, as one; where several know a kind, the first of them counts."""
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
    """Whether devices of other hosts are meant.

    >>> names_hosts("host1/cpu:0,host2/cpu:0"), names_hosts("cpu:0"), names_hosts("k40x2")
    (True, False, False)
    """
    return means_real_devices(spec) and any(host_of(name) for name in split_names(spec))


def devices_on_hosts(spec: str) -> HostsTopology:
    """The devices that a text names, or with `auto` all of all hosts that are alive.

    Raises:
        InvalidTopology: a host is not in the cluster, or does not have a device; a device names no host.
        ProcessLost: a host was lost meanwhile.
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
    """On a host: its devices."""
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
