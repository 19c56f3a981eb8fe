"""Schedules whose decisions the policy makes."""

import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gnnplace.api import set_up
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.graph.units import grow_region
from gnnplace.planners.classical.annealing import plan as plan_annealing
from gnnplace.planners.classical.constructions import evaluate_starts
from gnnplace.planners.classical.estimates import scheduled
from gnnplace.planners.classical.list_schedule import ListSchedule
from gnnplace.planners.gnn import builds
from gnnplace.planners.gnn.builds import PolicyBuilder, critical_stretch, sample_budget
from gnnplace.planners.gnn.deciding import NO_TEACHER, Choice, decide, empty_trace
from gnnplace.planners.gnn.decision_tables import (
    DecisionTables,
    Reference,
    decision_tables,
    for_sample,
    no_reference,
    write_reference,
)
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from gnnplace.policy.decisions import DECISION, DECISION_CONTEXT, DecisionParts
from gnnplace.policy.features import unplaced_features
from gnnplace.policy.network import PolicyConfig, build_policy, policy_inputs
from gnnplace.policy.pair_features import PAIR, pair_features
from tests.problems import full_mesh, problem_of, random_layers

NETWORK = build_policy(0, PolicyConfig(hidden=8, rounds=1, decision_width=16))
SAMPLED = Choice(1.0, 0.0, NO_TEACHER)


def parts_for(problem: Problem) -> DecisionParts:
    inputs = policy_inputs(problem)
    nodes, edges = (torch.from_numpy(array) for array in unplaced_features(inputs.features))
    with torch.no_grad():
        return NETWORK.parts(inputs, nodes, edges).decisions


def real_problem(devices: str, model: str = "zoo:layered_200", **options: object) -> Problem:
    return replace(set_up(model, devices, **options), num_threads=1).problem()  # type: ignore[arg-type]


PROBLEMS = {
    "plain": lambda: real_problem("k40x2"),
    "groups": lambda: real_problem("k40x4", "zoo:inception_v3", max_groups=40),
    "shared cores": lambda: real_problem("epyc-corex4"),
    "limited memory": lambda: real_problem("k40x2@150MiB", "zoo:nmt_2", max_groups=60),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_with_all_devices_given_the_schedule_is_that_of_the_list_scheduler(name: str) -> None:
    problem = PROBLEMS[name]()
    tables, rng = decision_tables(problem), np.random.default_rng(0)
    devices = np.array([rng.choice(np.flatnonzero(row)) for row in problem.action_mask])
    reference = no_reference(tables)
    reference.devices[:], reference.free[:] = devices, False
    untraced = empty_trace(0, problem.topology.num_devices)
    found = decide(tables, reference, parts_for(problem), SAMPLED, untraced, rng)
    expected = scheduled(problem, devices)
    assert found.connected
    assert found.devices.tolist() == devices.tolist()
    assert found.assignment.tolist() == expected.assignment.tolist()
    assert (found.start_s == expected.start_s).all()
    assert (found.end_s == expected.end_s).all()


def referenced(problem: Problem, devices: np.ndarray) -> Reference:
    inputs, timing = policy_inputs(problem), empty_timing(problem, 1)
    refresh(problem, inputs.tables, timing, 0, devices[problem.unit_of_op])
    units = np.arange(problem.num_units)
    pair, _, _ = pair_features(
        inputs.features, inputs.tables, timing, np.zeros_like(units), units, problem.topology.memory_bytes
    )
    reference = no_reference(decision_tables(problem))
    write_reference(reference, problem.unit_of_op, devices, timing, pair)
    return reference


def test_units_that_are_not_free_keep_their_devices_and_the_others_see_the_complete_schedule() -> None:
    problem = random_layers(3)
    devices = np.arange(problem.num_units) % problem.topology.num_devices
    reference = referenced(problem, devices)
    reference.free[:] = False
    reference.free[5:12] = True
    trace, rng = empty_trace(100, problem.topology.num_devices), np.random.default_rng(0)
    tables, parts = decision_tables(problem), parts_for(problem)
    seen = {tuple(decide(tables, reference, parts, SAMPLED, trace, rng).devices) for _ in range(10)}
    changed = (np.array(list(seen)) != devices).any(axis=0)
    assert changed.any()
    assert not changed[~reference.free].any()
    count = int(trace.used[0])
    assert set(trace.units[:count].tolist()) == set(range(5, 12))
    for row in range(count):
        unit = trace.units[row]
        assert trace.pair[row, :, DECISION.was_here].argmax() == devices[unit]
        assert (trace.pair[row, :, len(DECISION) :] == reference.pair[unit]).all()
        assert trace.context[row, DECISION_CONTEXT.revises] == 1.0
    assert reference.pair[:, :, PAIR.is_current].sum() == problem.num_units


def test_temperature_zero_takes_the_highest_score_and_a_teacher_overrides_it() -> None:
    problem = random_layers(4)
    tables, parts, rng = decision_tables(problem), parts_for(problem), np.random.default_rng(0)
    reference, untraced = no_reference(tables), empty_trace(0, problem.topology.num_devices)
    greedy = [decide(tables, reference, parts, Choice(0.0, 0.0, NO_TEACHER), untraced, rng).devices for _ in range(2)]
    assert (greedy[0] == greedy[1]).all()
    teacher = np.where(np.arange(problem.num_units) % 2 == 0, 1, -1)
    taught = decide(tables, reference, parts, Choice(0.0, 0.0, teacher), untraced, rng).devices
    assert (taught[::2] == 1).all()


def test_a_device_without_room_is_no_option_while_another_has_room() -> None:
    graph = OpGraph.build("weights", [Op(f"o{index}", memory_bytes=10) for index in range(4)])
    problem = problem_of(graph, full_mesh(2, memory_bytes=25), np.ones((4, 2)))
    tables, parts, rng = decision_tables(problem), parts_for(problem), np.random.default_rng(0)
    reference, untraced = no_reference(tables), empty_trace(0, 2)
    for _ in range(30):
        devices = decide(tables, reference, parts, SAMPLED, untraced, rng).devices
        assert devices.sum() == 2


def four_weights(*memories: int) -> Problem:
    """Four ops with 10 bytes of weights each, on devices with these memories, which do not wait for each other."""
    graph = OpGraph.build("weights", [Op(f"o{index}", memory_bytes=10) for index in range(4)])
    topology = full_mesh(len(memories))
    devices = (replace(each, memory_bytes=size) for each, size in zip(topology.devices, memories, strict=True))
    return problem_of(graph, replace(topology, devices=tuple(devices)), np.ones((4, len(memories))))


def test_a_decision_knows_how_scarce_memory_is_and_how_much_is_left_for_what_comes() -> None:
    problem = four_weights(25, 15, 100)
    tables, trace = decision_tables(problem), empty_trace(4, 3)
    teacher = Choice(0.0, 0.0, np.array([0, 1, 2, 0]))
    decide(tables, no_reference(tables), parts_for(problem), teacher, trace, np.random.default_rng(0))
    order = trace.units.argsort()
    assert trace.units[order].tolist() == [0, 1, 2, 3]
    needed_shares = np.log1p(50 * np.array([10 / 25, 10 / 15, 10 / 100]))
    for row in range(4):
        allowed = trace.mask[row]
        assert trace.pair[row, allowed, DECISION.needed_share] == pytest.approx(needed_shares[allowed])
    assert trace.pair[0, :, DECISION.capacity] == pytest.approx([25 / 40, 15 / 40, 2.0])
    assert trace.context[:, DECISION_CONTEXT.pressure] == pytest.approx([1.0] * 4)
    placed_bytes = np.array([10.0 if teacher.teacher[unit] < 2 else 0.0 for unit in trace.units])
    free_bytes = 40.0 - np.concatenate([[0.0], placed_bytes.cumsum()[:-1]])
    left_bytes = 40.0 - 10.0 * np.arange(4)
    assert trace.context[:, DECISION_CONTEXT.room] == pytest.approx(left_bytes / free_bytes)


def test_where_every_memory_holds_the_model_none_is_scarce() -> None:
    tables = decision_tables(four_weights(40, 50))
    assert (tables.scarce.tolist(), tables.scales.pressure) == ([], 0.0)
    assert for_sample(tables, 3).machine.limit_bytes.tolist() == [40.0, 50.0]


def test_samples_fill_different_shares_of_scarce_memories() -> None:
    problem = four_weights(35, 35)
    tables, parts, untraced = decision_tables(problem), parts_for(problem), empty_trace(0, 2)
    teacher = Choice(0.0, 0.0, np.zeros(4, dtype=np.int64))
    on_first = [
        int((decide(for_sample(tables, number), no_reference(tables), parts, teacher, untraced, np.random.default_rng(0)).devices == 0).sum())
        for number in range(6)
    ]  # fmt: skip
    assert on_first == [3, 2, 2, 2, 2, 2]
    limits = [for_sample(tables, number).machine.limit_bytes[0] for number in (0, 1, 5, 6)]
    assert limits == pytest.approx([35.0, 0.85 * 35.0, 0.3 * 35.0, 35.0])


def test_the_policy_builds_a_greedy_schedule_and_samples() -> None:
    problem = random_layers(2)
    built = list(PolicyBuilder(problem, NETWORK, np.random.default_rng(0)).schedules(6))
    again = list(PolicyBuilder(problem, NETWORK, np.random.default_rng(1)).schedules(6))
    assert (built[0].assignment == again[0].assignment).all()
    assert any((one.assignment != other.assignment).any() for one, other in zip(built[1:], again[1:], strict=True))
    assert [sample_budget(count) for count in (0, 1, 12, 500)] == [0.0, 0.0, 1.0, 1.0]


def test_the_policy_decides_a_placement_again_and_knows_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_layers(2)
    assignment = plan_annealing(problem, Budget(200), 0).placement.assignment
    decided: list[tuple[DecisionTables, Reference, Choice, Any]] = []

    def noted(tables: DecisionTables, reference: Reference, parts: Any, choice: Choice, *others: Any) -> Any:
        found = decide(tables, reference, parts, choice, *others)
        decided.append((tables, reference._replace(free=reference.free.copy()), choice, found))
        return found

    monkeypatch.setattr(builds, "decide", noted)
    revised = list(PolicyBuilder(problem, NETWORK, np.random.default_rng(0)).revisions(assignment))
    (plain, _, _, kept), *again = decided
    assert (kept.assignment == assignment).all()
    assert [choice.temperature for _, _, choice, _ in again] == [1.0, 2.0] * 4
    assert [bool(reference.free.all()) for _, reference, _, _ in again[:2]] == [True, True]
    assert len({tuple(tables.order) for tables, _, _, _ in again}) > 1
    for row, (tables, reference, _, found) in zip(revised, again, strict=True):
        assert sorted(tables.order) == sorted(plain.order)
        assert (row == found.assignment).all()
        assert (problem.unit_devices(row) == reference.devices)[~reference.free].all()
        assert (reference.devices == problem.unit_devices(assignment)).all()
        assert reference.span_s[0] == kept.end_s.max()
        assert reference.slack.min() == pytest.approx(0.0, abs=1e-12)
        assert reference.load.max() <= 1.0
        assert (reference.tail_s <= reference.span_s[0] - kept.end_s + 1e-12).all()


def test_stretches_that_are_decided_again_lie_around_critical_units_and_have_all_lengths() -> None:
    rng, units = np.random.default_rng(0), 40
    position, slack = rng.permutation(units), np.full(units, 0.5)
    in_order = np.argsort(position)
    slack[in_order[[3, 20]]] = 0.0, 0.01
    lengths = set[int]()
    for _ in range(300):
        chosen = np.flatnonzero(critical_stretch(position, slack, rng)[in_order])
        assert (np.diff(chosen) == 1).all()
        assert {3, 20} & set(chosen)
        lengths.add(len(chosen))
    assert min(lengths) <= 2
    assert max(lengths) > 0.8 * units


def test_a_placement_that_cannot_run_is_not_built_again() -> None:
    problem = problem_of(OpGraph.build("one", [Op("a")]), full_mesh(2), np.array([[1.0, np.inf]]))
    builder = PolicyBuilder(problem, NETWORK, np.random.default_rng(0))
    assert [row.tolist() for row in builder.revisions(np.array([0]))] == [[0]] * 8
    assert list(builder.revisions(np.array([1]))) == []


def test_fewer_schedules_are_built_and_none_again_where_problems_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_layers(2)
    monkeypatch.setattr(builds, "_MOST_PAIRS", 14 * problem.action_mask.size)
    builder = PolicyBuilder(problem, NETWORK, np.random.default_rng(0))
    built = [schedule.assignment for schedule in builder.schedules(5)]
    assert (len(built), len(list(builder.revisions(built[0]))), list(builder.revisions(built[0]))) == (5, 8, [])
    assert len(list(PolicyBuilder(problem, NETWORK, np.random.default_rng(0)).schedules(20))) == 14


def test_other_schedules_are_starts_where_their_estimates_are_good() -> None:
    problem = random_layers(2)
    good = plan_annealing(problem, Budget(3000), 0).placement.assignment
    bad = np.arange(problem.graph.num_ops) % problem.topology.num_devices
    nothing = np.zeros(problem.graph.num_ops)
    others = [ListSchedule(row, nothing, nothing, True) for row in (bad, good)]
    with Search(problem, Budget(1), "test", 0) as search:
        alone = evaluate_starts(search, 1, np.random.default_rng(0))
        assert (evaluate_starts(search, 1, np.random.default_rng(0), others).assignments[0] == good).all()
    assert (alone.assignments[0] != good).any()


def test_a_region_is_connected_and_has_the_wanted_size() -> None:
    problem = random_layers(5)
    graph, units = problem.unit_graph, problem.num_units
    region, border = np.zeros(units, dtype=np.bool_), np.zeros(units, dtype=np.int64)
    for seed in range(20):
        grow_region(graph, seed, 6, region, border, np.random.default_rng(seed))
        assert region[seed]
        assert region.sum() == 6
        reached = {seed}
        for _ in range(6):
            reached |= {
                int(other)
                for unit in reached
                for other in graph.neighbours[graph.neighbour_offsets[unit] : graph.neighbour_offsets[unit + 1]]
                if region[other]
            }
        assert reached == set(np.flatnonzero(region).tolist())


def test_an_interrupt_waits_until_a_schedule_of_the_policy_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    complete: list[bool] = []

    def decide_interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        found = decide(*arguments)
        complete.append(True)
        return found

    monkeypatch.setattr(builds, "decide", decide_interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(PolicyBuilder(random_layers(2), NETWORK, np.random.default_rng(0)).schedules(1))
    assert complete == [True]
