"""Repair under tight memory: what leaves, what comes in, and what makes room, by hand."""

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical.estimates import estimated_peak_bytes, scheduled
from gnnplace.planners.classical.repair import Repair
from gnnplace.planners.classical.repair_moves import Costs, Memory, cost_s, evict, fill, move_costs
from tests.problems import connected, devices_of, problem_of, random_reads


def apart(
    memory: list[int], times: list[list[float]], small: tuple[int, ...] = (10,), work: tuple[int, ...] = ()
) -> Problem:
    """Ops without tensors, of some bytes each and of some while they run, on small devices and a host."""
    rows = zip(memory, work or [0] * len(memory), strict=True)
    ops = [
        Op(f"o{i}", memory_bytes=held, workspace_bytes=while_running) for i, (held, while_running) in enumerate(rows)
    ]
    devices = [Device(f"g{i}", "g", each) for i, each in enumerate(small)]
    return problem_of(OpGraph.build("apart", ops), connected(*devices, Device("host"), bandwidth=1e3), times)


def costs_of(problem: Problem) -> Costs:
    graph, devices = problem.graph, problem.topology.devices
    is_scarce = np.array([device.name != "host" for device in devices])
    return move_costs(problem, graph.memory_bytes.astype(float), graph.workspace_bytes.astype(float), is_scarce)


def state_of(problem: Problem, devices: IntArray) -> Memory:
    graph, limit = problem.graph, np.minimum(problem.topology.memory_bytes, 1000).astype(float)
    reserved = np.zeros(len(limit))
    np.maximum.at(reserved, devices, graph.workspace_bytes.astype(float))
    return Memory(limit - np.bincount(devices, graph.memory_bytes, len(limit)) - reserved, reserved)


def filled(problem: Problem, begin: list[int], most: int = 99, banned: tuple[int, ...] = ()) -> list[int]:
    devices = np.array(begin)
    is_banned = np.isin(np.arange(len(begin)), banned)
    fill(most, is_banned, devices, costs_of(problem), state_of(problem, devices))
    return devices.tolist()


def test_the_cost_of_a_unit_is_its_compute_and_its_transfers() -> None:
    graph = OpGraph.build(
        "three", [Op("a"), Op("b"), Op("c")], [Tensor("a", 1000, ("b", "c")), Tensor("b", 500, ("c",))]
    )
    topology = connected(*devices_of("ggg"), latency_s=0.25, bandwidth=1e3)
    problem = problem_of(graph, topology, np.tile([1.0, 2.0, 4.0], (3, 1)))
    costs = move_costs(problem, np.zeros(3), np.zeros(3), np.array([True, True, False]))
    devices = np.array([0, 1, 1])
    assert cost_s(0, 0, devices, costs) == pytest.approx(1.0 + 2 * 1.25)
    assert cost_s(1, 1, devices, costs) == pytest.approx(2.0 + 1.25)
    assert cost_s(1, 2, devices, costs) == pytest.approx(4.0 + 1.25 + 0.75)
    assert cost_s(2, 0, devices, costs) == pytest.approx(1.0 + 0.75)


def test_what_loses_least_per_byte_leaves_a_full_memory() -> None:
    problem = apart([6, 6, 6], [[1.0, 9.0], [1.0, 3.0], [1.0, 20.0]])
    devices = np.array([0, 0, 0])
    evict(devices, costs_of(problem), state_of(problem, devices))
    assert devices.tolist() == [1, 1, 0]


def test_a_memory_that_fits_loses_nothing() -> None:
    problem = apart([5, 5], [[1.0, 0.5], [1.0, 0.5]])
    devices = np.array([0, 0])
    evict(devices, costs_of(problem), state_of(problem, devices))
    assert devices.tolist() == [0, 0]


def test_free_memory_takes_what_the_host_delays_most_per_byte() -> None:
    problem = apart([5, 5, 5], [[1.0, 9.0], [1.0, 50.0], [1.0, 20.0]])
    assert filled(problem, [1, 1, 1]) == [1, 0, 0]
    assert filled(problem, [1, 1, 1], most=1) == [1, 0, 1]
    assert filled(problem, [1, 1, 1], banned=(1,)) == [0, 1, 0]


def test_what_the_host_does_faster_stays_there() -> None:
    assert filled(apart([1, 1], [[2.0, 1.0], [1.0, 1.0]]), [1, 1]) == [1, 1]


def test_a_unit_takes_the_place_of_one_that_loses_less() -> None:
    problem = apart([8, 8], [[1.0, 3.0], [1.0, 50.0]])
    assert filled(problem, [0, 1]) == [1, 0]
    assert filled(problem, [1, 0]) == [1, 0]


def test_several_small_units_make_room_on_other_devices() -> None:
    times = [[1.0, 1.0, 9.0], [1.0, 1.0, 9.0], [1.0, 1.0, 50.0]]
    assert filled(apart([4, 4, 9], times, small=(10, 10)), [0, 0, 2]) == [1, 1, 0]
    crowded = apart([4, 4, 9, 2], [*times, [1.0, 1.0, 9.0]], small=(10, 10))
    found = filled(crowded, [0, 0, 2, 1])
    assert found[2] != 2
    assert found.count(2) == 0


def test_room_for_what_a_unit_needs_while_it_runs_is_kept_once() -> None:
    times = [[1.0, 50.0], [1.0, 40.0], [1.0, 30.0]]
    assert filled(apart([3, 3, 3], times, work=(4, 4, 4)), [1, 1, 1]) == [0, 0, 1]
    assert filled(apart([3, 3, 3], times), [1, 1, 1]) == [0, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_repaired_schedules_fit_their_estimates_and_get_no_longer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_reads(rng, 40, (1, 20), memory_bytes=20)
    topology = connected(*devices_of("gg", 350), Device("host"), latency_s=0.01, bandwidth=1e4)
    problem = problem_of(graph, topology, rng.uniform(1.0, 2.0, (40, 3)) * np.array([1.0, 1.0, 9.0]))
    repair = Repair(problem, move_costs(problem, np.full(40, 20.0), np.zeros(40), np.array([True, True, False])))
    for start in (rng.integers(0, 2, 40), np.full(40, 2)):  # over-full, and all on the host
        first = scheduled(problem, start)
        found = list(repair.repaired(first, 0.9))
        assert found
        assert (estimated_peak_bytes(problem, found[-1])[:2] <= 0.9 * 350).all()
        assert found[-1].end_s.max() <= found[0].end_s.max() * 1.01
        assert (found[-1].assignment < 2).any()


def test_nothing_is_repaired_where_all_devices_are_short_or_none() -> None:
    problem = apart([5, 5], [[1.0, 9.0], [1.0, 9.0]])
    start = scheduled(problem, np.array([1, 1]))
    for is_scarce in (np.array([True, True]), np.array([False, False])):
        assert (
            list(Repair(problem, move_costs(problem, np.full(2, 5.0), np.zeros(2), is_scarce)).repaired(start, 1.0))
            == []
        )
