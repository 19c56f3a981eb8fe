"""What commands print: one JSON object on stdout, or tables for people; progress on stderr."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gnnplace.planners.budget import Progress as SearchProgress
from gnnplace.units import format_s

__all__ = ["note", "print_json", "print_table", "progress", "warn"]

_OUT, _ERR = Console(), Console(stderr=True)
_QUIET_S = 2.0


def print_json(document: Mapping[str, Any]) -> None:
    """The one object on stdout."""
    print(json.dumps(document))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people; the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _OUT.print(table)


def note(message: str) -> None:
    """One line on stderr."""
    _ERR.print(Text(message), soft_wrap=True)


def warn(messages: Sequence[str]) -> None:
    """One line each on stderr."""
    for message in messages:
        _ERR.print(Text(f"warning: {message}"), soft_wrap=True)


@contextmanager
def progress(evaluations: int | None) -> Iterator[Callable[[SearchProgress], None]]:
    """A bar on stderr with evaluations and the best so far, for searches of over two seconds; silent when no terminal."""
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TextColumn("best {task.fields[best]}"), TimeElapsedColumn(), console=_ERR, transient=True,
    )  # fmt: skip
    task = bar.add_task("evaluations", total=evaluations, best="-")
    begin_s = time.perf_counter()
    shown = False

    def update(state: SearchProgress) -> None:
        nonlocal shown
        if not shown and _ERR.is_terminal and time.perf_counter() - begin_s > _QUIET_S:
            bar.start()
            shown = True
        bar.update(task, description=state.planner, completed=state.evaluations, best=format_s(state.best_s))

    try:
        yield update
    finally:
        if shown:
            bar.stop()
