"""The ladder: methods, means over families, and a run on one case."""

import json
import math
from pathlib import Path

import pytest

from gnnplace.bench.generalization.cases import DEVELOPMENT
from gnnplace.bench.generalization.sealed import SEALED, SEALED_CASES
from gnnplace.bench.generalization.summary import best_known
from gnnplace.bench.harness import BenchOptions
from gnnplace.bench.ladder.means import geometric, mean_over_families
from gnnplace.bench.ladder.methods import LIMITS, METHODS, plan_constructions, planner_of
from gnnplace.bench.ladder.running import LadderRun
from gnnplace.bench.ladder.suite import bench_ladder, bench_sealed, bench_servers, comparisons, seconds_of
from gnnplace.errors import GnnplaceError
from gnnplace.planners.solution import Budget
from gnnplace.sim.example import diamond

CASE = "wavefront_16x16 50 on servers-4x4"


def test_budgets_are_those_of_the_ladder() -> None:
    assert list(LIMITS) == ["1", "5", "20", "50", "200", "1000", "2000", "0.1s", "1s", "10s"]
    assert (LIMITS["20"].budget, LIMITS["0.1s"].budget) == (Budget(20), Budget(None, 0.1))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_places_within_its_budget(method: str) -> None:
    solution = planner_of(method)(diamond(), Budget(5), 0)
    assert solution.evaluations <= 5
    assert solution.objective_s <= 6.0


def test_constructions_use_the_seconds_that_they_are_given() -> None:
    solution = plan_constructions(diamond(), Budget(None, 0.3), 0)
    assert solution.wall_s >= 0.3
    assert solution.evaluations > 10


def test_sealed_and_development_cases_have_families_and_no_case_in_common() -> None:
    assert set(SEALED.cases) == {case.name for case in SEALED_CASES}
    assert set(SEALED.cases) & set(DEVELOPMENT.cases) == set()
    families = {SEALED.family(case.graph) for case in SEALED.cases.values()}
    assert len(families) >= 12
    assert {"factorization", "stencil"} <= families


def test_the_mean_counts_cases_and_its_interval_counts_families() -> None:
    ratios = {"a": 1.2, "b": 1.2, "c": 1.2, "d": 1.0}
    mean = mean_over_families(ratios, {"a": "one", "b": "one", "c": "one", "d": "two"})
    assert mean is not None
    assert mean.excess == pytest.approx(1.2**0.75 - 1)
    assert (mean.low, mean.high) == (pytest.approx(0.0), pytest.approx(0.2))
    narrow = mean_over_families({str(i): 1.2 if i % 2 else 1.0 for i in range(40)}, {str(i): str(i) for i in range(40)})
    assert narrow is not None
    assert 0.03 < narrow.low < math.sqrt(1.2) - 1 < narrow.high < 0.16
    assert mean_over_families({}, {}) is None
    assert geometric([2.0, 8.0]) == pytest.approx(4.0)


def run_of(method: str, seed: int, case: str = "x") -> LadderRun:
    return LadderRun(case, method, "20", seed, "")


def test_a_case_counts_only_where_every_seed_fits_and_hard_cases_are_those_of_the_prior() -> None:
    values = {
        run_of("gnn", 0): 1.0, run_of("gnn", 1): 4.0, run_of("gnn-prior", 0): 4.0, run_of("gnn-prior", 1): 4.0,
        run_of("gnn", 0, "y"): 1.0, run_of("gnn", 1, "y"): 1.0, run_of("gnn-prior", 0, "y"): 1.0,
        run_of("gnn-prior", 1, "y"): 1.01, run_of("gnn", 0, "z"): None, run_of("gnn", 1, "z"): 1.0,
        run_of("gnn-prior", 0, "z"): 2.0, run_of("gnn-prior", 1, "z"): 2.0,
    }  # fmt: skip
    found = {run: {"objective_s": value, "wall_s": 0.1} for run, value in values.items()}
    seconds, best = seconds_of(found), best_known(found)
    assert seconds["gnn", "20"] == {"x": 2.0, "y": 1.0, "z": None}
    assert best == {"x": 1.0, "y": 1.0, "z": 1.0}
    summary = comparisons(seconds, best, {"x": "one", "y": "two", "z": "two"}, ["20"])
    assert summary["learned_to_prior_hard@20"]["cases"] == 1
    assert summary["learned_to_prior_hard@20"]["excess"] == pytest.approx(-0.5)
    assert summary["learned_to_prior@20"]["cases"] == 2
    assert summary["learned_to_prior_undrawn@20"]["cases"] == 2
    assert "learned_to_annealing_portfolio@20" not in summary
    summary = comparisons(seconds, best, {"x": "one", "y": "two", "z": "two"}, ["20"], drawn={"two"})
    assert summary["learned_to_prior_undrawn@20"]["cases"] == 1


def test_a_run_is_stored_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    file = tmp_path / "ladder.cases"
    rows = ("constructions", "gnn-prior", "gnn", "5", "20")
    options = BenchOptions(seeds=1, only=(CASE,), rows=rows, cases_file=file)
    first = bench_ladder(options)
    lines = file.read_text().splitlines()
    assert len(lines) == 6
    assert [(row["method"], row["limit"]) for row in first.rows] == [
        (method, limit) for limit in ("5", "20") for method in ("constructions", "gnn-prior", "gnn")
    ]
    assert all(row["above_best"] > -1e-12 for row in first.rows)  # means of logarithms are not exact
    assert first.summary["families"] == 1
    json.dumps(first.document(), allow_nan=False)
    again = bench_ladder(options)
    assert file.read_text().splitlines() == lines
    assert again.rows == first.rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BenchOptions(rows=("gnn", "30")), "there is no method or budget '30'"),
        (BenchOptions(only=("no such case",)), "no case has 'no such case'"),
        (BenchOptions(policy=Path("none.safetensors")), "there is no such policy"),
    ],
)
def test_unknown_names_are_errors(options: BenchOptions, message: str) -> None:
    for bench in (bench_ladder, bench_servers, bench_sealed):
        with pytest.raises(GnnplaceError, match=message):
            bench(options)
