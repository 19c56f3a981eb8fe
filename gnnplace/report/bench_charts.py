"""Charts of benches: placements per layer, ratios to the best known, simulated against executed times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnplace.report.bench_format import devices_of_letters
from gnnplace.report.theme import MUTED, device_colour, label, new_figure

__all__ = ["Point", "agreement_chart", "budgets_chart", "placements_chart", "ratios_chart"]


Point = tuple[str, float, float, str]
"""Kind, executed time and simulated time relative to one device, and a description."""
_CELL, _TITLE = 13, 30
_ROW = 30
_LEAST_GAP = 0.05
"""Smallest distance between two numbers of an axis, as a fraction of the axis."""
_TICKS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_COLUMNS, _HEIGHT = 3, 300
_ROOM = 0.06


def placements_chart(
    placements: Mapping[str, str], stages: Sequence[int], types: Sequence[str], devices: Sequence[str]
) -> go.Figure:
    """One picture per planner: a row per layer, with the op groups in topological order, coloured by device.

    Args:
        placements: by planner, the letter of the device of every op group; see `device_letters`.
        stages: `[G]` layer of each group, -1 where unknown.
        types: `[G]` type of the heaviest op of each group.
        devices: device names.
    """
    layers = sorted(set(stages))
    row_of = {stage: row for row, stage in enumerate(layers)}
    columns = np.zeros(len(stages), dtype=np.int64)
    filled = dict.fromkeys(layers, 0)
    for group, stage in enumerate(stages):  # groups come in topological order
        columns[group], filled[stage] = filled[stage], filled[stage] + 1
    rows = np.array([row_of[stage] for stage in stages], dtype=np.int64)
    shape = (len(layers), max(filled.values(), default=1))
    each = _CELL * len(layers) + _TITLE
    figure = new_figure(height=each * max(1, len(placements)) + 40)
    if not placements:
        return figure
    grid = make_subplots(
        rows=len(placements), cols=1, subplot_titles=[label(planner) for planner in placements],
        vertical_spacing=_TITLE / (each * len(placements) + 40),
    )  # fmt: skip
    for number, letters in enumerate(placements.values(), start=1):
        device = np.full(shape, np.nan)
        text = np.full(shape, "", dtype=object)
        chosen = devices_of_letters(letters)
        device[rows, columns] = chosen
        text[rows, columns] = [
            f"{label(types[group])} on {label(devices[index])}" for group, index in enumerate(chosen)
        ]
        grid.add_heatmap(
            z=device, text=text, hovertemplate="layer %{y}: %{text}<extra></extra>", showscale=False, xgap=1, ygap=1,
            y=["no layer" if stage < 0 else str(stage) for stage in layers], zmin=-0.5, zmax=len(devices) - 0.5,
            colorscale=_scale(len(devices)), row=number, col=1,
        )  # fmt: skip
    grid.update_xaxes(showticklabels=False, showgrid=False)
    grid.update_yaxes(type="category", autorange="reversed", showgrid=False, tickfont={"size": 9})
    grid.update_layout(figure.layout)
    return grid


def _scale(count: int) -> list[tuple[float, str]]:
    """A stepped colour scale with one colour per device."""
    return [(edge / count, device_colour(device)) for device in range(count) for edge in (device, device + 1)]


def ratios_chart(points: Mapping[str, Sequence[tuple[str, float]]]) -> go.Figure:
    """A box and its points per row; `points` are (description, ratio to the best known)."""
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
    """A logarithmic axis with round ratios as ticks."""
    first, last = math.log10(0.99), math.log10(1.05 * max(most, 1.05))
    ticks: list[float] = []
    for tick in _TICKS:
        if tick <= 1.3 * most and (not ticks or math.log10(tick / ticks[-1]) >= _LEAST_GAP * (last - first)):
            ticks.append(tick)
    return {
        "type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks], "range": [first, last],
    }  # fmt: skip


def _colour(row: str) -> str:
    """One colour for rows of `gnn`, one for annealing, one for all others."""
    return device_colour(0) if row.startswith("gnn") else device_colour(1) if row.startswith("annealing") else MUTED


def agreement_chart(points: Mapping[str, Sequence[Point]]) -> go.Figure:
    """A subplot per model with a point per placement; below the diagonal the simulator was too optimistic."""
    rows = -(-len(points) // _COLUMNS)
    figure = new_figure(height=_HEIGHT * rows + 60)
    figure.set_subplots(
        rows=rows,
        cols=_COLUMNS,
        subplot_titles=[label(name, 40) for name in points],
        horizontal_spacing=0.07,
        vertical_spacing=0.3 / rows,
    )
    kinds = list(dict.fromkeys(kind for several in points.values() for kind, *_ in several))
    for number, several in enumerate(points.values()):
        cell = {"row": number // _COLUMNS + 1, "col": number % _COLUMNS + 1}
        values = [value for _, executed, simulated, _ in several for value in (executed, simulated)]
        ends = [min(values) * (1 - _ROOM), max(values) * (1 + _ROOM)]
        figure.add_scatter(
            x=ends, y=ends, mode="lines", line={"color": MUTED, "width": 1, "dash": "dot"}, hoverinfo="skip",
            showlegend=False, **cell,
        )  # fmt: skip
        for index, kind in enumerate(kinds):
            mine = [point for point in several if point[0] == kind]
            figure.add_scatter(
                x=[executed for _, executed, _, _ in mine],
                y=[simulated for _, _, simulated, _ in mine],
                text=[label(what) for *_, what in mine],
                mode="markers",
                name=label(kind),
                legendgroup=kind,
                showlegend=number == 0,
                marker={"size": 6, "opacity": 0.75, "color": device_colour(index)},
                hovertemplate="%{text}<br>executed %{x:.3f}, simulated %{y:.3f}<extra>%{fullData.name}</extra>",
                **cell,
            )
        figure.update_xaxes(range=ends, **cell)
        figure.update_yaxes(range=ends, **cell)
    axis = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    figure.update_annotations(font={"size": 11, "color": MUTED})
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1 + 0.12 / rows, "font": {"color": MUTED}})
    return figure
