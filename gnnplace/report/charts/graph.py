"""Where op groups are drawn: in layers along the flow of data, folded like the furrows of a field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.report.charts.layered_layout import Layout, Point, layered_layout
from gnnplace.run_record import RunRecord

__all__ = ["GraphPicture", "graph_picture"]

MOST_GROUPS = 1024
ROW_GAP = 2.0
ASPECT = 1.1
"""Width over height of the folded graph in layers and lanes; on the page a layer is 2.2 times as wide as a lane is high."""


class GraphPicture(TypedDict):
    """Op groups as nodes; one unit is the distance of two neighbours."""

    of_op: list[int]
    """The node of each op."""
    x: list[float]
    y: list[float]
    edges: list[tuple[int, int, list[Point]]]
    """(producer, consumer, bends in between), each pair once."""
    tops: list[float]
    """Least `y` of each row of the folded graph, downwards."""


def graph_picture(run: RunRecord) -> GraphPicture:
    """Nodes in layers; a deep graph runs to the right, then back to the left below, as an ox ploughs.

    Nodes are the groups of the run, an op without one is its own; of more than `MOST_GROUPS`, those that follow each other on a
    device are one.
    """
    nodes = _nodes(run)
    count = max(nodes, default=-1) + 1
    edges = list(
        dict.fromkeys((nodes[edge[0]], nodes[edge[1]]) for edge in run["edges"] if nodes[edge[0]] != nodes[edge[1]])
    )
    layout, tops = _folded(layered_layout(count, edges))
    return {
        "of_op": nodes,
        "x": _rounded(layout.x),
        "y": _rounded(layout.y),
        "tops": _rounded(tops),
        "edges": [
            (tail, head, [(round(x, 3), round(y, 3)) for x, y in line[1:-1]])
            for (tail, head), line in zip(edges, layout.lines, strict=True)
        ],
    }


def _nodes(run: RunRecord) -> list[int]:
    """`[N]` the node of each op."""
    ops = run["ops"]
    node_of: dict[object, int] = {}
    keys = [("op", op) if group is None else ("group", group) for op, group in enumerate(ops["group"])]
    nodes = [node_of.setdefault(key, len(node_of)) for key in keys]
    return nodes if len(node_of) <= MOST_GROUPS else _stretches(run)


def _stretches(run: RunRecord) -> list[int]:
    """`[N]` equal numbers for ops that follow each other on a device, in about `MOST_GROUPS / 2` pieces."""
    ops = run["ops"]
    device, start_s = np.array(ops["device"], dtype=np.int64), np.array(ops["start_s"])
    order = np.lexsort((start_s, device))
    first = np.append(0, np.flatnonzero(np.diff(device[order])) + 1)
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    each = 2 * len(order) // MOST_GROUPS + 1
    pieces = np.empty(len(order), dtype=np.int64)
    pieces[order] = np.cumsum(place % each == 0) - 1
    return [int(piece) for piece in pieces]


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 3) for value in values]


def _folded(layout: Layout) -> tuple[Layout, FloatArray]:
    """The layout in rows that make a picture of the page's proportions, every other one running back to the left; and where rows begin."""
    depth = layout.x.max(initial=0.0) + 1
    num_rows = max(1, round(np.sqrt(depth / (ASPECT * (np.ptp(layout.y) + ROW_GAP))))) if len(layout.y) else 1
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
    folded = Layout(nodes[:, 0], nodes[:, 1], tuple(tuple(map(_point, line)) for line in lines))
    return folded, np.cumsum(heights) - heights


def _point(pair: np.ndarray) -> Point:
    return float(pair[0]), float(pair[1])
