"""Packed list schedules: live memory, estimated peaks, and the price of memory by hand."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.classical import heft, packed
from gnnplace.planners.classical.constructions import best_start, evaluate_starts
from gnnplace.planners.classical.estimates import Estimated, estimated_peak_bytes, ranked, scheduled
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule
from gnnplace.planners.classical.packed import evaluate_packed, live_at_peak, needed_bytes, packed_schedules
from gnnplace.planners.search import Search, Seen
from gnnplace.planners.solution import Budget
from tests.problems import connected, devices_of, problem_of, random_reads


def on_a_small_device(ops: list[Op], tensors: list[Tensor], times: list[list[float]], memory_bytes: int) -> Problem:
    """A device with little memory beside one without a limit."""
    devices = connected(Device("small", memory_bytes=memory_bytes), Device("roomy"), bandwidth=1e3)
    return problem_of(OpGraph.build("some", ops, tensors), devices, times)


def beside_a_live_tensor() -> Problem:
    """`b` runs while the ten bytes of `a` wait for `c`."""
    ops = [Op("a"), Op("b", memory_bytes=6), Op("c")]
    tensors = [Tensor("a", 10, ("c",)), Tensor("a", 0, ("b",)), Tensor("b", 0, ("c",))]
    return on_a_small_device(ops, tensors, [[1.0, 9.0], [1.0, 5.0], [1.0, 9.0]], 15)


def test_a_live_tensor_takes_memory_until_its_last_reader_is_placed() -> None:
    problem = beside_a_live_tensor()
    assert list_schedule(problem).assignment.tolist() == [0, 0, 0]
    assert list_schedule(problem, ScheduleOptions(live=True)).assignment.tolist() == [0, 1, 0]


def test_freed_memory_takes_the_next_op() -> None:
    ops = [Op("a"), Op("b"), Op("c")]
    tensors = [Tensor("a", 10, ("b",)), Tensor("b", 5, ("c",)), Tensor("c", 10)]
    problem = on_a_small_device(ops, tensors, [[1.0, 9.0]] * 3, 15)
    assert list_schedule(problem, ScheduleOptions(live=True)).assignment.tolist() == [0, 0, 0]


def test_the_estimated_peak_by_hand() -> None:
    problem = beside_a_live_tensor()
    together = ListSchedule(np.array([0, 0, 0]), np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]), True)
    apart = ListSchedule(np.array([0, 1, 1]), np.array([0.0, 1.0, 6.0]), np.array([1.0, 6.0, 15.0]), True)
    assert estimated_peak_bytes(problem, together).tolist() == [16, 0]
    assert estimated_peak_bytes(problem, apart).tolist() == [10, 16]


@pytest.mark.parametrize("seed", range(10))
def test_on_one_device_the_estimated_peak_is_the_simulated_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_reads(rng, 30, (1, 50), memory_bytes=7)
    problem = problem_of(graph, devices_of("d"), rng.uniform(1.0, 9.0, (30, 1)))
    placement = Placement(np.zeros(30, dtype=np.int64))
    schedule = problem.estimator.schedule(placement)
    estimate = estimated_peak_bytes(
        problem, ListSchedule(placement.assignment, schedule.start_s, schedule.end_s, connected=True)
    )
    assert estimate.tolist() == problem.evaluator.evaluate(placement).peak_memory_bytes.tolist()


def test_tensors_that_are_live_at_the_peak_of_one_device() -> None:
    ops = [Op("a"), Op("b", workspace_bytes=100), Op("c")]
    tensors = [Tensor("a", 10, ("c",)), Tensor("a", 1, ("b",)), Tensor("b", 5, ("c",)), Tensor("c", 50)]
    problem = on_a_small_device(ops, tensors, [[1.0, 1.0]] * 3, 15)
    live, peak_op = live_at_peak(problem, np.array([0, 1, 2]))
    assert (live.tolist(), peak_op) == ([True, True, True, False], 1)
    assert needed_bytes(problem).tolist() == [11, 5, 0]
    assert needed_bytes(problem, without_peak_op=True).tolist() == [10, 0, 0]


def one_of_two_fits() -> Problem:
    """Ranks send `a` to the small device first, but `b` needs it more: 100 s elsewhere instead of 3 s."""
    ops = [Op("a", memory_bytes=8), Op("b", memory_bytes=8), Op("c")]
    return on_a_small_device(ops, [Tensor("a", 0, ("c",))], [[1.0, 3.0], [1.0, 100.0], [60.0, 60.0]], 10)


def test_the_unit_that_suffers_least_per_byte_leaves_the_small_device() -> None:
    problem = one_of_two_fits()
    assert heft.plan(problem, Budget(100), 0).objective_s == pytest.approx(100.0)
    found = packed.plan(problem, Budget(20), 0)
    assert found.placement.assignment[:2].tolist() == [1, 0]
    assert found.objective_s == pytest.approx(63.0)


def test_local_searches_begin_at_packed_schedules_only_where_memory_is_tight() -> None:
    for problem, is_tight in ((one_of_two_fits(), True), (beside_nothing(), False)):
        with Search(problem, Budget(60), "test", 0) as search:
            starts = evaluate_starts(search, 30, np.random.default_rng(0))
        with Search(problem, Budget(60), "test", 0) as search:
            start = best_start(search)
        assert (starts.is_tight, start.is_tight) == (is_tight, is_tight)
        assert start.seconds == (pytest.approx(63.0) if is_tight else pytest.approx(62.0))
        assert starts.seconds[0] <= start.seconds


def beside_nothing() -> Problem:
    """The same ops where everything fits."""
    ops = [Op("a", memory_bytes=8), Op("b", memory_bytes=8), Op("c")]
    return on_a_small_device(ops, [Tensor("a", 0, ("c",))], [[1.0, 3.0], [1.0, 100.0], [60.0, 60.0]], 100)


@pytest.mark.parametrize("seed", range(5))
def test_shared_weights_count_once_and_every_schedule_keeps_to_its_memory(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_reads(rng, 40, (1, 20), memory_bytes=10)
    names = [f"o{i}" for i in range(40)]
    weights = [SharedWeight(30, tuple(rng.choice(names, size=5, replace=False))) for _ in range(3)]
    graph = OpGraph.build("shared", [Op(name, memory_bytes=10) for name in names], list(tensors_of(graph)), weights)
    devices = connected(*devices_of("gg", 300), Device("host"), latency_s=0.1, bandwidth=1e3)
    problem = problem_of(graph, devices, rng.uniform(1.0, 2.0, (40, 3)) * np.array([1.0, 1.0, 9.0]))
    schedules = list(islice(packed_schedules(problem, rng), 40))
    fitting = [(estimated_peak_bytes(problem, each) <= problem.topology.memory_bytes).all() for each in schedules]
    assert sum(fitting) >= 20
    seconds = problem.penalised_batch_s(
        problem.evaluator.evaluate_batch(np.array([each.assignment for each in schedules]))
    )
    assert (seconds[fitting] <= problem.worst_case_s).mean() >= 0.8
    alone = heft.plan(problem, Budget(100), 0).objective_s
    assert packed.plan(problem, Budget(100), 0).objective_s <= alone


def tensors_of(graph: OpGraph) -> list[Tensor]:
    """The tensors of a graph, by names."""
    ends = zip(graph.consumer_offsets[:-1].tolist(), graph.consumer_offsets[1:].tolist(), strict=True)
    return [
        Tensor(graph.op_names[producer], int(size), tuple(graph.op_names[op] for op in graph.consumers[begin:end]))
        for producer, size, (begin, end) in zip(graph.tensor_producer, graph.tensor_bytes, ends, strict=True)
    ]


def large_between_small() -> Problem:
    """One op in three needs 60 bytes while it runs, on three devices of 100 bytes and a host."""
    ops = [Op(f"o{i}", memory_bytes=5, workspace_bytes=60 if i % 3 == 0 else 1) for i in range(12)]
    tensors = [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(11)]
    devices = connected(*devices_of("ggg", 40), Device("host"), bandwidth=1e3)
    return problem_of(OpGraph.build("large", ops, tensors), devices, np.tile([1.0, 1.0, 1.0, 9.0], (12, 1)))


def test_units_that_need_much_while_they_run_keep_to_few_of_the_small_devices() -> None:
    problem = large_between_small()
    transient, scarce = packed._Transient(problem), np.array([True, True, True, False])
    assert transient.unit_bytes.tolist() == [60.0, 1.0, 1.0] * 4
    for seed in range(20):
        mask = transient.together(scarce, np.random.default_rng(seed))
        assert mask is not None
        large = mask[::3]
        assert 1 <= large[0, :3].sum() < 3
        assert large[:, 3].all()
        assert (large == large[0]).all()
        assert mask[1::3].all()
    assert transient.together(np.array([True, False, False, False]), np.random.default_rng(0)) is None


def test_a_schedule_keeps_to_its_mask() -> None:
    problem = beside_nothing()
    only = np.array([[False, True], [True, True], [True, False]])
    assert list_schedule(problem, ScheduleOptions(mask=only)).assignment.tolist() == [1, 0, 0]


def test_the_schedule_of_a_placement_has_its_devices() -> None:
    problem = beside_nothing()
    found = scheduled(problem, np.array([1, 0, 1]))
    assert found.assignment.tolist() == [1, 0, 1]
    assert found.end_s.tolist() == [3.0, 1.0, 63.0]


def test_rankings_put_what_fits_first_and_the_share_says_what_fits() -> None:
    problem = one_of_two_fits()
    nothing = np.zeros(3)
    zeros, ones = np.zeros(3, np.int64), np.ones(3, np.int64)
    full = Estimated(zeros, ListSchedule(zeros, nothing, nothing, True), 1.0, np.array([10, 0]))
    spare = Estimated(ones, ListSchedule(ones, nothing, nothing, True), 2.0, np.array([5, 90]))
    assert ranked(problem, [spare, full], 1.0) == [full, spare]
    assert ranked(problem, [full, spare], 0.9) == [spare, full]


@pytest.mark.parametrize("count", [1, 7])
def test_packed_schedules_are_distinct_and_as_many_as_asked(count: int) -> None:
    problem = large_between_small()
    with Search(problem, Budget(60), "test", 0) as search:
        found = evaluate_packed(search, count, np.random.default_rng(0))
    assert len({each.tobytes() for each, _ in found}) == len(found) == count == search.evaluations
    again = problem.penalised_batch_s(problem.evaluator.evaluate_batch(np.stack([each for each, _ in found])))
    assert again.tolist() == [seconds for _, seconds in found]


def test_packed_schedules_end_with_the_budget_and_leave_out_what_was_seen() -> None:
    with Search(large_between_small(), Budget(5), "test", 0) as search:
        seen = Seen()
        first = evaluate_packed(search, 2, np.random.default_rng(0), seen)
        rest = evaluate_packed(search, 9, np.random.default_rng(0), seen)
        assert evaluate_packed(search, 1, np.random.default_rng(0), seen) == []
    assert (len(first), len(rest)) == (2, 3)
    assert len({each.tobytes() for each, _ in (*first, *rest)}) == 5


def choices_of_two() -> tuple[packed._Choice, IntArray, IntArray]:
    """A short placement that fills the small memory, and a long one that fills 0.8 of it."""
    problem, nothing = one_of_two_fits(), np.zeros(3)
    full, spare = np.zeros(3, np.int64), np.ones(3, np.int64)
    of_full = Estimated(full, ListSchedule(full, nothing, nothing, True), 1.0, np.array([10, 0]))
    of_spare = Estimated(spare, ListSchedule(spare, nothing, nothing, True), 2.0, np.array([8, 90]))
    return packed._Choice(problem, [of_full, of_spare]), full, spare


def test_a_choice_leaves_a_share_of_the_memory_free() -> None:
    choice, full, spare = choices_of_two()
    seen = Seen()
    assert choice.best(seen) is spare
    assert choice.best(seen) is full
    assert choice.best(seen) is None


def test_a_choice_takes_what_seems_shorter_than_the_best_even_if_it_needs_more_memory() -> None:
    choice, full, spare = choices_of_two()
    assert choice.best(Seen(), best_s=1.5) is full
    assert choice.best(Seen(), best_s=2.5) is spare


def corrections_of_three() -> tuple[Problem, packed._Corrections]:
    """Three units of 4 bytes beside each other; a small device holds two of them and is the faster one."""
    ops = [Op("a", memory_bytes=4), Op("b", memory_bytes=4), Op("c", memory_bytes=4)]
    problem = on_a_small_device(ops, [], [[1.0, 5.0], [1.0, 3.0], [1.0, 4.0]], 10)
    search = Search(problem, Budget(), "test", 0)
    return problem, packed._Corrections(search, packed._capacity_cuts(problem), np.random.default_rng(0))


def test_what_needs_too_much_memory_is_cut_again() -> None:
    problem, corrections = corrections_of_three()
    misfit = np.zeros(3, np.int64)
    corrections.learn(misfit, problem.evaluator.evaluate(Placement(misfit)))
    seen = Seen([misfit])
    found = corrections.best(seen, np.inf)
    assert found is not None
    assert problem.evaluator.evaluate(Placement(found)).feasible
    assert not seen.add(found)


def test_what_is_no_shorter_than_a_placement_that_fits_is_not_corrected() -> None:
    problem, corrections = corrections_of_three()
    misfit, fits = np.zeros(3, np.int64), np.array([0, 1, 0])
    for assignment in (misfit, fits):
        corrections.learn(assignment, problem.evaluator.evaluate(Placement(assignment)))
    assert corrections.best_s == pytest.approx(problem.evaluator.evaluate(Placement(fits)).makespan_s)
    assert corrections.best(Seen(), best_s=3.0) is None
    assert corrections.best(Seen(), best_s=np.inf) is not None


def test_corrections_of_a_misfit_are_few() -> None:
    problem, corrections = corrections_of_three()
    misfit = np.zeros(3, np.int64)
    corrections.learn(misfit, problem.evaluator.evaluate(Placement(misfit)))
    found = [corrections.best(Seen(), np.inf) is not None for _ in range(4)]
    assert found == [True, True, True, False]


def test_the_evaluated_peak_says_how_much_less_a_memory_may_hold() -> None:
    """Estimates see 8 of 10 bytes; evaluations add 4, so that one unit fits instead of two."""
    problem, corrections = corrections_of_three()
    seemed_to_fit = np.array([0, 1, 0])
    evaluation = problem.evaluator.evaluate(Placement(seemed_to_fit))
    more = replace(
        evaluation, peak_memory_bytes=evaluation.peak_memory_bytes + np.array([4, 0]), shortfall_bytes=np.array([2, 0])
    )
    corrections.learn(seemed_to_fit, more)
    found = corrections.best(Seen([seemed_to_fit]), np.inf)
    assert found is not None
    assert (found == 0).sum() == 1


@pytest.mark.parametrize("fits", [True, False])
def test_estimates_may_fill_more_after_a_placement_that_fits_and_less_after_others(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, shares = large_between_small(), list[float]()

    def noted(*arguments: Any) -> list[Estimated]:
        shares.append(arguments[2])
        return ranked(*arguments)

    monkeypatch.setattr(Problem, "worst_case_s", np.inf if fits else 0.0)
    candidates = packed._candidates
    monkeypatch.setattr(packed, "_candidates", lambda *arguments: candidates(*arguments)[:1])
    with Search(problem, Budget(3), "test", 0) as search:
        monkeypatch.setattr(packed, "ranked", noted)
        evaluate_packed(search, 3, np.random.default_rng(0))
    factor = 1.03 if fits else 0.96
    assert shares[-3:] == pytest.approx([0.95, 0.95 * factor, 0.95 * factor**2])


def test_large_problems_are_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_OPS_BUILT", 99 * large_between_small().op_time_s.size)
    monkeypatch.setattr(packed.Repair, "repaired", lambda *arguments: pytest.fail("repaired"))
    with Search(large_between_small(), Budget(60), "test", 0) as search:
        assert len(evaluate_packed(search, 3, np.random.default_rng(0))) == 3
