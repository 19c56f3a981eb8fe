"""What can be chosen about a suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BenchOptions"]


@dataclass(frozen=True)
class BenchOptions:
    """How to run a suite; None is the suite's own choice."""

    seed: int = 0
    evaluations: int | None = None
    """Of every planner."""
    seeds: int | None = None
    """How many, counted from `seed`."""
    only: tuple[str, ...] = ()
    """Rows whose name contains one of these; all for none."""
    rows: tuple[str, ...] = ()
    """Names of what is compared on every case; all for none."""
    policy: Path | None = None
    """A trained policy."""
    jobs: int = 1
    """Processes."""
    kept: Path | None = field(default=None, compare=False)
    """Where finished cases are kept, so that a suite goes on where it was stopped; see `run_resumable`."""
    on_progress: Callable[[str], None] | None = field(default=None, compare=False)
    """Called with a line for people after every case."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """As on the command line, without the seed."""
        chosen = {
            "evaluations": self.evaluations,
            "seeds": self.seeds,
            "jobs": self.jobs if self.jobs > 1 else None,
            "rows": ",".join(self.rows) or None,
            "policy": None if self.policy is None else self.policy.name,
        }
        named = [text for name, value in chosen.items() if value is not None for text in (f"--{name}", str(value))]
        return (*named, *(text for part in self.only for text in ("--only", part)))
