"""One placement at several shapes: what counts is the longest of its times, or their mean."""

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.local_search import Proposals, WalkRequest
from gnnplace.objectives import DimsObjective
from gnnplace.placement import Placement
from gnnplace.sim.several import SeveralSimulators
from gnnplace.sim.simulator import Simulator

COMBINED = {"worst": np.max, "mean": np.mean}
PROPOSALS = Proposals(follow_neighbour=0.5, cluster_share=0.2, mean_cluster=2.0)


def shape(scale: int, num_ops: int = 12) -> Simulator:
    """A chain with shortcuts; the larger the shape, the less sending costs beside computing."""
    rng = np.random.default_rng(5)
    ops = [Op(f"op{i}", memory_bytes=10) for i in range(num_ops)]
    tensors = [
        Tensor(f"op{i}", 4 * scale, tuple(f"op{j}" for j in {i + 1, i + 3} if j < num_ops)) for i in range(num_ops - 1)
    ]
    devices = (Device("a", "d", 60 + 20 * scale), Device("b", "d", 60 + 20 * scale))
    links = (Link("a", "b", 1.0, 10.0), Link("b", "a", 1.0, 10.0))
    times_s = rng.uniform(0.5, 2.0, (num_ops, 2)) * scale**2
    return Simulator(OpGraph.build("g", ops, tensors), Topology("pair", devices, links), times_s)


def problem(several: SeveralSimulators) -> Problem:
    first = several.members[0]
    assert isinstance(first, Simulator)
    return Problem(first.graph, first.topology, first.op_time_s, several, several, grouped=True)


@pytest.mark.parametrize("objective", ["worst", "mean"])
def test_every_result_combines_those_of_the_shapes(objective: DimsObjective) -> None:
    members = (shape(3), shape(1), shape(2))
    several, combine = SeveralSimulators(members, objective), COMBINED[objective]
    assignments = np.random.default_rng(1).integers(0, 2, (20, 12))
    alone = [[member.evaluate(Placement(row)) for member in members] for row in assignments]
    batch = several.evaluate_batch(assignments)
    for index, (row, found) in enumerate(zip(assignments, alone, strict=True)):
        evaluation = several.evaluate(Placement(row))
        assert evaluation.makespan_s == pytest.approx(combine([e.makespan_s for e in found]))
        assert evaluation.period_s == pytest.approx(combine([e.period_s for e in found]))
        assert evaluation.peak_memory_bytes.tolist() == np.max([e.peak_memory_bytes for e in found], axis=0).tolist()
        assert evaluation.feasible == all(e.feasible for e in found)
        assert (batch.makespan_s[index], batch.period_s[index]) == (evaluation.makespan_s, evaluation.period_s)
        assert (batch.shortfall_bytes[index] > 0) == (not evaluation.feasible)
        assert batch.shortfall_bytes[index] == evaluation.shortfall_bytes.sum()
    ops, devices = np.arange(12), 1 - assignments[0]
    moves = several.evaluate_moves(assignments[0], ops, devices)
    for op in ops:
        moved = assignments[0].copy()
        moved[op] = devices[op]
        assert moves.makespan_s[op] == pytest.approx(several.evaluate(Placement(moved)).makespan_s)


@pytest.mark.parametrize("objective", ["worst", "mean"])
def test_a_walk_reports_what_evaluating_its_placements_gives(objective: DimsObjective) -> None:
    several = SeveralSimulators((shape(3), shape(1)), objective)
    searched = problem(several)
    start = np.zeros(12, dtype=np.int64)
    request = WalkRequest(start, 300, 1.0, 0.01, PROPOSALS)
    walk = several.local_search(searched).walk(request, np.random.default_rng(2))
    again = several.local_search(searched).walk(request, np.random.default_rng(2))
    assert walk.evaluations == 300
    assert several.local_search(searched).num_threads == 1  # walks over several shapes run one after the other
    assert walk.best_s < searched.penalised_s(several.evaluate(Placement(start)))
    assert walk.best_s == searched.penalised_s(several.evaluate(Placement(walk.best))) == walk.improvements[-1][1]
    assert walk.value_s == searched.penalised_s(several.evaluate(Placement(walk.assignment)))
    assert again.best.tolist() == walk.best.tolist()


def test_a_walk_over_one_shape_equals_the_compiled_walk() -> None:
    alone = shape(2)
    several = SeveralSimulators((alone,), "worst")
    request = WalkRequest(np.zeros(12, dtype=np.int64), 200, 1.0, 0.01, PROPOSALS)
    walks = [
        simulator.local_search(problem(several)).walk(request, np.random.default_rng(4))
        for simulator in (alone, several)
    ]
    assert walks[0].best.tolist() == walks[1].best.tolist()
    assert walks[0].value_s == pytest.approx(walks[1].value_s)
