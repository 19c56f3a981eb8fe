"""The sizes of symbolic dimensions that a placement is made for: one, or several whose worst or mean time counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnnplace.errors import UnsupportedModel
from gnnplace.evaluation import DimsObjective, Objective
from gnnplace.planners.budget import Budget, Progress

__all__ = ["MAX_SHAPES", "Dims", "PlaceOptions", "shapes_of", "sizes_between"]


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


@dataclass(frozen=True)
class PlaceOptions:
    """How to search.

    >>> PlaceOptions(planner="annealing", seconds=2.0, dims={"batch": 8}).budget.evaluations
    2000
    """

    planner: str = "gnn"
    objective: Objective = "latency"
    evaluations: int | None = 2000
    """Placements that the planner may evaluate."""
    seconds: float | None = None
    """Seconds that the planner may search; with `evaluations`, whichever ends first."""
    measure: bool = False
    """Execute placements on the real devices; the reward is then measured."""
    force: bool = False
    """Measure even where other work keeps a device busy."""
    seed: int = 0
    max_groups: int | None = None
    """Op groups that the planner decides on; None: 512."""
    dims: Dims = field(default_factory=dict)
    """Sizes of symbolic dimensions; several of one make several shapes."""
    dims_objective: DimsObjective = "worst"
    """Which of the times at several shapes is minimised."""
    custom_ops: tuple[Path, ...] = ()
    """Shared libraries with operators that ONNX Runtime does not have."""
    policy: Path | None = None
    """A trained policy that `gnn` starts from; None: the one that is shipped."""
    ray: str | None = None
    """Address of a Ray cluster to work on; see `gnnplace.distributed.connected`."""
    on_progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    on_warning: Callable[[str], None] = field(default=lambda text: None, compare=False)
    """Told what a comparison, which has no warnings, is to say of hosts that take no part."""

    @property
    def budget(self) -> Budget:
        """Of the chosen planner."""
        return Budget(self.evaluations, self.seconds, self.on_progress)
