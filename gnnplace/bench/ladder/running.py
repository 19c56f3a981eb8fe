"""One method with one budget on one case."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from gnnplace.api import ProblemSetup
from gnnplace.bench.generalization.cases import DEVELOPMENT
from gnnplace.bench.generalization.run import setup_of
from gnnplace.bench.generalization.sealed import SEALED
from gnnplace.bench.generalization.servers import SERVERS
from gnnplace.bench.ladder.methods import LIMITS, planner_of
from gnnplace.bench.problems import compiled_problem, run_planner
from gnnplace.evaluation import Problem
from gnnplace.planners.solution import Budget, Planner

_WARM_UP, _FEW_EVALUATIONS = "wavefront_16x16 50 on servers-4x4", 64


@dataclass(frozen=True)
class LadderRun:
    """A method on a case with a seed."""

    case: str
    method: str
    limit: str
    """Name of the budget, one of `LIMITS`."""
    seed: int
    policy_sha256: str
    """Hash of the policy's file for the learned method; empty for the others."""


def run_result(run: LadderRun, policy: Path) -> dict[str, Any]:
    """Seconds of the placement on the whole graph, None where none fits; planners run on one thread."""
    return planned(run.case, partial(planner_of, run.method, policy), LIMITS[run.limit].budget, run.seed)


def planned(case: str, load: partial[Planner], budget: Budget, seed: int) -> dict[str, Any]:
    """What a planner finds on a case: seconds on the whole graph, None where nothing fits, evaluations and wall seconds."""
    _warm_up(load.func, *load.args)
    setup, problem = prepared(case)
    done = run_planner(setup, problem, load, budget, seed)
    return {
        "objective_s": done.makespan_s,
        "error": done.error,
        "evaluations": 0 if done.solution is None else done.solution.evaluations,
        "wall_s": done.wall_s if done.solution is None else done.solution.wall_s,
    }


@cache
def _warm_up(load: Callable[..., Planner], *arguments: Any) -> None:
    """Runs the planner on a small case of development, once per process, so that everything is compiled."""
    load(*arguments)(prepared(_WARM_UP)[1], Budget(_FEW_EVALUATIONS), 0)


@lru_cache(maxsize=3)
def prepared(name: str) -> tuple[ProblemSetup, Problem]:
    """The case of this name, and its problem with everything compiled."""
    among = next(among for among in (DEVELOPMENT, SERVERS, SEALED) if name in among.cases)
    case = among.cases[name]
    setup = setup_of(case, among.graph(case.graph))
    return setup, compiled_problem(setup)
