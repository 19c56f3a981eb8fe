"""The execution model, rule by rule, on cases small enough to compute by hand."""

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidGraph, InvalidPlacement
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator


def pair(memory: int | None = None, overhead_s: float = 0.0, channel: str | None = None) -> Topology:
    """Two devices, one second latency, ten bytes per second."""
    devices = tuple(Device(name, memory_bytes=memory, dispatch_overhead_s=overhead_s) for name in ("a", "b"))
    return Topology("pair", devices, (Link("a", "b", 1.0, 10.0, channel), Link("b", "a", 1.0, 10.0, channel)))


def place(graph: OpGraph, topology: Topology, times: list[list[float]], assignment: list[int], priorities=None):
    simulator = Simulator(graph, topology, np.array(times, dtype=np.float64).reshape(graph.num_ops, -1))
    placement = Placement(np.array(assignment, dtype=np.int64), priorities)
    return simulator.evaluate(placement), simulator.schedule(placement)


def test_a_graph_without_ops_takes_no_time() -> None:
    graph = OpGraph.build("empty", [])
    simulator = Simulator(graph, pair(), np.zeros((0, 2)))
    evaluation = simulator.evaluate(Placement(np.zeros(0, dtype=np.int64)))
    assert (evaluation.makespan_s, evaluation.feasible) == (0.0, True)
    assert simulator.evaluate_batch(np.zeros((3, 0), dtype=np.int64)).makespan_s.tolist() == [0.0, 0.0, 0.0]


def test_one_device_takes_the_sum_of_all_times() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("z")], [Tensor("x", 5, ("z",))])
    assert place(graph, Topology("one", (Device("a"),)), [[1.0], [2.0], [4.0]], [0, 0, 0])[0].makespan_s == 7.0


def test_a_transfer_takes_latency_plus_bytes_over_bandwidth() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 20, ("y",))])
    evaluation, schedule = place(graph, pair(), [[1.0, 9.0], [9.0, 2.0]], [0, 1])
    assert schedule.start_s.tolist() == [0.0, 1.0 + 1.0 + 2.0]
    assert evaluation.makespan_s == 6.0
    assert evaluation.transferred_bytes == 20


def test_a_tensor_of_zero_bytes_still_takes_the_latency() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 0, ("y",))])
    assert place(graph, pair(), [[1.0, 1.0], [1.0, 1.0]], [0, 1])[0].makespan_s == 3.0


def test_a_tensor_is_sent_once_per_destination() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("z")], [Tensor("x", 10, ("y", "z"))])
    evaluation, schedule = place(graph, pair(), [[1.0, 1.0]] * 3, [0, 1, 1])
    assert len(schedule.transfer_tensor) == 1
    assert evaluation.makespan_s == 1.0 + 2.0 + 2.0


def test_a_channel_serves_in_order_of_request_and_one_at_a_time() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("u"), Op("v")], [Tensor("x", 10, ("u",)), Tensor("y", 10, ("v",))])
    _, schedule = place(graph, pair(), [[1.0, 1.0]] * 4, [0, 0, 1, 1], np.array([2.0, 1.0, 0.0, 0.0]))
    assert sorted(zip(schedule.transfer_start_s, schedule.transfer_end_s, strict=True)) == [(1.0, 3.0), (3.0, 5.0)]


def test_links_on_one_channel_share_it() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("u"), Op("v")], [Tensor("x", 10, ("u",)), Tensor("y", 10, ("v",))])
    times, assignment = [[1.0, 1.0]] * 4, [0, 1, 1, 0]
    assert place(graph, pair(), times, assignment)[0].makespan_s == 4.0
    assert place(graph, pair(channel="bus"), times, assignment)[0].makespan_s == 6.0


def test_transfers_overlap_with_computing() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("long"), Op("y")], [Tensor("x", 10, ("y",))])
    evaluation, _ = place(graph, pair(), [[1.0, 1.0], [5.0, 5.0], [1.0, 1.0]], [0, 0, 1], np.array([3.0, 2.0, 1.0]))
    assert evaluation.makespan_s == 6.0


def test_without_a_link_a_tensor_goes_over_the_host() -> None:
    devices = (Device("cpu:0", "cpu"), Device("g0", "gpu"), Device("g1", "gpu"))
    links = tuple(Link(s, t, 1.0, 10.0) for s, t in [("g0", "cpu:0"), ("cpu:0", "g1")])
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 10, ("y",))])
    evaluation, schedule = place(graph, Topology("t", devices, links), [[1.0] * 3] * 2, [1, 2])
    assert evaluation.makespan_s == 1.0 + 2.0 + 2.0 + 1.0
    assert schedule.transfer_link.tolist() == [0, 1]


def test_without_any_route_a_placement_cannot_run() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 10, ("y",))])
    islands = Topology("islands", (Device("a"), Device("b")))
    simulator = Simulator(graph, islands, np.ones((2, 2)))
    assert not simulator.evaluate(Placement(np.array([0, 1]))).feasible
    assert simulator.evaluate_batch(np.array([[0, 1], [0, 0]])).makespan_s.tolist() == [np.inf, 2.0]
    with pytest.raises(InvalidPlacement, match="no link or host connects"):
        simulator.schedule(Placement(np.array([0, 1])))


def test_an_op_that_waited_for_a_remote_input_pays_the_dispatch_overhead() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("z")], [Tensor("x", 10, ("y",)), Tensor("y", 1, ("z",))])
    evaluation, schedule = place(graph, pair(overhead_s=0.5), [[1.0, 1.0]] * 3, [0, 1, 1])
    assert (schedule.end_s - schedule.start_s).tolist() == [1.0, 1.5, 1.0]
    assert evaluation.busy_s.tolist() == [1.0, 2.5]


def test_a_remote_input_that_arrived_early_costs_no_overhead() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("busy"), Op("y")], [Tensor("x", 10, ("y",))])
    _, schedule = place(graph, pair(overhead_s=0.5), [[1.0, 1.0], [8.0, 8.0], [1.0, 1.0]], [0, 1, 1])
    assert schedule.end_s.tolist() == [1.0, 8.0, 9.0]


def segmented(overhead_s: float, bandwidth: float | None) -> Topology:
    devices = tuple(
        Device(name, segment_overhead_s=overhead_s, intake_bandwidth_bytes_per_s=bandwidth) for name in ("a", "b")
    )
    return Topology("pair", devices, pair().links)


def test_the_first_op_after_copies_have_arrived_pays_for_beginning_a_segment_and_taking_them_in() -> None:
    ops, tensors = [Op("x"), Op("busy"), Op("y"), Op("z")], [Tensor("x", 10, ("y", "z"))]
    graph = OpGraph.build("g", ops, tensors)
    times = [[1.0, 1.0], [8.0, 8.0], [1.0, 1.0], [1.0, 1.0]]
    _, schedule = place(graph, segmented(0.25, 5.0), times, [0, 1, 1, 1])
    assert (schedule.end_s - schedule.start_s).tolist() == [1.0, 8.0, 1.0 + 0.25 + 2.0, 1.0]


def test_the_op_after_one_that_sends_begins_a_segment() -> None:
    graph = OpGraph.build(
        "g", [Op("x"), Op("next"), Op("last"), Op("y")], [Tensor("x", 10, ("next", "y")), Tensor("next", 1, ("last",))]
    )
    _, schedule = place(graph, segmented(0.25, None), [[1.0, 1.0]] * 4, [0, 0, 0, 1])
    assert (schedule.end_s - schedule.start_s).tolist() == [1.0, 1.25, 1.0, 1.25]


def test_larger_priorities_run_first_and_ties_go_by_topological_index() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("z")])
    one = Topology("one", (Device("a"),))
    assert place(graph, one, [[1.0]] * 3, [0, 0, 0], np.array([1.0, 3.0, 2.0]))[1].start_s.tolist() == [2.0, 0.0, 1.0]
    assert place(graph, one, [[1.0]] * 3, [0, 0, 0], np.array([1.0, 1.0, 1.0]))[1].start_s.tolist() == [0.0, 1.0, 2.0]


def test_by_default_the_op_with_the_longer_way_to_the_end_runs_first() -> None:
    graph = OpGraph.build("g", [Op("short"), Op("head"), Op("tail")], [Tensor("head", 1, ("tail",))])
    _, schedule = place(graph, Topology("one", (Device("a"),)), [[1.0], [1.0], [5.0]], [0, 0, 0])
    assert schedule.start_s.tolist() == [6, 0, 1]


def test_memory_is_weights_plus_live_activations_plus_copies_plus_workspace() -> None:
    graph = OpGraph.build(
        "g",
        [Op("x", memory_bytes=100, workspace_bytes=7), Op("y", memory_bytes=50), Op("z")],
        [Tensor("x", 10, ("y", "z")), Tensor("y", 3)],
    )
    evaluation, _ = place(graph, pair(), [[1.0, 1.0]] * 3, [0, 1, 0])
    # a: weights 100 + workspace 7 + the output 10; b: weights 50 + the copy 10 + the result 3, which stays.
    assert evaluation.peak_memory_bytes.tolist() == [117, 63]


def test_an_activation_is_freed_after_its_last_use() -> None:
    ops = [Op("a"), Op("b"), Op("c"), Op("d")]
    graph = OpGraph.build("chain", ops, [Tensor("a", 10, ("b",)), Tensor("b", 20, ("c",)), Tensor("c", 5, ("d",))])
    assert place(graph, Topology("one", (Device("x"),)), [[1.0]] * 4, [0] * 4)[0].peak_memory_bytes.tolist() == [30]


def test_a_shared_weight_counts_once_per_device() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y"), Op("z")], [], [SharedWeight(100, ("x", "y", "z"))])
    assert place(graph, pair(), [[1.0, 1.0]] * 3, [0, 0, 0])[0].peak_memory_bytes.tolist() == [100, 0]
    assert place(graph, pair(), [[1.0, 1.0]] * 3, [0, 0, 1])[0].peak_memory_bytes.tolist() == [100, 100]


@pytest.mark.parametrize(("capacity", "shortfall"), [(30, [0, 0]), (29, [1, 0]), (0, [30, 0])])
def test_memory_that_is_exactly_full_fits(capacity: int, shortfall: list[int]) -> None:
    graph = OpGraph.build("g", [Op("x", memory_bytes=20)], [Tensor("x", 10)])
    evaluation, _ = place(graph, pair(memory=capacity), [[1.0, 1.0]], [0])
    assert evaluation.shortfall_bytes.tolist() == shortfall
    assert evaluation.feasible == (shortfall == [0, 0])


def test_the_period_of_pipelined_steps_is_that_of_the_busiest_device_or_channel() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 10, ("y",))])
    assert place(graph, pair(), [[1.0, 1.0], [5.0, 5.0]], [0, 1])[0].period_s == 5.0
    assert place(graph, pair(), [[1.0, 1.0], [1.0, 1.0]], [0, 1])[0].period_s == 2.0


def test_invalid_times_are_refused() -> None:
    graph = OpGraph.build("g", [Op("x")])
    with pytest.raises(InvalidGraph, match="'x' has a time"):
        Simulator(graph, pair(), np.array([[np.nan, 1.0]]))
    with pytest.raises(InvalidGraph, match="shape"):
        Simulator(graph, pair(), np.ones((2, 2)))


def test_an_op_on_a_device_that_cannot_run_it_never_ends() -> None:
    graph = OpGraph.build("g", [Op("x"), Op("y")], [Tensor("x", 1, ("y",))])
    batch = Simulator(graph, pair(), np.array([[np.inf, 1.0], [1.0, 1.0]])).evaluate_batch(np.array([[0, 0], [1, 1]]))
    assert batch.makespan_s.tolist() == [np.inf, 2.0]


def every_third(num_ops: int) -> OpGraph:
    tensors = [Tensor(f"o{i}", 8, (f"o{i + 3}",)) for i in range(num_ops - 3)]
    return OpGraph.build("g", [Op(f"o{i}") for i in range(num_ops)], tensors)


def test_scaling_all_times_scales_the_makespan() -> None:
    generator, graph = np.random.default_rng(0), every_third(30)
    times, assignment = generator.uniform(1, 2, (30, 2)), generator.integers(0, 2, 30)
    fast = Topology("fast", pair().devices, (Link("a", "b", 0.5, 20.0), Link("b", "a", 0.5, 20.0)))
    slow = Simulator(graph, pair(), times).evaluate(Placement(assignment)).makespan_s
    assert Simulator(graph, fast, times / 2).evaluate(Placement(assignment)).makespan_s == pytest.approx(slow / 2)


def test_renaming_equal_devices_changes_nothing() -> None:
    generator, graph = np.random.default_rng(1), every_third(40)
    times, assignment = np.repeat(generator.uniform(1, 2, (40, 1)), 2, axis=1), generator.integers(0, 2, 40)
    simulator = Simulator(graph, pair(), times)
    first, second = (simulator.evaluate(Placement(row)).makespan_s for row in (assignment, 1 - assignment))
    assert first == second
