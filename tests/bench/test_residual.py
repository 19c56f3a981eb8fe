"""Corrections of the simulator that learn from executions: features, ridge regression, and predictions of what was held out."""

import numpy as np
import pytest

from gnnplace.bench.residual import (
    FOLDS,
    Executions,
    corrected_s,
    folds,
    residual_features,
    residual_s,
    ridge,
    scaled_s,
    seconds_beside,
)
from gnnplace.placement import Placement
from gnnplace.sim.example import diamond
from gnnplace.sim.simulator import Simulator
from tests.problems import random_layers

SEED = 3


def test_every_execution_is_predicted_once_from_others() -> None:
    parts = list(folds(12, SEED))
    assert len(parts) == FOLDS
    assert sorted(np.concatenate([held_out for _, held_out in parts]).tolist()) == list(range(12))
    assert all(set(fitted) | set(held_out) == set(range(12)) for fitted, held_out in parts)
    assert not any(set(fitted) & set(held_out) for fitted, held_out in parts)


def test_features_of_the_diamond_are_its_segments_its_crossings_and_the_seconds_side_by_side() -> None:
    problem = diamond()
    schedule = problem.estimator.schedule(Placement(np.array([0, 0, 1, 0])))
    beside_s = seconds_beside(schedule, 2)
    # `right` starts a millisecond after `left`, and both take 2 s.
    assert beside_s == pytest.approx([0.0, 1.999, 1.999, 0.0], abs=1e-6)
    found = residual_features(problem.graph, schedule, 3, beside_s)
    assert found["segments"] == pytest.approx(3e-4 / schedule.makespan_s)
    crossings = {name: value for name, value in found.items() if name.startswith("crossing")}
    assert sum(crossings.values()) == pytest.approx(2e-4 / schedule.makespan_s)  # `read` to the right, and `right` back
    beside = [value for name, value in found.items() if name.startswith("beside")]
    assert sum(beside) == pytest.approx(3.998 / schedule.makespan_s)


def test_three_devices_at_once_count_both_others() -> None:
    problem = random_layers(2, num_ops=30)
    devices = problem.topology.num_devices
    assignment = np.arange(30) % devices
    schedule = problem.estimator.schedule(Placement(assignment))
    expected = np.zeros(30)
    for op in range(30):
        for other in np.flatnonzero(assignment != assignment[op]):
            begin = max(schedule.start_s[op], schedule.start_s[other])
            expected[op] += max(0.0, min(schedule.end_s[op], schedule.end_s[other]) - begin)
    assert seconds_beside(schedule, devices) == pytest.approx(expected)


def test_ridge_finds_the_slopes_of_many_exact_values_and_shrinks_those_of_noise() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)) * [1.0, 100.0, 1e-3]
    assert ridge(rows, rows @ [1.0, 0.02, 500.0]) == pytest.approx([1.0, 0.02, 500.0], rel=0.01)
    noise = ridge(rng.normal(size=(10, 8)), rng.normal(size=10))
    assert np.linalg.norm(noise) < 0.5
    assert ridge(np.zeros((4, 2)), np.ones(4)).tolist() == [0.0, 0.0]


def test_a_residual_that_a_feature_explains_is_predicted_and_one_factor_cannot() -> None:
    rng = np.random.default_rng(1)
    crossings = rng.random(30)
    simulated_s = 1.0 + rng.random(30)
    own = Executions([{"segments": value} for value in crossings], simulated_s, simulated_s * 1.3 * np.exp(crossings))
    assert residual_s(own, (), SEED) == pytest.approx(own.measured_s, rel=0.02)
    assert np.abs(scaled_s(own, SEED) / own.measured_s - 1).max() > 0.2


def test_slopes_of_other_models_help_where_a_model_has_few_executions() -> None:
    rng = np.random.default_rng(2)

    def executions(count: int, factor: float) -> Executions:
        values, simulated_s = rng.random((count, 6)), 1.0 + rng.random(count)
        noise = np.exp(0.05 * rng.normal(size=count))
        rows = [dict(zip("abcdef", row, strict=True)) for row in values.tolist()]
        return Executions(
            rows, simulated_s, simulated_s * factor * np.exp(values @ [0.5, 0.1, 0.3, 0.0, 0.2, 0.4]) * noise
        )

    own, others = executions(10, 1.2), [executions(60, factor) for factor in (0.8, 1.5, 2.0)]
    alone, pooled = (np.abs(residual_s(own, rest, SEED) / own.measured_s - 1).mean() for rest in ((), others))
    assert pooled < 0.8 * alone


def test_the_correction_of_gnn_learns_a_factor() -> None:
    problem = random_layers(2, num_ops=30)
    rng = np.random.default_rng(0)
    assignments = list(rng.integers(0, problem.topology.num_devices, (30, 30)))
    assert isinstance(problem.estimator, Simulator)
    simulated_s = np.array([problem.estimator.evaluate(Placement(row)).makespan_s for row in assignments])
    measured_s = simulated_s * 1.4
    found = corrected_s(problem, assignments, measured_s, SEED)
    assert np.median(np.abs(found / measured_s - 1)) < 0.02
