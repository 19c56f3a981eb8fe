"""`gnnplace bench sets`: zoo models on sets of cores of every size, executed, and placed over all of these sets.

The plain sessions show where kernels stop scaling: from there on, branches side by side can shorten a step. `gnnplace bench cores`
asks the same of simulated machines with more cores than this one.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.bench.execution import AT_BATCH_1
from gnnplace.bench.fidelity import MODELS
from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.bench.problems import real_setup, write_placed
from gnnplace.devices.detect import allowed_cores
from gnnplace.devices.real_names import cores_together
from gnnplace.files import temporary_folder
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.measuring.timing import StoppingRule, interleaved, median_interval
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.running.session import Session

PLANNERS = ("heft", "gnn")
COLUMNS = ("model", "way", "segments", "measured_s", "ratio_to_best_set", "ratio_spread", "simulated_s")
_RULE = StoppingRule(warmup=3, min_repeats=15, max_repeats=61, max_s=6.0, relative_spread=0.01, patience_s=PATIENCE_S)
_EVALUATIONS = 2000


@dataclass(frozen=True)
class CoreSetsCase:
    """One model on all sets of these cores."""

    model: str
    cores: tuple[int, ...]
    seed: int


def bench_sets(options: BenchOptions) -> BenchResult:
    """A row per model and way: a plain session on a set of each size, and the planners' placements over all sets."""
    models = matching({model: model for model in (*MODELS, *AT_BATCH_1)}, options.only, "model")
    cases = [CoreSetsCase(model, allowed_cores(), options.seed) for model in models]
    found = run_cases(cases, core_sets_result, options, _progress)
    rows = [{"model": case.model, **row} for case, result in found.items() for row in result["rows"]]
    return BenchResult("sets", options, rows, core_sets_summary(rows), columns=COLUMNS)


def _progress(case: CoreSetsCase, result: Mapping[str, Any]) -> str:
    return f"{case.model}: " + ", ".join(f"{row['way']} {row['ratio_to_best_set']:.2f}" for row in result["rows"])


def core_sets(cores: Sequence[int]) -> dict[int, list[str]]:
    """Names of aligned sets by their number of cores: the powers of two, and all cores together.

    >>> core_sets(range(8))[4], list(core_sets(range(16)))
    (['cpu:0-3[spinning=1]', 'cpu:4-7[spinning=1]'], [1, 2, 4, 8, 16])
    """
    sizes = [2**power for power in range(len(cores).bit_length()) if 2**power < len(cores)]
    return {
        size: [cores_together(cores[begin : begin + size]) for begin in range(0, len(cores) // size * size, size)]
        for size in (*sizes, len(cores))
    }


def core_sets_result(case: CoreSetsCase) -> dict[str, Any]:
    """A row per way to run the model, with its ratio to the fastest plain session, which ran in the same rounds."""
    sets = core_sets(case.cores)
    setup = real_setup(case.model, ",".join(name for names in sets.values() for name in names))
    model, rng = setup.workload.models[0], np.random.default_rng(case.seed)
    feed = sample_inputs(model, rng)
    sessions = {_way(size): partial(PlainSession(model.path, names[0]).run, feed) for size, names in sets.items()}
    alone_s = dict(zip(sessions, interleaved(list(sessions.values()), _RULE, rng), strict=True))
    fastest = min(alone_s, key=lambda way: float(np.median(alone_s[way])))
    rows = [_row(way, seconds, alone_s[fastest]) for way, seconds in alone_s.items()]
    with temporary_folder() as folder, ExitStack() as stack:
        calls, facts = {}, {}
        for planner in PLANNERS:
            found = load_planner(planner)(setup.problem(), Budget(_EVALUATIONS), case.seed).placement.assignment
            assignment = setup.coarsening.expand(found)
            segments = write_placed(setup, assignment, folder / planner)
            simulated_s = setup.simulator.evaluate(Placement(assignment)).makespan_s
            facts[planner] = {"segments": segments, "simulated_s": simulated_s}
            calls[planner] = partial(stack.enter_context(Session(folder / planner)).run, None, feed)
        *placed_s, best_s = interleaved([*calls.values(), sessions[fastest]], _RULE, rng)
        rows += [_row(way, seconds, best_s) | facts[way] for way, seconds in zip(calls, placed_s, strict=True)]
    return {"rows": rows}


def _way(size: int) -> str:
    return "1 core" if size == 1 else f"{size} cores"


def _row(way: str, row_s: FloatArray, best_s: FloatArray) -> dict[str, Any]:
    ratio = median_interval(row_s / best_s)
    return {
        "way": way,
        "segments": 1,
        "simulated_s": None,
        "measured_s": float(np.median(row_s)),
        "ratio_to_best_set": ratio.median,
        "ratio_spread": ratio.spread,
        "repeats": len(row_s),
    }


def core_sets_summary(rows: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """By model the fastest set, and the speed-up of the best placement over it."""
    best_set, speed_up = {}, {}
    for model in dict.fromkeys(row["model"] for row in rows):
        ways = {row["way"]: row for row in rows if row["model"] == model}
        plain = {way: row["measured_s"] for way, row in ways.items() if way not in PLANNERS}
        best_set[model] = min(plain, key=plain.__getitem__)
        speed_up[model] = 1 / min(ways[planner]["ratio_to_best_set"] for planner in PLANNERS)
    return {"best_set": best_set, "speed_up_over_best_set": speed_up}
