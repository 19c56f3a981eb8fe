"""Numbers of many things, as a coloured table."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from gnnplace.arrays import FloatArray
from gnnplace.report.charts.theme import MUTED, label, new_figure

__all__ = ["matrix_chart"]

_ROW = 22


def matrix_chart(values: FloatArray, rows: Sequence[str], columns: Sequence[str], title: str) -> go.Figure:
    """`values` `[R, C]` as colours, from 0 to the largest of each row; `title` is that of the columns."""
    figure = new_figure(height=_ROW * len(rows) + 90)
    highest = abs(values).max(axis=1, keepdims=True, initial=0.0)
    figure.add_heatmap(
        z=values / (highest + (highest == 0)),
        x=list(range(len(columns))),
        y=[label(row) for row in rows],
        customdata=values,
        text=[[label(column) for column in columns]] * len(rows),
        hovertemplate="%{text}<br>%{y}: %{customdata:.3f}<extra></extra>",
        colorscale="Viridis",
        colorbar={"title": {"text": "of the row's<br>largest"}, "tickfont": {"color": MUTED}},
    )
    figure.update_xaxes(title=title, showgrid=False)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure
