"""Estimates that choose the placements that are worth an evaluation."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from gnnplace.api import set_up
from gnnplace.arrays import IntArray
from gnnplace.bench.generalization.cases import generated_graph
from gnnplace.devices.topology import Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import estimates
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.classical.estimates import (
    best_estimated,
    by_op,
    estimated_by_op,
    estimated_s,
    scheduled,
    within_seconds,
)
from gnnplace.planners.classical.etf import earliest_task_schedule
from gnnplace.planners.classical.list_schedule import ScheduleOptions, list_schedule
from gnnplace.planners.classical.peft import peft_schedule
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from models_zoo.networks.generated import workflow
from tests.problems import devices_of, problem_of, random_layers
from tests.random_problems import random_graph, random_times, random_topology


def test_estimates_of_groups_are_those_of_their_single_ops() -> None:
    problem = set_up("zoo:inception_v3", "k40x4", max_groups=40).problem()
    single, group_of_op = problem.over_ops
    assert single.graph.num_ops > problem.graph.num_ops
    rng = np.random.default_rng(0)
    rows = np.array([rng.integers(0, 2 + row % 4, problem.num_units)[problem.unit_of_op] for row in range(40)])
    search = Search(problem, Budget(1), "test", 0)
    found = estimated_by_op(search, iter(rows))
    assert [each.schedule.assignment.tolist() for each in found] == rows[:, group_of_op].tolist()
    simulated_s = problem.penalised_batch_s(problem.evaluator.evaluate_batch(rows))
    assert spearmanr(simulated_s, [each.seconds for each in found]).statistic > 0.9
    assert search.evaluations == 0


def test_an_estimate_lies_between_the_schedules_with_and_without_waiting_transfers() -> None:
    graph = OpGraph.build("pair", [Op(name) for name in "abcd"], [Tensor("a", 3000, ("c",)), Tensor("b", 100, ("d",))])
    names = ["g0", "g1", "g2", "g3"]
    links = tuple(Link(one, other, 0.0, 1e3, "bus") for one, other in permutations(names, 2))
    problem = problem_of(
        graph, Topology("bus", devices_of("gggg"), links), np.repeat([[1.0], [3.0], [5.0], [6.0]], 4, axis=1)
    )
    found = by_op(problem, np.arange(4))
    waiting_s = 3.0 + 0.1 + 3.0 + 5.0  # `d` has the higher rank, so the transfer to `c` waits for that to `d`
    queued_s = 1.0 + 3.0 + 0.1 + 6.0  # the tensor of `a` exists first
    assert found.seconds == pytest.approx(math.sqrt(waiting_s * queued_s))
    assert found.schedule.end_s.max() == pytest.approx(waiting_s)


def test_an_estimate_of_transfers_that_queue_is_the_queue() -> None:
    senders, names = ["a", "b", "c"], "abcd"
    graph = OpGraph.build("fan", [Op(name) for name in names], [Tensor(name, 1000, ("d",)) for name in senders])
    topology = Topology("bus", devices_of("gg"), (Link("g0", "g1", 0.0, 1e3, "bus"), Link("g1", "g0", 0.0, 1e3, "bus")))
    problem = problem_of(graph, topology, 0.25)
    assert by_op(problem, np.array([0, 0, 0, 1])).seconds == pytest.approx(0.25 + 3 * 1.0 + 0.25)


def test_queues_bring_estimates_closer_to_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = set_up(generated_graph(workflow.Settings(width=40, ccr=3.0), 5), "k80x4", max_groups=200).problem()
    rng = np.random.default_rng(0)
    rows = np.array([rng.integers(0, 2 + row % 3, problem.num_units)[problem.unit_of_op] for row in range(60)])
    simulated_s = problem.evaluator.evaluate_batch(rows).makespan_s

    def error() -> float:
        return float(np.std(np.log([estimated_s(problem, row) for row in rows] / simulated_s)))

    with_queues = error()
    monkeypatch.setattr(estimates, "queued_s", lambda problem, free: 0.0)
    assert with_queues < 0.8 * error()


def test_queues_do_not_change_estimates_of_throughput() -> None:
    graph = OpGraph.build("fan", [Op(name) for name in "abcd"], [Tensor(name, 1000, ("d",)) for name in "abc"])
    problem = problem_of(graph, devices_of("gg"), 0.25, "throughput")
    assert by_op(problem, np.array([0, 0, 0, 1])).seconds == pytest.approx(3 * 0.25)


def test_the_schedule_of_a_placement_is_the_list_schedule_that_has_no_choice() -> None:
    connected = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        topology = random_topology(rng, shared=seed % 2 == 0)
        graph = random_graph(rng, groups=3, pinned=True)
        problem = problem_of(graph, topology, random_times(rng, graph, topology))
        for devices in rng.integers(0, topology.num_devices, (3, problem.num_units)):  # some where units may not run
            only = np.zeros(problem.action_mask.shape, dtype=np.bool_)
            only[np.arange(problem.num_units), devices] = True
            for channels in (True, False):
                found = scheduled(problem, devices, channels)
                options = ScheduleOptions(channels=channels, memory_share=None, mask=only)
                expected = list_schedule(problem, options)
                for name in ("assignment", "start_s", "end_s", "connected"):
                    assert np.array_equal(getattr(found, name), getattr(expected, name))
                connected += found.connected
    assert 300 < connected < 900


def test_the_estimated_seconds_alone_are_those_of_the_estimate() -> None:
    problem = set_up("zoo:inception_v3", "k40x4", max_groups=40).problem()
    rng = np.random.default_rng(0)
    for _ in range(5):
        assignment = rng.integers(0, 5, problem.num_units)[problem.unit_of_op]
        assert estimated_s(problem, assignment) == by_op(problem, assignment).seconds


def test_a_problem_without_groups_is_its_own_problem_of_single_ops() -> None:
    problem = random_layers(2)
    single, group_of_op = problem.over_ops
    assert single is problem
    assert group_of_op.tolist() == list(range(problem.graph.num_ops))


def test_estimated_candidates_come_first_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_layers(2)
    monkeypatch.setattr(estimates, "_OPS_ESTIMATED", 5 * problem.graph.num_ops)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, problem.topology.num_devices, (9, problem.num_units))[:, problem.unit_of_op]
    candidates = [rows[0], *rows[:4], *rows]
    found = list(best_estimated(Search(problem, Budget(1), "test", 0), candidates))
    first = problem.penalised_batch_s(problem.evaluator.evaluate_batch(rows[:5]))
    assert (found[0] == rows[first.argmin()]).all()
    assert sorted(row.tolist() for row in found[:5]) == sorted(rows[:5].tolist())
    assert [row.tolist() for row in found[5:]] == rows[5:].tolist()


def test_building_ends_with_its_share_of_the_seconds_and_nothing_is_built_that_nobody_takes() -> None:
    built: list[int] = []
    building = (built.append(number) or number for number in range(9))  # type: ignore[func-returns-value]
    search = Search(random_layers(2), Budget(None, seconds=1e-9), "test", 0)
    assert list(within_seconds(search, building)) == [0]
    assert built == [0]
    assert list(within_seconds(Search(random_layers(2), Budget(3), "test", 0), range(9))) == list(range(9))


def test_where_only_seconds_count_heft_and_single_devices_are_evaluated_and_nothing_is_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = random_layers(2)
    monkeypatch.setattr(estimates, "scheduled", None)
    search = Search(problem, Budget(None, seconds=600.0), "test", 0)
    starts = evaluate_starts(search, 40, np.random.default_rng(0))
    rows = {row.tobytes() for row in starts.assignments}
    assert len(rows) == len(starts.assignments) > problem.topology.num_devices + 1
    assert {row.tobytes() for row in problem.single_device_assignments} <= rows
    assert (np.diff(starts.seconds) >= 0.0).all()
    assert search.best_s == starts.seconds[0]


def test_peft_and_m_etf_of_groups_and_of_their_ops_are_among_the_starts() -> None:
    problem = set_up("zoo:inception_v3", "k40x4", max_groups=40).problem()
    single, group_of_op = problem.over_ops
    first_op = np.unique(group_of_op, return_index=True)[1]
    expected = [peft_schedule(problem).assignment, earliest_task_schedule(problem).assignment]
    expected += [peft_schedule(single).assignment[first_op], earliest_task_schedule(single).assignment[first_op]]
    starts = evaluate_starts(Search(problem, Budget(1_000), "test", 0), 1_000, np.random.default_rng(0))
    rows = {row.tobytes() for row in starts.assignments}
    assert {row.tobytes() for row in expected} <= rows


def test_the_best_are_revised_and_their_revisions_as_well() -> None:
    problem = random_layers(2)
    devices = problem.topology.num_devices
    asked: list[list[int]] = []

    def to_the_fastest(assignment: IntArray) -> list[IntArray]:
        """Moves the first unit that is elsewhere to the fastest device, and gives the assignment itself, too."""
        asked.append(assignment.tolist())
        units = problem.unit_devices(assignment)
        elsewhere = np.flatnonzero(units != fastest)
        units[elsewhere[:1]] = fastest
        return [assignment, units[problem.unit_of_op]]

    rows = np.tile(np.arange(problem.num_units) % devices, (3, 1))[:, problem.unit_of_op]
    fastest = int(problem.unit_time_s.sum(axis=0).argmin())
    search = Search(problem, Budget(1), "test", 0)
    found = [row.tolist() for row in best_estimated(search, rows, [to_the_fastest])]
    plain = [row.tolist() for row in best_estimated(search, rows)]
    assert len(plain) == 1
    assert len(found) == 1 + len(asked) == 1 + estimates._ROUNDS
    assert asked[0] == plain[0]
    assert len({tuple(row) for row in asked}) == len(asked)
    assert search.evaluations == 0
