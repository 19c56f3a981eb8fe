"""Rows and comparisons of the generalization bench, against numbers computed by hand."""

from typing import Any

import pytest

from gnnplace.bench.generalization.run import Run
from gnnplace.bench.generalization.summary import best_known, comparison, comparisons, ratios, rows_of

SECONDS: dict[tuple[str, str], tuple[float | None, ...]] = {
    # (case, row): seconds by seed. The best known are 1, 2 and 5 seconds.
    ("a", "heft"): (2.0,), ("a", "greedy"): (1.5,),
    ("a", "gnn-zero-shot"): (1.0, 1.1), ("a", "annealing@50000"): (1.0, 1.0),
    ("b", "heft"): (None,), ("b", "greedy"): (4.0,),
    ("b", "gnn-zero-shot"): (3.0, 4.0), ("b", "annealing@50000"): (2.0, None),
    ("c", "heft"): (5.0,), ("c", "greedy"): (5.0,), ("c", "gnn-zero-shot"): (5.0, 5.0),
}  # fmt: skip
FACTS = {
    name: {"groups": 10, "lower_bound": {"value_s": bound}} for name, bound in (("a", 0.5), ("b", 1.0), ("c", 5.0))
}


def results() -> dict[Run, dict[str, Any]]:
    return {
        Run(case, row, seed, ""): {
            "objective_s": seconds, "feasible": seconds is not None, "evaluations": 100 + 20 * seed, "wall_s": 1.0 + seed,
        }
        for (case, row), several in SECONDS.items()
        for seed, seconds in enumerate(several)
    }  # fmt: skip


def test_a_row_has_ratios_to_the_best_known_and_counts_infeasible_placements_separately() -> None:
    assert best_known(results()) == {"a": 1.0, "b": 2.0, "c": 5.0}
    lines = {line["row"]: line for line in rows_of(results())}
    zero_shot, heft = lines["gnn-zero-shot"], lines["heft"]
    assert zero_shot["mean_ratio"] == pytest.approx((1.0 + 1.1 + 1.5 + 2.0 + 1.0 + 1.0) / 6)
    assert (zero_shot["worst_ratio"], zero_shot["worst_at"], zero_shot["infeasible"]) == (2.0, "b", 0)
    assert zero_shot["within_2_percent"] == 3 / 6
    assert (zero_shot["evaluations"], zero_shot["wall_s"]) == (110, 1.5)
    assert (heft["runs"], heft["infeasible"], heft["mean_ratio"]) == (3, 1, pytest.approx(1.5))
    assert heft["within_2_percent"] == 1 / 3
    some = {line["row"]: line for line in rows_of(results(), ["b"])}
    assert (some["greedy"]["mean_ratio"], some["heft"]["mean_ratio"], some["annealing@50000"]["infeasible"]) == (
        2.0,
        None,
        1,
    )


def test_a_comparison_pairs_cases_and_seeds_and_an_infeasible_placement_loses() -> None:
    found = comparison(ratios(results()), "gnn-zero-shot", "annealing@50000")
    assert found is not None
    assert found["pairs"] == 4  # annealing was not run on the third case
    assert found["mean_ratio"] == pytest.approx((1.0 + 1.1 + 1.5) / 3)
    assert (found["worst_ratio"], found["worst_at"]) == (1.5, "b")
    assert (found["better"], found["equal"], found["worse"]) == (0.25, 0.25, 0.5)
    assert found["beatable"] == 0.25  # where it does not fit
    assert (found["fits_where_other_does_not"], found["does_not_fit_where_other_does"]) == (1, 0)
    assert found["mean_ratio_by_seed"] == pytest.approx([1.25, 1.1])


def test_a_row_with_one_seed_is_compared_with_every_seed() -> None:
    found = comparison(ratios(results()), "gnn-zero-shot", "greedy")
    assert found is not None
    assert found["mean_ratio_by_seed"] == pytest.approx([(1 / 1.5 + 3 / 4 + 1) / 3, (1.1 / 1.5 + 1 + 1) / 3])
    assert (found["better"], found["equal"], found["worse"]) == (3 / 6, 3 / 6, 0.0)
    assert found["beatable"] == 4 / 6  # on the third case greedy has the best known


def test_cases_at_their_lower_bound_do_not_count_against_the_list_schedulers() -> None:
    found = comparisons(results(), FACTS)["zero_shot_better_than_heft_and_greedy"]
    assert found == {"runs": 4, "better": 3 / 4, "worse": 0.0, "beatable": 1.0, "cases_at_lower_bound": 1}


def test_the_summary_has_the_evaluations_per_group_and_leaves_out_rows_that_were_not_run() -> None:
    found = comparisons(results(), FACTS)
    assert found["zero_shot_evaluations_per_group_most"] == 12.0
    assert found["zero_shot_to_annealing@50000"]["pairs"] == 4
    assert "search_to_annealing_10_s" not in found


def test_results_without_any_placement_that_fits_have_lines_without_ratios() -> None:
    nothing = {run: result | {"objective_s": None} for run, result in results().items()}
    assert {line["mean_ratio"] for line in rows_of(nothing)} == {None}
    assert comparisons(nothing, FACTS)["zero_shot_to_annealing@50000"]["equal"] == 1.0
