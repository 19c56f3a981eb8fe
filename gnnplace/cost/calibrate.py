"""A roofline fitted to measured seconds, so that ops that were never measured get a time that fits the device."""

from __future__ import annotations

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

__all__ = ["FittedRoofline", "fit_roofline", "fit_segments"]

_CANDIDATES = 200  # the fit tries the rates of this many ops; all of them in graphs of usual size
_ROUNDS = 20  # coordinate descent ends earlier when nothing changes


@dataclass(frozen=True)
class FittedRoofline:
    """What a device attains, and how well that explains what was measured."""

    efficiency: Mapping[str, Efficiency]
    """By op class, for the classes that were measured."""
    launch_s: float
    relative_error: float
    """Sum of absolute errors over the sum of measured seconds."""
    median_ratio: float
    """Of fitted to measured seconds; 1 when neither too long nor too short."""


def fit_roofline(graph: OpGraph, device: Device, measured_s: FloatArray) -> FittedRoofline:
    """Efficiencies by op class and the launch, so that the sum of absolute errors of `measured_s` `[N]` is small.

    Ops whose measured time is zero (fused into another) or NaN are left out. The sum of absolute errors is piecewise
    linear in each unknown, so the best value of one, the others fixed, is the rate of some op: coordinate descent over
    those, started from the fastest rates that were attained. Single outliers hardly matter. O(N) for each of at most
    200 candidates.

    >>> from gnnplace.graph.op_graph import Op
    >>> graph = OpGraph.build("g", [Op("a", "MatMul", flops=1e9), Op("b", "MatMul", flops=3e9)])
    >>> device = Device("d", peak_flops_per_s={"float32": 1e12}, memory_bandwidth_bytes_per_s=1e11)
    >>> fit = fit_roofline(graph, device, np.array([2e-3, 6e-3]))  # half the published rate
    >>> round(fit.efficiency["matrix"].compute, 3), round(fit.relative_error, 3)
    (0.5, 0.0)

    Raises:
        MeasurementFailed: no op has a measured time.
        InvalidTopology: the device lacks a rate.
    """
    used = np.isfinite(measured_s) & (measured_s > 0)
    if not used.any():
        raise MeasurementFailed(f"no op of {graph.name!r} has a measured time on {device.name!r}; profile it again")
    classes = np.array([op_class(op_type) for op_type in graph.op_types])
    found = sorted({str(name) for name in classes[used]})
    compute_s, memory_s = _ideal_s(graph, device, used)
    slowness = {name: _fastest(compute_s, memory_s, measured_s, used & (classes == name)) for name in found}
    launch_s = float(measured_s[used].min())
    bound = np.zeros(graph.num_ops)
    previous = np.inf
    for _ in range(_ROUNDS):
        for name in found:
            members = used & (classes == name)
            slowness[name] = _descend(
                compute_s[members], memory_s[members], measured_s[members] - launch_s, slowness[name]
            )
            bound[members] = np.maximum(compute_s[members] * slowness[name][0], memory_s[members] * slowness[name][1])
        launch_s = max(0.0, float(np.median((measured_s - bound)[used])))
        error_s = float(np.abs(bound + launch_s - measured_s)[used].sum())
        if error_s >= previous * (1 - 1e-9):
            break
        previous = error_s
    fitted = (bound + launch_s)[used]
    return FittedRoofline(
        efficiency={name: Efficiency(1 / compute, 1 / memory) for name, (compute, memory) in slowness.items()},
        launch_s=launch_s,
        relative_error=float(np.abs(fitted - measured_s[used]).sum() / measured_s[used].sum()),
        median_ratio=float(np.median(fitted / measured_s[used])),
    )


def fit_segments(expected_s: FloatArray, arrived_bytes: FloatArray, measured_s: FloatArray) -> SegmentCosts:
    """What segments cost besides their ops: least squares over `[S]` segments, not negative.

    `expected_s` are the sums of their ops, `arrived_bytes` the copies that each took in. Segments are weighted by what a
    deviation means: the longer one is expected to take, the more its ops may be misjudged.

    >>> costs = fit_segments(np.array([1.0, 2.0, 4.0]), np.array([0.0, 1e6, 0.0]), np.array([1.1, 2.6, 4.1]))  # 0.1 s each, 0.5 s per MB
    >>> round(costs.overhead_s, 3), round(costs.intake_s_per_byte * 1e6, 3)
    (0.1, 0.5)
    """
    weight = 1 / np.sqrt(expected_s + np.median(expected_s) + 1e-6)
    per_mb = arrived_bytes * 1e-6  # so that both columns are of one size
    columns = np.stack([np.ones_like(expected_s), per_mb], axis=1) * weight[:, None]
    (overhead_s, s_per_mb), _ = nnls(columns, (measured_s - expected_s) * weight)
    return SegmentCosts(float(overhead_s), float(s_per_mb) * 1e-6)


def _ideal_s(graph: OpGraph, device: Device, wanted: BoolArray) -> tuple[FloatArray, FloatArray]:
    """`[N]` seconds of computing alone and of moving data alone, at the published rates."""
    names = {op_class(op_type) for op_type in graph.op_types}
    only_compute = {name: Efficiency(1.0, 1e30) for name in names}
    only_memory = {name: Efficiency(1e30, 1.0) for name in names}
    return bound_s(graph, device, only_compute, wanted), bound_s(graph, device, only_memory, wanted)


def _fastest(
    compute_s: FloatArray, memory_s: FloatArray, measured_s: FloatArray, members: BoolArray
) -> tuple[float, float]:
    """The reciprocals of the best efficiencies attained, one op in twenty left out as outliers; 1 where no op tells."""
    factors = []
    for ideal in (compute_s[members], memory_s[members]):
        told = ideal > 1e-15
        factors.append(float(np.quantile(measured_s[members][told] / ideal[told], 0.05)) if told.any() else 1.0)
    return factors[0], factors[1]


def _descend(
    compute_s: FloatArray, memory_s: FloatArray, wanted_s: FloatArray, start: tuple[float, float]
) -> tuple[float, float]:
    """One step of the descent for one class: the best factor of computing, then that of moving data."""
    compute, memory = start
    compute = _best_factor(compute_s, memory_s * memory, wanted_s, compute)
    memory = _best_factor(memory_s, compute_s * compute, wanted_s, memory)
    return compute, memory


def _best_factor(ideal_s: FloatArray, other_s: FloatArray, wanted_s: FloatArray, current: float) -> float:
    """The factor `x` that makes `max(ideal_s * x, other_s)` closest to `wanted_s`; among equals the largest."""
    told = (ideal_s > 1e-15) & (wanted_s > 0)
    if not told.any():
        return current
    candidates = np.unique(np.append(wanted_s[told] / ideal_s[told], current))
    if len(candidates) > _CANDIDATES:
        candidates = np.append(candidates[np.linspace(0, len(candidates) - 1, _CANDIDATES).astype(int)], current)
    guesses = np.maximum(np.multiply.outer(candidates, ideal_s), other_s)
    errors_s = np.abs(guesses - wanted_s).sum(axis=1)
    best = errors_s.min()
    return float(candidates[errors_s <= best * (1 + 1e-9) + 1e-15].max())
