"""`gnnplace bench ladder`, `gnnplace bench servers` and `gnnplace bench sealed`."""

import subprocess
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gnnplace.bench.generalization.cases import DEVELOPMENT, CaseSet
from gnnplace.bench.generalization.rows import sha256_of
from gnnplace.bench.generalization.sealed import SEALED
from gnnplace.bench.generalization.servers import SERVERS
from gnnplace.bench.generalization.summary import best_known
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, check_known, matching, run_cases
from gnnplace.bench.ladder.means import Mean, mean_over_families, mean_where_all_fit, ratios_by_case
from gnnplace.bench.ladder.methods import LEARNED, LIMITS, METHODS, PRIOR, UNIFORM, UNTRAINED
from gnnplace.bench.ladder.running import LadderRun, run_result
from gnnplace.errors import GnnplaceError
from gnnplace.policy import SHIPPED_POLICY
from gnnplace.units import format_s

_SEEDS = 3
_HARD = 1.02
"""Cases in which the prior is above the best known by more than this are hard at that budget."""
_PAIRS = (
    ("learned_to_prior", LEARNED, PRIOR),
    ("learned_to_uniform", LEARNED, UNIFORM),
    ("learned_to_untrained", LEARNED, UNTRAINED),
    ("learned_to_annealing_portfolio", LEARNED, "annealing-portfolio"),
)
COLUMNS = (
    "method",
    "limit",
    "cases",
    "above_best",
    "low",
    "high",
    "above_best_hard",
    "worst",
    "does_not_fit",
    "wall_s",
)
Seconds = Mapping[tuple[str, str], Mapping[str, float | None]]
"""Seconds by method and limit, then by case: geometric mean of the seeds, None where some seed found nothing that fits."""


def bench_ladder(options: BenchOptions) -> BenchResult:
    """A line per method and budget on the development cases, and the learned policy against the prior.

    `rows` names methods or budgets.
    """
    return _bench("ladder", DEVELOPMENT, options)


def bench_servers(options: BenchOptions) -> BenchResult:
    """The same on wide graphs over several servers."""
    return _bench("servers", SERVERS, options)


def bench_sealed(options: BenchOptions) -> BenchResult:
    """The same on sealed cases, with the commit of the code that ran."""
    return _bench("sealed", SEALED, options)


def _bench(name: str, among: CaseSet, options: BenchOptions) -> BenchResult:
    policy = (options.policy or SHIPPED_POLICY).absolute()
    if not policy.exists():
        raise GnnplaceError(f"{policy}: there is no such policy")
    check_known(options.rows, [*METHODS, *LIMITS], "method or budget")
    methods = [method for method in METHODS if method in options.rows] or list(METHODS)
    limits = [limit for limit in LIMITS if limit in options.rows] or list(LIMITS)
    cases = matching({case: case for case in among.cases}, options.only, "case")
    runs = [
        LadderRun(case, method, limit, seed, sha256_of(policy) if method == LEARNED else "")
        for limit in limits for case in cases for method in methods for seed in options.seed_range(_SEEDS)
    ]  # fmt: skip
    found = run_cases(runs, partial(run_result, policy=policy), options, _progress)
    family = {case: among.family(among.cases[case].graph) for case in cases}
    seconds = seconds_of(found)
    best = best_known(found)
    rows = [_row(method, limit, seconds, best, family, found) for limit in limits for method in methods]
    summary = {
        "cases": len(cases),
        "families": len(set(family.values())),
        **comparisons(seconds, best, family, limits, among.drawn),
        "commit": _commit(),
    }
    details = {
        "best_known_s": best,
        "family": family,
        "runs": [{**vars(run), **result} for run, result in found.items()],
    }
    return BenchResult(name, options, rows, summary, details, COLUMNS)


def _progress(run: LadderRun, result: Result) -> str:
    seconds = result["error"] if result["objective_s"] is None else format_s(result["objective_s"])
    return f"{run.case}: {run.method} {run.limit} seed {run.seed}: {seconds}, took {format_s(result['wall_s'])}"


def seconds_of(found: Mapping[LadderRun, Result]) -> Seconds:
    """Seconds by method and budget, then by case."""
    seeds: dict[tuple[str, str], dict[str, list[float | None]]] = {}
    for run, result in found.items():
        seeds.setdefault((run.method, run.limit), {}).setdefault(run.case, []).append(result["objective_s"])
    return {
        key: {case: mean_where_all_fit(values) for case, values in by_case.items()} for key, by_case in seeds.items()
    }


def comparisons(
    seconds: Seconds,
    best: Mapping[str, float],
    family: Mapping[str, str],
    limits: Sequence[str],
    drawn: Collection[str] = (),
) -> dict[str, Any]:
    """The learned policy against the prior, and against annealing from the best construction, at every budget.

    `learned_to_prior_hard@20` has only the cases in which the prior is more than 2 % above the best known with 20 evaluations,
    `learned_to_prior_undrawn@20` only families that training does not draw with like settings, so not those of `drawn`.
    """
    summary: dict[str, Any] = {}
    for limit in limits:
        hard = _hard_cases(seconds, best, limit)
        for name, one, other in _PAIRS:
            ratios = ratios_by_case(seconds.get((one, limit), {}), seconds.get((other, limit), {}))
            summary[f"{name}@{limit}"] = _as_json(mean_over_families(ratios, family))
            if other == PRIOR:
                among = {case: ratio for case, ratio in ratios.items() if case in hard}
                summary[f"{name}_hard@{limit}"] = _as_json(mean_over_families(among, family))
                undrawn = {case: ratio for case, ratio in ratios.items() if family[case] not in drawn}
                summary[f"{name}_undrawn@{limit}"] = _as_json(mean_over_families(undrawn, family))
    return {key: value for key, value in summary.items() if value is not None}


def _hard_cases(seconds: Seconds, best: Mapping[str, float], limit: str) -> set[str]:
    by_prior = seconds.get((PRIOR, limit), {})
    return {case for case, value in by_prior.items() if value is not None and value > _HARD * best[case]}


def _as_json(mean: Mean | None) -> dict[str, Any] | None:
    return None if mean is None else mean._asdict()


def _row(
    method: str,
    limit: str,
    seconds: Seconds,
    best: Mapping[str, float],
    family: Mapping[str, str],
    found: Mapping[LadderRun, Result],
) -> dict[str, Any]:
    by_case = seconds[method, limit]
    ratios = {case: value / best[case] for case, value in by_case.items() if value is not None}
    among = _hard_cases(seconds, best, limit)
    hard = {case: ratio for case, ratio in ratios.items() if case in among}
    mean, mean_hard = mean_over_families(ratios, family), mean_over_families(hard, family)
    walls = sorted(result["wall_s"] for run, result in found.items() if (run.method, run.limit) == (method, limit))
    worst = max(ratios, key=ratios.__getitem__, default=None)
    return {
        "method": method,
        "limit": limit,
        "cases": len(by_case),
        "above_best": None if mean is None else mean.excess,
        "low": None if mean is None else mean.low,
        "high": None if mean is None else mean.high,
        "above_best_hard": None if mean_hard is None else mean_hard.excess,
        "hard_cases": len(hard),
        "worst": None if worst is None else ratios[worst] - 1.0,
        "worst_at": worst,
        "does_not_fit": len(by_case) - len(ratios),
        "wall_s": walls[len(walls) // 2],
    }


def _commit() -> str | None:
    """The commit of the checkout, with `+` after it where files differ from it; None outside of one."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
