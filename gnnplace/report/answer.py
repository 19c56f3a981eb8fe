"""The answer of a run in one sentence, and how numbers are said."""

from __future__ import annotations

import math

from gnnplace.run_record import RunRecord
from gnnplace.units import format_s

__all__ = ["answer", "evaluator_of", "percent", "seconds", "speed"]


def answer(run: RunRecord) -> str:
    """How long a step takes, against the best single device and against the lower bound."""
    summary = run["summary"]
    used = len(set(run["ops"]["device"]))
    where = f"{used} of {len(run['devices'])} devices"
    if not summary["feasible"]:
        return f"No placement of {summary['model']} that fits was found; the best one seen uses {where} and needs more memory than they have."
    what = "one step" if summary["objective"] == "latency" else "each of many pipelined steps"
    took, single, rival = _times(run)
    if single is None:
        text = f"{summary['model']}: {what} takes {_with_spread(run)} on {where}; there is no time of a single device to compare with"
    else:
        text = (
            f"{summary['model']} is {speed(took, single)} {rival}{_speed_interval(run)}: "
            f"{what} takes {_with_spread(run)} instead of {seconds(single)}, on {where}"
        )
    bound = run["lower_bound"]
    if bound is not None and summary["gap"] is not None:
        text += (
            ". By the cost model, no placement can take less than"
            if run["measured"]
            else ". No placement can take less than"
        )
        text += f" {seconds(bound['value_s'])} ({bound['name']}): "
        is_beaten = summary["gap"] < 0
        text += "the machine was slower when it was profiled" if is_beaten else f"the gap is {percent(summary['gap'])}"
    return text + "."


def _speed_interval(run: RunRecord) -> str:
    """Between which factors the speed lies when both times lie in their intervals; empty where nothing was measured."""
    measured = run["measured"]
    if measured is None or measured["single_session_s"] is None:
        return ""
    took, spread, single = measured["median_s"], measured["spread_s"], measured["single_session_s"]
    others = [row["spread_s"] for row in measured["runs"] if row["median_s"] == single]
    if not others or took <= spread:
        return ""
    least, most = (single - others[-1]) / (took + spread), (single + others[-1]) / (took - spread)
    return f" (by {least:.2f}x to {most:.2f}x, from the 95 % intervals of both)"


def evaluator_of(run: RunRecord) -> str:
    """Where the makespans of a run come from."""
    return "simulated" if run["measured"] is None else "measured"


def speed(took_s: float, rival_s: float) -> str:
    """A time against a rival's.

    >>> speed(2.0, 3.0), speed(3.0, 2.0), speed(2.0, 2.001)
    ('1.50x faster than', '1.50x slower than', 'as fast as')
    """
    if min(took_s, rival_s) <= 0.0:
        return "as fast as" if took_s == rival_s else "faster than" if took_s < rival_s else "slower than"
    if rival_s >= 1.005 * took_s:
        return f"{rival_s / took_s:.2f}x faster than"
    if took_s >= 1.005 * rival_s:
        return f"{took_s / rival_s:.2f}x slower than"
    return "as fast as"


def seconds(value: float | None) -> str:
    """Seconds for people; a dash when there are none.

    >>> seconds(0.002), seconds(None), seconds(float("inf"))
    ('2.00 ms', '–', '–')
    """
    return "–" if value is None or not math.isfinite(value) else format_s(value)


def percent(fraction: float | None) -> str:
    """A fraction for people; a dash when there is none.

    >>> percent(0.123), percent(0.0004), percent(None)
    ('12.3 %', '0.0 %', '–')
    """
    return "–" if fraction is None or not math.isfinite(fraction) else f"{100 * fraction:.1f} %"


def _times(run: RunRecord) -> tuple[float, float | None, str]:
    """Seconds of the plan, seconds of the best single device, and what the latter is; both measured or both simulated."""
    measured, summary = run["measured"], run["summary"]
    if measured is not None:
        return measured["median_s"], measured["single_session_s"], "a plain session on the best single device"
    single = summary["compared"].get("single")
    took = summary["makespan_s"]
    known = single is not None and math.isfinite(single)
    return math.inf if took is None else took, single if known else None, "the best single device"


def _with_spread(run: RunRecord) -> str:
    measured = run["measured"]
    if measured is None:
        return f"{seconds(run['summary']['makespan_s'])} (simulated)"
    return (
        f"{seconds(measured['median_s'])} ± {seconds(measured['spread_s'])} (measured, {measured['repeats']} repeats)"
    )
