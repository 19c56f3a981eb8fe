"""The sizes of symbolic dimensions that a placement is made for: one, or several whose worst or mean time counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from gnnplace.errors import UnsupportedModel

__all__ = ["MAX_SHAPES", "Dims", "shapes_of", "sizes_between"]

Dims = Mapping[str, int | Sequence[int]]
"""By dimension one size, or several."""

MAX_SHAPES = 32
"""Each is simulated for every placement that is evaluated."""


def sizes_between(low: int, high: int) -> tuple[int, ...]:
    """The sizes that stand for a range: its ends and what lies between them by ratio.

    >>> sizes_between(1, 64)
    (1, 8, 64)
    """
    return tuple(sorted({low, round(math.sqrt(low * high)), high}))


def shapes_of(dims: Dims) -> tuple[dict[str, int], ...]:
    """Every combination of sizes, that of the largest ones first.

    >>> shapes_of({"batch": (1, 8), "sequence": 16})
    ({'batch': 8, 'sequence': 16}, {'batch': 1, 'sequence': 16})

    Raises:
        UnsupportedModel: a dimension has no size, or there are too many combinations.
    """
    rows = {
        name: [sizes] if isinstance(sizes, int) else sorted(set(sizes), reverse=True) for name, sizes in dims.items()
    }
    empty = next((name for name, sizes in rows.items() if not sizes), None)
    if empty is not None:
        raise UnsupportedModel(f"dimension {empty!r} is given no size; give one number or several")
    count = math.prod(len(sizes) for sizes in rows.values())
    if count > MAX_SHAPES:
        raise UnsupportedModel(
            f"the sizes of {', '.join(rows)} make {count} shapes; at most {MAX_SHAPES} can be optimised for, so give fewer sizes"
        )
    return tuple(dict(zip(rows, sizes, strict=True)) for sizes in itertools.product(*rows.values()))
