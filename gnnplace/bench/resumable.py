"""Many runs over processes; each one is kept as soon as it is done, so that a bench goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, TypeVar

from gnnplace.bench.result import library_versions
from gnnplace.child_processes import spawned_pool
from gnnplace.errors import GnnplaceError
from gnnplace.files import append_json_line, read_json_lines, write_json_lines

__all__ = ["finished_runs", "run_resumable"]

C = TypeVar("C")


def run_resumable(
    cases: Sequence[C],
    run: Callable[[C], dict[str, Any]],
    kind: type[C],
    jobs: int = 1,
    kept: Path | None = None,
    on_result: Callable[[C, Mapping[str, Any]], None] | None = None,
) -> dict[C, dict[str, Any]]:
    """The result of every case, in their order; those that were kept are not run again.

    Wall seconds of a case are those with `jobs - 1` others beside it. The file says which libraries made a case, and those of
    others are run again; it does not know of changes to a planner, so delete it after one.

    Args:
        cases: what is to be run.
        run: can be pickled.
        kind: of the cases, a frozen dataclass of plain values.
        jobs: processes.
        kept: the file; None for none.
        on_result: called after every case.

    Raises:
        GnnplaceError: a case cannot be run, or the file cannot be understood.
    """
    versions = library_versions()
    results = {} if kept is None else finished_runs(kept, kind, versions)
    if kept is not None:
        write_json_lines(kept, read_json_lines(kept, GnnplaceError))  # nothing can be appended to half a line

    def keep(case: C, result: Mapping[str, Any]) -> None:
        results[case] = dict(result)
        if kept is not None:
            append_json_line(kept, {"case": vars(case), "versions": versions, "result": result})
        if on_result is not None:
            on_result(case, result)

    open_cases = [case for case in cases if case not in results]
    with spawned_pool(jobs) as pool:
        futures = {pool.submit(run, case): case for case in open_cases}
        try:
            for future in as_completed(futures):
                keep(futures[future], future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)  # waits for what is running, which is worth keeping
            for future, case in futures.items():
                if case not in results and not future.cancelled() and future.exception() is None:
                    keep(case, future.result())
            raise
    return {case: results[case] for case in cases}


def finished_runs(kept: Path, kind: type[C], versions: Mapping[str, str]) -> dict[C, dict[str, Any]]:
    """What an earlier run with libraries of these versions has kept; a last line that was cut off by a kill is left out.

    Raises:
        GnnplaceError: another line cannot be understood.
    """
    found: dict[C, dict[str, Any]] = {}
    for number, entry in enumerate(read_json_lines(kept, GnnplaceError), start=1):
        try:
            if entry["versions"] == versions:
                found[kind(**entry["case"])] = entry["result"]
        except (KeyError, TypeError) as problem:
            raise GnnplaceError(f"{kept}: line {number} is no case of a bench ({problem}); delete the file") from None
    return found
