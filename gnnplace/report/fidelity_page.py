"""How well simulated seconds agree with executed ones, on one page: the table, and every placement as a point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from gnnplace.report.charts import agreement_chart
from gnnplace.report.charts.agreement import Point
from gnnplace.report.page import chart_html, framed, template
from gnnplace.report.tables import bench_facts, html_table, summary_table
from gnnplace.units import format_s

__all__ = ["FIDELITY", "render_fidelity"]

FIDELITY = "fidelity"
Line = Mapping[str, Any]


def render_fidelity(document: Mapping[str, Any]) -> str:
    """The page as HTML."""
    details, title = document["details"], "Simulated against executed"
    body = template("fidelity.html").substitute(
        title=title,
        rows=_rows(document["rows"]),
        pictures=chart_html(agreement_chart({name: _points(found) for name, found in details.items()}), "agreement"),
        summary=summary_table(document["summary"]),
        facts=bench_facts(document),
    )
    return framed(title, body)


def _rows(rows: Iterable[Line]) -> str:
    heads = [
        "model", "devices", "op groups", "placements", "rank correlation", "repeatability", "median error", "worst", "bias",
        "slowdown", "median error, slowed", "bias, slowed", "without segment costs", "spread of repeats", "plain session",
    ]  # fmt: skip
    return html_table(
        heads,
        (
            [
                escape(line["model"]), escape(line["devices"]), f"{line['groups']:,}", str(line["placements"]),
                f"{line['spearman']:.2f}", f"{line['repeatability']:.2f}", f"{line['median_error']:.1%}", f"{line['worst_error']:+.0%}", f"{line['bias']:+.1%}",
                f"{line['slowdown']:.2f}", f"{line['median_error_slowed']:.1%}", f"{line['bias_slowed']:+.1%}",
                f"{line['median_error_without_segment_costs']:.1%}", f"{line['median_spread']:.1%}",
                format_s(line["plain_session_s"]),
            ]
            for line in rows
        ),
    )  # fmt: skip


def _points(found: Line) -> list[Point]:
    """Both sides relative to the whole model on one device; placements that failed are left out."""
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
