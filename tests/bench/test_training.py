"""`bench training`: the rows of runs, and one short run on two cores."""

import os
from typing import Any

import pytest

from gnnplace.bench import training
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.training import TrainingCase, bench_training, case_result, training_row, training_summary
from gnnplace.measuring.timing import StoppingRule
from tests.quick_measuring import measure_quickly

CASE = TrainingCase("some", 1, 8)


def result(difference: float | None, low: float = -0.1, high: float = -0.01) -> dict[str, Any]:
    curve = [
        {"executions": 10 * (update + 1), "start_s": 0.01, "best_s": 0.009, "gain": 0.01 * update, "entropy": 1.0, "approx_kl": 0.0, "wall_s": 6.0}
        for update in range(8)
    ]  # fmt: skip
    interval = None if difference is None else [low, high]
    return {
        "curve": curve,
        "difference": difference,
        "difference_interval": interval,
        "pairs": 20,
        "command": "gnnplace train",
    }


def test_a_row_compares_the_first_and_the_last_quarter_of_the_updates() -> None:
    row = training_row(CASE, result(-0.05))
    assert (row["executions"], row["minutes"]) == (80, 0.1)
    assert (row["saved_first"], row["saved_last"]) == pytest.approx((0.005, 0.063), abs=5e-4)
    assert (row["difference"], row["low"], row["high"]) == (-0.05, -0.1, -0.01)


def test_the_summary_counts_runs_that_are_faster_beyond_the_interval() -> None:
    rows = [training_row(CASE, one) for one in (result(-0.05), result(-0.01, high=0.02), result(None))]
    summary = training_summary(rows)
    assert summary["faster_than_start"] == "1 of 3"
    assert summary["mean_difference"] == pytest.approx(-0.03)


def test_by_default_three_seeds_train_on_the_first_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "run_cases", lambda cases, *_: {case: result(-0.05) for case in cases})
    found = bench_training(BenchOptions(seed=4))
    assert [(row["model"], row["seed"]) for row in found.rows] == [(training.MODELS[0], seed) for seed in (4, 5, 6)]
    assert found.details["cases"][0]["curve"][0]["executions"] == 10


@pytest.mark.skipif("len(os.sched_getaffinity(0)) < 2", reason="needs two cores")
@pytest.mark.usefixtures("own_cache")
def test_a_run_on_a_zoo_model_has_a_curve_and_a_final_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    measure_quickly(StoppingRule(warmup=1, min_repeats=2, max_repeats=2), monkeypatch.setattr)
    monkeypatch.setattr(training, "DEVICES", f"cpu:{first},cpu:{second}")
    found = case_result(TrainingCase("ensemble_mlp:small", 0, 1))
    assert [row["executions"] > 1 for row in found["curve"]] == [True]
    assert found["command"].startswith(
        "gnnplace train --out policy.safetensors --updates 1 --measure zoo:ensemble_mlp:small"
    )
    assert found["difference_interval"] is None or found["difference_interval"][0] <= found["difference"]
