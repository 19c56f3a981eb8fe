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
        corrections=_corrections(document["rows"]),
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


_CORRECTIONS = {
    "": "simulated", "_scaled": "one factor", "_corrected": "correction of gnn", "_residual": "learned residual",
    "_residual_pooled": "residual of all models",
}  # fmt: skip


def _corrections(rows: Iterable[Line]) -> str:
    """A row per model: the median error and the rank correlation of the simulator and of every correction of it."""
    body = [
        [
            escape(line["model"]),
            *(_percent(line.get(f"median_error{suffix}")) for suffix in _CORRECTIONS),
            *(figure(line.get(f"spearman{suffix}")) for suffix in _CORRECTIONS),
        ]
        for line in rows
    ]
    heads = [f"{what}, {name}" for what in ("error", "rank") for name in _CORRECTIONS.values()]
    return html_table(["model", *heads], body)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


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
        devices=escape(details["devices"]), near=_near_table(rows), finals=_finals(rows),
        differences=_differences(details["cases"]), summary=summary_table(document["summary"]),
    )  # fmt: skip


def _near_table(rows: Iterable[Line]) -> str:
    """A row per model and budget, and a column per planner."""
    lines = {(line["model"], line["budget"], line["planner"]): line for line in rows}
    planners = dict.fromkeys(planner for _, _, planner in lines)
    cases = dict.fromkeys((model, budget) for model, budget, _ in lines)
    body = (
        [escape(model), f"{budget:,}", *(_near(lines.get((model, budget, planner))) for planner in planners)]
        for model, budget in cases
    )
    return html_table(["model", "executions", *planners], body)


def _differences(cases: Iterable[Line]) -> str:
    """A row per case and a column per other planner."""
    cases = list(cases)
    others = dict.fromkeys(other for case in cases for other in case["differences"])
    body = [
        [
            escape(case["model"]), escape(case["kind"]), f"{case['budget']:,}", str(case["seed"]),
            "–" if case["reference_s"] is None else format_s(case["reference_s"]),
            "–" if case["simulator_error"] is None else f"{case['simulator_error']:+.1%}",
            *(_difference(case["differences"].get(other)) for other in others),
        ]
        for case in cases
    ]  # fmt: skip
    return html_table(["model", "kind", "executions", "seed", "reference", "simulator's error", *others], body)


def _difference(found: Line | None) -> str:
    if found is None:
        return "–"
    return f"{found['difference']:+.1%}<br><small>{found['low']:+.1%} to {found['high']:+.1%}</small>"


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
        "model", "executions", "planner", "measured", "to best known", "speed-up", "executing", "evaluations", "simulated beside", "minutes",
    ]  # fmt: skip
    body = [
        [
            escape(line["model"]), f"{line['budget']:,}", escape(line["planner"]),
            "failed" if line["measured_s"] is None else format_s(line["measured_s"]),
            figure(line["ratio_to_best"]), figure(line["speed_up"]), f"{line['executing_share']:.0%}",
            f"{line['evaluations']:,.0f}", f"{line['simulated']:,.0f}", f"{line['minutes']:.1f}",
        ]
        for line in rows
    ]  # fmt: skip
    return html_table(heads, body)
