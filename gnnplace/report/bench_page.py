"""The page of a bench from its JSON; the papers' tables show the published figures beside ours."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from gnnplace.errors import GnnplaceError, shown
from gnnplace.files import read_json, write_text
from gnnplace.report import BENCH_FORMAT
from gnnplace.report.bench_charts import placements_chart
from gnnplace.report.execution_pages import render_fidelity, render_measured
from gnnplace.report.generalization_page import render_generalization
from gnnplace.report.page import bench_html, chart_html
from gnnplace.report.tables import device_legend, html_table, summary_table
from gnnplace.units import format_s

_PICTURED = ("expert", "scotch", "coloc-rl", "hierarchical", "placeto", "annealing", "gnn")
_NAMES = {
    "single-cpu": "one CPU", "single-gpu": "one GPU", "scotch": "Scotch", "metis": "MinCut", "heft": "HEFT",
    "hierarchical-no-grouping": "hierarchical, no grouping",
    "hierarchical-random-grouping": "hierarchical, random grouping",
}  # fmt: skip
Line = Mapping[str, Any]


def read_bench(path: Path) -> dict[str, Any]:
    """Reads the result of a bench that has a page.

    Raises:
        GnnplaceError: the file is no such result.
    """
    document = read_json(path, GnnplaceError)
    if not isinstance(document, dict) or document.get("format") != BENCH_FORMAT or "details" not in document:
        raise GnnplaceError(
            f"{path}: is no result of `gnnplace bench seeds`, `spotlight`, `generalization`, `measured` or `fidelity`"
        )
    return document


def write_bench_page(document: Mapping[str, Any], path: Path) -> Path:
    """Writes the page of a bench; returns its path.

    Raises:
        GnnplaceError: the suite has no page, or the document lacks a value that the page shows.
    """
    suite = str(document.get("suite"))
    if suite not in _PAGES:
        raise GnnplaceError(
            f"there is no page for the suite {shown(suite)}, only for {', '.join(_PAGES)}; its rows are in the result"
        )
    try:
        page = _PAGES[suite](document)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise GnnplaceError(
            f"{path.with_suffix('.json')}: lacks a value that its page shows ({type(problem).__name__}: {problem}); run the bench again"
        ) from None
    write_text(path, page)
    return path


def render_bench(document: Mapping[str, Any]) -> str:
    """The page of the papers' tables as HTML: seconds, evaluations, wall times and placements of every row."""
    rows: dict[str, dict[str, Line]] = {}
    for line in document["rows"]:
        rows.setdefault(line["row"], {})[line["planner"]] = line
    details, summary = document["details"], document["summary"]
    return bench_html(
        "bench.html", document, f"bench {document['suite']}", "bench.css",
        seconds=_table(rows, details, _seconds, bound=True),
        evaluations=_table(rows, details, lambda line, _: _count(line["to_within_1_percent"])),
        wall=_table(rows, details, lambda line, _: format_s(line["wall_s"]) if line["wall_s"] else "–"),
        summary=summary_table(summary, ".3g"),
        pictures="".join(_picture(key, details[key]) for key in rows),
    )  # fmt: skip


def _table(
    rows: Mapping[str, Mapping[str, Line]], details: Line, cell: Callable[[Line, bool], str], bound: bool = False
) -> str:
    """One row per table row and one column per planner that has a value.

    `cell` receives a line and whether its planner is the best of the row.
    """
    planners = list(dict.fromkeys(planner for lines in rows.values() for planner in lines))
    heads = ["task", "devices", *(_NAMES.get(planner, planner) for planner in planners), *["lower bound"] * bound]
    body = []
    for key, lines in rows.items():
        best_s = min((line["makespan_s"] for line in lines.values() if line["makespan_s"] is not None), default=None)
        cells = [
            "–" if planner not in lines else cell(lines[planner], lines[planner]["makespan_s"] == best_s is not None)
            for planner in planners
        ]
        limit = [format_s(details[key]["lower_bound"]["value_s"])] if bound else []
        body.append([escape(details[key]["task"]), escape(details[key]["testbed"]), *cells, *limit])
    filled = [column for column in range(len(heads)) if any(line[column] != "–" for line in body)]
    return html_table([heads[column] for column in filled], [[line[column] for column in filled] for line in body])


def _seconds(line: Line, best: bool) -> str:
    """The median, the range over seeds, and the published time."""
    seconds, published = line["makespan_s"], line["published_s"]
    if seconds is None:
        is_memory = line["error"] is None or "memory" in line["error"]
        text = f'<span class="bad">{"OOM" if is_memory else "failed"}</span>'
    else:
        text = format_s(seconds)
    if best:
        text = f"<b>{text}</b>"
    lowest, highest = line["lowest_s"], line["highest_s"]
    if lowest is not None and highest != lowest:
        text += f"<br><small>{_range(lowest, highest)}</small>"
    if published is not None:
        text += f"<br><small>paper {escape(published) if isinstance(published, str) else format_s(published)}</small>"
    return text


def _range(lowest_s: float, highest_s: float | None) -> str:
    """Formats a range; states the unit once if both ends have the same one."""
    low, high = format_s(lowest_s), "OOM" if highest_s is None else format_s(highest_s)
    number, _, unit = low.partition(" ")
    return f"{number}–{high}" if high.endswith(f" {unit}") else f"{low} – {high}"


def _count(evaluations: float | None) -> str:
    return "–" if evaluations is None else f"{evaluations:,.0f}"


def _picture(key: str, detail: Mapping[str, Any]) -> str:
    placements = {planner: detail["placements"][planner] for planner in _PICTURED if planner in detail["placements"]}
    figure = placements_chart(placements, detail["group_stages"], detail["group_types"], detail["devices"])
    about = f"{detail['ops']:,} ops in {detail['groups']:,} groups; {escape(detail['source']) or 'not in the papers'}"
    title = f"{escape(detail['task'])} on {escape(detail['testbed'])}"
    legend = device_legend(dict(enumerate(detail["devices"])))
    return f"<h3>{title}</h3><p>{about}</p>{legend}{chart_html(figure, key)}"


_PAGES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "seeds": render_bench,
    "spotlight": render_bench,
    "generalization": render_generalization,
    "measured": render_measured,
    "fidelity": render_fidelity,
}
