"""`gnnplace bench encoder`: policies of several trainings, each alone and under the same search.

A folder holds the policies, `NAME-SEED.safetensors`, for example with and without messages between units, for three training
seeds each. Alone, a policy builds schedules from nothing and the simulator picks the best; with one evaluation it is the placement of
the highest scores, for which nothing has been simulated.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.bench.generalization.cases import DEVELOPMENT
from gnnplace.bench.generalization.rows import sha256_of
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.ladder.means import mean_over_families, mean_where_all_fit, ratios_by_case
from gnnplace.bench.ladder.methods import LEARNED, PRIOR, planner_of
from gnnplace.bench.ladder.running import planned
from gnnplace.bench.records.cases import record_of
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.planners.gnn.builds import PolicyBuilder
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Planner, Solution
from gnnplace.policy.checkpoint import named_policy
from gnnplace.policy.network import PolicyNetwork, one_thread
from gnnplace.units import format_s
from models_zoo.records.record import load_record

LIMITS = (1, 20, 50, 200)
"""Evaluations."""
ALONE, SEARCH = "alone", "search"
_WAYS = (ALONE, SEARCH)
_BASELINES: Sequence[tuple[str, str, Sequence[int]]] = (
    ("heft", ALONE, LIMITS[:1]),
    ("constructions", ALONE, LIMITS),
    (PRIOR, SEARCH, LIMITS),
)
"""Methods without training beside the policies, with the evaluations that they are run with."""
COLUMNS = ("policy", "way", "limit", "trainings", "above_record", "low", "high", "wall_s")


@dataclass(frozen=True)
class EncoderRun:
    """A policy, or a method without training, on a case."""

    case: str
    policy: str
    """`NAME-SEED` of a policy's file, or the name of a method."""
    way: str
    limit: int
    seed: int
    policy_sha256: str
    """Hash of the policy's file; empty for a method."""


def bench_encoder(options: BenchOptions) -> BenchResult:
    """A line per kind of policy and number of evaluations, and the ratios of every two kinds.

    `policy` is the folder of the policies, `rows` names kinds, and ways (`alone`, `search`) where not both are wanted.
    Figures are geometric means above the records.
    """
    folder = options.policy or Path()
    files = {path.stem: path for path in sorted(folder.glob("*-*.safetensors"))}
    kinds = list(dict.fromkeys(map(kind_of, files)))
    if not kinds:
        raise GnnplaceError(
            f"{folder}: holds no policies NAME-SEED.safetensors; train some, and give their folder with --policy"
        )
    check_known(options.rows, [*kinds, *(name for name, *_ in _BASELINES), *_WAYS], "kind of policy, or way")
    ways = [way for way in _WAYS if way in options.rows] or _WAYS
    asked_kinds = [row for row in options.rows if row not in _WAYS]
    files = {name: path for name, path in files.items() if not asked_kinds or kind_of(name) in asked_kinds}
    cases = matching({case: case for case in DEVELOPMENT.cases}, options.only, "case")
    baselines = [row for row in _BASELINES if row[1] in ways and (not asked_kinds or row[0] in asked_kinds)]
    asked = [(name, way, limit, sha256_of(path)) for name, path in files.items() for way in ways for limit in LIMITS]
    asked += [(name, way, limit, "") for name, way, limits in baselines for limit in limits]
    runs = [
        EncoderRun(case, name, way, limit, seed, key)
        for case in cases for name, way, limit, key in asked for seed in options.seed_range(1)
    ]  # fmt: skip
    found = run_cases(runs, partial(run_result, folder=folder.absolute()), options, _progress)
    family = {case: DEVELOPMENT.family(DEVELOPMENT.cases[case].graph) for case in cases}
    best = {case: load_record(record_of(DEVELOPMENT.cases[case])).makespan_s for case in cases}
    seconds = seconds_of(found)
    kinds = [kind for kind in kinds if any(key[0] == kind for key in seconds)]
    rows = [_row(key, by_case, best, family, found) for key, by_case in seconds.items()]
    summary = {"cases": len(cases), "families": len(set(family.values())), **comparisons(found, kinds, family)}
    details = {
        "record_s": best,
        "family": family,
        "runs": [{**vars(run), **result} for run, result in found.items()],
    }
    return BenchResult("encoder", options, rows, summary, details, COLUMNS)


def kind_of(policy: str) -> str:
    """The kind of policy of a file, without the seed of its training.

    >>> kind_of("no-messages-2"), kind_of("heft")
    ('no-messages', 'heft')
    """
    return re.sub(r"-\d+$", "", policy)


def run_result(run: EncoderRun, folder: Path) -> dict[str, Any]:
    """Seconds of the placement on the whole graph, None where it does not fit; planners run on one thread."""
    load = partial(_planner_of, run.policy, run.way, folder if run.policy_sha256 else None)
    return planned(run.case, load, Budget(run.limit), run.seed)


def _planner_of(policy: str, way: str, folder: Path | None) -> Planner:
    if folder is None:
        return planner_of(policy)
    path = folder / f"{policy}.safetensors"
    return planner_of(LEARNED, path) if way == SEARCH else partial(plan_alone, policy=path)


def plan_alone(problem: Problem, budget: Budget, seed: int, policy: Path | str = "shipped") -> Solution:
    """The best of the schedules that a policy builds, by simulation; the first one is that of the highest scores.

    >>> from gnnplace.sim.example import diamond
    >>> plan_alone(diamond(), Budget(20), seed=0).evaluations
    20

    Raises:
        GnnplaceError: the policy builds no schedules, or `budget` has no number of evaluations.
    """
    network = named_policy(policy)
    if not isinstance(network, PolicyNetwork) or not network.decides or budget.evaluations is None:
        raise GnnplaceError(f"the policy {str(policy)!r} builds no schedules, or the number of evaluations is missing")
    rng = np.random.default_rng(seed)
    with Search(problem, budget, "policy alone", seed) as search, one_thread():
        built = PolicyBuilder(problem, network, rng).schedules(budget.evaluations)
        search.evaluate_batch(np.array([schedule.assignment for schedule in built]))
    return search.solution()


def _progress(run: EncoderRun, result: Result) -> str:
    seconds = result["error"] if result["objective_s"] is None else format_s(result["objective_s"])
    return f"{run.case}: {run.policy} {run.way} {run.limit}: {seconds}, took {format_s(result['wall_s'])}"


Key = tuple[str, str, int]
"""Kind of policy, way, evaluations."""


def seconds_of(found: Mapping[EncoderRun, Result]) -> dict[Key, dict[str, float | None]]:
    """Seconds by kind of policy, way and evaluations, then by case: geometric mean over trainings and seeds; None if one does not fit."""
    values: dict[Key, dict[str, list[float | None]]] = {}
    for run, result in found.items():
        by_case = values.setdefault((kind_of(run.policy), run.way, run.limit), {})
        by_case.setdefault(run.case, []).append(result["objective_s"])
    return {
        key: {case: mean_where_all_fit(those) for case, those in by_case.items()} for key, by_case in values.items()
    }


def comparisons(
    found: Mapping[EncoderRun, Result], kinds: Sequence[str], family: Mapping[str, str]
) -> dict[str, Mapping[str, Any]]:
    """Ratios of every two kinds: `one_to_other_search@20` over all trainings, `one_to_other_search@20_training_0` of one seed each."""
    numbers = sorted({run.policy.removeprefix(f"{kind_of(run.policy)}-") for run in found if run.policy_sha256})
    summary: dict[str, Mapping[str, Any]] = {}
    for ending, seconds in (
        ("", seconds_of(found)),
        *((f"_training_{number}", seconds_of(_of_training(found, number))) for number in numbers),
    ):
        for one, other in [*combinations(kinds, 2), *((kind, PRIOR) for kind in kinds)]:
            for way, limit in product(_WAYS, LIMITS):
                ratios = ratios_by_case(seconds.get((one, way, limit), {}), seconds.get((other, way, limit), {}))
                mean = mean_over_families(ratios, family)
                if mean is not None:
                    summary[f"{one}_to_{other}_{way}@{limit}{ending}"] = mean._asdict()
    return summary


def _of_training(found: Mapping[EncoderRun, Result], number: str) -> dict[EncoderRun, Result]:
    """The runs of policies with this number, and those of methods without training."""
    return {run: result for run, result in found.items() if not run.policy_sha256 or run.policy.endswith(f"-{number}")}


def _row(
    key: Key,
    by_case: Mapping[str, float | None],
    best: Mapping[str, float],
    family: Mapping[str, str],
    found: Mapping[EncoderRun, Result],
) -> dict[str, Any]:
    kind, way, limit = key
    mine = {run: result for run, result in found.items() if (kind_of(run.policy), run.way, run.limit) == key}
    ratios = {case: value / best[case] for case, value in by_case.items() if value is not None}
    mean = mean_over_families(ratios, family)
    walls = sorted(result["wall_s"] for result in mine.values())
    return {
        "policy": kind,
        "way": way,
        "limit": limit,
        "trainings": len({run.policy for run in mine}),
        "cases": len(by_case),
        "above_record": None if mean is None else mean.excess,
        "low": None if mean is None else mean.low,
        "high": None if mean is None else mean.high,
        "does_not_fit": len(by_case) - len(ratios),
        "wall_s": walls[len(walls) // 2],
    }
