"""A graph as a still picture, coloured by what its nodes are or by where they run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from gnnplace.report.charts.layered_layout import Point, layered_layout
from gnnplace.report.charts.theme import MUTED, TRANSFER, device_colour, label, new_figure

__all__ = ["Float32Array", "line_ends", "structure_chart"]

Float32Array = NDArray[np.float32]

_KINDS = 9
_DEEP = 70
"""Layers from which on nodes are small."""
_LARGE, _SMALL = 11, 7
_PIXELS = 26
_FRAME = 110


def structure_chart(
    texts: Sequence[str],
    kinds: Sequence[str],
    edges: Sequence[tuple[int, int]],
    devices: Sequence[str] | None = None,
) -> go.Figure:
    """Nodes in layers along the flow of data, coloured by kind.

    Args:
        texts: of the nodes.
        kinds: of the nodes; those with most nodes have colours of their own.
        edges: pairs of indices of nodes.
        devices: where the kinds are devices, their names: colours follow them, and edges from one to another are red.
    """
    layout = layered_layout(len(texts), edges)
    tall = max(layout.y, default=0.0) - min(layout.y, default=0.0)
    figure = new_figure(height=int(_FRAME + _PIXELS * (2 + tall)))
    crosses = [devices is not None and kinds[tail] != kinds[head] for tail, head in edges]
    for crossing, colour in ((False, MUTED), (True, TRANSFER)):
        x, y = line_ends([line for line, found in zip(layout.lines, crosses, strict=True) if found == crossing])
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines",
            line={"width": 1.2, "color": colour},
            opacity=0.7,
            hoverinfo="skip",
            showlegend=False,
        )
    often = sorted(dict.fromkeys(kinds), key=lambda kind: -kinds.count(kind)) if devices is None else list(devices)
    named = often if devices is not None or len(often) <= _KINDS + 1 else often[:_KINDS]
    size = _LARGE if max(layout.x, default=0.0) < _DEEP else _SMALL
    for number, name in enumerate([*named, *["others"] * (len(named) < len(often))]):
        nodes = [node for node, kind in enumerate(kinds) if (kind if kind in named else "others") == name]
        figure.add_scatter(
            x=layout.x[nodes],
            y=layout.y[nodes],
            mode="markers",
            name=f"{label(name)} ({len(nodes)})",
            marker={"size": size, "color": device_colour(number), "line": {"width": 0.5, "color": "white"}},
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
