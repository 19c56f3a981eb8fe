"""Planners with executed rewards on one page: what they needed to come near the best known, and what they ended at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from gnnplace.report.page import framed, template
from gnnplace.report.tables import bench_facts, figure, html_table, summary_table
from gnnplace.units import format_s

__all__ = ["MEASURED", "render_measured"]

MEASURED = "measured"
Line = Mapping[str, Any]


def render_measured(document: Mapping[str, Any]) -> str:
    """The page as HTML."""
    rows, title = document["rows"], "Searching by execution"
    body = template("measured.html").substitute(
        title=title,
        devices=escape(document["details"]["devices"]),
        evaluations=document["details"]["evaluations"],
        near=_by_model(rows, _near),
        finals=_finals(rows),
        summary=summary_table(document["summary"]),
        facts=bench_facts(document),
    )
    return framed(title, body)


def _by_model(rows: Iterable[Line], cell: Callable[[Line], str]) -> str:
    """A row per model and a column per planner."""
    lines = {(line["model"], line["planner"]): line for line in rows}
    planners = dict.fromkeys(planner for _, planner in lines)
    models = dict.fromkeys(model for model, _ in lines)
    return html_table(
        ["model", *planners],
        (
            [
                escape(model),
                *(cell(lines[model, planner]) if (model, planner) in lines else "–" for planner in planners),
            ]
            for model in models
        ),
    )


def _near(line: Line) -> str:
    never = f"never in {line['never_near']} of {line['runs']}"
    if line["evaluations_to_near"] is None:
        return never
    text = f"{line['evaluations_to_near']:,.0f} evaluations, {line['minutes_to_near']:.1f} min"
    return f"{text}<br><small>{never}</small>" if line["never_near"] else text


def _finals(rows: Iterable[Line]) -> str:
    heads = [
        "model", "planner", "measured", "to best known", "speed-up", "executing", "evaluations", "simulated beside", "minutes",
    ]  # fmt: skip
    return html_table(
        heads,
        (
            [
                escape(line["model"]), escape(line["planner"]),
                "failed" if line["measured_s"] is None else format_s(line["measured_s"]),
                figure(line["ratio_to_best"]), figure(line["speed_up"]), f"{line['executing_share']:.0%}",
                f"{line['evaluations']:,.0f}", f"{line['simulated']:,.0f}", f"{line['minutes']:.1f}",
            ]
            for line in rows
        ),
    )  # fmt: skip
