"""`gnnplace bench fidelity`: simulated against measured seconds of placements of every kind, per model and device set.

Both sides are divided by the seconds of the whole model on one device: the simulated placement by the simulated device, the
executed one by the plain session that was measured in turns with it. A machine that has slowed down since it was profiled
therefore adds no error. Repeatability is the rank correlation between even and odd rounds of the measurement: no simulator can
rank better than that. "Slowed" figures correct the simulation by the slowdown that devices cause each other at that time.
"Scaled", "corrected", "residual" and "residual pooled" figures are those of corrections that learn from executions of other
placements; see `residual.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from gnnplace.arrays import FloatArray
from gnnplace.bench.fidelity_probes import overlap_s, placements_of_every_kind, slowdown_together
from gnnplace.bench.harness import BenchOptions, BenchResult, check_known, matching, run_cases
from gnnplace.bench.problems import executing, real_setup
from gnnplace.bench.residual import Executions, corrected_s, residual_features, residual_s, scaled_s, seconds_beside
from gnnplace.devices.cuda_driver import gpus
from gnnplace.devices.detect import allowed_cores, halves
from gnnplace.devices.real_names import cores_together
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.timing import StoppingRule, median_interval, quiet_s
from gnnplace.measuring.worker_process import Answer
from gnnplace.placement import Placement
from gnnplace.report import device_letters
from gnnplace.run_record import finite
from gnnplace.running.devices import cuda_is_offered
from gnnplace.sim.simulator import Simulator

MODELS = (
    "light_squeezenet", "light_shufflenet", "light_inception_v1", "light_inception_v2", "inception_v3:batch=1",
    "nasnet_mobile:batch=2", "cifar_cell_00:batch=8", "ensemble_cnn:batch=2", "ensemble_mlp", "dlrm_towers:batch=64",
    "nmt_2:batch=16:hidden=512:steps=6:vocabulary=4000", "ptb_cell_00:batch=8", "bert_base:layers=2:batch=1",
)  # fmt: skip
"""Zoo models, with batches and depths so small that a step takes about a tenth of a second or less on one core."""
COLUMNS = (
    "model", "devices", "groups", "placements", "spearman", "repeatability", "median_error", "worst_error", "bias", "slowdown",
    "median_error_slowed", "median_error_without_segment_costs", "median_spread", "median_error_scaled", "median_error_corrected",
    "median_error_residual", "median_error_residual_pooled", "spearman_corrected", "spearman_residual_pooled",
)  # fmt: skip
_RULE = StoppingRule(warmup=2, min_repeats=20, max_repeats=300, max_s=40.0, relative_spread=0.0, patience_s=PATIENCE_S)
_AT_ONCE_BYTES = 6 * 2**30
"""Limit of the weights of the placements that are measured in turns; each of them packs its own copy."""
_RANK, _ERROR = 0.9, 0.1
_CORES = 8  # beside a GPU, where they work together


@dataclass(frozen=True)
class Case:
    """One model on one device set."""

    model: str
    devices: str
    seed: int
    """Seed of the placements."""


def bench_fidelity(options: BenchOptions) -> BenchResult:
    """A row per model and device set, of which `--rows` chooses some; cases run one at a time, as other work would be measured too."""
    models = matching({model: model for model in MODELS}, options.only, "model")
    sets = _device_sets()
    check_known(options.rows, sets, "device set")
    cases = [Case(model, sets[name], options.seed) for name in options.rows or sets for model in models]
    found = run_cases(cases, fidelity_result, options, _progress)
    rows = []
    for case, result in found.items():
        others = [one for other, one in found.items() if other != case and other.devices == case.devices]
        rows.append(fidelity_row(case, result, others))
    details = {f"{case.model} on {case.devices}": dict(result) for case, result in found.items()}
    return BenchResult("fidelity", options, rows, fidelity_summary(rows), details, COLUMNS)


def _device_sets() -> dict[str, str]:
    """Two cores, these and both together; where ONNX Runtime can use a GPU also up to eight cores with it, and two halves of it."""
    sets = {"cores": "cpu:0,cpu:1", "gangs": "cpu:0,cpu:1,cpu:0-1[spinning=1]"}
    if not (cuda_is_offered() and gpus()):
        return sets
    return {**sets, "gpu": f"{cores_together(allowed_cores()[:_CORES])},cuda:0", "slices": ",".join(halves(0))}


def _progress(case: Case, result: Mapping[str, Any]) -> str:
    row = fidelity_row(case, result)
    return f"{case.model} on {case.devices}: Spearman {row['spearman']:.2f}, median error {row['median_error']:.0%}"


def fidelity_result(case: Case) -> dict[str, Any]:
    """Simulated and measured seconds of every placement; the simulator uses only what was profiled before."""
    setup = real_setup(case.model, case.devices)
    graph, topology = setup.workload.graph, setup.topology
    bare = (replace(each, segment_overhead_s=0.0, intake_bandwidth_bytes_per_s=None) for each in topology.devices)
    without = Simulator(graph, replace(topology, devices=tuple(bare)), setup.op_time_s)  # of ops and links alone
    kinds, assignments = zip(*placements_of_every_kind(setup, case.seed), strict=True)
    placements = [Placement(assignment) for assignment in assignments]
    weight_bytes = max(1, graph.total_weight_bytes)
    at_once = int(np.clip(_AT_ONCE_BYTES // (2 * weight_bytes), 10, len(placements)))
    model, names = setup.workload.models[0], topology.device_names
    apart = [names[device] for device in topology.apart]
    slowdown = [slowdown_together(model, apart)]
    rows = []
    with executing(setup) as evaluator:
        for begin in range(0, len(placements), at_once):
            together = placements[begin : begin + at_once]
            answers = evaluator.side_by_side(together, _RULE)
            for kind, placement, answer in zip(kinds[begin:], together, answers, strict=False):
                ops = Placement(setup.coarsening.expand(placement.assignment))
                segments, schedule = len(evaluator.segments_of(placement)), setup.simulator.schedule(ops)
                beside_s = seconds_beside(schedule, topology.num_devices)
                rows.append(
                    {
                        "kind": kind,
                        "placement": device_letters(placement.assignment.tolist()),
                        "segments": segments,
                        "simulated_s": setup.simulator.evaluate(ops).makespan_s,
                        "overlap_s": overlap_s(schedule),
                        "without_segment_costs_s": without.evaluate(ops).makespan_s,
                        "features": residual_features(graph, schedule, segments, beside_s),
                        **_measured(answer),
                    }
                )
        reference_s = evaluator.simulated_reference_s
    ran = [(row, placement) for row, placement in zip(rows, placements, strict=True) if row["measured_s"] is not None]
    targets_s = np.array([row["measured_s"] / row["plain_session_s"] * reference_s for row, _ in ran])
    predicted_s = corrected_s(setup.problem(), [one.assignment for _, one in ran], targets_s, case.seed)
    for (row, _), seconds in zip(ran, predicted_s.tolist(), strict=True):
        row["corrected_s"] = seconds
    slowdown.append(slowdown_together(model, apart))
    return {
        "placements": rows,
        "slowdown_together": slowdown,
        "ops": graph.num_ops,
        "groups": setup.coarsening.graph.num_ops,
        "simulated_single_s": finite(reference_s),
        "segment_overhead_s": topology.segment_overhead_s.tolist(),
        "intake_bandwidth_bytes_per_s": [device.intake_bandwidth_bytes_per_s for device in topology.devices],
    }


def _measured(answer: Answer) -> dict[str, Any]:
    """Seconds of a placement and of the plain session in turns with it; null with a reason where it failed."""
    if answer.samples is None or len(answer.samples) < 2:
        nothing: dict[str, Any] = dict.fromkeys(("measured_s", "plain_session_s", "halves", "median_s", "spread_s"))
        return {**nothing, "repeats": 0, "failure": answer.failure or "there is no plain session to compare with"}
    placed_s, plain_s = quiet_s(answer.samples).tolist()
    halves = [quiet_s(answer.samples[:, begin::2]) for begin in (0, 1)]
    interval = median_interval(answer.samples[0])
    return {
        "measured_s": placed_s,
        "plain_session_s": plain_s,
        "halves": [float(placed / plain) for placed, plain in halves],
        "median_s": interval.median,
        "spread_s": interval.spread,
        "repeats": answer.samples.shape[1],
        "failure": "",
    }


def fidelity_row(case: Case, result: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Rank correlation and errors on one model; errors are fractions of the measured seconds, negative if simulated too short.

    `others` are the results of other models, for the residual that is learned from all of them.
    """
    ran = _that_ran(result)
    columns = ("measured_s", "plain_session_s", "simulated_s", "without_segment_costs_s", "overlap_s", "corrected_s")
    measured_s, plain_s, simulated_s, without_s, beside_s, corrected = (
        np.array([row[key] for row in ran]) for key in columns
    )
    slowdown, own = float(np.mean(result["slowdown_together"])), _executions(result)
    # Ops that run beside others take longer by the factor by which whole models slow each other.
    variants = {
        "": simulated_s,
        "_slowed": simulated_s + (slowdown - 1) * beside_s,
        "_without_segment_costs": without_s,
        "_scaled": scaled_s(own, case.seed),
        "_corrected": corrected,
        "_residual": residual_s(own, (), case.seed),
        "_residual_pooled": residual_s(own, [_executions(one) for one in others], case.seed),
    }
    figures: dict[str, float] = {}
    measured, kinds = measured_s / plain_s, np.array([row["kind"] for row in ran])
    for suffix, seconds in variants.items():
        simulated = seconds / result["simulated_single_s"]
        error = simulated / measured - 1
        figures[f"spearman{suffix}"] = _rank_correlation(simulated, measured)
        figures[f"median_error{suffix}"] = _median_size(error)
        figures[f"bias{suffix}"] = float(np.median(error))
        if not suffix:
            figures["worst_error"] = float(error[np.abs(error).argmax()])
            for kind in dict.fromkeys(kinds.tolist()):
                figures[f"median_error_{kind}"] = _median_size(error[kinds == kind])
    return {
        "model": case.model,
        "devices": case.devices,
        "ops": result["ops"],
        "groups": result["groups"],
        "placements": len(ran),
        "failed": len(result["placements"]) - len(ran),
        **figures,
        "repeatability": _rank_correlation(*np.array([row["halves"] for row in ran]).T),
        "slowdown": slowdown,
        "median_spread": float(np.median([row["spread_s"] / row["median_s"] for row in ran])),
        "median_error_in_seconds": _median_size(simulated_s / measured_s - 1),
        "plain_session_s": float(np.median(plain_s)),
    }


def _that_ran(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in result["placements"] if row["measured_s"] is not None]


def _executions(result: Mapping[str, Any]) -> Executions:
    ran = _that_ran(result)
    simulated_s, measured_s, plain_s = (
        np.array([row[key] for row in ran]) for key in ("simulated_s", "measured_s", "plain_session_s")
    )
    return Executions(
        [row["features"] for row in ran], simulated_s, measured_s / plain_s * result["simulated_single_s"]
    )


def fidelity_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and worst values over all rows, and the number of rows that reach the goals."""
    columns = ("spearman", "median_error", "median_error_slowed", "median_error_without_segment_costs")
    ranks, errors, slowed, without = (np.array([row[column] for row in rows]) for column in columns)
    learned = {
        f"{figure}_{name}_median": float(np.median([row[f"{figure}_{name}"] for row in rows]))
        for figure in ("median_error", "spearman")
        for name in ("scaled", "corrected", "residual", "residual_pooled")
    }
    return {
        "models": len(rows),
        f"spearman_at_least_{_RANK}": int((ranks >= _RANK).sum()),
        f"median_error_at_most_{_ERROR}": int((errors <= _ERROR).sum()),
        "spearman_median": float(np.median(ranks)),
        "spearman_worst": float(ranks.min()),
        "median_error_median": float(np.median(errors)),
        "median_error_worst": float(errors.max()),
        "median_error_slowed_median": float(np.median(slowed)),
        "median_error_slowed_worst": float(slowed.max()),
        "median_error_without_segment_costs_median": float(np.median(without)),
        **learned,
    }


def _rank_correlation(one: FloatArray, other: FloatArray) -> float:
    return float(spearmanr(one, other).statistic)


def _median_size(error: FloatArray) -> float:
    return float(np.median(np.abs(error)))
