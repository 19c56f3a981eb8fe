"""Placed models run for real on two cores: outputs equal to one plain session, overhead on one device, speed-ups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.measuring import executable
from gnnplace.api.problem_setup import setting_of
from gnnplace.api.workload import Workload
from gnnplace.arrays import IntArray
from gnnplace.bench.fidelity.cases import MODELS
from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.planners import light_models
from gnnplace.bench.real_setting import real_setting
from gnnplace.bench.result import BenchResult
from gnnplace.bench.resumable import run_resumable
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Topology
from gnnplace.files import temporary_folder
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.measuring.timing import StoppingRule, interleaved, median_interval, quiet_s
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import segments
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.running.session import Session

__all__ = ["bench_equality", "bench_execution"]

DEVICES, _BOTH_CORES = "cpu:0,cpu:1", "cpu:0-1"
RELATIVE = 1e-4
ONE_CORE = "one core"
PLANNERS = ("heft", "annealing", "gnn")
THREADS = {"two threads": False, "two threads, spinning": True}
"""One session with two intra-op threads; with ONNX Runtime's default way of waiting for work, or without."""
_RULE = StoppingRule(warmup=3, min_repeats=21, max_repeats=101, max_s=6.0, relative_spread=0.01)
_RANDOM, _EQUALITY_EVALUATIONS, _EVALUATIONS = 20, 300, 2000


def bench_equality(options: BenchOptions) -> BenchResult:
    """`heft`, `gnn` and 20 random placements of each light model: outputs against those of one plain session."""
    seed = options.seed
    topology = load_topology(DEVICES)
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder:
        for name, model in light_models(folder, seed).items():
            setting = setting_of(Workload(model.graph, model), topology)
            rng = np.random.default_rng(seed)
            placements = {
                planner: setting.coarsening.expand(
                    load_planner(planner)(setting.problem(), Budget(_EQUALITY_EVALUATIONS), seed).placement.assignment
                )
                for planner in ("heft", "gnn")
            }
            placements |= {f"random {i}": rng.integers(0, 2, model.graph.num_ops) for i in range(_RANDOM)}
            feed = sample_inputs(model, rng)
            with PlainSession(model.path, "cpu:0") as plain:
                expected = plain.run(feed)
            for label, assignment in placements.items():
                order = setting.simulator.schedule(Placement(assignment)).order()
                outputs, count = _run(model, topology, assignment, np.asarray(order), feed, folder / "placed")
                error = max(_relative_error(a, b) for a, b in zip(outputs, expected, strict=True))
                rows.append({"model": name, "placement": label, "segments": count, "relative_error": error})
    worst = max(row["relative_error"] for row in rows)
    return BenchResult(
        "equality",
        rows,
        {
            "runs": len(rows),
            "equal": sum(row["relative_error"] <= RELATIVE for row in rows),
            "worst_relative_error": worst,
        },
        seed,
    )


def bench_execution(options: BenchOptions) -> BenchResult:
    """Per model, in turns: one session on one core and on two, the model placed on one core, and placed on two by simulated planners.

    Raises:
        GnnplaceError: no model has the name that is asked for.
    """
    models = chosen({model: model for model in MODELS}, options.only, "model")
    found = run_resumable(
        [Execution(model, options.seed) for model in models], execution_result, Execution, 1, options.kept
    )
    rows = [{"model": case.model, **row} for case, result in found.items() for row in result["rows"]]
    one_core = [row["ratio_to_plain"] for row in rows if row["placement"] == ONE_CORE]
    placed = [row for row in rows if row["placement"] in PLANNERS]
    best = {
        model: min((row for row in placed if row["model"] == model), key=lambda row: row["ratio_to_plain"])
        for model in models
    }
    threads = {
        model: min(row["ratio_to_plain"] for row in rows if row["model"] == model and row["placement"] in THREADS)
        for model in models
    }
    summary = {
        "one_core_overhead_median": float(np.median(one_core)) - 1.0,
        "one_core_overhead_worst": max(one_core) - 1.0,
        "speed_up_over_one_core": {model: 1 / row["ratio_to_plain"] for model, row in best.items()},
        "speed_up_over_two_threads": {model: threads[model] / row["ratio_to_plain"] for model, row in best.items()},
        "at_least_1.5_over_one_core": sum(row["ratio_to_plain"] <= 1 / 1.5 for row in best.values()),
        "faster_than_two_threads": sum(row["ratio_to_plain"] < threads[model] for model, row in best.items()),
    }
    return BenchResult("execution", rows, summary, options.seed, options.arguments)


@dataclass(frozen=True)
class Execution:
    """One model."""

    model: str
    seed: int


def execution_result(case: Execution) -> dict[str, Any]:
    """A row per way to run the model, each with its ratio to one plain session on one core, which took turns with it."""
    setting = real_setting(case.model, DEVICES)
    model, simulator = executable(setting.workload), setting.simulator
    placements = {ONE_CORE: np.zeros(model.graph.num_ops, dtype=np.int64)}
    for planner in PLANNERS:
        found = load_planner(planner)(setting.problem(), Budget(_EVALUATIONS), case.seed).placement.assignment
        placements[planner] = setting.coarsening.expand(found)
    feed = sample_inputs(model, np.random.default_rng(case.seed))
    threads = {label: PlainSession(model.path, _BOTH_CORES, spinning) for label, spinning in THREADS.items()}
    with temporary_folder() as folder, ExitStack() as stack:
        calls: dict[str, Callable[[], object]] = {label: partial(s.run, feed) for label, s in threads.items()}
        segment_count = dict.fromkeys(threads, 1)
        for label, assignment in placements.items():
            order = simulator.schedule(Placement(assignment)).order()
            found_segments = setting.workload.segments(assignment, order)
            segment_count[label] = len(found_segments)
            write_parts(model, found_segments, setting.topology.device_names, folder / label / "parts")
            calls[label] = partial(stack.enter_context(Session(folder / label)).run, None, feed)
        plain = stack.enter_context(PlainSession(model.path, DEVICES.split(",", maxsplit=1)[0]))
        samples = interleaved([*calls.values(), partial(plain.run, feed)], _RULE)
    plain_s = samples[-1]
    rows = []
    for label, row_s in zip(calls, samples, strict=False):
        ratio = median_interval(row_s / plain_s)
        evaluation = simulator.evaluate(Placement(placements[label])) if label in placements else None
        rows.append(
            {
                "placement": label,
                "segments": segment_count[label],
                "plain_s": float(np.median(plain_s)),
                "measured_s": float(np.median(row_s)),
                "ratio_to_plain": ratio.median,
                "ratio_spread": ratio.spread,
                "quiet_ratio_to_plain": float(quiet_s(row_s) / quiet_s(plain_s)),
                "simulated_s": None if evaluation is None else evaluation.makespan_s,
                "repeats": len(row_s),
            }
        )
    return {"rows": rows}


def _run(
    model: OnnxModel, topology: Topology, assignment: IntArray, order: IntArray, feed: dict[str, Any], folder: Path
) -> tuple[list[Any], int]:
    """Outputs of one placed run, and its number of segments."""
    found = segments(model.graph, assignment, order, model.constant_ops)
    write_parts(model, found, topology.device_names, folder / "parts")
    with Session(folder) as session:
        return session.run(None, feed), len(found)


def _relative_error(found: Any, expected: Any) -> float:
    """Largest difference as a fraction of the largest expected value."""
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(np.asarray(found) - np.asarray(expected)).max()) / scale
