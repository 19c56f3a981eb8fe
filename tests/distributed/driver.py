"""A driver that can be killed: `python -m tests.distributed.driver ADDRESS KEPT MARKS` runs twelve cases and prints their results."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.bench.harness import BenchOptions, run_cases
from tests.distributed.work import once

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A number to be squared."""

    number: int


def squared(marks: Path, case: Case) -> dict[str, Any]:
    once(marks, str(case.number))
    time.sleep(0.4)
    return {"square": case.number**2}


if __name__ == "__main__":
    address, kept, marks = sys.argv[1:]
    cases = [Case(number) for number in range(12)]
    found = run_cases(cases, partial(squared, Path(marks)), BenchOptions(ray=address, cases_file=Path(kept)))
    print([result["square"] for result in found.values()])
