"""`gnnplace bench providers`: models on two cores where every op may run by ONNX Runtime's own kernels or by OpenVINO.

Needs a build of ONNX Runtime with OpenVINO. Each model is placed as a user would place it, by a measured search with `gnn`; the
answer is the best plain session of either library unless a placement is faster beyond the interval.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnplace.api import ProblemSetup, place
from gnnplace.bench.execution import AT_BATCH_1, DEVICES_AND_SET
from gnnplace.bench.fidelity import MODELS
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, matching, run_cases
from gnnplace.devices.real_names import parse_real
from gnnplace.difference import Difference
from gnnplace.units import format_s

OTHER = "OpenVINO"
DEVICES = f"{DEVICES_AND_SET},{','.join(f'ep:{OTHER}:CPU[cores={cores}]' for cores in ('0', '1', '0-1'))}"
"""Two cores and both together, for either library."""
DEVICES_OF_BOTH_CORES = ("cpu:0-1[spinning=1]", f"ep:{OTHER}:CPU[cores=0-1]")
COLUMNS = (
    "model", "cpu_s", "other_s", "best_session", "best_session_s", "placed_s", "difference", "low", "high", "parts",
    "ops_by_library",
)  # fmt: skip
_EVALUATIONS = 60


@dataclass(frozen=True)
class Providers:
    """One model at batch 1 and the number of placements that a search executes."""

    model: str
    evaluations: int
    seed: int


def bench_providers(options: BenchOptions) -> BenchResult:
    """A row per model: the plain sessions of both libraries, the answer, and the fastest placement against the best session."""
    known = [model for model in MODELS if "batch" not in model or "batch=1" in model.split(":")]
    with_batch_1 = dict.fromkeys((*known, *AT_BATCH_1))
    with_batch_1.pop("ensemble_mlp")  # its own batch is larger
    models = matching({model: model for model in with_batch_1}, options.only, "model")
    evaluations = options.evaluations or _EVALUATIONS
    found = run_cases(
        [Providers(model, evaluations, options.seed) for model in models], case_result, options, _progress
    )
    rows = [{"model": case.model, **result} for case, result in found.items()]
    return BenchResult("providers", options, rows, providers_summary(rows), {"devices": DEVICES}, COLUMNS)


def _progress(case: Providers, result: Result) -> str:
    sessions = ", ".join(f"{name} {format_s(result[name])}" for name in ("cpu_s", "other_s", "placed_s"))
    return f"{case.model}: {sessions}; difference {result['difference']}, parts {result['parts']}"


def case_result(case: Providers) -> dict[str, Any]:
    """Seconds of the best plain session of each library and of the answer, and the paired difference of the fastest placement."""
    plan = place(
        f"zoo:{case.model}", DEVICES, planner="gnn", measure=True, force=True, evaluations=case.evaluations,
        seed=case.seed,
    )  # fmt: skip
    measured = plan.measured
    assert measured is not None
    sessions = measured["sessions"]
    low, high = measured.get("difference_interval", (None, None))
    names = plan.setup.topology.device_names
    libraries = Counter(parse_real(names[device]).short_provider for device in plan.placement.assignment.tolist())
    return {
        "cpu_s": _least(sessions, is_other=False),
        "other_s": _least(sessions, is_other=True),
        "sessions": dict(sessions),
        "best_session": measured["best_session"],
        "best_session_s": measured["best_session_s"],
        "placed_s": measured["median_s"],
        "difference": measured.get("difference"),
        "low": low,
        "high": high,
        "apart_s": _apart_s(plan.setup),
        "segment_s": {device.name: device.segment_overhead_s for device in plan.setup.topology.devices},
        "kept": plan.kept,
        "parts": len(plan.segments),
        "ops_by_library": dict(sorted(libraries.items())),
        "wall_s": plan.solution.wall_s,
    }


def _apart_s(setup: ProblemSetup) -> float:
    """Profiled seconds if each group of ops ran on both cores with the library that is faster for it, and nothing else took time."""
    columns = [setup.topology.device_index[name] for name in DEVICES_OF_BOTH_CORES]
    return float(setup.group_simulator.op_time_s[:, columns].min(axis=1).sum())


def _least(sessions: Mapping[str, float], is_other: bool) -> float | None:
    """Seconds of the fastest plain session of one library."""
    return min(
        (seconds for name, seconds in sessions.items() if (parse_real(name).family == "ep") == is_other), default=None
    )


def providers_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often a placement is faster than the best session of both libraries beyond the interval, and how often it mixes them."""
    differences = [
        (row, Difference(row["difference"], row["low"], row["high"], 0))
        for row in rows
        if row["difference"] is not None
    ]
    faster = [(row, found) for row, found in differences if found.sign < 0]
    best = min((found.difference for _, found in faster), default=None)
    return {
        "models": len(rows),
        "openvino_is_the_faster_library": sum((row["other_s"] or 0) < (row["cpu_s"] or 0) for row in rows),
        "faster_than_both_libraries": len(faster),
        "of_these_by_mixing_both": sum(len(row["ops_by_library"]) > 1 for row, _ in faster),
        "greatest_speed_up": None if best is None else 1 / (1 + best),
        "slower_beyond_the_interval_before_falling_back": sum(found.sign > 0 for _, found in differences),
    }
