"""How full each memory is over time, and what it holds at most."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnplace.report.charts.theme import TRANSFER, device_colour, label, new_figure, time_unit
from gnnplace.run_record import RunRecord
from gnnplace.units import format_bytes, format_s

__all__ = ["memory_chart"]

_ROW = 70
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def memory_chart(run: RunRecord) -> go.Figure | None:
    """A row per device: bytes in use over the time of one step, with its capacity as a line; None where the run says nothing of it.

    A capacity far above the peak is said and not drawn, as the course would be a flat line below it.
    """
    courses = run.get("memory_over_time")
    if courses is None or not run["devices"]:
        return None
    end_s = max([0.0, *run["ops"]["end_s"], *(row["end_s"] for row in run["transfers"])])
    unit, scale = time_unit(end_s)
    figure = new_figure(height=_ROW * len(courses) + 70)
    titles = [_title(run, device) for device in range(len(courses))]
    grid = make_subplots(
        rows=len(courses), cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.3 / len(courses)
    )
    for device, course in enumerate(courses):
        _add_course(grid, run, device, [*course, (end_s, course[-1][1] if course else 0)], scale)
    grid.update_layout(figure.layout)
    grid.update_layout(showlegend=False)
    grid.update_annotations(font={"size": 12}, xanchor="left", x=0)
    grid.update_xaxes({"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "range": [0, end_s / scale or 1.0]})
    grid.update_xaxes(title=f"time of one step ({unit}, simulated)", row=len(courses), col=1)
    return grid


def _title(run: RunRecord, device: int) -> str:
    """With the peak that was evaluated: ops that take no time rise and fall within an instant, which no line shows."""
    name, capacity = run["devices"][device]["name"], run["devices"][device]["memory_bytes"]
    limit = "no limit" if capacity is None else f"of {format_bytes(capacity)}"
    return f"{label(name, most=30)}: at most {format_bytes(run['peak_memory_bytes'].get(name, 0))} {limit}"


def _add_course(grid: go.Figure, run: RunRecord, device: int, course: list[tuple[float, int]], scale: float) -> None:
    capacity, peak = run["devices"][device]["memory_bytes"], max(level for _, level in course)
    unit, size = next((unit for unit in _UNITS if peak >= unit[1]), _UNITS[-1])
    grid.add_scatter(
        x=[time / scale for time, _ in course],
        y=[level / size for _, level in course],
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": device_colour(device)},
        fill="tozeroy",
        hovertext=[f"{format_bytes(level)} from {format_s(time)}" for time, level in course],
        hovertemplate="%{hovertext}<extra></extra>",
        row=device + 1,
        col=1,
    )
    top = 1.1 * peak / size or 1.0
    if capacity is not None and capacity <= 3 * peak:
        grid.add_hline(y=capacity / size, line={"dash": "dash", "width": 1.5, "color": TRANSFER}, row=device + 1, col=1)
        top = 1.1 * max(peak, capacity) / size
    grid.update_yaxes(
        {
            "gridcolor": "rgba(128,128,128,0.25)",
            "zeroline": False,
            "automargin": True,
            "nticks": 3,
            "range": [0, top],
            "title": unit,
            "fixedrange": True,
        },
        row=device + 1,
        col=1,
    )
