"""The compiled engine gives exactly what the naive one gives, and the independent check accepts it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.placement import Placement
from gnnplace.schedule import check_schedule
from gnnplace.sim.simulator import Simulator
from gnnplace.sim.tables import mean_upward_rank, priority_order
from tests.parity.naive_engine import NaiveRun
from tests.random_problems import random_graph, random_times, random_topology


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32), own_priorities=st.booleans(), shared=st.booleans())
def test_schedules_memory_and_busy_times_are_exactly_equal(seed: int, own_priorities: bool, shared: bool) -> None:
    generator = np.random.default_rng(seed)
    graph, topology = random_graph(generator), random_topology(generator, shared=shared)
    times = random_times(generator, graph, topology)
    assignment = generator.integers(0, topology.num_devices, graph.num_ops)
    priorities = generator.integers(0, 5, graph.num_ops).astype(np.float64) if own_priorities else None
    placement = Placement(assignment, priorities)
    simulator = Simulator(graph, topology, times)

    rank = mean_upward_rank(graph, topology, times) if priorities is None else priorities
    naive = NaiveRun(graph, topology, times, assignment.tolist(), priority_order(graph, rank).tolist())
    evaluation, schedule = simulator.evaluate(placement), simulator.schedule(placement)

    assert evaluation.makespan_s == naive.makespan == schedule.makespan_s
    assert schedule.start_s.tolist() == [naive.start_s[op] for op in range(graph.num_ops)]
    assert schedule.end_s.tolist() == [naive.end_s[op] for op in range(graph.num_ops)]
    hops = zip(
        schedule.transfer_tensor, schedule.transfer_target, schedule.transfer_link,
        schedule.transfer_start_s, schedule.transfer_end_s, strict=True,
    )  # fmt: skip
    assert sorted(tuple(map(float, hop)) for hop in hops) == sorted(tuple(map(float, hop)) for hop in naive.hops)
    memory_of = np.array([naive.memory(device) for device in naive.peak])
    resident = np.zeros(topology.num_devices, dtype=np.int64)
    np.add.at(resident, memory_of[assignment], graph.memory_bytes)
    for weight, size in enumerate(graph.weight_bytes):
        resident[np.unique(memory_of[assignment[graph.weights_of(weight)]])] += size
    peaks = {memory: int(resident[memory]) + naive.peak[memory] for memory in memory_of.tolist()}
    assert evaluation.peak_memory_bytes.tolist() == [peaks[memory] for memory in memory_of.tolist()]
    above = np.maximum(evaluation.peak_memory_bytes - topology.memory_bytes, 0)
    assert evaluation.shortfall_bytes.tolist() == [above[d] if d == memory_of[d] else 0 for d in naive.peak]
    assert evaluation.busy_s.tolist() == list(naive.device_busy.values())
    used = [naive.resources(device) for device in naive.device_busy]
    load = {name: sum(s for d, s in naive.device_busy.items() if name in used[d]) for names in used for name in names}
    assert evaluation.period_s == max([0.0, *load.values(), *naive.channel_busy.values()])
    assert evaluation.transferred_bytes == naive.sent_bytes


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32), zeros=st.booleans(), shared=st.booleans())
def test_every_schedule_passes_the_independent_check(seed: int, zeros: bool, shared: bool) -> None:
    generator = np.random.default_rng(seed)
    graph, topology = random_graph(generator, 20), random_topology(generator, shared=shared)
    times = random_times(generator, graph, topology, zeros)
    placement = Placement(generator.integers(0, topology.num_devices, graph.num_ops))
    schedule = Simulator(graph, topology, times).schedule(placement)
    assert check_schedule(graph, topology, times, schedule) == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), sets=st.booleans(), shared=st.booleans())
def test_moves_cost_exactly_what_the_moved_placements_cost(seed: int, sets: bool, shared: bool) -> None:
    generator = np.random.default_rng(seed)
    graph, topology = random_graph(generator, 25), random_topology(generator, shared=shared)
    simulator = Simulator(graph, topology, random_times(generator, graph, topology))
    assignment = generator.integers(0, topology.num_devices, graph.num_ops)
    for _ in range(2):  # the second round reuses the base run of the first
        moves = int(generator.integers(1, 12))
        devices = generator.integers(0, topology.num_devices, moves)
        ops = generator.random((moves, graph.num_ops)) < 0.2 if sets else generator.integers(0, graph.num_ops, moves)
        mask = ops if sets else np.arange(graph.num_ops)[None, :] == ops[:, None]
        moved = np.where(mask, devices[:, None], assignment[None, :])
        cheap, whole = simulator.evaluate_moves(assignment, ops, devices), simulator.evaluate_batch(moved)
        assert cheap.makespan_s.tolist() == whole.makespan_s.tolist()
        assert cheap.period_s.tolist() == whole.period_s.tolist()
        assert cheap.shortfall_bytes.tolist() == whole.shortfall_bytes.tolist()


def test_a_batch_on_many_threads_equals_one_by_one() -> None:
    generator = np.random.default_rng(3)
    graph, topology = random_graph(generator, 400), random_topology(generator)
    simulator = Simulator(graph, topology, random_times(generator, graph, topology), num_threads=4)
    assignments = generator.integers(0, topology.num_devices, (700, graph.num_ops))
    batch = simulator.evaluate_batch(assignments)
    singles = [simulator.evaluate(Placement(row)) for row in assignments]
    assert batch.makespan_s.tolist() == [single.makespan_s for single in singles]
    assert batch.shortfall_bytes.tolist() == pytest.approx([float(single.shortfall_bytes.sum()) for single in singles])
