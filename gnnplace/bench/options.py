"""What can be chosen about a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gnnplace.bench.resumable import Hosts
from gnnplace.errors import GnnplaceError

__all__ = ["BenchOptions", "chosen"]

T = TypeVar("T")


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
    extend: Path | None = field(default=None, compare=False)
    """A stored result of the suite: its runs are taken over into `kept`."""
    ray: str | None = None
    """Address of a Ray cluster whose cores run the cases instead of processes."""

    @property
    def workers(self) -> int | Hosts:
        """What runs the cases."""
        return self.jobs if self.ray is None else Hosts(self.ray, self.on_progress or (lambda text: None))

    @property
    def arguments(self) -> tuple[str, ...]:
        """As on the command line, without the seed."""
        chosen = {
            "evaluations": self.evaluations,
            "seeds": self.seeds,
            "jobs": self.jobs if self.jobs > 1 else None,
            "ray": self.ray,
            "rows": ",".join(self.rows) or None,
            "policy": None if self.policy is None else self.policy.name,
        }
        named = [text for name, value in chosen.items() if value is not None for text in (f"--{name}", str(value))]
        return (*named, *(text for part in self.only for text in ("--only", part)))


def chosen(by_name: Mapping[str, T], only: Sequence[str], noun: str) -> list[T]:
    """Those whose name contains one of the texts; all of them for none.

    Raises:
        GnnplaceError: a text is in no name; the message calls them by `noun`.

    >>> chosen({"nmt_2": 2, "nmt_4": 4, "rnnlm": 9}, ["nmt"], "row")
    [2, 4]
    """
    names = tuple(by_name)
    for text in only:
        if not any(text in name for name in names):
            raise GnnplaceError(f"no {noun} has {text!r} in its name, such as {names[0]!r} or {names[-1]!r}")
    return [one for name, one in by_name.items() if not only or any(text in name for text in only)]
