"""A driver that can be killed: `python -m tests.distributed.driver ADDRESS KEPT MARKS` runs eight cases."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.bench.harness import BenchOptions, run_cases
from tests.distributed.work import once

NUM_CASES = 8


@dataclass(frozen=True)
class Case:
    """A number to be squared."""

    number: int


def squared(marks: Path, case: Case) -> dict[str, Any]:
    once(marks, str(case.number))
    time.sleep(0.25)
    return {"square": case.number**2}


def squares(address: str, kept: str, marks: str) -> list[int]:
    """The squares of all numbers; finished cases are in the file `kept`, and each start of a case leaves a mark."""
    cases = [Case(number) for number in range(NUM_CASES)]
    found = run_cases(cases, partial(squared, Path(marks)), BenchOptions(ray=address, cases_file=Path(kept)))
    return [result["square"] for result in found.values()]


if __name__ == "__main__":
    squares(*sys.argv[1:])
