"""Geometric means over cases, with intervals by bootstrap over families.

Cases of one family are alike, so families are drawn with replacement, each with all of its cases (Efron 1979; a cluster bootstrap).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

_DRAWS, _LOW, _HIGH = 4000, 2.5, 97.5


class Mean(NamedTuple):
    """A geometric mean minus 1, with its 95 % interval and the number of cases."""

    excess: float
    low: float
    high: float
    cases: int


def geometric(values: Sequence[float]) -> float:
    """Geometric mean.

    >>> geometric([1.0, 4.0])
    2.0
    """
    return math.exp(statistics.fmean(map(math.log, values)))


def mean_where_all_fit(values: Sequence[float | None]) -> float | None:
    """Geometric mean of seconds; None where one of the placements does not fit.

    >>> mean_where_all_fit([1.0, 4.0]), mean_where_all_fit([1.0, None])
    (2.0, None)
    """
    fitting = [value for value in values if value is not None]
    return geometric(fitting) if len(fitting) == len(values) else None


def ratios_by_case(mine: Mapping[str, float | None], theirs: Mapping[str, float | None]) -> dict[str, float]:
    """Ratios of seconds on the cases in which both fit.

    >>> ratios_by_case({"a": 1.0, "b": 3.0, "c": None}, {"a": 2.0, "c": 1.0})
    {'a': 0.5}
    """
    pairs = {case: (mine[case], theirs[case]) for case in mine if case in theirs}
    return {case: a / b for case, (a, b) in pairs.items() if a is not None and b is not None}


def mean_over_families(ratios: Mapping[str, float], family: Mapping[str, str]) -> Mean | None:
    """The mean of ratios by case over cases, each of which counts once; None without cases.

    >>> found = mean_over_families({"a": 1.1, "b": 1.1}, {"a": "one", "b": "two"})
    >>> round(found.excess, 3), round(found.low, 3), round(found.high, 3), found.cases
    (0.1, 0.1, 0.1, 2)
    """
    if not ratios:
        return None
    names = sorted({family[case] for case in ratios})
    sums = np.array([sum(math.log(ratio) for case, ratio in ratios.items() if family[case] == name) for name in names])
    sizes = np.array([sum(family[case] == name for case in ratios) for name in names])
    drawn = np.random.default_rng(0).integers(len(names), size=(_DRAWS, len(names)))
    means = np.expm1(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    low, high = np.percentile(means, [_LOW, _HIGH]).tolist()
    return Mean(geometric(list(ratios.values())) - 1.0, low, high, len(ratios))
