"""How long a planner may search: evaluations and seconds, whichever ends first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

__all__ = ["Budget", "Progress"]


@dataclass(frozen=True)
class Progress:
    """Where a search stands.

    >>> from gnnplace.planners.classical.single import plan
    >>> from gnnplace.sim.example import diamond
    >>> seen: list[Progress] = []
    >>> _ = plan(diamond(), Budget(evaluations=10, on_progress=seen.append), seed=0)
    >>> seen[-1].planner, seen[-1].evaluations, seen[-1].best_s
    ('single', 1, 6.0)
    """

    planner: str
    evaluations: int
    wall_s: float
    best_s: float


@dataclass(frozen=True)
class Budget:
    """The end of a search; None means no limit of that kind."""

    evaluations: int | None = 2000
    seconds: float | None = None
    on_progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    """Called after every batch of evaluations."""

    def bounded(self, evaluations: int) -> Budget:
        """This budget, or if it has no limit at all, one of so many evaluations: for learners that would draw for ever.

        >>> [Budget(limit).bounded(5).evaluations for limit in (None, 7)]
        [5, 7]
        """
        endless = self.evaluations is None and self.seconds is None
        return replace(self, evaluations=max(1, evaluations)) if endless else self
