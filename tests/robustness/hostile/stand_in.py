"""A replacement of the process that reads hostile inputs; its imports are few, as each process repeats them."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.robustness.hostile.inputs import ACCEPTED, Case, Outcome
from tests.robustness.hostile.room import Files

Acts = Mapping[int, Callable[[], object]]
"""Functions by the number of the input at which they are called."""


def stand_in(case: Case, folder: Path, only: Files | None, acts: Acts, once: bool) -> Callable[[None], Outcome]:
    """Each input is a file with its number; the functions of `acts` run once or always."""
    numbers = itertools.count(case.first)
    assert only in (None, *({"a": str(number).encode()} for number in acts))
    (folder / "input").mkdir()

    def outcome(_: None) -> Outcome:
        number = next(numbers)
        (folder / "input" / "a").write_text(str(number))
        if number in acts and not (once and only):
            acts[number]()
        return Outcome(ACCEPTED, 0.5, 1000)

    return outcome


def broken(case: Case, folder: Path, _: object) -> Callable[[None], Outcome]:
    """No valid file can be made."""
    raise SystemExit(f"no {case.target}")
