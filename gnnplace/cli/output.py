"""What commands print: one JSON object or tables on stdout; on stderr warnings, notes, progress and the next step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from gnnplace.units import format_s

if TYPE_CHECKING:
    from gnnplace.planners.solution import Progress as SearchProgress

_OUT, _ERR = Console(highlight=False), Console(stderr=True, highlight=False)
NOTES = Console(stderr=True, highlight=False)
"""Console of notes, hints and progress, which `--quiet` silences."""
_UNFOLDED = 400
"""Width of a table that goes to a file or another program."""
Advance = Callable[[float, str, str], None]
"""Receives the completed share, the current task, and the best result so far."""


def be_quiet(quiet: bool) -> bool:
    """Callback of the option `--quiet`; gives its value back."""
    NOTES.quiet = quiet
    return quiet


def print_json(document: Mapping[str, Any]) -> None:
    """Prints the one object on stdout."""
    print(json.dumps(document))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[int, str] | None = None) -> None:
    """Prints a table on stdout; columns of figures are aligned to the right, and `styles` marks rows by number."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        cells = [row[number] for row in rows]
        is_figure = number > 0 and all(cell in {"", "-"} or cell.lstrip("-")[:1].isdigit() for cell in cells)
        table.add_column(column, justify="right" if is_figure else "left", overflow="fold", no_wrap=number == 0)
    for number, row in enumerate(rows):
        table.add_row(*(Text(cell) for cell in row), style=(styles or {}).get(number))
    (_OUT if _OUT.is_terminal else Console(width=_UNFOLDED, highlight=False)).print(table)


def print_answer(sentence: str) -> None:
    """Prints the answer in one line on stdout."""
    _OUT.print(Text(sentence, style="bold"), soft_wrap=True)


def hint(next_step: str) -> None:
    """Prints the last line, on stderr: what the user can do next."""
    NOTES.print(Text.assemble(("next: ", "dim"), (next_step, "cyan")), soft_wrap=True)


def note(message: str) -> None:
    """Prints one line on stderr."""
    NOTES.print(Text(message), soft_wrap=True)


def warn(messages: Sequence[str]) -> None:
    """Prints one line per warning on stderr."""
    for message in messages:
        _ERR.print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)


def print_error(message: str) -> None:
    """Prints an error in one line on stderr, even if the message has several."""
    _ERR.print(Text.assemble(("gnnplace: ", "bold red"), " ".join(message.split())), soft_wrap=True)


@contextmanager
def bar(waiting: str) -> Iterator[Advance]:
    """A progress bar on terminals, with the best result, the elapsed and the remaining time; it disappears at the end.

    `waiting` names the task until the first report.
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
    """The bar of searches with this budget; the limit that is closer to its end decides."""
    with bar("preparing (compiles the first time)") as advance:

        def update(state: SearchProgress) -> None:
            share = max(
                state.evaluations / evaluations if evaluations else 0.0, state.wall_s / seconds if seconds else 0.0
            )
            count = f"{state.evaluations:,}" + (f" of {evaluations:,}" if evaluations else "")
            doing = f"{count} evaluations" if share < 1.0 else "comparing"
            advance(share, f"{state.planner}: {doing}", f"best {format_s(state.best_s)}")

        yield update
