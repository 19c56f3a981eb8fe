"""Many cases of the papers' tables, over processes and resumable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnplace.bench.papers.case import Case, case_result
from gnnplace.bench.resumable import finished_runs, run_resumable

__all__ = ["finished_cases", "run_cases"]

Results = dict[Case, dict[str, Any]]


def run_cases(
    cases: Sequence[Case],
    jobs: int = 1,
    kept: Path | None = None,
    on_result: Callable[[Case, Mapping[str, Any]], None] | None = None,
) -> Results:
    """The result of every case, in their order; those in the file `kept` are not run again, see `run_resumable`.

    Cases of one row should follow each other, since a process keeps the last two rows.

    Raises:
        GnnplaceError: a row's workload cannot be read, a library is missing, or `kept` cannot be understood.
    """
    return run_resumable(cases, case_result, Case, jobs, kept, on_result)


def finished_cases(kept: Path, versions: Mapping[str, str]) -> Results:
    """What an earlier run with libraries of these versions has kept, see `finished_runs`."""
    return finished_runs(kept, Case, versions)
