"""Where the time goes, what each stage of the search gained, and the policy's most valuable steps; as HTML."""

from __future__ import annotations

from collections import Counter
from html import escape

from gnnplace.report.answer import percent, seconds
from gnnplace.report.charts.progress import stage_of
from gnnplace.report.charts.theme import device_colour
from gnnplace.report.tables import html_table, swatch
from gnnplace.run_record import RunRecord, StepRecord

__all__ = ["critical_line", "stages_table", "steps_table"]

_MOST_STEPS = 12
_NAMED = 3
"""Ops of a step."""


def critical_line(run: RunRecord) -> str:
    """What the critical path is made of, in a sentence; empty where the run does not say."""
    path = run.get("critical_path")
    if not path:
        return ""
    ops, transfers = run["ops"], run["transfers"]
    computing = [ops["end_s"][index] - ops["start_s"][index] for kind, index in path if kind == "op"]
    sending = [transfers[index]["end_s"] - transfers[index]["start_s"] for kind, index in path if kind == "transfer"]
    total_s = sum(computing) + sum(sending)
    share = f" ({percent(sum(sending) / total_s)} of the step)" if sending and total_s > 0 else ""
    return (
        f"<p>Critical path: {len(computing):,} ops for {seconds(sum(computing))} and "
        f"{len(sending):,} transfers for {seconds(sum(sending))}{share}.</p>"
    )


def stages_table(run: RunRecord) -> str:
    """The best time after each stage of the search, and what the stage gained; empty when it had none."""
    if not run["stages"]:
        return ""
    rows, before_s = [], None
    found = Counter(stage_of(run["stages"], best) for _, _, best in run["history"] if best is not None)
    names = [name for name in dict.fromkeys(name for name, _ in run["stages"]) if found[name]]
    for name, after_s in run["stages"]:
        gain = "–"
        if before_s is not None and after_s is not None and before_s > 0:
            gain = (
                f"{seconds(before_s - after_s)} ({percent(1 - after_s / before_s)})"
                if after_s < before_s
                else "nothing"
            )
        mark = swatch(device_colour(names.index(name))) if name in names else ""
        rows.append([f"{mark}{escape(name)}", seconds(after_s), gain, f"{found[name]:,}"])
        before_s = after_s if after_s is not None else before_s
    return html_table(["stage", "best after it", "gain", "improvements"], rows)


def steps_table(run: RunRecord) -> str:
    """The steps of the policy that gained most, each with what moved and how likely the policy had drawn it."""
    steps = run.get("steps")
    if steps is None:
        return "<p>This run does not say it.</p>"
    if not steps:
        return "<p>No policy chose steps of this placement: it was constructed, or searched without one.</p>"
    most = sorted(steps, key=_gain, reverse=True)[:_MOST_STEPS]
    total_s = sum(map(_gain, steps))
    asked = [step for step in steps if step["probability"] is not None]
    favoured = sum((step["probability"] or 0.0) > step["chance"] for step in asked)
    text = (
        f"<p>{len(steps):,} steps made the best placement better, by {seconds(total_s)} together (simulated); the most valuable "
        f"{len(most)} of them are below. Of {len(asked):,} that began with a move of one op group drawn from the policy's odds, "
        f"{favoured:,} were more likely than if all moves were alike. The policy prefers moves that it expects to shorten the step.</p>"
    )
    heads = ["evaluation", "gain", "step", "op groups", "first of them", "policy's probability"]
    return text + html_table(heads, [_cells(run, step) for step in most])


def _gain(step: StepRecord) -> float:
    before_s, after_s = step["before_s"], step["after_s"]
    return 0.0 if before_s is None or after_s is None else before_s - after_s


def _cells(run: RunRecord, step: StepRecord) -> list[str]:
    moves = [
        f"{escape(_short(name))} <small>{escape(run['devices'][source]['name'])} → {escape(run['devices'][target]['name'])}</small>"
        for name, source, target in step["moves"][:_NAMED]
    ]
    probability = step["probability"]
    odds = (
        "not asked"
        if probability is None
        else f"{_likely(probability)} <small>{_times(probability / step['chance'])} chance</small>"
    )
    gain = "first that fits" if step["before_s"] is None else seconds(_gain(step))
    return [f"{step['evaluations']:,}", gain, escape(step["kind"]), f"{step['moved']:,}", "<br>".join(moves), odds]


def _short(name: str, most: int = 48) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 :]}"


def _likely(probability: float) -> str:
    return f"{100 * probability:.2g} %"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 0.1 else f"{ratio:.2g}x"
