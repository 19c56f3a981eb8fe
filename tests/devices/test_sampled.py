"""Sampled device sets."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.devices.json_format import topology_to_json
from gnnplace.devices.sampled import DeviceRanges, limit_memory, sample_devices
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidTopology

SETS = [sample_devices(np.random.default_rng(seed)) for seed in range(200)]


def hosts(topology: Topology) -> list[str]:
    return [device.name for device in topology.devices if device.is_host]


def test_the_same_generator_state_gives_the_same_set() -> None:
    for seed, topology in enumerate(SETS[:50]):
        assert topology_to_json(sample_devices(np.random.default_rng(seed))) == topology_to_json(topology)
    assert len({str(topology_to_json(topology)) for topology in SETS}) == len(SETS)


def test_every_set_has_a_host_and_routes_between_all_devices() -> None:
    for topology in SETS:
        assert 2 <= topology.num_devices <= 8
        assert len(hosts(topology)) >= 1
        assert topology.exchanges.all()


def test_links_are_the_same_both_ways() -> None:
    for topology in SETS:
        links = {(link.source, link.target): (link.latency_s, link.bandwidth_bytes_per_s) for link in topology.links}
        assert all(links[target, source] == figures for (source, target), figures in links.items())


def test_sets_vary_in_size_kinds_and_links() -> None:
    counts = {topology.num_devices for topology in SETS}
    assert counts == set(DeviceRanges().num_devices)
    assert {len({device.kind for device in topology.devices}) for topology in SETS} == {1, 2, 3, 4}
    only_hosts = sum(len(hosts(topology)) == topology.num_devices for topology in SETS)
    stars = sum(len(topology.links) == 2 * (topology.num_devices - 1) for topology in SETS)
    shared = sum(any(link.channel == "bus:in" for link in topology.links) for topology in SETS)
    assert 7 <= only_hosts <= 40
    assert 67 <= stars <= 167
    assert 7 <= shared <= 40


def test_sampled_values_lie_in_the_ranges() -> None:
    ranges = DeviceRanges()
    for topology in SETS:
        assert (topology.latency_s >= ranges.latency_s[0]).all()
        assert (topology.latency_s <= ranges.latency_s[1]).all()
        assert topology.bandwidth_bytes_per_s.min() >= ranges.bandwidth_bytes_per_s[0] * ranges.uneven_speed[0]
        assert topology.bandwidth_bytes_per_s.max() <= ranges.bandwidth_bytes_per_s[1] * ranges.direct_speed[1]
        assert (topology.dispatch_overhead_s <= ranges.dispatch_overhead_s[1]).all()


def test_limited_memory_of_all_accelerators_together_is_a_share_of_the_model() -> None:
    ranges = replace(DeviceRanges(), binding_share=1.0, binding_memory=(0.7, 2.5))
    for seed, topology in enumerate(SETS):
        limited = limit_memory(topology, 10**9, np.random.default_rng(seed), ranges)
        capacities = [d.memory_bytes for d in limited.devices if not d.is_host]
        assert all(device.memory_bytes is None for device in limited.devices if device.name in hosts(limited))
        if capacities:
            assert 0.69e9 <= sum(c for c in capacities if c is not None) <= 2.5e9
            assert None not in capacities
        assert limited.links == topology.links


@pytest.mark.parametrize("uneven_share", [0.0, 1.0])
def test_accelerators_have_equal_memories_or_unequal_ones(uneven_share: float) -> None:
    ranges = replace(DeviceRanges(), binding_share=1.0, binding_uneven_share=uneven_share, binding_uneven=(0.5, 1.0))
    for seed, topology in enumerate(SETS):
        limited = limit_memory(topology, 10**9, np.random.default_rng(seed), ranges)
        sizes = [each.memory_bytes for each in limited.devices if each.memory_bytes is not None]
        if len(sizes) > 1:
            assert (len(set(sizes)) > 1) == bool(uneven_share)
            assert max(sizes) <= 2.01 * min(sizes)


def test_a_share_of_zero_leaves_memory_unlimited() -> None:
    ranges = replace(DeviceRanges(), binding_share=0.0)
    assert all(limit_memory(topology, 1, np.random.default_rng(0), ranges) is topology for topology in SETS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_devices": (1, 2)}, "two devices or more"),
        ({"star_share": 1.5}, "star_share is 1.5"),
        ({"latency_s": (2.0, 1.0)}, "latency_s is"),
    ],
)
def test_invalid_ranges_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTopology, match=message):
        replace(DeviceRanges(), **changes)
