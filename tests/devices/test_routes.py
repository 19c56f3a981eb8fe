"""Routes between devices, and their latency and rate."""

import numpy as np

from gnnplace.devices.topology import Device, Link, Topology

DEVICES = (Device("cpu:0", "cpu"), Device("g0", "gpu"), Device("g1", "gpu"))
OVER_THE_HOST = Topology("t", DEVICES, (Link("g0", "cpu:0", 1.0, 10.0), Link("cpu:0", "g1", 2.0, 5.0)))


def test_a_route_goes_through_the_host_where_there_is_no_link() -> None:
    assert OVER_THE_HOST.route(1, 2) == (0, 1)
    assert OVER_THE_HOST.route(2, 1) is None
    assert OVER_THE_HOST.route(1, 1) == ()


def test_the_seconds_of_a_route_are_the_sum_over_its_links() -> None:
    never = np.inf
    assert OVER_THE_HOST.route_latency_s.tolist() == [[0.0, never, 2.0], [1.0, 0.0, 3.0], [never, never, 0.0]]
    assert OVER_THE_HOST.route_s_per_byte[1, 2] == 1 / 10 + 1 / 5
    assert OVER_THE_HOST.transfer_s(20.0)[1, 2] == 3.0 + 6.0


def test_devices_exchange_tensors_if_routes_lead_both_ways() -> None:
    back = Topology("t", DEVICES, (*OVER_THE_HOST.links, Link("g1", "cpu:0", 2.0, 5.0)))
    assert not OVER_THE_HOST.exchanges[0, 2]
    assert back.exchanges.tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_a_direct_link_takes_precedence_over_a_faster_route_through_the_host() -> None:
    links = (*OVER_THE_HOST.links, Link("g0", "g1", 100.0, 1.0))
    assert Topology("t", DEVICES, links).route(1, 2) == (2,)
