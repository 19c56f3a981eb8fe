"""How a placement is searched for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gnnplace.api.shapes import Dims
from gnnplace.evaluation import DimsObjective, Objective
from gnnplace.planners.budget import Budget, Progress

__all__ = ["PlaceOptions"]


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
