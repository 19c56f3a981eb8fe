"""Many runs over processes, or over the hosts of a cluster; each one is kept as soon as it is done, so that a bench goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gnnplace.bench.result import library_versions
from gnnplace.child_processes import spawned_pool
from gnnplace.devices.detect import cpu_model
from gnnplace.distributed.cluster import connected, different_results
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import Role
from gnnplace.errors import GnnplaceError
from gnnplace.files import append_json_line, read_json_lines, write_json_lines

__all__ = ["Hosts", "finished_runs", "run_resumable"]

C = TypeVar("C")


@dataclass(frozen=True)
class Hosts:
    """Where cases are run, other than in processes of this machine."""

    address: str
    """Of a Ray cluster; see `gnnplace.distributed.connected`."""
    on_warning: Callable[[str], None] = lambda text: None
    """Told of hosts that take no part."""


def run_resumable(
    cases: Sequence[C],
    run: Callable[[C], dict[str, Any]],
    kind: type[C],
    workers: int | Hosts = 1,
    kept: Path | None = None,
    on_result: Callable[[C, Mapping[str, Any]], None] | None = None,
) -> dict[C, dict[str, Any]]:
    """The result of every case, in their order; those that were kept are not run again.

    Wall seconds of a case are those with other cases beside it, on every other process or core. The file says which libraries made a case, and those of
    others are run again; it does not know of changes to a planner, so delete it after one.

    Args:
        cases: what is to be run.
        run: can be pickled.
        kind: of the cases, a frozen dataclass of plain values.
        workers: so many processes, or those of a cluster; a result of these has the `host` and its `cpu`, on which its seconds were taken.
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
    if isinstance(workers, Hosts) and open_cases:
        for case, result in _on_hosts(open_cases, run, workers):
            keep(case, result)
    elif isinstance(workers, int):
        _in_processes(open_cases, run, workers, keep)
    return {case: results[case] for case in cases}


def _in_processes(
    cases: Sequence[C], run: Callable[[C], dict[str, Any]], jobs: int, keep: Callable[[C, Mapping[str, Any]], None]
) -> None:
    with spawned_pool(jobs) as pool:
        futures = {pool.submit(run, case): case for case in cases}
        kept = set[C]()
        try:
            for future in as_completed(futures):
                keep(futures[future], future.result())
                kept.add(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)  # waits for what is running, which is worth keeping
            for future, case in futures.items():
                if case not in kept and not future.cancelled() and future.exception() is None:
                    keep(case, future.result())
            raise


def _on_hosts(
    cases: Sequence[C], run: Callable[[C], dict[str, Any]], hosts: Hosts
) -> Iterator[tuple[C, dict[str, Any]]]:
    """Each case with its result, as they come.

    Raises:
        GnnplaceError: a case cannot be run, or there is no host to run it on.
    """
    with connected(hosts.address), Pool[C, dict[str, Any]](_running(run), on_warning=hosts.on_warning) as pool:
        for done in pool.results(cases):
            if done.value is None:
                raise GnnplaceError(f"{cases[done.index]}: {done.failure}")
            yield cases[done.index], {**done.value, "host": done.host}


def _running(run: Callable[[Any], dict[str, Any]]) -> Role:
    return Role(partial(_runs, run), objection=different_results)


def _runs(run: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    return partial(_with_cpu, run)


def _with_cpu(run: Callable[[Any], dict[str, Any]], case: object) -> dict[str, Any]:
    return {**run(case), "cpu": cpu_model()}


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
