"""All of a run on one page: `report.html` holds everything it shows and needs no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from gnnplace.files import write_text
from gnnplace.report.answer import answer, evaluator_of
from gnnplace.report.charts import graph_picture, memory_chart, progress_chart
from gnnplace.report.charts.theme import device_colour
from gnnplace.report.steps import critical_line, stages_table, steps_table
from gnnplace.report.tables import (
    devices_table,
    facts_table,
    graph_legend,
    planners_table,
    runs_table,
    warnings_list,
)
from gnnplace.run_record import RunRecord

__all__ = ["REPORT_FILE", "chart_html", "framed", "render_report", "template", "write_report"]

REPORT_FILE = "report.html"
_LIBRARIES = ("plotly-basic", "cytoscape", "dagre")
_SCRIPTS = ("load", "schedule", "graph", "pictures")


def write_report(run: RunRecord, folder: Path) -> Path:
    """Writes `report.html` of a run into `folder`; its path."""
    path = folder / REPORT_FILE
    write_text(path, render_report(run))
    return path


def render_report(run: RunRecord) -> str:
    """The page of a run, as HTML; the same run gives the same text.

    Tables are in it as they are read; what charts need, and the libraries that draw them, are compressed, and unpacked by the
    page itself.
    """
    charts = {"memory": memory_chart(run), "progress": progress_chart(run) if run["history"] else None}
    data = {
        "run": run,
        "figures": {name: json.loads(chart.to_json()) for name, chart in charts.items() if chart is not None},
        "graph": graph_picture(run),
        "colours": [device_colour(device) for device in range(len(run["devices"]))],
    }
    packed = {"data": json.dumps(data)} | {name: _file(f"vendor/{name}.min.js") for name in _LIBRARIES}
    model = escape(run["summary"]["model"])
    body = template("page.html").substitute(
        title=model,
        evaluator=evaluator_of(run),
        answer=escape(answer(run)),
        planners=planners_table(run),
        runs=runs_table(run),
        critical=critical_line(run),
        devices=devices_table(run),
        memory=_place_of("memory", charts, "This run does not say what was in memory when."),
        legend=graph_legend(run),
        progress=_place_of("progress", charts, "Nothing was searched."),
        stages=stages_table(run),
        steps=steps_table(run),
        warnings=warnings_list(run),
        facts=facts_table(run),
        packed="".join(_packed(name, text) for name, text in packed.items()),
        scripts="".join(_file(f"browser/{name}.js") for name in _SCRIPTS),
    )
    return framed(f"{model}: placement", body, template("run.css").template, plotly="")


def _place_of(name: str, charts: Mapping[str, go.Figure | None], otherwise: str) -> str:
    """Where the page draws a chart; a sentence where there is none."""
    chart = charts[name]
    if chart is None:
        return f"<p>{otherwise}</p>"
    return f'<div class="chart" id="{name}-chart" style="min-height:{chart.layout.height}px"></div>'


def _packed(name: str, text: str) -> str:
    """A text that the page unpacks itself; no tag or name in it can act before."""
    content = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{content}</script>'


def framed(title: str, body: str, own_style: str = "", plotly: str | None = None) -> str:
    """A whole page, all as HTML; `own_style` are rules beside those of every page, `plotly` is its script where it is not the library."""
    style = template("page.css").template + own_style
    script = get_plotlyjs() if plotly is None else plotly
    return template("frame.html").substitute(title=title, style=style, plotly=script, body=body)


def template(name: str) -> Template:
    """A file of this folder that waits for what it is to show."""
    return Template(_file(name))


def _file(name: str) -> str:
    return resources.files("gnnplace.report").joinpath(name).read_text(encoding="utf-8")


def chart_html(figure: go.Figure, name: str) -> str:
    """A figure as an HTML fragment that expects Plotly's script in the page."""
    settings = {
        "displaylogo": False,
        "responsive": True,
        # The first would upload the chart; the others do nothing here that another button does not.
        "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    }
    return str(to_html(figure, config=settings, include_plotlyjs=False, full_html=False, div_id=f"{name}-chart"))
