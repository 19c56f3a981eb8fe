"""The compiled walk equals its moves made one by one, and keeps to allowed placements."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.api import set_up
from gnnplace.devices.topology import Device, Topology
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.local_search import Proposals, Walk, WalkRequest
from tests.problems import chain, connected, devices_of, problem_of, two_chains
from tests.random_problems import random_graph, random_times, random_topology

PROPOSALS = Proposals(follow_neighbour=0.5, cluster_share=0.5, mean_cluster=2.0)


def mesh(num_devices: int, latency_s: float = 1.0, memory_bytes: int | None = None) -> Topology:
    return connected(*devices_of("d" * num_devices, memory_bytes), latency_s=latency_s, bandwidth=1e3)


def random_problem(generator: np.random.Generator, objective: Objective, shared: bool = False) -> Problem:
    """A problem in which some ops may not run everywhere and memory is often too small; with `shared`, devices share resources."""
    graph, topology = random_graph(generator, 30), random_topology(generator, shared=shared)
    times = random_times(generator, graph, topology)
    forbidden = generator.random(times.shape) < 0.1
    forbidden[:, 0] = False
    return problem_of(graph, topology, np.where(forbidden, np.inf, times), objective)


def random_start(problem: Problem, generator: np.random.Generator) -> np.ndarray:
    allowed = problem.action_mask
    devices = np.where(allowed, generator.random(allowed.shape), -1.0).argmax(axis=1)
    return devices[problem.unit_of_op]


def evaluated(problem: Problem, assignment: np.ndarray) -> float:
    return float(problem.penalised_batch_s(problem.evaluator.evaluate_batch(assignment[None]))[0])


def walk(problem: Problem, start: np.ndarray, evaluations: int, temperatures_s: tuple[float, float],
         proposals: Proposals = PROPOSALS, seed: int = 0) -> Walk:  # fmt: skip
    request = WalkRequest(start, evaluations, *temperatures_s, proposals)
    return problem.local_search.walk(request, np.random.default_rng(seed))


def one_by_one(problem: Problem, request: WalkRequest, rng: np.random.Generator) -> Walk:
    """The walk with every move simulated completely, from the same random stream."""
    current, value = request.assignment, evaluated(problem, request.assignment)
    best, best_s, improvements = current, value, []
    for evaluation in range(request.evaluations):
        moved = problem.local_search.propose(current, request.proposals, rng)
        cooled = (request.last_temperature_s / max(request.first_temperature_s, 1e-300)) ** (
            evaluation / request.evaluations
        )
        limit_s = value - request.first_temperature_s * cooled * math.log(1.0 - rng.random())
        after = evaluated(problem, moved)
        if after <= limit_s and after < np.inf:
            current, value = moved, after
            if value < best_s:
                best, best_s = current, value
                improvements.append((evaluation + 1, value))
    return Walk(current, value, best, best_s, request.evaluations, tuple(improvements))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    objective=st.sampled_from(["latency", "throughput"]),
    warm=st.booleans(),
    shared=st.booleans(),
)
def test_a_walk_gives_the_same_result_as_its_moves_one_by_one(
    seed: int, objective: Objective, warm: bool, shared: bool
) -> None:
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, objective, shared)
    if not (problem.action_mask.sum(axis=1) > 1).any():
        return
    temperatures = (problem.worst_case_s / 20, problem.worst_case_s / 200) if warm else (0.0, 0.0)
    request = WalkRequest(random_start(problem, generator), 60, *temperatures, PROPOSALS)
    slow = one_by_one(problem, request, np.random.default_rng(seed))
    quick = problem.local_search.walk(request, np.random.default_rng(seed))
    assert quick.assignment.tolist() == slow.assignment.tolist()
    assert quick.best.tolist() == slow.best.tolist()
    assert (quick.value_s, quick.best_s) == (slow.value_s, slow.best_s)
    assert quick.improvements == slow.improvements
    assert quick.evaluations == 60


def test_a_walk_over_op_groups_returns_the_seconds_of_the_whole_graph() -> None:
    setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    problem = setup.problem()
    assert problem.local_search.ops_per_evaluation == setup.workload.graph.num_ops > problem.num_units
    start = random_start(problem, np.random.default_rng(5))
    temperature_s = evaluated(problem, start) / 50
    request = WalkRequest(start, 400, temperature_s, temperature_s / 100, PROPOSALS)
    slow = one_by_one(problem, request, np.random.default_rng(1))
    quick = problem.local_search.walk(request, np.random.default_rng(1))
    assert (quick.value_s, quick.best_s, quick.improvements) == (slow.value_s, slow.best_s, slow.improvements)
    assert quick.best_s == evaluated(problem, quick.best) < evaluated(problem, start)


def test_a_walk_in_pieces_equals_the_whole_walk() -> None:
    generator = np.random.default_rng(4)
    problem = random_problem(generator, "latency")
    start, temperature_s = random_start(problem, generator), problem.worst_case_s / 50
    whole = walk(problem, start, 300, (temperature_s, temperature_s))
    rng, here = np.random.default_rng(0), start
    for _ in range(10):
        piece = problem.local_search.walk(WalkRequest(here, 30, temperature_s, temperature_s, PROPOSALS), rng)
        here = piece.assignment
    assert here.tolist() == whole.assignment.tolist()
    assert piece.value_s == whole.value_s


def test_a_walk_reaches_the_optimum_of_two_chains() -> None:
    found = walk(two_chains(length=4), np.zeros(8, dtype=np.int64), 500, (0.5, 0.01))
    assert found.best_s == 4.0
    assert found.improvements[-1][1] == 4.0


def test_units_move_as_a_whole_and_only_to_allowed_devices() -> None:
    ops = [Op(f"o{i}", group="g" if i in (1, 4) else None, devices=("d0", "d2") if i == 2 else None) for i in range(6)]
    graph = OpGraph.build("units", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(5)])
    problem = problem_of(graph, mesh(3, 0.0), np.random.default_rng(1).uniform(1.0, 2.0, (6, 3)))
    rng, here, seen = np.random.default_rng(0), np.zeros(6, dtype=np.int64), set()
    for _ in range(300):
        moved = problem.local_search.propose(here, PROPOSALS, rng)
        assert (moved != here).any()
        assert problem.action_mask[problem.unit_of_op, moved].all()
        assert moved[1] == moved[4]
        here = problem.local_search.walk(WalkRequest(here, 1, 100.0, 100.0, PROPOSALS), rng).assignment
        assert problem.action_mask[problem.unit_of_op, here].all()
        seen.add(tuple(here.tolist()))
    assert len(seen) > 100


def test_a_walk_leaves_a_start_without_a_route_and_never_accepts_one() -> None:
    # The third device exchanges tensors with nobody.
    topology = Topology("island", (*mesh(2).devices, Device("alone")), mesh(2).links)
    problem = problem_of(chain(3), topology, np.array([[1.0, 1.0, 0.9]] * 3))
    single_moves = replace(PROPOSALS, cluster_share=0.0)
    found = walk(problem, np.zeros(3, dtype=np.int64), 400, (1e9, 1e9), single_moves)
    assert 2 not in found.assignment.tolist()
    assert np.isfinite(found.value_s)
    left = walk(problem_of(chain(3), topology, np.ones((3, 3))), np.array([0, 2, 0]), 50, (0.0, 0.0))
    assert left.best_s == 3.0


def test_a_walk_leaves_a_start_that_does_not_fit() -> None:
    problem = problem_of(chain(6, memory_bytes=10), mesh(2, memory_bytes=40), np.ones((6, 2)))
    found = walk(problem, np.zeros(6, dtype=np.int64), 500, (0.2, 0.01))
    assert evaluated(problem, np.zeros(6, dtype=np.int64)) > problem.worst_case_s
    assert found.best_s == 7.0  # six seconds of work and one transfer


def test_a_walk_without_movable_units_evaluates_nothing() -> None:
    problem = problem_of(OpGraph.build("bound", [Op(f"o{i}", devices=("d1",)) for i in range(3)]), mesh(2))
    found = walk(problem, np.ones(3, dtype=np.int64), 10, (1.0, 0.1))
    assert (found.evaluations, found.value_s, found.improvements) == (0, 3.0, ())
    moved = problem.local_search.propose(np.ones(3, dtype=np.int64), PROPOSALS, np.random.default_rng(0))
    assert moved.tolist() == [1] * 3


def test_units_and_devices_of_moves_are_drawn_by_their_weights() -> None:
    problem = problem_of(chain(4), mesh(4), np.ones((4, 4)))
    weighed = Proposals(0.0, 0.0, 1.0, unit_weights=np.array([0.0, 1.0, 0.0, 3.0]), device_weights=np.array([[0.0, 0.0, 1.0, 4.0]] * 4))  # fmt: skip
    rng, start = np.random.default_rng(0), np.zeros(4, dtype=np.int64)
    moved = np.array([problem.local_search.propose(start, weighed, rng) for _ in range(4000)])
    changed = moved != start
    assert (changed.sum(axis=1) == 1).all()
    assert changed.mean(axis=0) == pytest.approx([0.0, 0.25, 0.0, 0.75], abs=0.03)
    assert np.bincount(moved[changed], minlength=4) / 4000 == pytest.approx([0.0, 0.0, 0.2, 0.8], abs=0.03)


def test_a_unit_on_the_only_weighted_device_moves_to_any_other() -> None:
    problem = problem_of(chain(1), mesh(3), np.ones((1, 3)))
    weighed = Proposals(0.0, 0.0, 1.0, device_weights=np.array([[1.0, 0.0, 0.0]]))
    rng = np.random.default_rng(0)
    moved = [int(problem.local_search.propose(np.zeros(1, dtype=np.int64), weighed, rng)[0]) for _ in range(1000)]
    assert np.bincount(moved, minlength=3) / 1000 == pytest.approx([0.0, 0.5, 0.5], abs=0.05)


def test_a_cluster_is_connected_on_one_device_and_has_the_stated_mean_size() -> None:
    problem = problem_of(chain(200), mesh(2), np.ones((200, 2)))
    clusters = Proposals(0.0, 1.0, 4.0)
    rng, start = np.random.default_rng(0), np.zeros(200, dtype=np.int64)
    sizes = []
    for _ in range(1000):
        moved = np.flatnonzero(problem.local_search.propose(start, clusters, rng))
        assert (np.diff(moved) == 1).all()
        sizes.append(len(moved))
    assert np.mean(sizes) == pytest.approx(5.0, abs=0.4)  # the unit and four others


def full_devices() -> Problem:
    """Two units on two devices that hold one each; each is fast where the other one is."""
    graph = OpGraph.build("two", [Op("a", memory_bytes=10), Op("b", memory_bytes=10)])
    return problem_of(graph, mesh(2, memory_bytes=15), np.array([[5.0, 1.0], [1.0, 5.0]]))


def test_only_exchanges_improve_a_placement_that_fills_its_devices() -> None:
    problem, start = full_devices(), np.array([0, 1])
    stuck = walk(problem, start, 200, (0.0, 0.0))
    assert (stuck.best_s, stuck.best.tolist()) == (5.0, [0, 1])
    found = walk(problem, start, 200, (0.0, 0.0), replace(PROPOSALS, exchange_share=0.5))
    assert (found.best_s, found.best.tolist()) == (1.0, [1, 0])


@pytest.mark.parametrize("seed", range(5))
def test_a_walk_with_exchanges_equals_its_moves_made_one_by_one(seed: int) -> None:
    generator = np.random.default_rng(seed)
    problem = random_problem(generator, "latency")
    start = random_start(problem, generator)
    request = WalkRequest(start, 60, 3.0, 0.1, replace(PROPOSALS, exchange_share=0.7))
    quick = problem.local_search.walk(request, np.random.default_rng(seed))
    slow = one_by_one(problem, request, np.random.default_rng(seed))
    assert quick.assignment.tolist() == slow.assignment.tolist()
    assert (quick.value_s, quick.best_s) == (slow.value_s, slow.best_s)
    allowed = problem.action_mask[problem.unit_of_op]
    assert allowed[np.arange(problem.graph.num_ops), quick.assignment].all()


def test_units_that_make_room_hold_the_bytes_of_those_that_come() -> None:
    ops = [Op("big", memory_bytes=30), *(Op(f"small{i}", memory_bytes=10) for i in range(9))]
    problem = problem_of(OpGraph.build("ten", ops), mesh(2), 1.0)
    proposals = Proposals(0.0, 0.0, 1.0, unit_weights=np.array([1.0, *[1e-12] * 9]), exchange_share=1.0)
    start, rng = np.array([0] + [1] * 9), np.random.default_rng(0)
    moved = np.array([problem.local_search.propose(start, proposals, rng) for _ in range(50)])
    assert (moved[:, 0] == 1).all()
    assert ((moved[:, 1:] == 0).sum(axis=1) == 3).all()
