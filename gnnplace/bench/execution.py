"""Placed models run for real on two cores: outputs equal to one plain session, overhead on one device, speed-ups."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.measuring import profiled
from gnnplace.api.setting import setting_of
from gnnplace.api.workload import Workload
from gnnplace.arrays import IntArray
from gnnplace.bench.planners import light_models
from gnnplace.bench.result import BenchResult
from gnnplace.cost.measured import MeasuredCost
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Topology
from gnnplace.executors.measure import StoppingRule, interleaved, median_interval
from gnnplace.executors.plain import PlainSession
from gnnplace.executors.session import Session
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import segments
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner

__all__ = ["bench_equality", "bench_execution"]

DEVICES = "cpu:0,cpu:1"
RELATIVE = 1e-4
_RULE = StoppingRule(warmup=3, min_repeats=21, max_repeats=101, max_s=25.0, relative_spread=0.01)
_RANDOM = 20
_EVALUATIONS = 300


def bench_equality(seed: int) -> BenchResult:
    """`heft`, `gnn` and 20 random placements of each light model: outputs against those of one plain session."""
    topology = load_topology(DEVICES)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in light_models(Path(folder), seed).items():
            setting = setting_of(Workload(model.graph, model), topology)
            rng = np.random.default_rng(seed)
            placements = {
                planner: setting.coarsening.expand(
                    load_planner(planner)(setting.problem(), Budget(_EVALUATIONS), seed).placement.assignment
                )
                for planner in ("heft", "gnn")
            }
            placements |= {f"random {i}": rng.integers(0, 2, model.graph.num_ops) for i in range(_RANDOM)}
            feed = sample_inputs(model, rng)
            with PlainSession(model.path, "cpu:0") as plain:
                expected = plain.run(feed)
            for label, assignment in placements.items():
                order = setting.simulator.schedule(Placement(assignment)).order()
                outputs, count = _run(model, topology, assignment, np.asarray(order), feed, Path(folder) / "placed")
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


def bench_execution(seed: int) -> BenchResult:
    """Per light model, interleaved: a plain session, the model placed on one core, and placed on two by simulated planners."""
    topology = load_topology(DEVICES)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in light_models(Path(folder), seed).items():
            workload = Workload(model.graph, model)
            setting = setting_of(workload, topology, MeasuredCost(profiled(workload, topology, seed)))
            simulator = setting.simulator
            placements = {"one core": np.zeros(model.graph.num_ops, dtype=np.int64)}
            for planner in ("heft", "annealing", "gnn"):
                found = load_planner(planner)(setting.problem(), Budget(2000), seed).placement.assignment
                placements[planner] = setting.coarsening.expand(found)
            feed = sample_inputs(model, np.random.default_rng(seed))
            sessions = {}
            for label, assignment in placements.items():
                place = Path(folder) / f"{name} {label}"
                order = np.asarray(simulator.schedule(Placement(assignment)).order())
                write_parts(model, segments(model.graph, assignment, order), topology.device_names, place / "parts")
                sessions[label] = Session(place)
            with PlainSession(model.path, "cpu:0") as plain:
                calls = [partial(session.run, None, feed) for session in sessions.values()]
                samples = interleaved([*calls, partial(plain.run, feed)], _RULE)
            for session in sessions.values():
                session.close()
            for label, row in zip(sessions, samples, strict=False):
                ratio = median_interval(row / samples[-1])
                evaluation = simulator.evaluate(Placement(placements[label]))
                rows.append(
                    {
                        "model": name,
                        "placement": label,
                        "plain_s": float(np.median(samples[-1])),
                        "measured_s": float(np.median(row)),
                        "ratio_to_plain": ratio.median,
                        "ratio_spread": ratio.spread,
                        "simulated_s": evaluation.makespan_s,
                        "simulated_error": evaluation.makespan_s / float(np.median(row)) - 1.0,
                        "repeats": len(row),
                    }
                )
    one_core = [row["ratio_to_plain"] for row in rows if row["placement"] == "one core"]
    two_cores = [row for row in rows if row["placement"] != "one core"]
    return BenchResult(
        "execution",
        rows,
        {
            "one_core_overhead_median": float(np.median(one_core)) - 1.0,
            "one_core_overhead_worst": max(one_core) - 1.0,
            "best_speed_up": {
                name: max(1 / row["ratio_to_plain"] for row in two_cores if row["model"] == name)
                for name in {row["model"] for row in rows}
            },
            "simulated_error_median": float(np.median([abs(row["simulated_error"]) for row in two_cores])),
            "simulated_error_worst": max(abs(row["simulated_error"]) for row in two_cores),
        },
        seed,
    )


def _run(
    model: OnnxModel, topology: Topology, assignment: IntArray, order: IntArray, feed: dict[str, Any], folder: Path
) -> tuple[list[Any], int]:
    """Outputs of one placed run, and its number of segments."""
    found = segments(model.graph, assignment, order)
    write_parts(model, found, topology.device_names, folder / "parts")
    with Session(folder) as session:
        return session.run(None, feed), len(found)


def _relative_error(found: Any, expected: Any) -> float:
    """Largest difference as a fraction of the largest expected value."""
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(np.asarray(found) - np.asarray(expected)).max()) / scale
