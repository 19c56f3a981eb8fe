"""All of a run on one page: `report.html` holds everything it shows and needs no network."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from gnnplace.files import write_text
from gnnplace.report.answer import answer, evaluator_of
from gnnplace.report.charts import graph_chart, progress_chart, schedule_chart
from gnnplace.report.run_record import RunRecord
from gnnplace.report.tables import (
    devices_table,
    facts_table,
    graph_legend,
    planners_table,
    runs_table,
    stages_list,
    warnings_list,
)

__all__ = ["REPORT_FILE", "chart_html", "framed", "render_report", "template", "write_report"]

REPORT_FILE = "report.html"


def write_report(run: RunRecord, folder: Path) -> Path:
    """Writes `report.html` of a run into `folder`; its path."""
    path = folder / REPORT_FILE
    write_text(path, render_report(run))
    return path


def render_report(run: RunRecord) -> str:
    """The page of a run, as HTML; the same run gives the same text."""
    graph = graph_chart(run)
    model = escape(run["summary"]["model"])
    body = template("page.html").substitute(
        title=model,
        evaluator=evaluator_of(run),
        answer=escape(answer(run)),
        planners=planners_table(run),
        runs=runs_table(run),
        schedule=chart_html(schedule_chart(run), "schedule"),
        devices=devices_table(run),
        legend=graph_legend(run),
        graph="<p>Too many op groups to draw.</p>" if graph is None else chart_html(graph, "graph"),
        progress=chart_html(progress_chart(run), "progress") if run["history"] else "<p>Nothing was searched.</p>",
        stages=stages_list(run),
        warnings=warnings_list(run),
        facts=facts_table(run),
    )
    return framed(f"{model}: placement", body)


def framed(title: str, body: str, own_style: str = "") -> str:
    """A whole page, all as HTML; `own_style` are rules beside those of every page."""
    style = template("page.css").template + own_style
    return template("frame.html").substitute(title=title, style=style, plotly=get_plotlyjs(), body=body)


def template(name: str) -> Template:
    """A file of this folder that waits for what it is to show."""
    return Template(resources.files("gnnplace.report").joinpath(name).read_text(encoding="utf-8"))


def chart_html(figure: go.Figure, name: str) -> str:
    """A figure as an HTML fragment that expects Plotly's script in the page."""
    settings = {
        "displaylogo": False,
        "responsive": True,
        # The first would upload the chart; the others do nothing here that another button does not.
        "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    }
    return str(to_html(figure, config=settings, include_plotlyjs=False, full_html=False, div_id=f"{name}-chart"))
