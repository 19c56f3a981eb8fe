"""The choice of the answer: by simulated seconds, or between placements that were executed side by side."""

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
from gnnplace.units import format_s


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

    The search kept the lowest of many single measurements, which was probably a lucky one; so the next best placements are
    executed as well.
    """
    different: dict[bytes, Placement] = {}
    for placement in searched:
        different.setdefault(placement.assignment.tobytes(), placement)
    found = [
        Finalist(f"{planner}, rank {rank}" if rank > 1 else planner, planner, placement)
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
    """The fastest finalist; the single device if no finalist beats it beyond the noise.

    After Ctrl-C the comparison has the costs of the search; a warning and the record state that they are unconfirmed.

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
    latest_s = measured.makespan_s + measured.spread_s
    if single is not None and device is not None and not latest_s < single.makespan_s - single.spread_s:
        if len(set(chosen.assignment.tolist())) > 1:
            warnings.append(
                f"no placement beats the single device {device} beyond the noise; the whole model stays there"
            )
        on_one = np.full_like(chosen.assignment, setup.topology.device_index[device])
        chosen, measured, kept = Placement(on_one), single, "single"
    if not comparison.confirmed:
        warnings.append(
            f"the seconds are those of the search ({measured.repeats} repeats, "
            f"{format_s(measured.makespan_s)} +- {format_s(measured.spread_s)}), "
            "not confirmed by a side-by-side measurement; run the command again to confirm them"
        )
    if measured.failure:
        raise MeasurementFailed(
            f"no placement could be executed ({measured.failure}); without measuring, the simulator still gives an answer"
        )
    labels = [*(finalist.label for finalist in finalists), f"one session on {device}"]
    evaluations = [*comparison.evaluations, *([] if single is None else [single])]
    record: MeasuredRecord = {
        "median_s": measured.makespan_s,
        "spread_s": measured.spread_s,
        "repeats": measured.repeats,
        "single_session_s": None if single is None else single.makespan_s,
        "runs": [
            {"label": label, "median_s": run.makespan_s, "spread_s": run.spread_s, "repeats": run.repeats}
            for label, run in zip(labels, evaluations, strict=False)
            if not run.failure
        ],
        "search": search,
    }
    if not comparison.confirmed:
        record["confirmed"] = False
    best = {finalist.planner: evaluation for finalist, evaluation in reversed(pairs)}
    rows = tuple(_row(name, best[name], solution) for name in dict.fromkeys(run.planner for run in finalists))
    placement, evaluation = setup.evaluate_groups(chosen)
    return Plan(setup, solution, placement, evaluation, rows, measured=record, warnings=tuple(warnings), kept=kept)


def _row(planner: str, best: Evaluation, solution: Solution) -> PlannerRow:
    """The fastest finalist of a planner; only the chosen planner searched by executing."""
    searched = planner == solution.planner
    return {
        "planner": planner,
        "makespan_s": finite(best.makespan_s),
        "gap": None,
        "evaluations": solution.evaluations if searched else 0,
        "wall_s": solution.wall_s if searched else 0.0,
        "feasible": best.feasible,
        "error": best.failure or None,
    }
