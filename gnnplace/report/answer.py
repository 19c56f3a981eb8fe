"""The answer of a run in one sentence, and formats of numbers."""

import math

from gnnplace.objectives import COMBINED
from gnnplace.run_record import MeasuredRecord, RunRecord, is_below_bound, objective_s
from gnnplace.units import format_s


def answer(run: RunRecord) -> str:
    """The time of one step, compared with the best plain session and with the lower bound."""
    summary = run["summary"]
    used = len(set(run["ops"]["device"]))
    where = f"{used} of {len(run['devices'])} devices"
    if not summary["feasible"]:
        return f"The search found no placement of {summary['model']} that fits in memory; the best one uses {where} and needs more memory than they have."
    what = "one step" if summary["objective"] == "latency" else "each of many pipelined steps"
    if len(shapes := run.get("shapes") or []) > 1:
        what += f" (the {COMBINED[run.get('dims_objective', 'worst')]} of {len(shapes)} sizes)"
    took, single, rival = _times(run)
    if single is None:
        text = f"{summary['model']}: {what} takes {_with_spread(run)} on {where}; no time of a single device is known"
    else:
        instead = "" if took == single else f" instead of {seconds(single)}"
        compared = f"{summary['model']} is {speed(took, single)} {rival}{_speed_interval(run)}"
        text = f"{compared}: {what} takes {_with_spread(run)}{instead}, on {where}"
    bound = run["lower_bound"]
    if bound is not None and summary["gap"] is not None:
        limit = "By the cost model, no placement" if run["measured"] else "No placement"
        is_beaten = is_below_bound(summary["gap"])
        gap = "the machine was slower when it was profiled" if is_beaten else f"the gap is {percent(summary['gap'])}"
        text += f". {limit} can take less than {seconds(bound['value_s'])} ({bound['name']}): {gap}"
    return text + "."


def _speed_interval(run: RunRecord) -> str:
    """The range of the speed-up if both times lie in their intervals; empty without a confirmed measurement."""
    measured = run["measured"]
    if measured is None or (rival := _rival(measured)[0]) is None or not measured.get("confirmed", True):
        return ""
    took, spread = measured["median_s"], measured["spread_s"]
    if "difference_interval" in measured and took != rival:
        low, high = measured["difference_interval"]
        return f" (by {1 / (1 + high):.2f}x to {1 / (1 + low):.2f}x, the 95 % interval of paired runs)"
    others = [row["spread_s"] for row in measured["runs"] if row["median_s"] == rival]
    if not others or took <= spread or took == rival:
        return ""
    least, most = (rival - others[-1]) / (took + spread), (rival + others[-1]) / (took - spread)
    return f" (by {least:.2f}x to {most:.2f}x, from the 95 % intervals of both)"


def evaluator_of(run: RunRecord) -> str:
    """The source of the makespans of a run: simulated or measured."""
    return "simulated" if run["measured"] is None else "measured"


def speed(took_s: float, rival_s: float) -> str:
    """Compares a time with a rival's time in words; differences below 0.5 % count as equal."""
    if min(took_s, rival_s) <= 0.0:
        return "as fast as" if took_s == rival_s else "faster than" if took_s < rival_s else "slower than"
    if rival_s >= 1.005 * took_s:
        return f"{rival_s / took_s:.2f}x faster than"
    if took_s >= 1.005 * rival_s:
        return f"{took_s / rival_s:.2f}x slower than"
    return "as fast as"


def seconds(value: float | None) -> str:
    """Formats seconds; a dash for None and infinity."""
    return "–" if value is None or not math.isfinite(value) else format_s(value)


def percent(fraction: float | None) -> str:
    """Formats a fraction as percent; a dash for None and infinity."""
    return "–" if fraction is None or not math.isfinite(fraction) else f"{round(100 * fraction, 1) + 0.0:.1f} %"


def _rival(measured: MeasuredRecord) -> tuple[float | None, str]:
    """Seconds and name of the best plain session; older records know that on the best single device."""
    session = measured.get("best_session")
    if session is None:
        return measured["single_session_s"], "a plain session on the best single device"
    return measured.get("best_session_s"), f"the best plain session ({session})"


def _times(run: RunRecord) -> tuple[float, float | None, str]:
    """Seconds of the plan, those of the best plain session or single device, and a name for it; both measured or both simulated."""
    measured, summary = run["measured"], run["summary"]
    if measured is not None:
        return measured["median_s"], *_rival(measured)
    singles = [objective_s(row) for row in run["planners"] if row["planner"] == "single"]
    single = next((value for value in singles if value is not None and math.isfinite(value)), None)
    took = objective_s(summary)
    return math.inf if took is None else took, single, "the best single device"


def _with_spread(run: RunRecord) -> str:
    measured = run["measured"]
    if measured is None:
        return f"{seconds(objective_s(run['summary']))} (simulated)"
    return (
        f"{seconds(measured['median_s'])} ± {seconds(measured['spread_s'])} (measured, {measured['repeats']} repeats)"
    )
