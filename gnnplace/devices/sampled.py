"""Random device sets to train on; the same generator state gives the same set."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from gnnplace.devices.topology import HOST_KIND_PREFIX, Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.random_numbers import log_uniform

Range = tuple[float, float]
"""Smallest and largest value of a log-uniform distribution."""


@dataclass(frozen=True)
class DeviceRanges:
    """The distribution of sampled device sets."""

    num_devices: tuple[int, ...] = (2, 4, 5, 7, 8)
    """Equally likely numbers of devices with hosts; 3 and 6 remain unseen in training, for tests."""
    hosts_only_share: float = 0.1
    """Fraction of sets with equal CPU cores and no accelerator."""
    max_kinds: int = 3
    """Largest number of kinds of accelerators; 1 to `max_kinds` are equally likely."""
    accelerator_flops_per_s: Range = (2e12, 6e13)
    """Rate of float32; the range of published GPUs from 2012 to 2023."""
    kind_speed: Range = (0.25, 1.0)
    """Rates of further kinds, as a fraction of the first kind's."""
    bytes_per_flop: Range = (0.03, 0.1)
    """Memory bandwidth per FLOP rate."""
    host_speed: Range = (0.03, 0.5)
    """Rates of a host, as a fraction of the first kind's."""
    core_flops_per_s: Range = (2e10, 2e11)
    """Rate of one core in sets without accelerators."""
    dispatch_overhead_s: Range = (1e-6, 3e-5)
    star_share: float = 0.5
    """Fraction of sets with accelerators whose accelerators have links to the host only."""
    shared_bus_share: float = 0.2
    """Fraction of those stars in which all accelerators share one channel to the host and one back."""
    latency_s: Range = (1e-6, 1e-4)
    bandwidth_bytes_per_s: Range = (1e9, 1e11)
    """Between host and accelerator, and between cores."""
    direct_speed: Range = (1.0, 10.0)
    """Bandwidth of direct links between accelerators, as a multiple of that."""
    uneven_share: float = 0.3
    """Fraction of sets in which every pair of devices has its own bandwidth."""
    uneven_speed: Range = (0.2, 1.0)
    """Bandwidth of such a pair, as a fraction of the set's."""
    binding_share: float = 0.5
    """Fraction of sets with accelerators in which only the hosts have unlimited memory."""
    binding_memory: Range = (0.7, 2.5)
    """Memory of all accelerators together in such a set, as a multiple of the model's need."""
    binding_uneven_share: float = 0.5
    """Fraction of such sets whose accelerators have unequal memories."""
    binding_uneven: Range = (0.3, 1.0)
    """Memories of these before they are scaled to their sum."""

    def __post_init__(self) -> None:
        if not self.num_devices or min(self.num_devices) < 2:
            raise InvalidTopology(f"num_devices is {self.num_devices}; sampled sets have two devices or more")
        for name, value in vars(self).items():
            if isinstance(value, float) and not 0 <= value <= 1:
                raise InvalidTopology(f"{name} is {value}; expected a share, 0 to 1")
            if name != "num_devices" and isinstance(value, tuple) and not 0 < value[0] <= value[1] < np.inf:
                raise InvalidTopology(f"{name} is {value}; expected the least and the greatest value, above zero")


def sample_devices(rng: np.random.Generator, ranges: DeviceRanges = DeviceRanges()) -> Topology:
    """A random device set with unlimited memory: accelerators of several kinds and one host, or cores of one kind.

    Every two devices have a route to each other, with equal latency and bandwidth both ways.
    """
    count = int(rng.choice(ranges.num_devices))
    if rng.random() < ranges.hosts_only_share:
        rate = log_uniform(rng, *ranges.core_flops_per_s)
        cores = _devices("cpu", f"{HOST_KIND_PREFIX}-core", count, rate, rng, ranges)
        return Topology(f"cores x{count}", cores, tuple(_links(cores, (), rng, ranges)))
    rate = log_uniform(rng, *ranges.accelerator_flops_per_s)
    kinds = min(int(rng.integers(1, ranges.max_kinds + 1)), count - 1)
    members = np.bincount(np.sort(rng.integers(kinds, size=count - 1 - kinds)), minlength=kinds) + 1
    sizes = {chr(ord("a") + number): size for number, size in enumerate(members.tolist())}
    accelerators: tuple[Device, ...] = ()
    for kind, size in sizes.items():
        speed = 1.0 if kind == "a" else log_uniform(rng, *ranges.kind_speed)
        accelerators += _devices(kind, kind, size, speed * rate, rng, ranges)
    host = _devices("cpu", f"{HOST_KIND_PREFIX}-host", 1, log_uniform(rng, *ranges.host_speed) * rate, rng, ranges)
    name = "+".join(f"{kind}x{size}" for kind, size in sizes.items())
    return Topology(f"{name}+host", (*accelerators, *host), tuple(_links(host, accelerators, rng, ranges)))


def limit_memory(
    topology: Topology, needed_bytes: int, rng: np.random.Generator, ranges: DeviceRanges = DeviceRanges()
) -> Topology:
    """The same set, in a fraction of cases with limited memory of its accelerators.

    The model needs `needed_bytes` on one device. Hosts keep unlimited memory, so a feasible placement always exists.
    """
    accelerators = [device for device in topology.devices if not device.is_host]
    if not accelerators or rng.random() >= ranges.binding_share:
        return topology
    total_bytes = needed_bytes * log_uniform(rng, *ranges.binding_memory)
    uneven = rng.random() < ranges.binding_uneven_share
    shares = np.array([log_uniform(rng, *ranges.binding_uneven) if uneven else 1.0 for _ in accelerators])
    sizes = dict(zip((each.name for each in accelerators), total_bytes * shares / shares.sum(), strict=True))
    devices = (each if each.is_host else replace(each, memory_bytes=int(sizes[each.name])) for each in topology.devices)
    return replace(topology, devices=tuple(devices))


def _devices(
    name: str, kind: str, count: int, flops_per_s: float, rng: np.random.Generator, ranges: DeviceRanges
) -> tuple[Device, ...]:
    bandwidth = flops_per_s * log_uniform(rng, *ranges.bytes_per_flop)
    overhead_s = log_uniform(rng, *ranges.dispatch_overhead_s)
    return tuple(
        Device(f"{name}:{number}", kind, None, {"float32": flops_per_s}, bandwidth, overhead_s)
        for number in range(count)
    )


def _links(
    hosts: tuple[Device, ...], accelerators: tuple[Device, ...], rng: np.random.Generator, ranges: DeviceRanges
) -> Iterator[Link]:
    latency_s, bandwidth = log_uniform(rng, *ranges.latency_s), log_uniform(rng, *ranges.bandwidth_bytes_per_s)
    direct = bandwidth * log_uniform(rng, *ranges.direct_speed)
    star = rng.random() < ranges.star_share
    shared = star and rng.random() < ranges.shared_bus_share
    uneven = rng.random() < ranges.uneven_share
    for one, other in combinations((*accelerators, *hosts), 2):
        between_accelerators = not one.is_host and not other.is_host
        if between_accelerators and star:
            continue
        share = log_uniform(rng, *ranges.uneven_speed) if uneven else 1.0
        rate = share * (direct if between_accelerators else bandwidth)
        bus = shared and not one.is_host
        yield Link(one.name, other.name, latency_s, rate, "bus:out" if bus else None)
        yield Link(other.name, one.name, latency_s, rate, "bus:in" if bus else None)
