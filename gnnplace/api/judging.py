"""The choice of the answer: by simulated seconds, or between placements that were executed side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.search import Attempt
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import Evaluation
from gnnplace.measuring.comparison import Comparison, PlainSessions
from gnnplace.placement import Placement
from gnnplace.planners.solution import Solution
from gnnplace.run_record import MeasuredRecord, MeasuredSearch, PlannerRow, finite
from gnnplace.units import format_s

PLAIN_SESSION = "plain session"
"""Name of the answer where one session over all cores is faster than every placement."""
_CHANGED = 1.25
"""Factor between the reference's seconds before a search and at its end beyond which the machine itself has changed."""


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
    """The best few distinct placements of the search, best first, then one placement of each other planner.

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


def fastest_of(finalists: Sequence[Finalist], comparison: Comparison) -> tuple[Finalist, Evaluation]:
    """The finalist with the least measured seconds, and its cost."""
    return min(zip(finalists, comparison.evaluations, strict=True), key=_seconds_of)


def _seconds_of(pair: tuple[Finalist, Evaluation]) -> float:
    return pair[1].makespan_s


def executed_plan(
    setup: ProblemSetup,
    solution: Solution,
    finalists: Sequence[Finalist],
    comparison: Comparison,
    search: MeasuredSearch,
) -> Plan:
    """The fastest finalist if it beats the best plain session, and this session otherwise.

    The paired difference of both decides, and gives the seconds of the finalist; without it their intervals decide.

    A session over all cores is a device of its own in the plan; its simulated seconds are those of `ProblemSetup.with_session`.

    After Ctrl-C the comparison has the costs of the search; a warning and the record state that they are unconfirmed.

    Raises:
        MeasurementFailed: no placement could be executed.
    """
    answer = _decided(setup, solution, finalists, comparison)
    measured, warnings = answer.measured, answer.warnings
    if measured.failure:
        raise MeasurementFailed(
            f"no placement could be executed ({measured.failure}); without measuring, the simulator still gives an answer"
        )
    if not comparison.confirmed:
        warnings.append(
            f"the seconds are those of the search ({measured.repeats} repeats, "
            f"{format_s(measured.makespan_s)} +- {format_s(measured.spread_s)}), "
            "not confirmed by a side-by-side measurement; run the command again to confirm them"
        )
    elif change := _change(comparison.plain):
        warnings.append(change)
    placement, evaluation = answer.setup.evaluate_groups(answer.placement)
    record = _record(finalists, comparison, measured, search)
    rows = _rows(solution, finalists, comparison, {answer.kept: measured} if answer.is_session else {})
    return Plan(
        answer.setup, solution, placement, evaluation, rows, measured=record, warnings=tuple(warnings), kept=answer.kept
    )


class _Answer(NamedTuple):
    """What is kept of a measured search."""

    setup: ProblemSetup
    placement: Placement
    kept: str
    """Planner of the placement, or the name of the plain session."""
    measured: Evaluation
    is_session: bool
    """The best plain session is the answer."""
    warnings: list[str]


def _decided(setup: ProblemSetup, solution: Solution, finalists: Sequence[Finalist], comparison: Comparison) -> _Answer:
    """The fastest finalist, or the best plain session where it does not beat that."""
    winner, measured = fastest_of(finalists, comparison)
    warnings: list[str] = []
    own = [each for of, each in zip(finalists, comparison.evaluations, strict=True) if of.planner == solution.planner]
    least_s = min((each.makespan_s - each.spread_s for each in own), default=np.inf)
    if winner.planner != solution.planner and measured.makespan_s + measured.spread_s < least_s:
        warnings.append(
            f"the placement of {winner.planner!r} was faster side by side than that of {solution.planner!r}"
        )
    best, found = comparison.plain.best, comparison.difference
    if best is None:
        return _Answer(setup, winner.placement, winner.planner, measured, False, warnings)
    if found is not None and found.sign < 0:
        half, seconds = (found.high - found.low) / 2, best.makespan_s * (1 + found.difference)
        measured = replace(measured, makespan_s=seconds, spread_s=best.makespan_s * half, repeats=found.pairs)
        return _Answer(setup, winner.placement, winner.planner, measured, False, warnings)
    if found is None and measured.makespan_s + measured.spread_s < best.makespan_s - best.spread_s:
        return _Answer(setup, winner.placement, winner.planner, measured, False, warnings)
    return _session(setup, solution, winner, comparison.plain, warnings)


def _session(
    setup: ProblemSetup, solution: Solution, winner: Finalist, plain: PlainSessions, warnings: list[str]
) -> _Answer:
    """The best plain session as the answer."""
    assert plain.best is not None
    if plain.best_session in setup.topology.device_names:
        name = "single"
        warning = (
            f"no placement beats the single device {plain.best_session} beyond the noise; the whole model stays there"
        )
    else:
        name = PLAIN_SESSION
        warning = f"one plain session over {plain.best_session} is faster than any placement found, and is the answer"
        setup = setup.with_session(plain.best_session, plain.single_device, plain.ratio)
    index = setup.topology.device_index[plain.best_session]
    is_elsewhere = (winner.placement.assignment != index).any()
    if is_elsewhere or (solution.placement.assignment != index).any():
        warnings.append(warning)
    placement = Placement(np.full_like(winner.placement.assignment, index))
    return _Answer(setup, placement, name if is_elsewhere else winner.planner, plain.best, True, warnings)


def _record(
    finalists: Sequence[Finalist], comparison: Comparison, measured: Evaluation, search: MeasuredSearch
) -> MeasuredRecord:
    """The measured part of `run.json`."""
    plain, found = comparison.plain, comparison.difference
    runs = [(finalist.label, each) for finalist, each in zip(finalists, comparison.evaluations, strict=True)]
    sessions = {plain.single_device: plain.single, plain.best_session: plain.best}
    runs += [(f"one session on {device}", each) for device, each in sessions.items() if each is not None]
    record: MeasuredRecord = {
        "median_s": measured.makespan_s,
        "spread_s": measured.spread_s,
        "repeats": measured.repeats,
        "single_session_s": plain.single_s,
        "best_session_s": plain.best_s,
        "best_session": plain.best_session or None,
        "runs": [
            {"label": label, "median_s": run.makespan_s, "spread_s": run.spread_s, "repeats": run.repeats}
            for label, run in runs
            if not run.failure
        ],
        "sessions": dict(plain.seconds_of),
        "search": search,
    }
    if not comparison.confirmed:
        record["confirmed"] = False
    if found is not None:
        record["difference"], record["difference_interval"] = found.difference, (found.low, found.high)
    return record


def _rows(
    solution: Solution, finalists: Sequence[Finalist], comparison: Comparison, sessions: Mapping[str, Evaluation]
) -> tuple[PlannerRow, ...]:
    """The fastest finalist of each planner; `sessions` replace the planners whose name they have."""
    of_planner = sorted(zip(finalists, comparison.evaluations, strict=True), key=_seconds_of, reverse=True)
    best = {finalist.planner: evaluation for finalist, evaluation in of_planner} | dict(sessions)
    names = dict.fromkeys([*(finalist.planner for finalist in finalists), *best])
    return tuple(_row(name, best[name], solution) for name in names)


def _change(plain: PlainSessions) -> str:
    """What has changed where the reference takes another time at the end than before the search; empty where it does not."""
    before_s, now_s = plain.seconds_of.get(plain.best_session), plain.best_s
    if before_s is None or now_s is None or max(before_s, now_s) <= _CHANGED * min(before_s, now_s):
        return ""
    return (
        f"the plain session over {plain.best_session} took {format_s(before_s)} before the search and {format_s(now_s)} at its end: "
        "this machine has other work or another speed now, or its host has moved its cores; the comparison holds for the end, and another run "
        "of the command shows whether it holds again"
    )


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
