"""What commands print: one JSON object or tables on stdout; on stderr warnings, notes, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["NOTES", "be_quiet", "error", "hint", "note", "print_answer", "print_json", "print_table", "warn"]

_OUT, _ERR = Console(highlight=False), Console(stderr=True, highlight=False)
NOTES = Console(stderr=True, highlight=False)
"""What `--quiet` silences: notes, hints, progress."""
_UNFOLDED = 400
"""Columns of a table that goes to a file or another program."""


def be_quiet(quiet: bool) -> bool:
    """What `--quiet` does; as the callback of the option it gives its value back."""
    NOTES.quiet = quiet
    return quiet


def print_json(document: Mapping[str, Any]) -> None:
    """The one object on stdout."""
    print(json.dumps(document))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[int, str] | None = None) -> None:
    """A table for people: columns of figures end at one line, and `styles` marks rows by number."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        is_figure = number > 0 and all(_is_figure(row[number]) for row in rows)
        table.add_column(column, justify="right" if is_figure else "left", overflow="fold", no_wrap=number == 0)
    for number, row in enumerate(rows):
        table.add_row(*(Text(cell) for cell in row), style=(styles or {}).get(number))
    (_OUT if _OUT.is_terminal else Console(width=_UNFOLDED, highlight=False)).print(table)


def _is_figure(cell: str) -> bool:
    return cell in {"", "-"} or cell.lstrip("-")[:1].isdigit()


def print_answer(sentence: str) -> None:
    """The answer in one line on stdout."""
    _OUT.print(Text(sentence, style="bold"), soft_wrap=True)


def hint(what_next: str) -> None:
    """The last line, on stderr: what to do next."""
    NOTES.print(Text.assemble(("next: ", "dim"), (what_next, "cyan")), soft_wrap=True)


def note(message: str) -> None:
    """One line on stderr."""
    NOTES.print(Text(message), soft_wrap=True)


def warn(messages: Sequence[str]) -> None:
    """One line each on stderr."""
    for message in messages:
        _ERR.print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)


def error(message: str) -> None:
    """What is wrong, in one line on stderr, whatever the message holds."""
    _ERR.print(Text.assemble(("gnnplace: ", "bold red"), " ".join(message.split())), soft_wrap=True)
