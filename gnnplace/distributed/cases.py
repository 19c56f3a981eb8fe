"""Cases of a bench on the hosts of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from gnnplace.devices.detect import cpu_model
from gnnplace.distributed.cluster import connected, different_results
from gnnplace.distributed.pool import Pool
from gnnplace.distributed.workers import Role
from gnnplace.errors import GnnplaceError

__all__ = ["results_on_hosts"]

C = TypeVar("C")
Run = Callable[[Any], Mapping[str, Any]]


def results_on_hosts(
    cases: Sequence[C], run: Run, address: str, on_warning: Callable[[str], None]
) -> Iterator[tuple[C, dict[str, Any]]]:
    """Pairs of a case and its result in the order in which cases finish; results name the `host` and its `cpu`.

    Raises:
        GnnplaceError: a case cannot be run, or there is no host to run it on.
    """
    role = Role(partial(_runner, run), objection=different_results)
    with connected(address), Pool[C, dict[str, Any]](role, on_warning=on_warning) as pool:
        for done in pool.results(cases):
            if done.value is None:
                raise GnnplaceError(f"{cases[done.index]}: {done.failure}")
            yield cases[done.index], {**done.value, "host": done.host}


def _runner(run: Run) -> Callable[[Any], dict[str, Any]]:
    return partial(_with_cpu, run)


def _with_cpu(run: Run, case: object) -> dict[str, Any]:
    return {**run(case), "cpu": cpu_model()}
