"""Numbers that change along an axis, as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure

__all__ = ["curves_chart", "running_mean"]


def curves_chart(lines: Mapping[str, Sequence[tuple[float, float]]], x_title: str, y_title: str) -> go.Figure:
    """A line per name through its points (x, y), in the order in which they are given."""
    figure = new_figure(height=340)
    for number, (name, points) in enumerate(lines.items()):
        figure.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            mode="lines",
            name=label(name),
            line={"width": 2, "color": device_colour(number)},
            hovertemplate="%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    figure.update_layout(
        showlegend=len(lines) > 1,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.0, "font": {"color": MUTED}},
    )
    return figure


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and of up to `width` - 1 before it.

    >>> running_mean([1.0, 3.0, 5.0], width=2)
    [1.0, 2.0, 4.0]
    """
    parts = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(part) / len(part) for part in parts]
