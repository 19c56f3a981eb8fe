"""How long a planner may search: evaluations and seconds, whichever ends first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Budget", "Progress"]


@dataclass(frozen=True)
class Progress:
    """Where a search stands."""

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
