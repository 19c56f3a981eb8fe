"""`gnnplace bench pairs`: paired measurements of a placement against itself, and against itself with a busy op of known length.

The busy op draws random numbers in the part that ends last, so the step takes longer by the time that it takes. Every trial has
sessions of its own, as two sessions of one model differ by where their memory lies.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gnnplace.api import ProblemSetup
from gnnplace.api.measuring import MEASURE_OPTIONS
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.measured import DEVICES
from gnnplace.bench.measured import MODELS as SEARCHED
from gnnplace.bench.problems import executing, real_setup
from gnnplace.files import temporary_folder
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.measuring.timing import StoppingRule, interleaved, quiet_s
from gnnplace.onnx_io.busy_op import busy_model, with_busy_op
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget

MODELS = (*SEARCHED, "bert_base:batch=1:length=48")
"""Models whose steps take 0.2 to 107 ms on two cores of an AMD EPYC."""
RULES: Mapping[float, PairRule] = {
    0.0: replace(MEASURE_OPTIONS.step, give_up=None),
    0.02: PairRule(max_s=10.0, patience_s=PATIENCE_S),
    0.01: PairRule(max_s=40.0, patience_s=PATIENCE_S),
}
"""Rule of a trial for each planted difference, as a fraction of the step's seconds; 0: a placement against itself."""
_TRIALS = 13
_ELEMENTS = (20_000, 200_000)  # of the busy ops whose seconds are compared
_RULE = StoppingRule(warmup=3, min_repeats=15, max_repeats=60, max_s=3.0, relative_spread=0.01, patience_s=PATIENCE_S)


@dataclass(frozen=True)
class PairCase:
    """Trials with one model and one planted difference."""

    model: str
    planted: float
    seed: int
    count: int


def bench_pairs(options: BenchOptions) -> BenchResult:
    """A row per model and planted difference; `--seeds` is the number of trials of each, `--rows` names the differences."""
    models = matching({model: model for model in MODELS}, options.only, "model")
    by_name = {f"{planted:g}": planted for planted in RULES}
    check_known(options.rows, by_name, "planted difference")
    chosen = [by_name[name] for name in options.rows or by_name]
    count = options.seeds or _TRIALS
    cases = [PairCase(model, planted, options.seed, count) for planted in chosen for model in models]
    found = run_cases(cases, case_result, options)
    rows = [{"model": case.model, "planted": case.planted, **_row(case, result)} for case, result in found.items()]
    details = {"devices": DEVICES, "cases": [{**vars(case), **result} for case, result in found.items()]}
    return BenchResult("pairs", options, rows, pairs_summary(found), details)


def case_result(case: PairCase) -> dict[str, Any]:
    """Seconds of the step, of the busy op, and every trial: difference, its interval, pairs, and seconds until the decision."""
    setup = real_setup(case.model, DEVICES)
    placement = load_planner("heft")(setup.problem(), Budget(), case.seed).placement
    step_s = _step_s(setup, placement)
    elements = round(case.planted * step_s / _element_s()) if case.planted else 0
    trials = [_trial(setup, placement, elements, RULES[case.planted], case.seed + trial) for trial in range(case.count)]
    return {"step_s": step_s, "trials": trials}


def _step_s(setup: ProblemSetup, placement: Placement) -> float:
    with executing(setup, replace(MEASURE_OPTIONS, plain=None)) as evaluator:
        return float(quiet_s(evaluator.side_by_side([placement], _RULE)[0].samples[0]))  # type: ignore[index]


def _trial(setup: ProblemSetup, placement: Placement, elements: int, rule: PairRule, seed: int) -> list[float]:
    with executing(setup, replace(MEASURE_OPTIONS, plain=None, seed=seed)) as evaluator:
        plain = evaluator.parts_of(placement)
        busy = (*plain[:-1], with_busy_op(plain[-1], elements)) if elements else plain
        begin_s = time.perf_counter()
        found = evaluator.difference_of_parts(busy, plain, rule)
        return [found.difference, found.low, found.high, found.pairs, time.perf_counter() - begin_s]


def _element_s() -> float:
    """Seconds of the busy op per element: of many elements less those of few, so that the call of a session does not count."""
    rng, device = np.random.default_rng(0), DEVICES.split(",", maxsplit=1)[0]
    with temporary_folder() as folder:
        paths = [folder / f"{count}.onnx" for count in _ELEMENTS]
        for path, count in zip(paths, _ELEMENTS, strict=True):
            path.write_bytes(busy_model(count))
        with PlainSession(paths[0], device) as few, PlainSession(paths[1], device) as many:
            few_s, many_s = quiet_s(interleaved([partial(few.run, {}), partial(many.run, {})], _RULE, rng))
    return float((many_s - few_s) / (_ELEMENTS[1] - _ELEMENTS[0]))


def _row(case: PairCase, result: Result) -> dict[str, Any]:
    differences, lows, highs, pairs, seconds = np.array(result["trials"]).T
    right = (lows <= 0) & (highs >= 0) if case.planted == 0 else lows > 0
    return {
        "step_s": result["step_s"],
        "trials": case.count,
        "right": int(right.sum()),
        "wrong_sign": int((highs < 0).sum()) if case.planted else 0,
        "mean_difference": float(differences.mean()),
        "median_pairs": float(np.median(pairs)),
        "median_s": float(np.median(seconds)),
        "longest_s": float(seconds.max()),
    }


def pairs_summary(results: Mapping[PairCase, Result]) -> dict[str, Any]:
    """For each planted difference: trials that were right (whose interval contains zero, or lies above it), and the mean difference."""
    summary: dict[str, Any] = {}
    for planted in dict.fromkeys(case.planted for case in results):
        rows: Sequence[dict[str, Any]] = [
            _row(case, result) for case, result in results.items() if case.planted == planted
        ]
        trials = sum(row["trials"] for row in rows)
        name = f"planted_{planted:g}"
        summary[f"{name}_right"] = f"{sum(row['right'] for row in rows)} of {trials}"
        summary[f"{name}_mean_difference"] = statistics.fmean(row["mean_difference"] for row in rows)
        summary[f"{name}_longest_s"] = max(row["longest_s"] for row in rows)
    return summary
