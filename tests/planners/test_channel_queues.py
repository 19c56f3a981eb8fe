"""Queues of transfers at channels, as an estimate adds them."""

import numpy as np
import pytest

from gnnplace.devices.topology import Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical.channel_queues import queued_s
from gnnplace.planners.classical.estimates import scheduled
from tests.problems import connected, devices_of, problem_of
from tests.random_problems import random_graph, random_times, random_topology


def queued(problem: Problem, devices: list[int]) -> float:
    return queued_s(problem, scheduled(problem, np.array(devices), channels=False))


def graph_of(*tensors: tuple[str, str]) -> OpGraph:
    """Ops named by single letters; each tensor has 1,000 bytes."""
    names = sorted(set("".join(producer + readers for producer, readers in tensors)))
    return OpGraph.build("graph", [Op(name) for name in names], [Tensor(a, 1000, tuple(b)) for a, b in tensors])


def test_transfers_on_one_channel_follow_each_other() -> None:
    problem = problem_of(
        graph_of(("a", "d"), ("b", "d"), ("c", "d")), connected(*devices_of("gg"), bandwidth=1e3), 0.25
    )
    assert queued(problem, [0, 0, 0, 1]) == pytest.approx(0.25 + 3 * 1.0 + 0.25)


def test_a_tensor_goes_to_each_device_once_and_none_stays_at_home() -> None:
    problem = problem_of(graph_of(("a", "bcd")), connected(*devices_of("gg"), bandwidth=1e3), 0.25)
    assert queued(problem, [0, 1, 1, 0]) == pytest.approx(0.25 + 1.0 + 0.25)
    assert queued(problem, [0, 0, 0, 0]) == 0.0


def test_the_longest_path_follows_the_transfer() -> None:
    problem = problem_of(
        graph_of(("a", "bc"), ("c", "d"), ("d", "e")), connected(*devices_of("gg"), bandwidth=1e3), 0.25
    )
    assert queued(problem, [0, 1, 1, 1, 1]) == pytest.approx(0.25 + 1.0 + 3 * 0.25)
    assert queued(problem, [0, 1, 1, 1, 0]) == pytest.approx(0.25 + 1.0 + 2 * 0.25 + 1.0 + 0.25)


def test_a_transfer_waits_at_every_link_of_its_route() -> None:
    links = [Link(a, b, 0.0, 1e3) for a, b in (("cpu0", "g1"), ("cpu0", "g2"), ("g1", "cpu0"), ("g2", "cpu0"))]
    topology = Topology("star", devices_of(["cpu", "g", "g"]), tuple(links))
    problem = problem_of(graph_of(("a", "c"), ("b", "c")), topology, 0.25)
    assert queued(problem, [1, 1, 2]) == pytest.approx(0.25 + 1.0 + 1.0 + 1.0 + 0.25)


def test_placements_without_a_route_have_no_queue() -> None:
    topology = Topology("apart", devices_of("gg"))
    assert queued(problem_of(graph_of(("a", "b")), topology), [0, 1]) == 0.0


def test_random_placements_have_finite_queues() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        topology = random_topology(rng, shared=seed % 2 == 0)
        graph = random_graph(rng, groups=3, pinned=True)
        problem = problem_of(graph, topology, random_times(rng, graph, topology))
        for devices in rng.integers(0, topology.num_devices, (3, problem.num_units)):
            assert 0.0 <= queued_s(problem, scheduled(problem, devices, channels=False)) < np.inf
