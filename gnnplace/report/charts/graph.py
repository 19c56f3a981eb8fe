"""The op graph coloured by device; op groups where there are too many ops to see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from gnnplace.report.charts.layered_layout import Layout, Point, layered_layout
from gnnplace.report.charts.theme import MUTED, TRANSFER, device_colour, label, new_figure
from gnnplace.report.run_record import RunRecord
from gnnplace.units import format_s

__all__ = ["graph_chart"]

MOST_NODES = 2000
LAYERS_PER_ROW = 64
PIXELS = 16  # between two neighbours
ROW_GAP = 2.0
TALLEST = 1000


@dataclass(frozen=True)
class Picture:
    """What is drawn: ops, or groups of them."""

    texts: list[str]
    devices: list[int]
    edges: list[tuple[int, int]]


def graph_chart(run: RunRecord) -> go.Figure | None:
    """Nodes in layers along the flow of data; None when even the groups are too many.

    A deep graph is folded: it runs to the right, then back to the left below, as an ox ploughs.
    """
    picture = _ops(run) if len(run["ops"]["name"]) <= MOST_NODES else _groups(run)
    if len(picture.texts) > MOST_NODES:
        return None
    layout = _folded(layered_layout(len(picture.texts), picture.edges))
    tall = int(PIXELS * (np.ptp(layout.y) if len(layout.y) else 0.0))
    figure = new_figure(height=min(TALLEST, 140 + tall))
    crosses = [picture.devices[tail] != picture.devices[head] for tail, head in picture.edges]
    for crossing, colour in ((False, MUTED), (True, TRANSFER)):
        lines = [line for line, crossed in zip(layout.lines, crosses, strict=True) if crossed == crossing]
        if lines:
            _add_lines(figure, lines, colour)
    for device in sorted(set(picture.devices)):
        nodes = [node for node, place in enumerate(picture.devices) if place == device]
        figure.add_scatter(
            x=layout.x[nodes],
            y=layout.y[nodes],
            mode="markers",
            marker={
                "size": 9,
                "color": device_colour(device),
                "line": {"width": 0.5, "color": "rgba(255,255,255,0.7)"},
            },
            text=[picture.texts[node] for node in nodes],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, autorange="reversed")
    return figure


def _ops(run: RunRecord) -> Picture:
    ops, devices = run["ops"], run["devices"]
    texts = [
        f"<b>{label(name)}</b><br>{label(kind)}, {format_s(end_s - start_s)}, on {label(devices[device]['name'])}"
        for name, kind, device, start_s, end_s in zip(
            ops["name"], ops["type"], ops["device"], ops["start_s"], ops["end_s"], strict=True
        )
    ]
    return Picture(texts, ops["device"], _distinct((edge[0], edge[1]) for edge in run["edges"]))


def _groups(run: RunRecord) -> Picture:
    """One node per group; an op without one is its own."""
    ops = run["ops"]
    node_of: dict[object, int] = {}
    keys = [("op", op) if group is None else ("group", group) for op, group in enumerate(ops["group"])]
    nodes = [node_of.setdefault(key, len(node_of)) for key in keys]
    first = dict(zip(reversed(nodes), range(len(nodes) - 1, -1, -1), strict=True))
    sizes = np.bincount(nodes)
    places = [ops["device"][first[node]] for node in range(len(sizes))]
    texts = [
        f"{size} ops, the first: <b>{label(ops['name'][first[node]])}</b><br>on {label(run['devices'][places[node]]['name'])}"
        for node, size in enumerate(sizes)
    ]
    return Picture(texts, places, _distinct((nodes[edge[0]], nodes[edge[1]]) for edge in run["edges"]))


def _distinct(edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Edges between different nodes, each once."""
    return list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))


def _folded(layout: Layout) -> Layout:
    """The layout in rows of `LAYERS_PER_ROW` layers, every other one running back to the left."""
    depth = layout.x.max(initial=0.0) + 1
    num_rows = max(1, round(depth / LAYERS_PER_ROW))
    width = np.ceil(depth / num_rows)
    points = [np.column_stack([layout.x, layout.y]), *(np.array(line) for line in layout.lines)]
    every = np.concatenate(points)
    row = (every[:, 0] // width).astype(np.int64)
    top, bottom = np.full(num_rows, np.inf), np.full(num_rows, -np.inf)
    np.minimum.at(top, row, every[:, 1])
    np.maximum.at(bottom, row, every[:, 1])
    heights = np.where(bottom >= top, bottom - top, 0.0) + ROW_GAP
    shift = np.cumsum(heights) - heights - np.where(np.isfinite(top), top, 0.0)
    along = every[:, 0] % width
    placed = np.column_stack([np.where(row % 2 == 0, along, width - 1 - along), every[:, 1] + shift[row]])
    nodes, *lines = np.split(placed, np.cumsum([len(part) for part in points])[:-1])
    return Layout(nodes[:, 0], nodes[:, 1], tuple(tuple(map(_point, line)) for line in lines))


def _point(pair: np.ndarray) -> Point:
    return float(pair[0]), float(pair[1])


def _add_lines(figure: go.Figure, lines: list[tuple[Point, ...]], colour: str) -> None:
    """All lines as one trace, with gaps between them."""
    gap = (None, None)
    points = [point for line in lines for point in (*line, gap)]
    figure.add_scatter(
        x=[point[0] for point in points],
        y=[point[1] for point in points],
        mode="lines",
        line={"width": 1.2, "color": colour},
        opacity=0.7,
        hoverinfo="skip",
    )
