"""Rows and comparisons of the generalization bench.

A ratio is the seconds of a run over the least seconds that any row and seed found on the case. Means are arithmetic, over
cases and seeds. A placement that does not fit into memory has no ratio: it is counted apart, and loses every comparison
with one that fits.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from gnnplace.bench.generalization.rows import ABLATED, ABLATIONS
from gnnplace.bench.generalization.run import Run

Results = Mapping[Run, Mapping[str, Any]]
RatiosOfRow = Mapping[tuple[str, int], float | None]
"""Ratios by case and seed; None for a placement that does not fit."""
R = TypeVar("R", bound="OfCase")
_NEAR = 1.02
_EQUAL = 1e-3


class OfCase(Protocol):
    """A run of anything on a case."""

    @property
    def case(self) -> str:
        """Name of the case."""


def best_known(results: Mapping[R, Mapping[str, Any]]) -> dict[str, float]:
    """Least seconds by case, for the cases on which any placement fits."""
    best: dict[str, float] = {}
    for run, result in results.items():
        if result["objective_s"] is not None:
            best[run.case] = min(best.get(run.case, result["objective_s"]), result["objective_s"])
    return best


def ratios(results: Results) -> dict[str, dict[tuple[str, int], float | None]]:
    """Ratios to the best known seconds, by row, then by case and seed."""
    best = best_known(results)
    found: dict[str, dict[tuple[str, int], float | None]] = {}
    for run, result in results.items():
        seconds = result["objective_s"]
        ratio = None if seconds is None else seconds / best[run.case]
        found.setdefault(run.row, {})[run.case, run.seed] = ratio
    return found


def rows_of(results: Results, cases: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """A line per row, on all cases or on `cases`; the best known seconds are always those of all rows."""
    among = {run.case for run in results} if cases is None else set(cases)
    lines = []
    for row, by_case in ratios(results).items():
        mine = [result for run, result in results.items() if run.row == row and run.case in among]
        fits = {key: ratio for key, ratio in by_case.items() if key[0] in among and ratio is not None}
        if not mine:
            continue
        worst = max(fits, key=fits.__getitem__, default=None)
        lines.append(
            {
                "row": row,
                "runs": len(mine),
                "mean_ratio": _mean(fits.values()),
                "worst_ratio": None if worst is None else fits[worst],
                "worst_at": None if worst is None else worst[0],
                "within_2_percent": sum(ratio <= _NEAR for ratio in fits.values()) / len(mine),
                "infeasible": len(mine) - len(fits),
                "evaluations": statistics.median(result["evaluations"] for result in mine),
                "wall_s": statistics.median(result["wall_s"] for result in mine),
            }
        )
    return lines


def comparison(found: Mapping[str, RatiosOfRow], row: str, other: str) -> dict[str, Any] | None:
    """`row` against `other`, pair by pair of case and seed; None where one of them was not run.

    `beatable` is the share of pairs in which some row, with any seed and budget, is better than `other`: an upper limit for
    `row`. Where `other` was run with fewer seeds, its first seed stands for those that it lacks.
    """
    if row not in found or other not in found:
        return None
    first = {case: ratio for (case, _), ratio in reversed(list(found[other].items()))}
    pairs = {key: (ratio, found[other].get(key, first[key[0]])) for key, ratio in found[row].items() if key[0] in first}
    if not pairs:
        return None
    quotients = {key: mine / theirs for key, (mine, theirs) in pairs.items() if mine is not None and theirs is not None}
    fits_alone = {key for key, (mine, theirs) in pairs.items() if mine is not None and theirs is None}
    other_fits_alone = {key for key, (mine, theirs) in pairs.items() if mine is None and theirs is not None}
    better = fits_alone | {key for key, quotient in quotients.items() if quotient < 1 - _EQUAL}
    worse = other_fits_alone | {key for key, quotient in quotients.items() if quotient > 1 + _EQUAL}
    worst = max(quotients, key=quotients.__getitem__, default=None)
    seeds = sorted({seed for _, seed in pairs})
    return {
        "row": row,
        "other": other,
        "pairs": len(pairs),
        "mean_ratio": _mean(quotients.values()),
        "worst_ratio": None if worst is None else quotients[worst],
        "worst_at": None if worst is None else worst[0],
        "better": len(better) / len(pairs),
        "equal": (len(pairs) - len(better) - len(worse)) / len(pairs),
        "worse": len(worse) / len(pairs),
        "beatable": statistics.fmean(_beatable(theirs) for _, theirs in pairs.values()),
        "fits_where_other_does_not": len(fits_alone),
        "does_not_fit_where_other_does": len(other_fits_alone),
        "mean_ratio_by_seed": [_mean(value for (_, s), value in quotients.items() if s == seed) for seed in seeds],
    }


def _beatable(ratio: float | None) -> bool:
    """Whether a placement is known that is better by more than `_EQUAL`."""
    return ratio is None or ratio * (1 - _EQUAL) > 1


def comparisons(results: Results, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The comparisons that a policy has to pass, by name, as far as their rows were run; `facts` by case."""
    found = ratios(results)
    pairs = {
        "zero_shot_to_annealing@50000": ("gnn-zero-shot", "annealing@50000"),
        "search_to_annealing_10_s": ("gnn-10s", "annealing-10s"),
        "search_to_annealing_portfolio_10_s": ("gnn-10s", "annealing-portfolio-10s"),
        "search_to_annealing_60_s": ("gnn-60s", "annealing-60s"),
        **{f"search_to_annealing@{count}": (f"gnn@{count}", f"annealing@{count}") for count in (200, 1000, 5000)},
        "search@2000_to_annealing@500000": ("gnn@2000", "annealing@500000"),
        **{f"whole_to_{part}": (ABLATED, f"gnn-{part}") for part in (*ABLATIONS, "no-lookahead", "every-step")},
        "fine_tuned_to_search@2000": ("gnn-fine-tuned", "gnn@2000"),
    }
    summary: dict[str, Any] = {name: comparison(found, *two) for name, two in pairs.items()}
    per_group = [
        result["evaluations"] / facts[run.case]["groups"] for run, result in results.items() if run.row == "gnn-zero-shot"
    ]  # fmt: skip
    summary["zero_shot_evaluations_per_group_most"] = max(per_group, default=None)
    summary["zero_shot_better_than_heft_and_greedy"] = _against_list_schedulers(results, facts)
    summary["cases"] = len(facts)
    return {name: value for name, value in summary.items() if value is not None}


def _against_list_schedulers(results: Results, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Zero-shot against the better of `heft` and `greedy`, where that one is above the lower bound."""
    seconds = {(run.row, run.case): result["objective_s"] for run, result in results.items()}  # these two run one seed
    best, quotients, beatable, left_out = best_known(results), [], [], set()
    for run, result in results.items():
        lists = [seconds[row, run.case] for row in ("heft", "greedy") if (row, run.case) in seconds]
        if run.row != "gnn-zero-shot" or len(lists) < 2:
            continue
        list_s = min((found for found in lists if found is not None), default=math.inf)
        if list_s <= (1 + _EQUAL) * facts[run.case]["lower_bound"]["value_s"]:
            left_out.add(run.case)
            continue
        mine = result["objective_s"]
        quotients.append(math.inf if mine is None else mine / list_s)
        beatable.append(_beatable(None if math.isinf(list_s) else list_s / best[run.case]))
    if not quotients:
        return None
    return {
        "runs": len(quotients),
        "better": statistics.fmean(quotient < 1 - _EQUAL for quotient in quotients),
        "worse": statistics.fmean(quotient > 1 + _EQUAL for quotient in quotients),
        "beatable": statistics.fmean(beatable),
        "cases_at_lower_bound": len(left_out),
    }


def _mean(values: Iterable[float]) -> float | None:
    several = list(values)
    return statistics.fmean(several) if several else None
