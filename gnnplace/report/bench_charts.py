"""Charts of benches: placements per layer, ratios to the best known, simulated against executed times."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnplace.report import devices_of_letters
from gnnplace.report.theme import MUTED, device_colour, label, new_figure

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

    `placements` has the `device_letters` of each planner, `stages` `[G]` the layer of each group, -1 where unknown, and
    `types` `[G]` the type of its heaviest op.
    """
    layers = sorted(set(stages))
    rows = [layers.index(stage) for stage in stages]
    columns = [stages[:group].count(stage) for group, stage in enumerate(stages)]  # groups come in topological order
    each = _CELL * len(layers) + _TITLE
    height = each * max(1, len(placements)) + 40
    if not placements:
        return new_figure(height)
    figure = new_figure(
        height, rows=len(placements), cols=1, vertical_spacing=_TITLE / height,
        subplot_titles=[label(planner) for planner in placements],
    )  # fmt: skip
    colours = [(edge / len(devices), device_colour(d)) for d in range(len(devices)) for edge in (d, d + 1)]
    for number, letters in enumerate(placements.values(), start=1):
        chosen = devices_of_letters(letters)
        device = np.full((len(layers), max(columns, default=0) + 1), np.nan)
        text = np.full(device.shape, "", dtype=object)
        device[rows, columns] = chosen
        text[rows, columns] = [
            f"{label(types[group])} on {label(devices[index])}" for group, index in enumerate(chosen)
        ]
        figure.add_heatmap(
            z=device, text=text, hovertemplate="layer %{y}: %{text}<extra></extra>", showscale=False, xgap=1, ygap=1,
            y=["no layer" if stage < 0 else str(stage) for stage in layers], zmin=-0.5, zmax=len(devices) - 0.5,
            colorscale=colours, row=number, col=1,
        )  # fmt: skip
    figure.update_xaxes(showticklabels=False, showgrid=False)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, tickfont={"size": 9})
    return figure


def ratios_chart(points: Mapping[str, Sequence[tuple[str, float]]]) -> go.Figure:
    """A box and its points per row; `points` are (description, ratio to the best known)."""
    figure = new_figure(height=_ROW * len(points) + 80)
    for row, several in points.items():
        colour = _colour(row)
        figure.add_box(
            x=[ratio for _, ratio in several], y0=label(row), name=label(row), orientation="h",
            text=[label(name) for name, _ in several],
            hovertemplate="%{text}<br>%{x:.3f} times the best known<extra>%{y}</extra>",
            boxpoints="all", jitter=0.6, pointpos=0, marker={"size": 3, "opacity": 0.55, "color": colour},
            line={"width": 1, "color": colour}, fillcolor="rgba(0,0,0,0)",
        )  # fmt: skip
    figure.update_xaxes(_ratio_axis(points.values()), title="seconds over the best known")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def budgets_chart(lines: Mapping[str, Sequence[tuple[int, float]]]) -> go.Figure:
    """A line per planner through (evaluations, mean ratio to the best known)."""
    figure = new_figure(height=320)
    for planner, several in lines.items():
        counts, ratios = zip(*sorted(several), strict=True)
        figure.add_scatter(
            x=counts, y=ratios, mode="lines+markers", name=label(planner),
            line={"color": _colour(planner), "width": 2},
            hovertemplate="%{x:,} evaluations: %{y:.3f} times the best known<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    figure.update_xaxes(type="log", title="evaluations", dtick=1)
    figure.update_yaxes(_ratio_axis(lines.values()), title="mean ratio")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.1, "font": {"color": MUTED}})
    return figure


def _ratio_axis(points: Iterable[Sequence[tuple[object, float]]]) -> dict[str, Any]:
    """A logarithmic axis with round ratios as ticks."""
    most = max((ratio for several in points for _, ratio in several), default=1.0)
    first, last = math.log10(0.99), math.log10(1.05 * max(most, 1.05))
    ticks: list[float] = []
    for tick in _TICKS:
        if tick <= 1.3 * most and (not ticks or math.log10(tick / ticks[-1]) >= _LEAST_GAP * (last - first)):
            ticks.append(tick)
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks], "range": [first, last]}


def _colour(row: str) -> str:
    """One colour for rows of `gnn`, one for annealing, one for all others."""
    return device_colour(0) if row.startswith("gnn") else device_colour(1) if row.startswith("annealing") else MUTED


def agreement_chart(points: Mapping[str, Sequence[Point]]) -> go.Figure:
    """A subplot per model with a point per placement; below the diagonal the simulator was too optimistic."""
    rows = -(-len(points) // _COLUMNS)
    figure = new_figure(
        _HEIGHT * rows + 60, rows=rows, cols=_COLUMNS, horizontal_spacing=0.07, vertical_spacing=0.3 / rows,
        subplot_titles=[label(name, 40) for name in points],
    )  # fmt: skip
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
                x=[executed for _, executed, _, _ in mine], y=[simulated for _, _, simulated, _ in mine],
                text=[label(what) for *_, what in mine], mode="markers", name=label(kind), legendgroup=kind,
                showlegend=number == 0, marker={"size": 6, "opacity": 0.75, "color": device_colour(index)},
                hovertemplate="%{text}<br>executed %{x:.3f}, simulated %{y:.3f}<extra>%{fullData.name}</extra>", **cell,
            )  # fmt: skip
        figure.update_xaxes(range=ends, **cell)
        figure.update_yaxes(range=ends, **cell)
    figure.update_annotations(font={"size": 11, "color": MUTED})
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1 + 0.12 / rows, "font": {"color": MUTED}})
    return figure
