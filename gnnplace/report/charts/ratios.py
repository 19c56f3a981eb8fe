"""How far what rows of a bench found is from the best known: every run as a point, and means by number of evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure

__all__ = ["budgets_chart", "ratios_chart"]

_ROW = 30
_LEAST_GAP = 0.05
"""Between two numbers on an axis, as a share of it, so that they do not overlap."""
_TICKS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def ratios_chart(points: Mapping[str, Sequence[tuple[str, float]]]) -> go.Figure:
    """A box and a strip of points per row, the first on top; `points` are (what it is, ratio to the best known)."""
    figure = new_figure(height=_ROW * len(points) + 80)
    for row, several in points.items():
        colour = _colour(row)
        figure.add_box(
            x=[ratio for _, ratio in several],
            y0=label(row),
            name=label(row),
            text=[label(name) for name, _ in several],
            hovertemplate="%{text}<br>%{x:.3f} times the best known<extra>%{y}</extra>",
            orientation="h",
            boxpoints="all",
            jitter=0.6,
            pointpos=0,
            marker={"size": 3, "opacity": 0.55, "color": colour},
            line={"width": 1, "color": colour},
            fillcolor="rgba(0,0,0,0)",
        )
    most = max((ratio for several in points.values() for _, ratio in several), default=1.0)
    figure.update_xaxes(_ratio_axis(most), title="seconds over the best known")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def budgets_chart(lines: Mapping[str, Sequence[tuple[int, float]]]) -> go.Figure:
    """A line per planner through (evaluations, mean ratio to the best known)."""
    figure = new_figure(height=320)
    for planner, several in lines.items():
        points = sorted(several)
        figure.add_scatter(
            x=[count for count, _ in points],
            y=[ratio for _, ratio in points],
            mode="lines+markers",
            name=label(planner),
            line={"color": _colour(planner), "width": 2, "dash": "dot" if "untrained" in planner else "solid"},
            hovertemplate="%{x:,} evaluations: %{y:.3f} times the best known<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(type="log", title="evaluations", dtick=1)
    most = max((ratio for several in lines.values() for _, ratio in several), default=1.0)
    figure.update_yaxes(_ratio_axis(most), title="mean ratio")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.1, "font": {"color": MUTED}})
    return figure


def _ratio_axis(most: float) -> dict[str, Any]:
    """Logarithmic, with the numbers that people read ratios by."""
    first, last = math.log10(0.99), math.log10(1.05 * max(most, 1.05))
    ticks: list[float] = []
    for tick in _TICKS:
        if tick <= 1.3 * most and (not ticks or math.log10(tick / ticks[-1]) >= _LEAST_GAP * (last - first)):
            ticks.append(tick)
    return {
        "type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks], "range": [first, last],
    }  # fmt: skip


def _colour(row: str) -> str:
    """Alike for rows of one planner: the improver in one colour, annealing in another, the rest in a third."""
    return device_colour(0) if row.startswith("gnn") else device_colour(1) if row.startswith("annealing") else MUTED
