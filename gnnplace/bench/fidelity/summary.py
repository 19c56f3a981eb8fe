"""Rank correlation and errors of simulated seconds.

Both sides are taken relative to the whole model on one device: the simulated placement to the simulated device, the executed one to
the plain session that took turns with it. So a machine that has become slower since it was profiled is no error of the simulator.
Repeatability is the rank correlation of what was executed in every other round with what was executed in the others: no simulator can be
expected to come closer to either. "slowed" is the simulator told how much the devices slowed each other at that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from gnnplace.arrays import FloatArray
from gnnplace.bench.fidelity.cases import Case

__all__ = ["fidelity_line", "totals"]

_RANK, _ERROR = 0.9, 0.1


def fidelity_line(case: Case, result: Mapping[str, Any]) -> dict[str, Any]:
    """How the simulator did on one model; errors are fractions of the measured seconds, below zero where it was too optimistic."""
    ran = [row for row in result["placements"] if row["measured_s"] is not None]
    measured_s, plain_s, simulated_s, without_s = (
        np.array([row[key] for row in ran])
        for key in ("measured_s", "plain_session_s", "simulated_s", "without_segment_costs_s")
    )
    measured, simulated, without = (
        measured_s / plain_s,
        simulated_s / result["simulated_single_s"],
        without_s / result["simulated_single_s"],
    )
    error = simulated / measured - 1
    slowdown = float(np.mean(result["slowdown_together"]))
    # Where devices compute side by side, they take as much longer as they do when each has the whole model.
    slowed_s = simulated_s + (slowdown - 1) * np.array([row["overlap_s"] for row in ran])
    slowed = slowed_s / result["simulated_single_s"]
    kinds = np.array([row["kind"] for row in ran])
    return {
        "model": case.model,
        "devices": case.devices,
        "ops": result["ops"],
        "groups": result["groups"],
        "placements": len(ran),
        "failed": len(result["placements"]) - len(ran),
        "spearman": _rank_correlation(simulated, measured),
        "repeatability": _rank_correlation(*np.array([row["halves"] for row in ran]).T),
        "median_error": float(np.median(np.abs(error))),
        "worst_error": float(error[np.abs(error).argmax()]),
        "bias": float(np.median(error)),
        **{
            f"median_error_{kind}": float(np.median(np.abs(error[kinds == kind])))
            for kind in dict.fromkeys(kinds.tolist())
        },
        "slowdown": slowdown,
        "spearman_slowed": _rank_correlation(slowed, measured),
        "median_error_slowed": float(np.median(np.abs(slowed / measured - 1))),
        "bias_slowed": float(np.median(slowed / measured - 1)),
        "spearman_without_segment_costs": _rank_correlation(without, measured),
        "median_error_without_segment_costs": float(np.median(np.abs(without / measured - 1))),
        "median_spread": float(np.median([row["spread_s"] / row["median_s"] for row in ran])),
        "median_error_in_seconds": float(np.median(np.abs(simulated_s / measured_s - 1))),
        "plain_session_s": float(np.median(plain_s)),
    }


def totals(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all models: how many come up to what was wanted, medians, and the worst."""
    ranks, errors = (np.array([line[key] for line in lines]) for key in ("spearman", "median_error"))
    return {
        "models": len(lines),
        f"spearman_at_least_{_RANK}": int((ranks >= _RANK).sum()),
        f"median_error_at_most_{_ERROR}": int((errors <= _ERROR).sum()),
        "spearman_median": float(np.median(ranks)),
        "spearman_worst": float(ranks.min()),
        "median_error_median": float(np.median(errors)),
        "median_error_worst": float(errors.max()),
        "median_error_slowed_median": float(np.median([line["median_error_slowed"] for line in lines])),
        "median_error_slowed_worst": float(np.max([line["median_error_slowed"] for line in lines])),
        "median_error_without_segment_costs_median": float(
            np.median([line["median_error_without_segment_costs"] for line in lines])
        ),
    }


def _rank_correlation(simulated: FloatArray, measured: FloatArray) -> float:
    return float(spearmanr(simulated, measured).statistic)
