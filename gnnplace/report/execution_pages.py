"""The pages of `bench fidelity` (simulated against executed times) and `bench measured` (searches by execution)."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from gnnplace.report.bench_charts import Point, agreement_chart
from gnnplace.report.page import bench_html, chart_html
from gnnplace.report.tables import figure, html_table, summary_table
from gnnplace.units import format_s

Line = Mapping[str, Any]


def render_fidelity(document: Mapping[str, Any]) -> str:
    """The page of `bench fidelity` as HTML."""
    points = {name: _points(found) for name, found in document["details"].items()}
    return bench_html(
        "fidelity.html", document, "Simulated against executed",
        rows=_rows(document["rows"]),
        pictures=chart_html(agreement_chart(points), "agreement"),
        summary=summary_table(document["summary"]),
    )  # fmt: skip


def _rows(rows: Iterable[Line]) -> str:
    heads = [
        "model", "devices", "op groups", "placements", "rank correlation", "repeatability", "median error", "worst", "bias",
        "slowdown", "median error, slowed", "bias, slowed", "without segment costs", "spread of repeats", "plain session",
    ]  # fmt: skip
    body = [
        [
            escape(line["model"]), escape(line["devices"]), f"{line['groups']:,}", str(line["placements"]),
            f"{line['spearman']:.2f}", f"{line['repeatability']:.2f}", f"{line['median_error']:.1%}", f"{line['worst_error']:+.0%}", f"{line['bias']:+.1%}",
            f"{line['slowdown']:.2f}", f"{line['median_error_slowed']:.1%}", f"{line['bias_slowed']:+.1%}",
            f"{line['median_error_without_segment_costs']:.1%}", f"{line['median_spread']:.1%}",
            format_s(line["plain_session_s"]),
        ]
        for line in rows
    ]  # fmt: skip
    return html_table(heads, body)


def _points(found: Line) -> list[Point]:
    """Executed and simulated times relative to the whole model on one device, without failed placements."""
    return [
        (
            row["kind"],
            row["measured_s"] / row["plain_session_s"],
            row["simulated_s"] / found["simulated_single_s"],
            f"{row['segments']} segments, {format_s(row['measured_s'])}",
        )
        for row in found["placements"]
        if row["measured_s"] is not None
    ]


def render_measured(document: Mapping[str, Any]) -> str:
    """The page of `bench measured` as HTML."""
    rows, details = document["rows"], document["details"]
    return bench_html(
        "measured.html", document, "Searching by execution",
        devices=escape(details["devices"]), evaluations=str(details["evaluations"]),
        near=_near_table(rows), finals=_finals(rows), summary=summary_table(document["summary"]),
    )  # fmt: skip


def _near_table(rows: Iterable[Line]) -> str:
    """A row per model and a column per planner."""
    lines = {(line["model"], line["planner"]): line for line in rows}
    planners = dict.fromkeys(planner for _, planner in lines)
    models = dict.fromkeys(model for model, _ in lines)
    body = ([escape(model), *(_near(lines.get((model, planner))) for planner in planners)] for model in models)
    return html_table(["model", *planners], body)


def _near(line: Line | None) -> str:
    if line is None:
        return "–"
    never = f"never in {line['never_near']} of {line['runs']}"
    if line["evaluations_to_near"] is None:
        return never
    text = f"{line['evaluations_to_near']:,.0f} evaluations, {line['minutes_to_near']:.1f} min"
    return f"{text}<br><small>{never}</small>" if line["never_near"] else text


def _finals(rows: Iterable[Line]) -> str:
    heads = [
        "model", "planner", "measured", "to best known", "speed-up", "executing", "evaluations", "simulated beside", "minutes",
    ]  # fmt: skip
    body = [
        [
            escape(line["model"]), escape(line["planner"]),
            "failed" if line["measured_s"] is None else format_s(line["measured_s"]),
            figure(line["ratio_to_best"]), figure(line["speed_up"]), f"{line['executing_share']:.0%}",
            f"{line['evaluations']:,.0f}", f"{line['simulated']:,.0f}", f"{line['minutes']:.1f}",
        ]
        for line in rows
    ]  # fmt: skip
    return html_table(heads, body)
