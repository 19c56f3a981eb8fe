"""`gnnplace bench scaling`: kernels of zoo models with one thread and with two, by op type: the source of `Scaling`.

Seconds are those of ONNX Runtime's profiles that the store of this machine has, or measures now.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.api.problem_setup import stored_costs
from gnnplace.arrays import FloatArray
from gnnplace.bench.fidelity import MODELS
from gnnplace.bench.harness import BenchOptions, BenchResult, matching
from gnnplace.bench.problems import real_setup
from gnnplace.cost.cost_model import SERIAL_TYPES, op_class

DEVICES = "cpu:0,cpu:0-1[spinning=1]"
_LONG_S, _SHORT_S = 1e-4, 3e-5
"""Kernels above the first show what threads shorten, those below the second what it costs that threads meet."""


def bench_scaling(options: BenchOptions) -> BenchResult:
    """A row per op type, most kernels first; the summary has the parameters of `Scaling`."""
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for model in matching({model: model for model in MODELS}, options.only, "model"):
        setup = real_setup(model, DEVICES)
        graph, one, two = setup.workload.graph, *(device.kind for device in setup.topology.devices)
        kinds = stored_costs(setup.workload.models[0].key).kinds
        for signature, op_type in zip(graph.signatures, graph.op_types, strict=True):
            seconds = tuple(kinds[kind].op_s.get(signature, 0.0) for kind in (one, two))
            if min(seconds) > 0.0:  # 0: fused into another op
                found[op_type][signature] = seconds[0], seconds[1]
    seconds_of = {op_type: np.array(list(kernels.values())) for op_type, kernels in found.items()}
    rows = [{"type": op_type, "class": op_class(op_type), **_row(seconds)} for op_type, seconds in seconds_of.items()]
    rows.sort(key=lambda row: -row["kernels"])
    return BenchResult("scaling", options, rows, scaling_summary(seconds_of))


def _row(seconds: FloatArray) -> dict[str, Any]:
    """Figures of `[K, 2]` seconds with one and with two threads."""
    return {
        "kernels": len(seconds),
        "ratio_median": float(np.median(seconds[:, 1] / seconds[:, 0])),
        "serial_share_of_long": serial_share(seconds),
        "long_kernels": int((seconds[:, 0] > _LONG_S).sum()),
    }


def serial_share(seconds: FloatArray) -> float | None:
    """Median over the long kernels of the share that two threads do not shorten (Amdahl); None without long kernels."""
    one, two = seconds[seconds[:, 0] > _LONG_S].T
    return float(np.median(2.0 * two / one - 1.0)) if len(one) else None


def scaling_summary(seconds_of: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Serial share of each op class, without the types that run on one thread, and the seconds of a meeting."""
    threaded = {op_type: seconds for op_type, seconds in seconds_of.items() if op_type not in SERIAL_TYPES}
    by_class: dict[str, list[FloatArray]] = defaultdict(list)
    for op_type, seconds in threaded.items():
        by_class[op_class(op_type)].append(seconds)
    shares = {f"serial_{name}": serial_share(np.concatenate(several)) for name, several in sorted(by_class.items())}
    return {"kernels": sum(map(len, seconds_of.values())), **shares, "sync_s": _sync_s(list(threaded.values()))}


def _sync_s(several: Sequence[FloatArray]) -> float | None:
    """Median over short kernels of what two threads take beyond half of the seconds of one."""
    if not several:
        return None
    one, two = np.concatenate(several).T
    is_short = one < _SHORT_S
    return float(np.median((two - one / 2)[is_short])) if is_short.any() else None
