"""`gnnplace bench planners`: planners on the nine light models and three device sets, at the same number of evaluations.

The sets are `k40x2` and `k40x4` as published, and a K40, a P100 and the host, whose GPUs each hold two thirds of the memory
that the model needs on one device, so that the model must be cut.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api import compare, set_up
from gnnplace.bench.harness import BenchOptions, BenchResult
from gnnplace.bench.problems import bytes_alone
from gnnplace.devices.presets import preset
from gnnplace.files import temporary_folder
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from models_zoo.networks.light import write_light_model
from models_zoo.networks.shipped import LIGHT_MODELS

PLANNERS = ("single", "round-robin", "heft", "segments", "greedy", "annealing", "gnn")
EVALUATIONS = 2000
_SHARE = 2 / 3


def bench_planners(options: BenchOptions) -> BenchResult:
    """A row per model, device set and planner."""
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder:
        for name, model in light_models(folder, options.seed).items():
            memory = int(_SHARE * bytes_alone(set_up(model, "k40x1+p100x1")))
            for topology in map(preset, ("k40x2", "k40x4", f"k40x1@{memory}+p100x1@{memory}")):
                found = compare(model, topology, PLANNERS, evaluations=EVALUATIONS, seed=options.seed)
                rows += [{"model": name, "devices": topology.name, **row} for row in found]
    return BenchResult("planners", options, rows, planners_summary(rows))


def light_models(folder: Path, seed: int) -> dict[str, OnnxModel]:
    """The light models with random weights by name; their files are written to `folder`."""
    models = {}
    for name in LIGHT_MODELS:
        path = folder / f"light_{name}.onnx"
        write_light_model(name, path, seed)
        models[name] = read_onnx(path)
    return models


def planners_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of the makespans of `gnn` to those of `single` and of `annealing`."""
    cases: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        seconds = row["makespan_s"] if row["feasible"] else None
        cases.setdefault((row["model"], row["devices"]), {})[row["planner"]] = np.inf if seconds is None else seconds
    both_fit = [case for case in cases.values() if np.isfinite(max(case["gnn"], case["annealing"]))]
    to_annealing = [case["gnn"] / case["annealing"] for case in both_fit]
    return {
        "cases": len(cases),
        "gnn_feasible": sum(bool(np.isfinite(case["gnn"])) for case in cases.values()),
        "gnn_worse_than_single": sum(case["gnn"] > case["single"] for case in cases.values()),
        "gnn_better_than_annealing": sum(ratio < 1 for ratio in to_annealing),
        "gnn_worse_than_annealing": sum(ratio > 1 for ratio in to_annealing),
        "gnn_to_annealing_median": float(np.median(to_annealing)) if to_annealing else None,
        "gnn_to_annealing_worst": max(to_annealing, default=None),
    }
