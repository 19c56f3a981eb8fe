"""The report of a run: one HTML page that contains everything it shows and works offline."""

import base64
import gzip
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from gnnplace.files import write_text
from gnnplace.report import tables
from gnnplace.report.answer import answer, evaluator_of
from gnnplace.report.layout import graph_picture
from gnnplace.report.run_charts import executed_steps_chart, memory_chart, progress_chart
from gnnplace.report.theme import device_colour
from gnnplace.run_record import RunRecord

REPORT_FILE = "report.html"
_LIBRARIES = ("plotly-basic", "cytoscape", "dagre")
_SCRIPTS = ("load", "schedule", "graph", "pictures")


def write_report(run: RunRecord, folder: Path) -> Path:
    """Writes `report.html` of a run into `folder`; returns its path."""
    path = folder / REPORT_FILE
    write_text(path, render_report(run))
    return path


def render_report(run: RunRecord) -> str:
    """The page of a run as HTML; equal runs give equal text.

    Tables are plain HTML. The data of the charts and the libraries that draw them are compressed; the page unpacks them.
    """
    charts = {
        "memory": memory_chart(run),
        "progress": progress_chart(run) if run["history"] else None,
        "executed": executed_steps_chart(run),
    }
    data = {
        "run": run,
        "figures": {name: json.loads(chart.to_json()) for name, chart in charts.items() if chart is not None},
        "graph": graph_picture(run),
        "colours": [device_colour(device) for device in range(len(run["devices"]))],
    }
    packed = {"data": json.dumps(data)} | {name: _file(f"vendor/{name}.min.js") for name in _LIBRARIES}
    model = escape(run["summary"]["model"])
    body = Template(_file("page.html")).substitute(
        title=model,
        evaluator=evaluator_of(run),
        answer=escape(answer(run)),
        planners=tables.planners_table(run),
        runs=tables.runs_table(run),
        critical=tables.critical_line(run),
        devices=tables.devices_table(run),
        memory=_slot("memory", charts, "This record has no memory over time."),
        legend=tables.graph_legend(run),
        progress=_slot("progress", charts, "This run did not search."),
        stages=tables.stages_table(run),
        executed=tables.executed_line(run) + ("" if charts["executed"] is None else _slot("executed", charts, "")),
        steps=tables.steps_table(run),
        warnings=tables.warnings_list(run),
        facts=tables.facts_table(run),
        packed="".join(_packed(name, text) for name, text in packed.items()),
        scripts="".join(_file(f"browser/{name}.js") for name in _SCRIPTS),
    )
    return _framed(f"{model}: placement", body, _file("run.css"), plotly="")


def _slot(name: str, charts: Mapping[str, go.Figure | None], otherwise: str) -> str:
    """The element in which the page draws a chart, or a sentence if there is no chart."""
    chart = charts[name]
    if chart is None:
        return f"<p>{otherwise}</p>"
    return f'<div class="chart" id="{name}-chart" style="min-height:{chart.layout.height}px"></div>'


def _packed(name: str, text: str) -> str:
    """A compressed text that the page unpacks; no tag or name in it is interpreted before."""
    content = base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{content}</script>'


def bench_html(name: str, document: Mapping[str, Any], title: str, style: str = "", **parts: str) -> str:
    """The page of a bench from a template; `parts` are HTML by their name in it, `style` is a file of further rules."""
    body = Template(_file(name)).substitute(parts, title=escape(title), facts=tables.bench_facts(document))
    return _framed(escape(title), body, _file(style) if style else "", get_plotlyjs())


def _framed(title: str, body: str, own_style: str, plotly: str) -> str:
    """A complete page around `body`; `plotly` is the text of Plotly's library, or empty."""
    style = _file("page.css") + own_style
    return Template(_file("frame.html")).substitute(title=title, style=style, plotly=plotly, body=body)


def _file(name: str) -> str:
    return resources.files("gnnplace.report").joinpath(name).read_text(encoding="utf-8")


def chart_html(figure: go.Figure, name: str) -> str:
    """A figure as an HTML fragment for a page that contains Plotly."""
    settings = {
        "displaylogo": False,
        "responsive": True,
        # The first button would upload the chart; the others duplicate a button.
        "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    }
    return str(to_html(figure, config=settings, include_plotlyjs=False, full_html=False, div_id=f"{name}-chart"))
