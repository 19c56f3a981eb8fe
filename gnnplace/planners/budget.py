"""Limits of a search: evaluations and seconds, whichever ends first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

__all__ = ["Budget", "Progress"]


@dataclass(frozen=True)
class Progress:
    """The state of a search while it runs.

    >>> from gnnplace.planners.classical.baselines import plan_single
    >>> from gnnplace.sim.example import diamond
    >>> seen: list[Progress] = []
    >>> _ = plan_single(diamond(), Budget(evaluations=10, on_progress=seen.append), seed=0)
    >>> seen[-1].planner, seen[-1].evaluations, seen[-1].best_s
    ('single', 1, 6.0)
    """

    planner: str
    evaluations: int
    wall_s: float
    best_s: float


@dataclass(frozen=True)
class Budget:
    """Limits of a search; None means no limit of that kind."""

    evaluations: int | None = 2000
    seconds: float | None = None
    on_progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    """Callback after every batch of evaluations."""

    @property
    def is_unlimited(self) -> bool:
        """True where neither evaluations nor seconds end the search."""
        return self.evaluations is None and self.seconds is None

    def bounded(self, evaluations: int) -> Budget:
        """This budget, or one of `evaluations` if it is unlimited; for planners that would search forever.

        >>> [Budget(limit).bounded(5).evaluations for limit in (None, 7)]
        [5, 7]
        """
        return replace(self, evaluations=max(1, evaluations)) if self.is_unlimited else self
