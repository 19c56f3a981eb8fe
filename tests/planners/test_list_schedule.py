"""List scheduling and HEFT, against the paper's example and by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.planners.classical import heft
from gnnplace.planners.classical.baselines import plan_single
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule
from gnnplace.planners.solution import Budget
from tests.problems import connected, devices_of, problem_of, random_layers, random_reads, task_problem

Scheduler = Callable[[Problem], ListSchedule]
both_schedulers = pytest.mark.parametrize("scheduler", [list_schedule, earliest_task_schedule])

# Topcuoglu, Hariri and Wu 2002, figure 2: seconds of ten tasks on three processors, and bytes of the edges.
PAPER_TIMES = (
    [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
     [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
)  # fmt: skip
PAPER_EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip


PAPER = task_problem(PAPER_TIMES, PAPER_EDGES)


def length_s(schedule: ListSchedule) -> float:
    return float(schedule.end_s.max(initial=0.0))


def test_heft_evaluates_the_schedule_of_its_paper_alone() -> None:
    schedule = list_schedule(PAPER)
    assert length_s(schedule) == 80.0
    assert (schedule.assignment + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
    assert schedule.start_s.tolist() == [0, 27, 9, 18, 28, 26, 38, 57, 56, 73]
    solution = heft.plan(PAPER, Budget(9), 0)
    assert solution.evaluations == 1
    np.testing.assert_array_equal(solution.placement.assignment, schedule.assignment)
    assert plan_single(PAPER, Budget(9), 0).objective_s == 127.0  # as in the paper


def test_an_op_goes_into_a_gap_before_ops_that_were_placed_earlier() -> None:
    ops = [Op("a"), Op("b"), Op("c"), Op("gap")]
    graph = OpGraph.build("gap", ops, [Tensor("a", 5, ("b",)), Tensor("b", 1, ("c",))])
    # b is pinned to y by its times, so y waits for a until 4 + 5; `gap` fits before it.
    times = np.array([[4.0, 99.0], [np.inf, 6.0], [np.inf, 6.0], [np.inf, 3.0]])
    problem = problem_of(graph, connected(Device("x"), Device("y")), times)
    assert list_schedule(problem).start_s.tolist() == [0.0, 9.0, 15.0, 0.0]


def test_a_larger_transfer_factor_keeps_ops_together() -> None:
    graph = OpGraph.build("v", [Op("a"), Op("b"), Op("c")], [Tensor("a", 1, ("b", "c"))])
    problem = problem_of(graph, connected(Device("x"), Device("y")), np.full((3, 2), 4.0))
    assert sorted(list_schedule(problem).assignment.tolist()) == [0, 0, 1]
    assert list_schedule(problem, ScheduleOptions(transfer_factor=9.0)).assignment.tolist() == [0, 0, 0]


def test_a_tensor_is_sent_once_however_many_ops_read_it() -> None:
    graph = OpGraph.build("fan", [Op("a"), Op("b"), Op("c")], [Tensor("a", 10, ("b", "c"))])
    times = np.array([[1.0, np.inf], [np.inf, 2.0], [np.inf, 2.0]])
    schedule = list_schedule(
        problem_of(graph, connected(Device("x"), Device("y")), times), ScheduleOptions(channels=True)
    )
    assert schedule.start_s.tolist() == [0.0, 11.0, 13.0]


def test_transfers_wait_for_their_channel_only_on_request() -> None:
    graph = OpGraph.build("two", [Op("a"), Op("b"), Op("c")], [Tensor("a", 10, ("b",)), Tensor("a", 10, ("c",))])
    times = np.array([[1.0, np.inf], [np.inf, 2.0], [np.inf, 2.0]])
    problem = problem_of(graph, connected(Device("x"), Device("y")), times)
    assert length_s(list_schedule(problem)) == 15.0
    assert length_s(list_schedule(problem, ScheduleOptions(channels=True))) == 23.0


def test_a_route_over_the_host_counts_every_hop() -> None:
    graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 10, ("b",))])
    devices = (Device("g0", "gpu"), Device("g1", "gpu"), Device("host", "cpu"))
    links = tuple(Link(a, b, 1.0, 10.0) for a, b in (("g0", "host"), ("host", "g0"), ("g1", "host"), ("host", "g1")))
    times = np.array([[1.0, np.inf, np.inf], [np.inf, 1.0, np.inf]])
    assert length_s(list_schedule(problem_of(graph, Topology("pcie", devices, links), times))) == 6.0


def test_a_device_that_waited_pays_its_dispatch_overhead() -> None:
    graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 10, ("b",))])
    times = np.array([[1.0, np.inf], [np.inf, 1.0]])
    topology = connected(Device("x", dispatch_overhead_s=0.5), Device("y", dispatch_overhead_s=0.25))
    assert length_s(list_schedule(problem_of(graph, topology, times))) == 12.25


def test_an_op_with_inputs_to_receive_pays_the_segment_overhead_and_the_intake() -> None:
    ops, tensors = [Op("a"), Op("b"), Op("c")], [Tensor("a", 10, ("b", "c"))]
    times = np.array([[1.0, np.inf], [np.inf, 1.0], [np.inf, 1.0]])
    topology = connected(Device("x"), Device("y", segment_overhead_s=0.125, intake_bandwidth_bytes_per_s=5.0))
    assert length_s(list_schedule(problem_of(OpGraph.build("fork", ops, tensors), topology, times))) == 13.0 + 2.125


def test_weights_go_elsewhere_when_a_memory_is_full() -> None:
    ops = [Op("a", memory_bytes=60), Op("b", memory_bytes=40), Op("c", memory_bytes=1)]
    graph = OpGraph.build("free", ops, [], [SharedWeight(40, ("a", "b", "c"))])
    topology = connected(Device("fast", memory_bytes=140), Device("slow"))
    times = np.array([[3.0, 90.0], [2.0, 80.0], [1.0, 70.0]])
    # a and b fill the fast device to the last byte, the shared weight counted once; c goes elsewhere.
    assert list_schedule(problem_of(graph, topology, times)).assignment.tolist() == [0, 0, 1]
    without_memory = list_schedule(problem_of(graph, topology, times), ScheduleOptions(memory_share=None))
    assert without_memory.assignment.tolist() == [0, 0, 0]


def test_the_first_op_of_a_colocation_group_decides() -> None:
    ops = [Op("a", group="g"), Op("b"), Op("c", group="g")]
    graph = OpGraph.build("g", ops, [Tensor("a", 1, ("b",)), Tensor("b", 1, ("c",))])
    times = np.array([[1.0, 2.0], [1.0, 1.0], [50.0, 1.0]])
    assignment = list_schedule(problem_of(graph, connected(Device("x"), Device("y")), times)).assignment
    assert assignment[0] == assignment[2] == 0


@pytest.mark.parametrize("channels", [False, True])
def test_a_schedule_that_is_kept_to_its_own_devices_is_the_same(channels: bool) -> None:
    for seed in range(5):
        problem = random_layers(seed, num_ops=60)
        free = list_schedule(problem, ScheduleOptions(channels=channels, memory_share=None))
        devices = problem.unit_devices(free.assignment)
        only = np.arange(problem.topology.num_devices) == devices[:, None]
        kept = list_schedule(problem, ScheduleOptions(channels=channels, memory_share=None, mask=only))
        assert (kept.assignment == free.assignment).all()
        assert kept.start_s.tolist() == free.start_s.tolist()
        assert kept.end_s.tolist() == free.end_s.tolist()


@both_schedulers
def test_devices_that_are_not_connected_are_not_mixed(scheduler: Scheduler) -> None:
    graph = OpGraph.build("join", [Op("a"), Op("b"), Op("c")], [Tensor("a", 1, ("c",)), Tensor("b", 1, ("c",))])
    schedule = scheduler(problem_of(graph, Topology("islands", (Device("x"), Device("y"))), 1.0))
    assert schedule.connected
    assert schedule.assignment.tolist() == [0, 0, 0]


@both_schedulers
def test_ops_without_duration_keep_producers_before_consumers(scheduler: Scheduler) -> None:
    graph = OpGraph.build("zero", [Op("b"), Op("a")], [Tensor("a", 0, ("b",))])
    schedule = scheduler(problem_of(graph, connected(Device("x"), Device("y")), 0.0))
    assert (length_s(schedule), schedule.connected) == (0.0, True)
    assert schedule.assignment.tolist() == [0, 0]


def test_noise_on_ranks_keeps_the_order_topological() -> None:
    producers, consumers = PAPER.graph.edges
    for seed in range(20):
        noise = np.random.default_rng(seed).lognormal(0.0, 1.0, 10)
        schedule = list_schedule(PAPER, ScheduleOptions(rank_noise=noise))
        assert (schedule.end_s[producers] <= schedule.start_s[consumers]).all()


@both_schedulers
@pytest.mark.parametrize("seed", range(10))
def test_a_schedule_is_within_grahams_bound_when_transfers_are_free(scheduler: Scheduler, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, seconds = random_reads(rng, 30, (0, 1)), rng.integers(1, 9, 30).astype(np.float64)
    problem = problem_of(graph, connected(*devices_of("ddd")), seconds[:, None])
    path = graph.upward_rank(seconds).max()
    assert length_s(scheduler(problem)) <= path + (seconds.sum() - path) / 3
