"""The GNN improver where evaluations are executions."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.difference import Difference
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import Evaluation, EvaluationBatch, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.classical import annealing
from gnnplace.planners.classical.baselines import plan_single
from gnnplace.planners.gnn.correction import Candidate, Correction, CorrectionConfig, crossing_tensors
from gnnplace.planners.gnn.execution import ExecutionConfig, RehearsalConfig, plan_measured, rehearse
from gnnplace.planners.gnn.planner import GnnConfig, plan
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.policy.network import build_policy
from gnnplace.sim.simulator import Simulator
from tests.problems import full_mesh, problem_of, random_layers, two_chains

QUICK = ExecutionConfig(rehearsal=RehearsalConfig(searches=2, evaluations_per_unit=10), walk_moves=50)
WIDTH = 1e-4
quick = partial(plan, config=GnnConfig(execution=QUICK))


class Distorted:
    """A measured evaluator: a simulator in which each device is off by a factor of its own, and each placement by chance."""

    kind = "measured"

    def __init__(self, problem: Problem, noise: float = 0.01) -> None:
        rng = np.random.default_rng(7)
        factors = np.exp(0.3 * rng.normal(size=problem.topology.num_devices))
        self._simulator = Simulator(problem.graph, problem.topology, problem.op_time_s * factors, num_threads=1)
        self._noise = noise
        self.executed: list[bytes] = []
        self.sizes: list[int] = []
        self.pairs: list[tuple[bytes, bytes]] = []

    def evaluate(self, placement: Placement) -> Evaluation:
        self.executed.append(placement.assignment.tobytes())
        evaluation = self._simulator.evaluate(placement)
        seconds = evaluation.makespan_s * self._chance(placement.assignment)
        return replace(evaluation, evaluator="measured", makespan_s=seconds, period_s=seconds)

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        self.sizes.append(len(assignments))
        found = [self.evaluate(Placement(row)) for row in assignments]
        return EvaluationBatch(
            np.array([one.makespan_s for one in found]),
            np.array([one.period_s for one in found]),
            np.array([float(one.shortfall_bytes.sum()) for one in found]),
        )

    def difference(self, first: Placement, second: Placement) -> Difference:
        """The placements' own seconds, with a narrow interval; the second is not counted again."""
        after_s, before_s = self.evaluate(first).makespan_s, self.evaluate(second).makespan_s
        self.executed.pop()
        self.pairs.append((first.assignment.tobytes(), second.assignment.tobytes()))
        found = after_s / before_s - 1.0
        return Difference(found, found - WIDTH, found + WIDTH, 20)

    def _chance(self, assignment: IntArray) -> float:
        digest = hashlib.blake2b(assignment.tobytes(), digest_size=8).digest()
        return float(np.exp(self._noise * np.random.default_rng(list(digest)).normal()))


def measured(problem: Problem, noise: float = 0.01) -> tuple[Problem, Distorted]:
    evaluator = Distorted(problem, noise)
    return replace(problem, evaluator=evaluator), evaluator  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_with_40_executions_it_finds_placements_at_least_as_good_as_those_of_annealing(seed: int) -> None:
    problem, evaluator = measured(random_layers(seed, num_ops=60))
    ours = plan(problem, Budget(40), seed)
    assert ours.evaluations == len(evaluator.executed) == 40
    assert ours.objective_s <= annealing.plan(problem, Budget(40), seed).objective_s
    again_s = problem.penalised_s(problem.evaluator.evaluate(ours.placement))
    assert ours.objective_s == pytest.approx(again_s, rel=1e-12)  # it is a product of differences


def test_no_placement_is_executed_twice_and_no_stage_is_worse_than_the_one_before() -> None:
    problem, evaluator = measured(random_layers(1))
    solution = quick(problem, Budget(60), 0)
    assert len(set(evaluator.executed)) == len(evaluator.executed) == solution.evaluations == 60
    assert solution.simulated > 10 * problem.num_units
    names, values = zip(*solution.stages, strict=True)
    assert names == ("single", "rehearsal", "execution")
    assert values[0] == plan_single(problem, Budget(3), 0).objective_s
    assert list(values) == sorted(values, reverse=True)


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_small_budget_is_kept_and_never_leads_to_less_than_the_single_device(budget: int) -> None:
    problem, evaluator = measured(random_layers(1))
    solution = quick(problem, Budget(budget), 0)
    assert solution.evaluations == len(evaluator.executed) == budget
    assert solution.objective_s <= plan_single(problem, Budget(budget), 0).objective_s


def test_the_same_seed_and_measurements_give_the_same_executions() -> None:
    runs = [measured(random_layers(4)) for _ in range(2)]
    for problem, _ in runs:
        quick(problem, Budget(30), 3)
    assert runs[0][1].executed == runs[1][1].executed


def test_where_only_one_device_or_nothing_can_move_one_execution_is_enough() -> None:
    bound = OpGraph.build("bound", [Op("a", devices=("d0",)), Op("b", devices=("d0",))])
    for problem, evaluator in (measured(random_layers(num_devices=1)), measured(problem_of(bound, full_mesh(2)))):
        solution = quick(problem, Budget(20), 0)
        assert solution.evaluations == len(evaluator.executed) == 1
        assert set(solution.placement.assignment.tolist()) == {0}


def test_on_a_tiny_graph_it_ends_when_every_placement_was_executed() -> None:
    problem, evaluator = measured(two_chains(length=1), noise=0.0)
    solution = quick(problem, Budget(None), 0)
    assert sorted(np.frombuffer(row, dtype=np.int64).tolist() for row in evaluator.executed) == [
        [0, 0], [0, 1], [1, 0], [1, 1],
    ]  # fmt: skip
    assert set(solution.placement.assignment.tolist()) == {0, 1}


def test_where_nothing_fits_the_least_shortfall_is_the_answer() -> None:
    problem, _ = measured(two_chains(memory_bytes=25), noise=0.0)  # 60 bytes of weights
    solution = quick(problem, Budget(15), 0)
    assert not problem.evaluator.evaluate(solution.placement).feasible
    assert solution.placement.assignment.tolist().count(0) == 3
    assert solution.evaluations == 15


def test_placements_that_fit_are_preferred_where_single_devices_are_too_small() -> None:
    problem, _ = measured(two_chains(memory_bytes=45), noise=0.0)
    assert problem.evaluator.evaluate(quick(problem, Budget(15), 0).placement).feasible


def test_a_budget_of_seconds_ends_the_search() -> None:
    problem, _ = measured(random_layers())
    solution = quick(problem, Budget(evaluations=None, seconds=1.0), 0)
    assert 3 < solution.evaluations < 100_000


def test_an_interrupt_gives_the_best_executed_placement() -> None:
    class Interrupted(Distorted):
        def evaluate(self, placement: Placement) -> Evaluation:
            if len(self.executed) == 10:
                raise KeyboardInterrupt
            return super().evaluate(placement)

    problem = random_layers(1)
    evaluator = Interrupted(problem)
    solution = quick(replace(problem, evaluator=evaluator), Budget(40), 0)  # type: ignore[arg-type]
    assert solution.interrupted
    assert solution.placement.assignment.tobytes() in evaluator.executed


def test_an_interrupt_of_the_rehearsal_gives_the_single_device() -> None:
    def interrupted(problem: Problem, budget: Budget, seed: int) -> Solution:
        return replace(plan_single(problem, budget, seed), interrupted=True)

    problem, _ = measured(random_layers(1))
    solution = plan_measured(problem, Budget(40), 0, build_policy(0), interrupted, QUICK)
    assert solution.interrupted
    assert len(set(solution.placement.assignment.tolist())) == 1
    assert solution.evaluations == 3


def test_a_rehearsal_executes_nothing_and_begins_with_the_best_search() -> None:
    problem, evaluator = measured(random_layers(3))
    search = Search(problem, Budget(10), "test", 0)
    assignments = rehearse(search, annealing.plan, np.random.default_rng(0), RehearsalConfig(searches=2))
    assert evaluator.executed == []
    seconds = problem.simulated.evaluator.evaluate_batch(assignments).makespan_s
    assert seconds[0] == seconds.min()
    assert len({row.tobytes() for row in assignments}) == len(assignments) > 10
    assert search.simulated >= 2 * (30 * problem.num_units // 2)


def test_crossings_are_counted_once_per_device_that_reads() -> None:
    ops = [Op(name) for name in "abcd"]
    graph = OpGraph.build("fan", ops, [Tensor("a", 8, ("b", "c", "d")), Tensor("b", 4, ("c",))])
    problem = problem_of(graph, full_mesh(3))
    for devices, count, sent_bytes in (([0, 0, 0, 0], 0, 0), ([0, 1, 1, 1], 1, 8), ([0, 1, 2, 2], 3, 20)):
        sent = crossing_tensors(problem.graph, np.array(devices))
        assert (len(sent), problem.graph.tensor_bytes[sent].sum()) == (count, sent_bytes)


def candidates(problem: Problem, correction: Correction, rng: np.random.Generator, count: int) -> list[Candidate]:
    rows = (rng.integers(0, 3, problem.num_units)[problem.unit_of_op] for _ in range(count))
    return [correction.candidate(row) for row in rows]


@pytest.mark.parametrize("price", [0.02, -0.005])
def test_a_correction_finds_the_factor_of_simulated_seconds_and_the_price_of_a_crossing(price: float) -> None:
    problem, rng = random_layers(5), np.random.default_rng(0)
    correction = Correction(problem, CorrectionConfig(shrinkage=1e-9))
    seen = candidates(problem, correction, rng, 30)
    assert [correction.estimate_s(one) for one in seen] == pytest.approx([one.simulated_s for one in seen])

    def real_s(one: Candidate) -> float:
        per_second = len(crossing_tensors(problem.graph, one.assignment)) / one.simulated_s
        return 3.0 * one.simulated_s * float(np.exp(price * per_second))

    for one in seen:
        correction.learn(one, real_s(one))
    correction.refit(rng)
    inside = [one for one in candidates(problem, correction, rng, 10) if within(one, seen)]
    assert len(inside) >= 5
    assert [correction.estimate_s(one) for one in inside] == pytest.approx([real_s(one) for one in inside], rel=1e-3)


def within(one: Candidate, seen: list[Candidate]) -> bool:
    """Whether a placement has no more and no fewer crossings per second than some of the executed ones."""
    counts = [other.features[0] for other in seen]
    return min(counts) < one.features[0] < max(counts)


def test_no_placement_is_corrected_by_more_than_an_execution_showed() -> None:
    problem, rng = random_layers(5), np.random.default_rng(0)
    correction = Correction(problem, CorrectionConfig(shrinkage=1e-9))
    few = sorted(candidates(problem, correction, rng, 30), key=lambda one: float(one.features[0]))
    for number, one in enumerate(few[:10]):
        correction.learn(one, one.simulated_s * (1.0 + 0.01 * number))
    correction.refit(rng)
    assert all(0.9 < correction.estimate_s(one) / one.simulated_s < 1.25 for one in few)


def test_an_unexplained_factor_applies_to_similar_placements_and_not_to_others() -> None:
    problem, rng = random_layers(5, num_ops=60), np.random.default_rng(0)
    correction = Correction(problem, CorrectionConfig(shrinkage=100.0))
    row = rng.integers(0, 3, problem.num_units)
    for one in candidates(problem, correction, rng, 9):
        correction.learn(one, one.simulated_s)
    slow = correction.candidate(row[problem.unit_of_op])
    correction.learn(slow, 2.0 * slow.simulated_s)
    correction.refit(rng)
    near = row.copy()
    near[0] = (near[0] + 1) % 3
    near_by = correction.candidate(near[problem.unit_of_op])
    far = correction.candidate(((row + 1) % 3)[problem.unit_of_op])
    assert correction.estimate_s(near_by) / near_by.simulated_s > 1.2 * correction.estimate_s(far) / far.simulated_s
    assert correction.estimate_s(far) == pytest.approx(far.simulated_s, rel=0.2)


def test_the_correction_ignores_failures_and_placements_that_do_not_fit() -> None:
    problem = two_chains(memory_bytes=45)
    correction = Correction(problem, CorrectionConfig())
    fits, too_much = correction.candidate(np.array([0, 1] * 3)), correction.candidate(np.zeros(6, dtype=np.int64))
    correction.learn(fits, np.inf)
    correction.learn(too_much, 5.0)
    correction.refit(np.random.default_rng(0))
    assert correction.estimate_s(fits) == pytest.approx(fits.simulated_s)
    assert correction.estimate_s(too_much) == pytest.approx(too_much.simulated_s)
    assert not too_much.fits


def test_one_placement_per_host_is_executed_at_once_and_none_twice() -> None:
    problem = random_layers(1)
    evaluator = Distorted(problem)
    solution = quick(replace(problem, evaluator=evaluator, executed_at_once=4), Budget(61), 0)  # type: ignore[arg-type]
    singles, rehearsed, *searched = evaluator.sizes
    assert (singles, rehearsed, set(searched[:-1])) == (problem.topology.num_devices, 3, {4})
    assert sum(evaluator.sizes) == len(set(evaluator.executed)) == solution.evaluations == 61


def test_every_step_is_executed_against_the_placement_before_it_and_kept_only_beyond_the_interval() -> None:
    problem, evaluator = measured(random_layers(2))
    solution = quick(problem, Budget(40), 0)
    steps, singles = solution.executed_steps, len(problem.single_device_assignments)
    assert len(steps) == len(evaluator.pairs) == 40 - singles
    current = min(evaluator.executed[:singles], key=lambda row: problem.evaluator.evaluate(_placement(row)).makespan_s)
    for step, (after, before) in zip(steps, evaluator.pairs, strict=True):
        assert before == current
        assert step.is_kept == (step.difference is not None and step.difference.high < 0)
        changed = np.flatnonzero(_placement(after).assignment != _placement(before).assignment)
        assert {*problem.unit_of_op[changed].tolist()} == {*step.change.units.tolist()}
        current = after if step.is_kept else current
    assert solution.placement.assignment.tobytes() == current
    assert any(step.is_kept for step in steps)
    assert {step.kind for step in steps} == {"rehearsal", "policy", "walk"}


def test_a_difference_within_the_interval_keeps_the_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.WIDTH", 10.0)  # no difference is certain
    problem, _ = measured(random_layers(2))
    solution = quick(problem, Budget(20), 0)
    assert solution.objective_s == plan_single(problem, Budget(3), 0).objective_s
    assert not any(step.is_kept for step in solution.executed_steps)


def test_a_step_that_fails_to_run_takes_forever() -> None:
    class Failing(Distorted):
        def difference(self, first: Placement, second: Placement) -> Difference:
            raise MeasurementFailed("out of memory")

    problem = random_layers(2)
    solution = quick(replace(problem, evaluator=Failing(problem)), Budget(20), 0)  # type: ignore[arg-type]
    assert [step.difference for step in solution.executed_steps] == [None] * len(solution.executed_steps)
    assert len(set(solution.placement.assignment.tolist())) == 1


def _placement(row: bytes) -> Placement:
    return Placement(np.frombuffer(row, dtype=np.int64))
