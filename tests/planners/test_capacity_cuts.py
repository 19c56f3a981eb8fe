"""Annealed cuts under limited memories: their loads by hand, what they find, and what they correct."""

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gnnplace.arrays import IntArray
from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical import capacity_cuts
from gnnplace.planners.classical.capacity_cuts import Annealed, CapacityCuts, anneal, loads
from gnnplace.planners.classical.estimates import by_op
from gnnplace.planners.classical.repair_moves import Costs, move_costs
from gnnplace.sim.simulator import Simulator
from tests.problems import connected, devices_of, problem_of, random_reads

LONG = 20_000  # steps


def costs_of(problem: Problem, is_scarce: Sequence[bool]) -> Costs:
    graph = problem.graph
    memory, workspace = graph.memory_bytes.astype(float), graph.workspace_bytes.astype(float)
    return move_costs(problem, memory, workspace, np.array(is_scarce))


def chain_of(memory: Sequence[int], times: Sequence[Sequence[float]], sizes: Sequence[int], small: int) -> Problem:
    """Ops in a row, on small devices and a host."""
    names = [f"o{i}" for i in range(len(memory))]
    ops = [Op(name, memory_bytes=held) for name, held in zip(names, memory, strict=True)]
    tensors = [Tensor(names[i], size, (names[i + 1],)) for i, size in enumerate(sizes)]
    devices = [Device(f"g{i}", "g", small) for i in range(len(times[0]) - 1)]
    topology = connected(*devices, Device("host"), latency_s=0.25, bandwidth=1e3)
    return problem_of(OpGraph.build("chain", ops, tensors), topology, np.array(times))


def annealed(problem: Problem, begin: list[int], limits: list[float], exponent: float) -> IntArray:
    costs = costs_of(problem, [True] * (len(limits) - 1) + [False])
    settings = Annealed(exponent, LONG, 0.1, 3.0)
    found: IntArray = anneal(np.array(begin), np.array(limits), settings, costs, np.random.default_rng(0))
    return found


def test_loads_are_compute_and_halves_of_transfers_and_memories() -> None:
    ops = [
        Op("a", memory_bytes=5, workspace_bytes=2),
        Op("b", memory_bytes=7),
        Op("c", memory_bytes=1, workspace_bytes=9),
    ]
    graph = OpGraph.build("three", ops, [Tensor("a", 1000, ("b", "c")), Tensor("b", 500, ("c",))])
    topology = connected(*devices_of("ggg"), latency_s=0.25, bandwidth=1e3)
    problem = problem_of(graph, topology, np.tile([1.0, 2.0, 4.0], (3, 1)))
    found = loads(np.array([0, 1, 1]), costs_of(problem, [True, True, False]))
    assert found.seconds == pytest.approx([1.0 + 1.25, 4.0 + 1.25, 0.0])
    assert found.held == pytest.approx([5, 8, 0])
    assert found.largest == pytest.approx([2, 9, 0])


@pytest.mark.parametrize("seed", range(4))
def test_moves_change_loads_as_if_they_were_computed_anew(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = connected(*devices_of("ggg"), latency_s=0.1, bandwidth=50.0)
    problem = problem_of(random_reads(rng, 12, (1, 500)), topology, rng.uniform(1, 9, (12, 3)))
    costs = move_costs(problem, *rng.uniform(0, 9, (2, 12)), np.array([True] * 3))
    devices = rng.integers(0, 3, 12)
    found = loads(devices, costs)
    for _ in range(40):
        unit, target = int(rng.integers(12)), int(rng.integers(3))
        if devices[unit] != target:
            held = costs.unit_s, costs.unit_bytes, costs.transient_bytes
            capacity_cuts._move(unit, target, devices, *held, *costs[Costs._fields.index("home") :], *found)
        for moved, anew in zip(found, loads(devices, costs), strict=True):
            assert moved == pytest.approx(anew)


def test_a_sum_keeps_a_chain_together_and_a_large_exponent_divides_it() -> None:
    problem = chain_of([1] * 4, [[1.0, 1.0, 9.0]] * 4, [100] * 3, small=10)
    together = annealed(problem, [2] * 4, [10.0, 10.0, 1e9], exponent=1.0)
    assert len(set(together.tolist())) == 1
    assert together[0] != 2
    apart = annealed(problem, [2] * 4, [10.0, 10.0, 1e9], exponent=10.0)
    assert sorted(np.bincount(apart, minlength=3).tolist()) == [0, 2, 2]


def test_what_the_host_delays_least_leaves_small_memories() -> None:
    problem = chain_of([6, 6, 6], [[1.0, 9.0], [1.0, 1.5], [1.0, 9.0]], [0, 0], small=12)
    assert annealed(problem, [0, 0, 0], [12.0, 1e9], exponent=1.0).tolist() == [0, 1, 0]


def test_missing_memory_becomes_as_little_as_possible() -> None:
    problem = chain_of([6, 6, 6], [[1.0, 1.0, 99.0]] * 3, [0, 0], small=10)
    found = annealed(problem, [0, 0, 0], [10.0, 10.0, 0.0], exponent=1.0)
    assert sorted(np.bincount(found, minlength=3)[:2].tolist()) == [1, 2]


def test_units_stay_on_devices_that_they_may_run_on_and_routes_exist() -> None:
    problem = chain_of([1, 1, 1], [[1.0, np.inf], [np.inf, 5.0], [1.0, 5.0]], [10, 10], small=10)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
    for each in cuts.estimated(1, np.random.default_rng(0)):
        assert each.assignment.tolist()[:2] == [0, 1]
        assert np.isfinite(each.seconds)


def test_one_way_routes_do_not_spoil_the_loads() -> None:
    problem = chain_of([1, 1], [[1.0, 1.0], [1.0, 1.0]], [10], small=10)
    costs = costs_of(problem, [True, False])
    latency_s = costs.latency_s.copy()
    latency_s[1, 0] = np.inf
    cuts = CapacityCuts(problem, costs._replace(latency_s=latency_s))
    found = [each.assignment.tolist() for each in cuts.estimated(1, np.random.default_rng(0))]
    assert [1, 0] not in found


def test_limits_follow_the_estimated_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100)
    limits = list[float]()

    def noted(devices: IntArray, limit_bytes: np.ndarray, *arguments: object) -> IntArray:
        limits.append(float(limit_bytes[0]))
        return np.zeros(2, np.int64)

    monkeypatch.setattr(capacity_cuts, "anneal", noted)
    monkeypatch.setattr(capacity_cuts, "_FILLED", (0.9,))
    monkeypatch.setattr(
        capacity_cuts, "by_op", lambda *arguments: by_op(*arguments)._replace(peak_bytes=np.array([50, 0]))
    )
    monkeypatch.setattr(capacity_cuts, "_MOST_STEPS", 1)  # for one run
    list(CapacityCuts(problem, costs_of(problem, [True, False])).estimated(1, np.random.default_rng(0)))
    assert limits == [90.0] + [8.0 + 90.0 - 50.0] * 3


def test_evaluated_peaks_correct_limits_and_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100)
    limits = list[float]()

    def noted(devices: IntArray, limit_bytes: np.ndarray, *arguments: object) -> IntArray:
        limits.append(float(limit_bytes[0]))
        return np.array([0, 1])

    monkeypatch.setattr(capacity_cuts, "anneal", noted)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
    found = next(cuts.corrected(np.array([0, 0]), np.array([103, 0]), np.random.default_rng(0)))
    assert limits == [8.0 + 100.0 - 103.0]
    assert found.peak_bytes.tolist() == [4 + 95, 4]


def test_cuts_do_not_depend_on_the_number_of_threads() -> None:
    problem = chain_of([4, 3, 2, 3, 4], [[1.0, 9.0]] * 5, [1, 2, 3, 4], small=9)
    assert isinstance(problem.evaluator, Simulator)
    found = list[list[list[int]]]()
    for num_threads in (1, 3):
        problem.evaluator.num_threads = num_threads
        cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
        found.append([each.assignment.tolist() for each in cuts.estimated(1, np.random.default_rng(0))])
    assert found[0] == found[1]
    assert len({tuple(each) for each in found[0]}) > 1


def test_large_problems_get_fewer_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))

    def count(evaluated: int) -> int:
        return len(list(cuts.estimated(evaluated, np.random.default_rng(0))))

    assert (count(1), count(20), count(1000)) == (48, 80, 120)
    monkeypatch.setattr(capacity_cuts, "_MOST_OPS", 20)
    assert count(1) == 10
    monkeypatch.setattr(capacity_cuts, "_MOST_STEPS", 1)
    assert count(1) == 4


@pytest.mark.parametrize(("seconds", "steps"), [(np.inf, [800, 160]), (1.6e-3, [400, 80]), (0.0, [40, 8])])
def test_few_seconds_allow_fewer_steps(seconds: float, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    problem, taken = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100), list[int]()

    def noted(devices: IntArray, limit_bytes: np.ndarray, settings: Annealed, *arguments: object) -> IntArray:
        taken.append(settings.steps)
        return devices

    monkeypatch.setattr(capacity_cuts, "anneal", noted)
    monkeypatch.setattr(capacity_cuts, "_MOST_STEPS", 1)  # for one run
    monkeypatch.setattr(capacity_cuts, "_STEP_S", 2.5e-6)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
    list(cuts.estimated(1, np.random.default_rng(0), seconds))
    assert taken == [steps[0], steps[1], steps[1], steps[1]]


@pytest.mark.parametrize(("seconds", "steps"), [(np.inf, 160), (2e-4, 80), (0.0, 8)])
def test_few_seconds_allow_fewer_steps_of_a_correction(
    seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, taken = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100), list[int]()

    def noted(devices: IntArray, limit_bytes: np.ndarray, settings: Annealed, *arguments: object) -> IntArray:
        taken.append(settings.steps)
        return devices

    monkeypatch.setattr(capacity_cuts, "anneal", noted)
    monkeypatch.setattr(capacity_cuts, "_STEP_S", 2.5e-6)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
    next(cuts.corrected(np.array([0, 0]), np.array([103, 0]), np.random.default_rng(0), seconds))
    assert taken == [steps]


def test_an_interrupt_waits_until_a_cut_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    complete: list[bool] = []

    def interrupted(*arguments: Any) -> IntArray:
        signal.raise_signal(signal.SIGINT)
        found: IntArray = anneal(*arguments)
        complete.append(True)
        return found

    monkeypatch.setattr(capacity_cuts, "anneal", interrupted)
    problem = chain_of([4, 4], [[1.0, 9.0]] * 2, [0], small=100)
    cuts = CapacityCuts(problem, costs_of(problem, [True, False]))
    for cut in (
        lambda rng: list(cuts.estimated(1, rng)),
        lambda rng: next(cuts.corrected(np.array([0, 0]), np.array([103, 0]), rng)),
    ):
        complete.clear()
        with pytest.raises(KeyboardInterrupt):
            cut(np.random.default_rng(0))
        assert complete == [True]
