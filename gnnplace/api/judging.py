"""Which placement is the answer: by simulated seconds, or by placements that were executed side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.search import Attempt
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import Evaluation
from gnnplace.measuring.measured_evaluator import Comparison
from gnnplace.placement import Placement
from gnnplace.planners.search import Solution
from gnnplace.run_record import MeasuredRecord, MeasuredSearch, PlannerRow, finite

__all__ = ["Finalist", "executed_plan", "finalists_of", "simulated_plan"]


def simulated_plan(setup: ProblemSetup, attempts: Sequence[Attempt], planner: str) -> Plan:
    """The solution of the chosen planner, or of the last planner before Ctrl-C; the best single device if that is better."""
    by_name = {found.planner: found for found in attempts}
    chosen = by_name.get(planner, attempts[-1])
    solution, placement, evaluation = chosen.answer()
    _, on_one, of_one = by_name.get("single", chosen).answer()
    warnings: tuple[str, ...] = ()
    kept = None
    penalised_s = setup.problem(setup.evaluator).penalised_s
    if penalised_s(of_one) < penalised_s(evaluation):
        placement, evaluation, kept = on_one, of_one, "single"
        warnings = (f"the placement of {chosen.planner!r} does not beat the best single device, which is the answer",)
    rows = tuple(found.row(setup) for found in attempts)
    return Plan(setup, solution, placement, evaluation, rows, warnings=warnings, kept=kept)


@dataclass(frozen=True, eq=False)
class Finalist:
    """A placement of the op groups that is executed side by side with others."""

    label: str
    planner: str
    placement: Placement


def finalists_of(planner: str, searched: Sequence[Placement], rehearsed: Mapping[str, Placement]) -> list[Finalist]:
    """The best few placements of the search, each once and best first, and those of other planners.

    The search kept the lowest of many single measurements, which more likely than not was a lucky one. So the next best
    placements run again as well.
    """
    different: dict[bytes, Placement] = {}
    for placement in searched:
        different.setdefault(placement.assignment.tobytes(), placement)
    found = [
        Finalist(planner if rank == 1 else f"{planner}, rank {rank}", planner, placement)
        for rank, placement in enumerate(different.values(), start=1)
    ]
    return [*found, *(Finalist(name, name, placement) for name, placement in rehearsed.items())]


def executed_plan(
    setup: ProblemSetup,
    solution: Solution,
    finalists: Sequence[Finalist],
    comparison: Comparison,
    search: MeasuredSearch,
) -> Plan:
    """The fastest of the finalists; the single device if none beats it beyond the noise.

    Raises:
        MeasurementFailed: no placement could be executed.
    """
    pairs = sorted(zip(finalists, comparison.evaluations, strict=True), key=lambda pair: pair[1].makespan_s)
    winner, measured = pairs[0]
    chosen, kept = winner.placement, winner.planner
    warnings: list[str] = []
    if kept != solution.planner:
        warnings.append(f"the placement of {kept!r} was faster side by side than that of {solution.planner!r}")
    single, device = comparison.single, comparison.single_device
    if single is not None and device is not None and not _beats(measured, single):
        if len(set(chosen.assignment.tolist())) > 1:
            warnings.append(
                f"no placement beats the single device {device} beyond the noise; the whole model stays there"
            )
        on_one = np.full_like(chosen.assignment, setup.topology.device_index[device])
        chosen, measured, kept = Placement(on_one), single, "single"
    if measured.failure:
        raise MeasurementFailed(
            f"no placement could be executed ({measured.failure}); without measuring, the simulator still gives an answer"
        )
    placement, evaluation = setup.evaluate_groups(chosen)
    rows = _rows(solution, pairs, dict.fromkeys(finalist.planner for finalist in finalists))
    record = _record(measured, finalists, comparison, search)
    return Plan(
        setup, solution, placement, evaluation, rows, measured=record, warnings=tuple(warnings), kept=kept
    )  # fmt: skip


def _beats(measured: Evaluation, single: Evaluation) -> bool:
    """The intervals of the two do not touch."""
    return measured.makespan_s + measured.spread_s < single.makespan_s - single.spread_s


def _record(
    taken: Evaluation, finalists: Sequence[Finalist], comparison: Comparison, search: MeasuredSearch
) -> MeasuredRecord:
    """The answer's measured seconds beside those of every finalist and of the plain session."""
    labels = [*(finalist.label for finalist in finalists), f"one session on {comparison.single_device}"]
    evaluations = [*comparison.evaluations, *([] if comparison.single is None else [comparison.single])]
    return {
        "median_s": taken.makespan_s,
        "spread_s": taken.spread_s,
        "repeats": taken.repeats,
        "single_session_s": None if comparison.single is None else comparison.single.makespan_s,
        "runs": [
            {"label": label, "median_s": run.makespan_s, "spread_s": run.spread_s, "repeats": run.repeats}
            for label, run in zip(labels, evaluations, strict=False)
            if not run.failure
        ],
        "search": search,
    }


def _rows(
    solution: Solution, pairs: Sequence[tuple[Finalist, Evaluation]], planners: Mapping[str, None]
) -> tuple[PlannerRow, ...]:
    """The fastest finalist of each planner; only the chosen planner's search took measured time."""
    best = {finalist.planner: evaluation for finalist, evaluation in reversed(pairs)}
    return tuple(
        {
            "planner": name,
            "makespan_s": finite(best[name].makespan_s),
            "gap": None,
            "evaluations": solution.evaluations if name == solution.planner else 0,
            "wall_s": solution.wall_s if name == solution.planner else 0.0,
            "feasible": best[name].feasible,
            "error": best[name].failure or None,
        }
        for name in planners
    )
