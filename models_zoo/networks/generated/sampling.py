"""A graph of a random family with random settings: endless material to train a policy on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnplace.graph.op_graph import OpGraph
from models_zoo.networks.generated import fork_join, layered, random_dag, series_parallel, wavefront
from models_zoo.networks.generated.costs import latency_ratio
from models_zoo.networks.generated.structure import require

_MIN_OPS = 8
_STEP_S = 2.0
"""The longest time of all ops together, as steps of training are; bytes grow with it."""


def sample_graph(rng: np.random.Generator, num_ops: int, families: Sequence[str] | None = None) -> OpGraph:
    """A graph of exactly `num_ops` ops (of about as many where the family is wavefront); families that are held out for tests are not among those drawn.

    All draws are independent; `log` marks what is uniform in its logarithm, the rest is uniform.

    | setting | distribution |
    | --- | --- |
    | family | layered, series_parallel, fork_join, random_dag by levels, random_dag ordered, wavefront |
    | op_time_s | log 3e-5 to 3e-3, and at most such that all ops together take 2 s, but then still up to 6e-5 |
    | ccr | log 0.05 to 8, and no less than 1.5 times what the latency alone makes it |
    | size_spread, intensity_spread | 0 to 1.2 |
    | heavy_share | 0.2 to 1 |
    | weight_share | 0 to 0.4 |
    | layered | alpha: log 0.2 to 3; out_degree: 1 to 5 |
    | series_parallel | parallel: 0 to 0.9; branches: 2 to 10 |
    | fork_join | branches: log 2 to num_ops / 3, at most 128; length: log 1 to 20 |
    | wavefront | rows: log 4 to 1.2 sqrt(num_ops); neighbours: 2 or 3 |
    | random_dag | fat: 0 to 0.8; regularity, density: 0 to 1; jump, max_producers: 1 to 5; degree: 1 to 3 |

    Args:
        rng: of all draws.
        num_ops: at least 8.
        families: names of those to draw from; all six if none are given.

    Raises:
        UnsupportedModel: too few ops, or an unknown family.
    """
    chosen = tuple(families or SAMPLED_FAMILIES)
    require(num_ops >= _MIN_OPS, f"num_ops is {num_ops}; expected {_MIN_OPS} or more")
    unknown = [name for name in chosen if name not in SAMPLED_FAMILIES]
    require(not unknown, f"unknown families {unknown}; known are {', '.join(SAMPLED_FAMILIES)}")
    return SAMPLED_FAMILIES[chosen[int(rng.integers(len(chosen)))]](num_ops, _costs(num_ops, rng), rng)


def _costs(num_ops: int, rng: np.random.Generator) -> dict[str, Any]:
    op_time_s = _log_uniform(rng, 3e-5, min(3e-3, max(6e-5, _STEP_S / num_ops)))
    return {
        "op_time_s": op_time_s,
        "ccr": _log_uniform(rng, max(0.05, 1.5 * latency_ratio(op_time_s)), 8.0),
        "size_spread": rng.uniform(0.0, 1.2),
        "intensity_spread": rng.uniform(0.0, 1.2),
        "heavy_share": rng.uniform(0.2, 1.0),
        "weight_share": rng.uniform(0.0, 0.4),
    }


def _layered(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    alpha, out_degree = _log_uniform(rng, 0.2, 3.0), int(rng.integers(1, 6))
    return layered.layered(layered.Settings(num_ops=num_ops, alpha=alpha, out_degree=out_degree, **costs), rng)


def _series_parallel(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    settings = series_parallel.Settings(
        num_ops=num_ops, parallel=rng.uniform(0.0, 0.9), branches=int(rng.integers(2, 11)), **costs
    )
    return series_parallel.series_parallel(settings, rng)


def _fork_join(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    settings = fork_join.Settings(
        num_ops=num_ops,
        branches=round(_log_uniform(rng, 2.0, min(128.0, num_ops / 3))),
        length=round(_log_uniform(rng, 1.0, 20.0)),
        **costs,
    )
    return fork_join.fork_join(settings, rng)


def _levels(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    settings = random_dag.Settings(
        num_ops=num_ops,
        fat=rng.uniform(0.0, 0.8),
        regularity=rng.uniform(),
        density=rng.uniform(),
        jump=int(rng.integers(1, 6)),
        max_producers=int(rng.integers(1, 6)),
        **costs,
    )
    return random_dag.random_dag(settings, rng)


def _ordered(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    settings = random_dag.Settings(num_ops=num_ops, method="ordered", degree=rng.uniform(1.0, 3.0), **costs)
    return random_dag.random_dag(settings, rng)


def _wavefront(num_ops: int, costs: dict[str, Any], rng: np.random.Generator) -> OpGraph:
    rows = min(num_ops // 2, round(_log_uniform(rng, 4.0, max(4.0, 1.2 * num_ops**0.5))))
    settings = wavefront.Settings(rows=rows, columns=round(num_ops / rows), neighbours=int(rng.integers(2, 4)), **costs)
    return wavefront.wavefront(settings, rng)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


SAMPLED_FAMILIES: Mapping[str, Callable[[int, dict[str, Any], np.random.Generator], OpGraph]] = {
    "layered": _layered,
    "series_parallel": _series_parallel,
    "fork_join": _fork_join,
    "random_dag": _levels,
    "random_ordered": _ordered,
    "wavefront": _wavefront,
}
"""The families that `sample_graph` draws from."""
