"""`gnnplace bench equality` and `execution`: placed models on two cores against plain sessions, in outputs and in seconds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gnnplace.api import set_up
from gnnplace.arrays import FloatArray
from gnnplace.bench.fidelity import MODELS
from gnnplace.bench.harness import BenchOptions, BenchResult, check_known, matching, run_cases
from gnnplace.bench.planners import light_models
from gnnplace.bench.problems import real_setup, worst_error, write_placed
from gnnplace.files import temporary_folder
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.measuring.timing import StoppingRule, interleaved, median_interval, quiet_s
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.running.session import Session

DEVICES = "cpu:0,cpu:1"
DEVICES_AND_SET = f"{DEVICES},cpu:0-1[spinning=1]"
"""Two cores, and both together with threads that spin while their part runs."""
AT_BATCH_1 = (
    "nasnet_mobile:batch=1", "cifar_cell_00:batch=1", "ensemble_cnn:batch=1", "ensemble_mlp:batch=1", "dlrm_towers:batch=1",
    "nmt_2:batch=1:hidden=512:steps=6:vocabulary=4000", "ptb_cell_00:batch=1",
)  # fmt: skip
"""The models that `MODELS` has with a larger batch; the other six have batch 1 there."""
AS_PUBLISHED = (
    "inception_v3", "nasnet_mobile", "cifar_cell_00", "ensemble_cnn", "dlrm_towers", "nmt_2", "ptb_cell_00", "bert_base:layers=2",
)  # fmt: skip
"""The models that `MODELS` has with less than the published batch, with that one; two of BERT's twelve equal layers."""
BATCHES: Mapping[str, Sequence[str]] = {"quick": MODELS, "one": AT_BATCH_1, "published": AS_PUBLISHED}
"""The models of each row of `bench execution`."""
_EQUAL = 1e-4
ONE_CORE = "one core"
PLANNERS = ("heft", "annealing", "gnn")
THREADS = {
    "two threads": "cpu:0-1",
    "two threads, spinning": "cpu:0-1[spinning=1]",
    "two threads, parallel": "cpu:0-1[parallel=1]",
    "two threads, parallel and spinning": "cpu:0-1[spinning=1,parallel=1]",
}
"""Plain sessions on both cores; idle threads that spin are ONNX Runtime's default."""
_RULE = StoppingRule(warmup=3, min_repeats=11, max_repeats=101, max_s=6.0, relative_spread=0.01, patience_s=PATIENCE_S)
_RANDOM, _EQUALITY_EVALUATIONS, _EVALUATIONS = 20, 300, 2000


def bench_equality(options: BenchOptions) -> BenchResult:
    """A row per light model and placement (`heft`, `gnn` and 20 random ones): outputs against those of one plain session."""
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder:
        for name, model in light_models(folder, options.seed).items():
            setup = set_up(model, DEVICES)
            rng = np.random.default_rng(options.seed)
            placements = {}
            for planner in ("heft", "gnn"):
                solution = load_planner(planner)(setup.problem(), Budget(_EQUALITY_EVALUATIONS), options.seed)
                placements[planner] = setup.coarsening.expand(solution.placement.assignment)
            placements |= {f"random {i}": rng.integers(0, 2, model.graph.num_ops) for i in range(_RANDOM)}
            feed = sample_inputs(model, rng)
            with PlainSession(model.path, "cpu:0") as plain:
                expected = plain.run(feed)
            for label, assignment in placements.items():
                segments = write_placed(setup, assignment, folder / "placed")
                with Session(folder / "placed") as session:
                    outputs = session.run(None, feed)
                error = worst_error(outputs, expected)
                rows.append({"model": name, "placement": label, "segments": segments, "relative_error": error})
    errors = [row["relative_error"] for row in rows]
    summary = {
        "runs": len(rows),
        "equal": sum(error <= _EQUAL for error in errors),
        "worst_relative_error": max(errors),
    }
    return BenchResult("equality", options, rows, summary)


@dataclass(frozen=True)
class Execution:
    """One model, measured in all ways to run it."""

    model: str
    seed: int


def bench_execution(options: BenchOptions) -> BenchResult:
    """Rows of plain sessions on two cores, of the model placed on one core, and of placements by simulated planners.

    The planners may place an op on either core or on both together. Placements are compared with the session on two cores that ran
    in the same rounds. `rows` are names of `BATCHES`.
    """
    check_known(options.rows, BATCHES, "batch")
    among = [
        model for batch, models in BATCHES.items() if not options.rows or batch in options.rows for model in models
    ]
    models = matching({model: model for model in among}, options.only, "model")
    found = run_cases([Execution(model, options.seed) for model in models], execution_result, options)
    rows = [{"model": case.model, **row} for case, result in found.items() for row in result["rows"]]

    on_one = {row["model"]: row for row in rows if row["placement"] == ONE_CORE}

    def best(ways: Collection[str]) -> dict[str, float]:
        """Least ratio to the plain session by model, of the ways that ran in the same rounds as the placements."""
        chosen = [row for row in rows if row["placement"] in ways and row["plain_s"] == on_one[row["model"]]["plain_s"]]
        return {model: min(row["ratio_to_plain"] for row in chosen if row["model"] == model) for model in models}

    one_core = [row["ratio_to_plain"] for row in on_one.values()]
    placed, threads = best(PLANNERS), best(THREADS)
    summary = {
        "one_core_overhead_median": float(np.median(one_core)) - 1.0,
        "one_core_overhead_worst": max(one_core) - 1.0,
        "speed_up_over_one_core": {model: 1 / ratio for model, ratio in placed.items()},
        "speed_up_over_two_threads": {model: threads[model] / ratio for model, ratio in placed.items()},
        "at_least_1.5_over_one_core": sum(ratio <= 1 / 1.5 for ratio in placed.values()),
        "faster_than_two_threads": sum(ratio < threads[model] for model, ratio in placed.items()),
        "gnn_over_two_threads": {model: threads[model] / ratio for model, ratio in best(("gnn",)).items()},
    }
    return BenchResult("execution", options, rows, summary)


def execution_result(case: Execution) -> dict[str, Any]:
    """A row per way to run the model, with its ratio to the plain session on one core that was measured in turns with it.

    Sessions with two threads run first; the fastest runs again beside the placements. Some of the others keep spinning after they
    have ended, and what ran next would seem slow.
    """
    setup = real_setup(case.model, DEVICES_AND_SET)
    model = setup.workload.models[0]
    placements = {ONE_CORE: np.zeros(model.graph.num_ops, dtype=np.int64)}
    for planner in PLANNERS:
        found = load_planner(planner)(setup.problem(), Budget(_EVALUATIONS), case.seed).placement.assignment
        placements[planner] = setup.coarsening.expand(found)
    rng = np.random.default_rng(case.seed)
    feed = sample_inputs(model, rng)
    sessions = {label: PlainSession(model.path, device) for label, device in THREADS.items()}
    calls: dict[str, Callable[[], object]] = {label: partial(one.run, feed) for label, one in sessions.items()}
    with temporary_folder() as folder, ExitStack() as stack:
        # The calling thread is not pinned, as callers of placed models work on a core of the model's choice.
        plain = partial(PlainSession(model.path, DEVICES.split(",", maxsplit=1)[0]).run, feed)
        rows = {label: _row(label, *pair) for label, pair in _beside(calls, plain, rng).items()}
        fastest = min(rows, key=lambda label: rows[label]["ratio_to_plain"])
        placed, segments = {fastest: calls[fastest]}, {}
        for label, assignment in placements.items():
            segments[label] = write_placed(setup, assignment, folder / label)
            placed[label] = partial(stack.enter_context(Session(folder / label)).run, None, feed)
        for label, pair in _beside(placed, plain, rng).items():
            rows[label] = _row(label, *pair, segments.get(label, 1))
            if label in placements:
                rows[label]["simulated_s"] = setup.simulator.evaluate(Placement(placements[label])).makespan_s
    return {"rows": list(rows.values())}


def _beside(
    calls: Mapping[str, Callable[[], object]], plain: Callable[[], object], rng: np.random.Generator
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Seconds `[R]` of each call, and those of the plain session in the same rounds."""
    *samples, plain_s = interleaved([*calls.values(), plain], _RULE, rng)
    return {label: (row_s, plain_s) for label, row_s in zip(calls, samples, strict=True)}


def _row(label: str, row_s: FloatArray, plain_s: FloatArray, segments: int = 1) -> dict[str, Any]:
    ratio = median_interval(row_s / plain_s)
    return {
        "placement": label,
        "segments": segments,
        "plain_s": float(np.median(plain_s)),
        "measured_s": float(np.median(row_s)),
        "ratio_to_plain": ratio.median,
        "ratio_spread": ratio.spread,
        "quiet_ratio_to_plain": float(quiet_s(row_s) / quiet_s(plain_s)),
        "simulated_s": None,
        "repeats": len(row_s),
    }
