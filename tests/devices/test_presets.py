"""Presets: published figures as valid topologies."""

import numpy as np
import pytest

from gnnplace.devices.presets import GPUS, preset, preset_names
from gnnplace.errors import InvalidTopology
from gnnplace.units import GIB


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_rates_memory_and_a_route_between_all_its_devices(name: str) -> None:
    topology = preset(f"{name}x2")
    for device in topology.devices:
        least = 3e10 if "core" in name else 1e11
        assert device.peak_flops_per_s["float32"] > device.peak_flops_per_s["float64"] > least
        assert device.memory_bandwidth_bytes_per_s is not None
        assert device.memory_bytes is not None
        assert device.memory_bytes >= 12 * GIB
        assert device.dispatch_overhead_s > 0
    assert topology.exchanges.all()


@pytest.mark.parametrize("count", [1, 2, 64])
@pytest.mark.parametrize("name", sorted(GPUS))
def test_a_set_has_the_stated_number_of_equal_gpus_and_one_host(name: str, count: int) -> None:
    topology = preset(f"{name}x{count}")
    assert topology.device_names == (*(f"{name}:{i}" for i in range(count)), "cpu:0")
    assert {device.kind for device in topology.devices[:-1]} == {name}
    assert topology.devices[-1].kind.startswith("cpu")


def test_cores_of_a_socket_share_its_memory_and_exclude_the_sets_that_they_are_in() -> None:
    topology = preset("epyc-corex16")
    assert topology.num_devices == 16 + 8 + 4 + 2 + 1
    assert set(topology.memory_home.tolist()) == {0}
    assert topology.apart.tolist() == list(range(16))
    whole = topology.device_index["cpu:0-15"]
    assert topology.excludes[whole].sum() == 30
    one, sixteen = topology.devices[0], topology.devices[whole]
    assert sixteen.peak_flops_per_s["float32"] == pytest.approx(16 * one.peak_flops_per_s["float32"])
    assert 96 * one.peak_flops_per_s["float32"] == pytest.approx(preset("epyc").devices[0].peak_flops_per_s["float32"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("epyc-corex65", "asks for 65 of 'epyc-core'; 1 to 64"),
        ("haswell-corex19", "1 to 18 are possible"),
        ("k40+epyc-corex4", "joins cores with other hardware"),
    ],
)
def test_cores_that_a_socket_lacks_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidTopology, match=message):
        preset(name)


def test_k40_and_its_host_have_the_published_figures() -> None:
    gpu, host = preset("k40").devices
    assert gpu.peak_flops_per_s == {"float32": 4.29e12, "float64": 1.43e12}
    assert (gpu.memory_bytes, gpu.memory_bandwidth_bytes_per_s) == (12 * GIB, 288e9)
    assert host.kind == "cpu-haswell"
    assert host.peak_flops_per_s["float32"] == pytest.approx(1.3248e12)


def test_gpus_over_pcie_exchange_data_through_the_host_each_on_its_own_channels() -> None:
    topology = preset("k40x4")
    route = topology.route(0, 3)
    assert route is not None
    ends = [(topology.links[i].source, topology.links[i].target) for i in route]
    assert ends == [("k40:0", "cpu:0"), ("cpu:0", "k40:3")]
    assert len(topology.channel_names) == 8


def test_two_dies_of_a_k80_board_share_a_slot() -> None:
    topology = preset("k80x3")
    inward = [topology.links[i].channel for i in range(len(topology.links)) if topology.links[i].source == "cpu:0"]
    assert inward == ["pcie:k80:0:in", "pcie:k80:0:in", "pcie:k80:1:in"]


def test_sxm_gpus_send_directly_and_each_shares_its_outgoing_rate_among_its_links() -> None:
    topology = preset("h100-sxmx3")
    assert all(len(topology.route(s, t) or ()) == 1 for s in range(3) for t in range(3) if s != t)
    nvlink = [link for link in topology.links if link.channel is not None and link.channel.startswith("nvlink")]
    assert {link.channel for link in nvlink if link.source == "h100-sxm:1"} == {"nvlink:h100-sxm:1:out"}
    assert np.unique([link.bandwidth_bytes_per_s for link in nvlink]).tolist() == [450e9]


def test_parts_joined_by_plus_share_the_newer_host_and_continue_their_numbers() -> None:
    topology = preset("k40x2+v100+k40")
    assert topology.device_names == ("k40:0", "k40:1", "v100:0", "k40:2", "cpu:0")
    assert topology.devices[-1].kind == "cpu-epyc"
    assert preset("v100+haswell").devices[-1].kind == "cpu-haswell"


def test_memory_after_an_at_sign_applies_to_each_device_of_the_part() -> None:
    topology = preset("k40x2@300MiB+v100")
    assert [d.memory_bytes for d in topology.devices[:3]] == [300 * 2**20, 300 * 2**20, 16 * GIB]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("k41x4", "did you mean 'k40'"),
        ("quantum", "known are k40"),
        ("k40x0", "1 to 64"),
        ("k40x65", "1 to 64"),
        ("k40x40+v100x40", "1 to 64"),
        ("haswellx3", "1 to 2"),
        ("haswell+epyc", "two kinds of CPU"),
        ("k40+", "no hardware ''"),
        ("k40@lots", "no amount of bytes"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, message: str) -> None:
    with pytest.raises(InvalidTopology, match=message):
        preset(name)
