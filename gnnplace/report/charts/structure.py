"""A graph coloured by what its nodes are, before anything is placed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from gnnplace.report.charts.layered_layout import Point, layered_layout
from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure

__all__ = ["Float32Array", "line_ends", "structure_chart"]

Float32Array = NDArray[np.float32]

_KINDS = 9
_PIXELS = 26
_FRAME = 110


def structure_chart(texts: Sequence[str], kinds: Sequence[str], edges: Sequence[tuple[int, int]]) -> go.Figure:
    """Nodes in layers along the flow of data; the kinds with most nodes have colours of their own.

    `texts` and `kinds` are of the nodes; `edges` are pairs of their indices.
    """
    layout = layered_layout(len(texts), edges)
    tall = max(layout.y, default=0.0) - min(layout.y, default=0.0)
    figure = new_figure(height=int(_FRAME + _PIXELS * (2 + tall)))
    x, y = line_ends(layout.lines)
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"width": 1.2, "color": MUTED}, opacity=0.7, hoverinfo="skip", showlegend=False
    )
    often = sorted(dict.fromkeys(kinds), key=lambda kind: -kinds.count(kind))
    named = often if len(often) <= _KINDS + 1 else often[:_KINDS]
    for number, name in enumerate([*named, *["others"] * (len(named) < len(often))]):
        nodes = [node for node, kind in enumerate(kinds) if (kind if kind in named else "others") == name]
        figure.add_scatter(
            x=layout.x[nodes],
            y=layout.y[nodes],
            mode="markers",
            name=f"{label(name)} ({len(nodes)})",
            marker={"size": 11, "color": device_colour(number), "line": {"width": 0.5, "color": "white"}},
            text=[f"<b>{label(texts[node])}</b><br>{label(kinds[node])}" for node in nodes],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, autorange="reversed")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 0.0, "yanchor": "top"})
    return figure


def line_ends(lines: Sequence[Sequence[Point]]) -> tuple[Float32Array, Float32Array]:
    """The points of all lines one after the other, with gaps between them.

    >>> line_ends([((0.0, 0.0), (1.0, 2.0))])[1].tolist()
    [0.0, 2.0, nan]
    """
    gap = (np.nan, np.nan)
    points = np.array([point for line in lines for point in (*line, gap)], dtype=np.float32).reshape(-1, 2)
    return points[:, 0], points[:, 1]
