"""How far a command is, on stderr: drawn on terminals alone, and gone once it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from gnnplace.cli.output import NOTES
from gnnplace.planners.budget import Progress as SearchProgress
from gnnplace.units import format_s

__all__ = ["bar", "search_progress"]

Advance = Callable[[float, str, str], None]
"""Takes the share that is done, what is under way, and the best so far."""


@contextmanager
def bar(waiting: str) -> Iterator[Advance]:
    """A bar with the best so far, the time that has passed and the time that is left.

    Until something is reported, `waiting` says what takes its time.
    """
    drawn = Progress(
        SpinnerColumn(), TextColumn("{task.description}", table_column=Column(no_wrap=True)), BarColumn(bar_width=12),
        TextColumn("{task.fields[found]}", table_column=Column(no_wrap=True)), TimeElapsedColumn(), TimeRemainingColumn(),
        console=NOTES, transient=True, disable=NOTES.quiet or not NOTES.is_terminal,
    )  # fmt: skip
    task = drawn.add_task(waiting, total=None, found="")

    def advance(share: float, doing: str, found: str) -> None:
        drawn.update(task, total=1.0, completed=min(share, 1.0), description=doing, found=found)

    with drawn:
        yield advance


@contextmanager
def search_progress(evaluations: int | None, seconds: float | None) -> Iterator[Callable[[SearchProgress], None]]:
    """The bar of searches with this budget: done is whichever of the two is closer to its end."""
    with bar("preparing (compiles the first time)") as advance:

        def update(state: SearchProgress) -> None:
            shares = [state.evaluations / evaluations] if evaluations else []
            if seconds:
                shares.append(state.wall_s / seconds)
            share = max(shares, default=0.0)
            count = f"{state.evaluations:,}" + (f" of {evaluations:,}" if evaluations else "")
            doing = f"{state.planner}: {count} evaluations" if share < 1.0 else f"{state.planner}: comparing"
            advance(share, doing, f"best {format_s(state.best_s)}")

        yield update
