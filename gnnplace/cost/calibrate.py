"""A roofline fitted to measured seconds, so that ops that were never measured get a time that fits the device."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.cost.cost_model import Efficiency, bound_s, op_class
from gnnplace.cost.measured import SegmentCosts
from gnnplace.devices.topology import Device
from gnnplace.errors import MeasurementFailed
from gnnplace.graph.op_graph import OpGraph

_CANDIDATES = 200  # factors that one step of the descent tries; as many as ops in graphs of usual size
_ROUNDS = 20  # upper limit; the descent ends when a round improves nothing


@dataclass(frozen=True)
class FittedRoofline:
    """Efficiencies of a device that explain measured seconds, and the error that remains."""

    efficiency: Mapping[str, Efficiency]
    """Efficiency by op class, for the classes that were measured."""
    launch_s: float
    """Seconds to launch one kernel."""
    relative_error: float
    """Sum of absolute errors over the sum of measured seconds."""


def fit_roofline(graph: OpGraph, device: Device, measured_s: FloatArray) -> FittedRoofline:
    """Efficiencies by op class and launch seconds that minimise the sum of absolute errors of `measured_s` `[N]`.

    Ops whose measured time is zero (fused into another) or NaN are left out. The sum of absolute errors is piecewise
    linear in each unknown. The best value of one unknown, the others fixed, is therefore the rate of some op: coordinate
    descent tries these rates, starting at the fastest ones. Single outliers hardly matter. O(N) for each of at most 200
    candidates.

    Raises:
        MeasurementFailed: no op has a measured time.
        InvalidTopology: the device lacks a rate.
    """
    used = np.isfinite(measured_s) & (measured_s > 0)
    if not used.any():
        raise MeasurementFailed(f"no op of {graph.name!r} has a measured time on {device.name!r}; profile it again")
    classes = np.array([op_class(op_type) for op_type in graph.op_types])
    found = sorted({str(name) for name in classes[used]})
    # Seconds of computing alone and of moving data alone, at the published rates.
    compute_s, memory_s = (
        bound_s(graph, device, dict.fromkeys(set(classes.tolist()), only), used)
        for only in (Efficiency(1.0, 1e30), Efficiency(1e30, 1.0))
    )
    slowness = {
        name: tuple(_fastest(ideal_s, measured_s, used & (classes == name)) for ideal_s in (compute_s, memory_s))
        for name in found
    }
    launch_s = float(measured_s[used].min())
    bound = np.zeros(graph.num_ops)
    previous = np.inf
    for _ in range(_ROUNDS):
        for name in found:
            members = used & (classes == name)
            computing_s, moving_s, wanted_s = compute_s[members], memory_s[members], measured_s[members] - launch_s
            compute, memory = slowness[name]
            compute = _best_factor(computing_s, moving_s * memory, wanted_s, compute)
            memory = _best_factor(moving_s, computing_s * compute, wanted_s, memory)
            slowness[name] = compute, memory
            bound[members] = np.maximum(computing_s * compute, moving_s * memory)
        launch_s = max(0.0, float(np.median((measured_s - bound)[used])))
        error_s = float(np.abs(bound + launch_s - measured_s)[used].sum())
        if error_s >= previous * (1 - 1e-9):
            break
        previous = error_s
    efficiency = {name: Efficiency(1 / compute, 1 / memory) for name, (compute, memory) in slowness.items()}
    return FittedRoofline(efficiency, launch_s, error_s / float(measured_s[used].sum()))


def fit_segments(expected_s: FloatArray, arrived_bytes: FloatArray, measured_s: FloatArray) -> SegmentCosts:
    """Overhead and intake costs of segments beyond their ops: non-negative least squares over `[S]` segments.

    `expected_s` are the sums of their ops, `arrived_bytes` the copies that each received. The weight of a segment falls with
    its expected seconds, because the costs of its ops may be wrong.
    """
    weight = 1 / np.sqrt(expected_s + np.median(expected_s) + 1e-6)
    per_mb = arrived_bytes * 1e-6  # so that both columns are of one size
    columns = np.stack([np.ones_like(expected_s), per_mb], axis=1) * weight[:, None]
    (overhead_s, s_per_mb), _ = nnls(columns, (measured_s - expected_s) * weight)
    return SegmentCosts(float(overhead_s), float(s_per_mb) * 1e-6)


def _fastest(ideal_s: FloatArray, measured_s: FloatArray, members: BoolArray) -> float:
    """Reciprocal of the best efficiency attained, without one op in twenty as outliers; 1 where no op has such work."""
    has_work = members & (ideal_s > 1e-15)
    return float(np.quantile(measured_s[has_work] / ideal_s[has_work], 0.05)) if has_work.any() else 1.0


def _best_factor(ideal_s: FloatArray, other_s: FloatArray, wanted_s: FloatArray, current: float) -> float:
    """The factor `x` that brings `max(ideal_s * x, other_s)` closest to `wanted_s`; the largest of several."""
    has_work = (ideal_s > 1e-15) & (wanted_s > 0)
    if not has_work.any():
        return current
    candidates = np.unique(np.append(wanted_s[has_work] / ideal_s[has_work], current))
    if len(candidates) > _CANDIDATES:
        candidates = np.append(candidates[np.linspace(0, len(candidates) - 1, _CANDIDATES).astype(int)], current)
    guesses = np.maximum(np.multiply.outer(candidates, ideal_s), other_s)
    errors_s = np.abs(guesses - wanted_s).sum(axis=1)
    best = errors_s.min()
    return float(candidates[errors_s <= best * (1 + 1e-9) + 1e-15].max())
