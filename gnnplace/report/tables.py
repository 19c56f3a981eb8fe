"""The parts of a report that are text and numbers, as HTML; every name is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gnnplace.report.answer import evaluator_of, percent, seconds, speed
from gnnplace.report.charts.theme import TRANSFER, device_colour
from gnnplace.run_record import MeasuredRecord, PlannerRow, RunRecord
from gnnplace.units import format_bytes

__all__ = [
    "bench_facts",
    "devices_table",
    "facts_table",
    "figure",
    "graph_legend",
    "html_table",
    "planners_table",
    "runs_table",
    "summary_table",
    "swatch",
    "warnings_list",
]


def planners_table(run: RunRecord) -> str:
    """Every planner on this problem, fastest first; the one whose placement is kept is marked."""
    rows = sorted(run["planners"], key=_rank)
    slowest_s = max((row["makespan_s"] or 0.0 for row in rows if _rank(row)[0] == 0), default=0.0)
    heads = ["planner", f"one step ({evaluator_of(run)})", "gap", "evaluations", "took", ""]
    return html_table(heads, ([_cell(cell) for cell in _planner_cells(row, run, slowest_s)] for row in rows))


def runs_table(run: RunRecord) -> str:
    """What was executed side by side; empty when nothing was."""
    measured = run["measured"]
    if measured is None or not measured["runs"]:
        return ""
    first_s = measured["runs"][0]["median_s"]
    rows = (
        [
            _cell(row["label"]),
            _cell(f"{seconds(row['median_s'])} ± {seconds(row['spread_s'])}"),
            _cell(str(row["repeats"])),
            _cell("" if number == 0 else f"{speed(row['median_s'], first_s)} the first"),
        ]
        for number, row in enumerate(measured["runs"])
    )
    return html_table(["measured side by side", "median", "repeats", ""], rows) + _searched(measured)


def _searched(measured: MeasuredRecord) -> str:
    """What the search executed; empty where that is not said."""
    if "search" not in measured:
        return ""
    search = measured["search"]
    known = f", {search['recalled']:,} were known from before" if search["recalled"] else ""
    failed = f" {search['failed']:,} could not be measured." if search.get("failed") else ""
    retried = f" Lost measuring processes that were replaced: {search['retried']:,}." if search.get("retried") else ""
    return (
        f"<p>The search executed {search['executed']:,} placements{known}.{failed}{retried} "
        f"Models ran for {seconds(search['executing_s'])} of the {seconds(search['wall_s'])} that it took ({percent(search['executing_s'] / max(search['wall_s'], 1e-9))}).</p>"
    )


def devices_table(run: RunRecord) -> str:
    """Ops and peak memory of each device, against its capacity."""
    ops = run["ops"]
    rows = []
    for index, device in enumerate(run["devices"]):
        num_ops = sum(place == index for place in ops["device"])
        peak, capacity = run["peak_memory_bytes"].get(device["name"], 0), device["memory_bytes"]
        name = f"{swatch(device_colour(index))}{escape(device['name'])}"
        if device["kind"] != device["name"]:
            name += f" <small>{escape(device['kind'])}</small>"
        rows.append([name, f"{num_ops:,}", _memory_bar(peak, capacity, device_colour(index))])
    return html_table(["device", "ops", "peak memory"], rows)


def graph_legend(run: RunRecord) -> str:
    """What the colours of the graph mean."""
    used = sorted(set(run["ops"]["device"]))
    parts = [f"{swatch(device_colour(device))}{escape(run['devices'][device]['name'])}" for device in used]
    moves = f'<span class="stroke" style="background:{TRANSFER}"></span>tensor moves to another device'
    return f'<p class="legend">{"".join(f"<span>{part}</span>" for part in [*parts, moves])}</p>'


def warnings_list(run: RunRecord) -> str:
    """The warnings; empty when there are none."""
    parts = [f"<li>{escape(text)}</li>" for text in run["warnings"]]
    return f'<section class="warnings"><h2>Warnings</h2><ul>{"".join(parts)}</ul></section>' if parts else ""


def facts_table(run: RunRecord) -> str:
    """How the run was made: command, sizes, seed, versions."""
    summary = run["summary"]
    facts = {
        "command": f"<code>{escape(run['command'])}</code>",
        "model": f"{escape(summary['model'])}: {summary['ops']:,} ops in {summary['groups']:,} groups",
        "search": f"{escape(summary['planner'])}, {summary['evaluations']:,} evaluations, {seconds(summary['wall_s'])}, "
        f"seed {summary['seed']}, for {escape(summary['objective'])}",
        "versions": ", ".join(f"{escape(name)} {escape(version)}" for name, version in run["versions"].items()),
    }
    return '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items()) + "</dl>"


def summary_table(summary: Mapping[str, Any]) -> str:
    """What a bench says in short: a figure per row."""
    return html_table(["", ""], ([escape(key.replace("_", " ")), figure(value)] for key, value in summary.items()))


def figure(value: object) -> str:
    """A number with three digits behind the point, a text as it is, a dash for nothing."""
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else escape(str(value))


def bench_facts(document: Mapping[str, Any]) -> str:
    """How a bench was made: command, machine, versions."""
    machine = document["machine"]
    facts = {
        "command": f"<code>{escape(document['command'])}</code>",
        "machine": f"{escape(machine['cpu'])}, {machine['cores']} cores, Python {escape(machine['python'])}",
        "versions": ", ".join(f"{escape(name)} {escape(text)}" for name, text in document["versions"].items()),
    }
    return '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items()) + "</dl>"


def _rank(row: PlannerRow) -> tuple[int, float]:
    """Feasible ones by time, then infeasible ones, then failed ones."""
    took = row["makespan_s"]
    if row["error"] or took is None or not math.isfinite(took):
        return 2, 0.0
    return int(not row["feasible"]), took


def _planner_cells(row: PlannerRow, run: RunRecord, slowest_s: float) -> list[str | tuple[str]]:
    kept = row["planner"] == run.get("kept", run["summary"]["planner"])
    name = f"<b>{escape(row['planner'])}</b> <small>kept</small>" if kept else escape(row["planner"])
    # What was planned in the simulator for a comparison by measuring took none of what is counted here.
    counted = row["evaluations"] or row["wall_s"]
    effort = (f"{row['evaluations']:,}", seconds(row["wall_s"])) if counted else ("–", "–")
    if row["error"]:
        return [(name,), "–", "–", *effort, row["error"]]
    took = row["makespan_s"]
    works = row["feasible"] and took is not None
    bar = _bar((took or 0.0) / slowest_s, device_colour(0)) if works and slowest_s else ""
    note = (bar,) if works else ("does not fit in memory",)
    return [(name,), seconds(took), percent(row["gap"]), *effort, note]


def _memory_bar(peak: int, capacity: int | None, colour: str) -> str:
    if capacity is None:
        return f"{format_bytes(peak)} <small>no limit</small>"
    part = peak / capacity if capacity else math.inf if peak else 0.0
    over = ' <b class="bad">does not fit</b>' if part > 1 else ""
    share = f"{percent(part)}" if math.isfinite(part) else "all"
    return f"{_bar(part, colour)}{format_bytes(peak)} of {format_bytes(capacity)} <small>{share}</small>{over}"


def swatch(colour: str) -> str:
    """A square of a colour."""
    return f'<span class="swatch" style="background:{colour}"></span>'


def _bar(part: float, colour: str) -> str:
    return f'<span class="bar"><span style="width:{100 * min(part, 1.0):.1f}%;background:{colour}"></span></span>'


def _cell(content: str | tuple[str]) -> str:
    """A tuple holds finished HTML; text is escaped."""
    return content[0] if isinstance(content, tuple) else escape(content)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; heads are text, cells finished HTML."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
