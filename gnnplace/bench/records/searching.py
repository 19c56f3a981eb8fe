"""A planner on the case of a record, for as many seconds as the row states."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnplace.api import ProblemSetup
from gnnplace.api.recorded import recorded_setup
from gnnplace.bench.problems import compiled_problem, run_planner
from gnnplace.bench.records.cases import record_cases
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from models_zoo.records.names import record_names
from models_zoo.records.record import load_record, packed_placement

LONG = "-long"
"""End of the name of a row that searches for minutes."""
_SECONDS, _LONG_SECONDS = 60.0, 600.0


@dataclass(frozen=True)
class RecordSearch:
    """One search on one case."""

    record: str
    planner: str
    seconds: float
    seed: int

    @classmethod
    def of_row(cls, record: str, row: str, seed: int) -> "RecordSearch":
        """The search of a row: a planner for a minute, with `-long` after its name for ten.

        >>> RecordSearch.of_row("layered_200-k40x4", "gnn-long", 0)
        RecordSearch(record='layered_200-k40x4', planner='gnn', seconds=600.0, seed=0)
        """
        return cls(record, row.removesuffix(LONG), _LONG_SECONDS if row.endswith(LONG) else _SECONDS, seed)


def setup_of_record(name: str) -> ProblemSetup:
    """The set-up of a record, or of a case that has no record yet."""
    return recorded_setup(load_record(name)) if name in record_names() else record_cases()[name].build()


def search_result(search: RecordSearch) -> dict[str, Any]:
    """Seconds on the whole graph with the placement of every op, or the reason for a missing one; searches on one thread."""
    setup = dataclasses.replace(setup_of_record(search.record), num_threads=1).for_planner(search.planner)
    load = partial(load_planner, search.planner)
    run = run_planner(setup, compiled_problem(setup), load, Budget(None, search.seconds), search.seed)
    result: dict[str, Any] = {"makespan_s": run.makespan_s, "error": run.error, "wall_s": run.wall_s}
    if run.solution is None or run.makespan_s is None:
        return result
    bound = setup.bound_with(run.solution)
    return result | {
        "evaluations": run.solution.evaluations,
        "lower_bound_s": bound.value_s,
        "lower_bound": bound.name,
        **packed_placement(run.solution.placement.expanded(setup.coarsening.group_of_op)),
    }
