"""Simulated against executed seconds of many placements, a small picture per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure

__all__ = ["Point", "agreement_chart"]

Point = tuple[str, float, float, str]
"""Kind, executed and simulated relative to one device, and what it is."""
_COLUMNS, _HEIGHT = 3, 300
_ROOM = 0.06


def agreement_chart(points: Mapping[str, Sequence[Point]]) -> go.Figure:
    """A point per placement by model; on the line both agree, below it the simulator was too optimistic."""
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
