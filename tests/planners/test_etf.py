"""m-ETF by hand, against a naive scheduler, and under every graph and device set."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.classical import etf
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.list_schedule import rank_order
from gnnplace.planners.solution import Budget
from gnnplace.schedule import check_schedule
from tests.problems import connected, devices_of, problem_of, rebuilt
from tests.random_problems import random_graph, random_times, random_topology


def fork(latency_s: float, num_children: int) -> Problem:
    """A root of 2 s and children of 3 s on two devices; the transfer takes its latency alone."""
    children = tuple(f"c{i}" for i in range(num_children))
    graph = OpGraph.build("fork", [Op("root"), *map(Op, children)], [Tensor("root", 0, children)])
    times = [[2.0], *[[3.0]] * num_children]
    return problem_of(graph, connected(Device("x"), Device("y"), latency_s=latency_s), times)


@pytest.mark.parametrize(
    ("latency_s", "assignment", "start_s"),
    [
        pytest.param(0.0, [0, 0, 1, 0], [0.0, 2.0, 2.0, 5.0], id="it spreads at once when transfers are free"),
        pytest.param(1.5, [0, 0, 1], [0.0, 2.0, 3.5], id="a transfer ends before the device is free"),
        pytest.param(4.0, [0, 0, 0], [0.0, 2.0, 5.0], id="a transfer takes longer than waiting for the device"),
    ],
)
def test_a_fork_by_hand(latency_s: float, assignment: list[int], start_s: list[float]) -> None:
    schedule = earliest_task_schedule(fork(latency_s, len(assignment) - 1))
    assert schedule.assignment.tolist() == assignment
    assert schedule.start_s.tolist() == start_s


def test_transfers_wait_for_their_channel() -> None:
    graph = OpGraph.build("two", [Op("a"), Op("b"), Op("c")], [Tensor("a", 10, ("b",)), Tensor("a", 10, ("c",))])
    times = np.array([[1.0, np.inf], [np.inf, 2.0], [np.inf, 2.0]])
    schedule = earliest_task_schedule(problem_of(graph, connected(Device("x"), Device("y")), times))
    assert schedule.start_s.tolist() == [0.0, 11.0, 21.0]


def test_a_start_on_a_slower_device_counts_as_later() -> None:
    graph = OpGraph.build("two", [Op("a"), Op("b")])
    devices = connected(Device("fast"), Device("slow"))
    # b can start at once on the slow device, but that costs 3 s more than waiting for 2 s.
    assert earliest_task_schedule(problem_of(graph, devices, [2.0, 5.0])).assignment.tolist() == [0, 0]
    assert earliest_task_schedule(problem_of(graph, devices, [2.0, 3.0])).assignment.tolist() == [0, 1]


def test_a_device_without_memory_for_an_op_is_no_candidate() -> None:
    graph = OpGraph.build("five", [Op(f"o{i}", memory_bytes=10) for i in range(5)])
    problem = problem_of(graph, connected(Device("x", memory_bytes=25), Device("y")), 1.0)
    assert earliest_task_schedule(problem).assignment.tolist() == [0, 1, 0, 1, 1]
    assert earliest_task_schedule(problem, memory_share=None).assignment.tolist() == [0, 1, 0, 1, 0]


def test_a_tensor_without_further_readers_is_freed() -> None:
    tensors = [Tensor("a", 10, ("b",)), Tensor("b", 10, ("c",)), Tensor("c", 10, ("d",))]
    graph = OpGraph.build("chain", [Op("a"), Op("b"), Op("c"), Op("d")], tensors)
    for memory_bytes, expected in ((20, [0, 0, 0, 0]), (19, [0, 1, 1, 1])):
        problem = problem_of(graph, connected(Device("x", memory_bytes=memory_bytes), Device("y")), 1.0)
        assert earliest_task_schedule(problem).assignment.tolist() == expected


def test_an_op_waits_until_there_is_room_for_it() -> None:
    graph = OpGraph.build("wait", [Op("a"), Op("e"), Op("c")], [Tensor("a", 10, ("c",)), Tensor("e", 15)])
    times = np.array([[2.0], [2.5], [1.0]])
    # e has a higher rank than c, but before c has run it would need 25 bytes.
    roomy = earliest_task_schedule(problem_of(graph, connected(Device("x", memory_bytes=25)), times))
    assert roomy.start_s.tolist() == [0.0, 2.0, 4.5]
    narrow = earliest_task_schedule(problem_of(graph, connected(Device("x", memory_bytes=20)), times))
    assert narrow.start_s.tolist() == [0.0, 3.0, 2.0]


def random_problem(seed: int) -> Problem:
    """Every feature of graphs and device sets, colocation groups and devices that are not allowed among them."""
    generator = np.random.default_rng(seed)
    plain, topology = random_graph(generator, 20), random_topology(generator)
    groups = generator.integers(0, 12, plain.num_ops)
    graph = rebuilt(plain, [f"g{group}" if group < 3 else None for group in groups], range(plain.num_ops))
    times = random_times(generator, graph, topology)
    times[:, 1:][(generator.random(graph.num_ops) < 0.2) & (groups >= 3)] = np.inf  # only the host may run these
    return problem_of(graph, topology, times)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([None, 1.0, 0.3]), favourites=st.booleans())
@example(seed=3790, share=None, favourites=False)  # several ops of no length run at one instant, one of which sends
@example(seed=116793, share=0.3, favourites=False)  # the one that sends runs last
def test_every_op_is_placed_once_where_it_may_run_and_after_its_inputs(
    seed: int, share: float | None, favourites: bool
) -> None:
    problem = random_problem(seed)
    graph, topology = problem.graph, problem.topology
    favourite = np.full(graph.num_ops, -1)
    if favourites:
        producers, consumers = graph.edges
        favourite[producers] = consumers
    schedule = earliest_task_schedule(problem, share, favourite)
    assignment = schedule.assignment
    assert problem.action_mask[problem.unit_of_op, assignment].all()
    assert all(len(set(assignment[ops].tolist())) == 1 for ops in problem.unit_ops)
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        for consumer in graph.consumers_of(tensor).tolist():
            route = topology.route(int(assignment[producer]), int(assignment[consumer]))
            assert route is not None or not schedule.connected
            sent_s = sum(topology.links[link].transfer_s(graph.tensor_bytes[tensor]) for link in route or ())
            if assignment[producer] == assignment[consumer]:
                sent_s = 0.0
            assert not schedule.connected or schedule.start_s[consumer] >= schedule.end_s[producer] + sent_s - 1e-9
    order = np.lexsort((schedule.end_s, schedule.start_s))
    for device in range(topology.num_devices):
        here = order[assignment[order] == device]
        assert (schedule.start_s[here[1:]] >= schedule.end_s[here[:-1]]).all()
    if schedule.connected:
        ran = problem.estimator.schedule(Placement(assignment, schedule.priorities))
        assert check_schedule(graph, topology, problem.op_time_s, ran) == []


def naive_etf(problem: Problem) -> tuple[list[int], list[float]]:
    """All pairs of a ready op and a device are looked at before every decision; devices and start times."""
    graph, topology, times = problem.graph, problem.topology, problem.op_time_s
    place = np.argsort(rank_order(problem)).tolist()
    device_free, channel_free = [0.0] * topology.num_devices, [0.0] * len(topology.channel_names)
    assignment, start_s, end_s = [-1] * graph.num_ops, [0.0] * graph.num_ops, [0.0] * graph.num_ops
    arrival: dict[tuple[int, int], float] = {}

    def ready(op: int, device: int, free: list[float]) -> float:
        latest = 0.0
        for tensor in graph.inputs_of(op).tolist():
            source = assignment[graph.tensor_producer[tensor]]
            time = end_s[graph.tensor_producer[tensor]]
            if source != device and (tensor, device) not in arrival:
                for link in topology.route(source, device) or ():
                    channel = topology.link_channel[link]
                    time = max(time, free[channel]) + topology.links[link].transfer_s(graph.tensor_bytes[tensor])
                    free[channel] = time
                if free is channel_free:
                    arrival[tensor, device] = time
            latest = max(latest, time if source == device else arrival.get((tensor, device), time))
        return latest

    for _ in range(graph.num_ops):
        choices = [
            (max(ready(op, d, list(channel_free)), device_free[d]) + times[op, d] - times[op].min(), place[op], d, op)
            for op in range(graph.num_ops)
            if assignment[op] < 0 and all(assignment[graph.tensor_producer[t]] >= 0 for t in graph.inputs_of(op))
            for d in range(topology.num_devices)
        ]
        _, _, device, op = min(choices)
        start_s[op] = max(ready(op, device, channel_free), device_free[device])
        assignment[op] = device
        end_s[op] = device_free[device] = start_s[op] + times[op, device]
    return assignment, start_s


@pytest.mark.parametrize("seed", range(150))
def test_the_schedule_equals_that_of_a_naive_scheduler(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_ops, num_devices = int(rng.integers(2, 40)), int(rng.integers(1, 5))
    # One reader for each tensor: what other ops fetch makes no start earlier.
    tensors = [
        Tensor(f"o{a}", int(rng.integers(0, 9)), (f"o{b}",))
        for a in range(num_ops - 1)
        for b in rng.integers(a + 1, num_ops, 2)
    ]
    times = rng.integers(0, 6, (num_ops, 1 if seed % 2 else num_devices)).astype(np.float64)
    graph = OpGraph.build("random", [Op(f"o{i}") for i in range(num_ops)], tensors)
    problem = problem_of(graph, connected(*devices_of("d" * num_devices), latency_s=float(rng.integers(2))), times)
    schedule = earliest_task_schedule(problem)
    assert (schedule.assignment.tolist(), schedule.start_s.tolist()) == naive_etf(problem)


def test_the_placement_runs_in_the_order_of_the_schedule() -> None:
    problem = fork(1.5, 2)
    solution = etf.plan(problem, Budget(1), 0)
    assert solution.objective_s == 6.5
    np.testing.assert_array_equal(solution.placement.assignment, earliest_task_schedule(problem).assignment)
