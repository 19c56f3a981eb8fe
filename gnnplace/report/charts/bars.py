"""Amounts side by side: a bar per category and series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure

__all__ = ["bars_chart"]

_BAR = 16
_FRAME = 110
_ROOM = 0.09


def bars_chart(
    amounts: Mapping[str, Mapping[str, float | None]], title: str, *, limits: Mapping[str, float] | None = None
) -> go.Figure:
    """Horizontal bars of `amounts[category][series]`, the first on top; None leaves a gap.

    Args:
        amounts: by category, then by series; the series have the order and colours in which they come first.
        title: of the axis, with its unit.
        limits: by category, where a line is drawn: a capacity, a bound.
    """
    series = list(dict.fromkeys(name for bars in amounts.values() for name in bars))
    rows = [label(category) for category in amounts]
    figure = new_figure(height=_FRAME + _BAR * max(1, len(series)) * len(rows) + 10 * len(rows))
    for number, name in enumerate(series):
        values = [bars.get(name) for bars in amounts.values()]
        figure.add_bar(
            orientation="h",
            y=rows,
            x=values,
            name=label(name),
            marker={"color": device_colour(number)},
            text=["" if value is None else f"{value:,.3g}" for value in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{x:,.4g}<extra>%{fullData.name}</extra>",
        )
    for row, category in enumerate(amounts):
        if limits is not None and category in limits:
            figure.add_shape(
                type="line", layer="below", x0=limits[category], x1=limits[category], y0=row - 0.45, y1=row + 0.45,
                line={"color": MUTED, "width": 2, "dash": "dot"},
            )  # fmt: skip
    figure.update_layout(barmode="group", bargap=0.25, showlegend=len(series) > 1)
    figure.update_layout(legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.0, "font": {"color": MUTED}})
    figure.update_xaxes(title=title, range=_range([value for bars in amounts.values() for value in bars.values()]))
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure


def _range(values: Sequence[float | None]) -> tuple[float, float]:
    """From the least or 0 to the largest or 0, with room for what is written at the end of a bar."""
    known = [0.0, *(value for value in values if value is not None)]
    room = _ROOM * (max(known) - min(known) or 1.0)
    return min(known) - room * (min(known) < 0), max(known) + room
