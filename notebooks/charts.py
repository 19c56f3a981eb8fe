"""Still charts that only the notebooks draw; films.py has the animations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from gnnplace.arrays import FloatArray
from gnnplace.report.layout import layered_layout, line_ends
from gnnplace.report.theme import MUTED, TRANSFER, device_colour, label, new_figure, time_unit
from gnnplace.run_record import RunRecord
from gnnplace.units import format_s

__all__ = [
    "bars_chart",
    "curves_chart",
    "gantt_chart",
    "matrix_chart",
    "running_mean",
    "structure_chart",
]


_BAR = 16
_FRAME = 110
_ROOM = 0.09


def bars_chart(
    amounts: Mapping[str, Mapping[str, float | None]], title: str, *, limits: Mapping[str, float] | None = None
) -> go.Figure:
    """Horizontal bars of `amounts[category][series]`, the first category on top; None leaves a gap.

    Args:
        amounts: by category, then by series; series keep their order of first appearance.
        title: title of the axis, with its unit.
        limits: by category, the position of a line, such as a capacity or a bound.
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
    """The range of an axis that includes 0 and leaves room for the labels of the bars."""
    known = [0.0, *(value for value in values if value is not None)]
    room = _ROOM * (max(known) - min(known) or 1.0)
    return min(known) - room * (min(known) < 0), max(known) + room


def curves_chart(lines: Mapping[str, Sequence[tuple[float, float]]], x_title: str, y_title: str) -> go.Figure:
    """A line per name through its points (x, y)."""
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
    """The mean of each value and of up to `width - 1` values before it."""
    parts = (values[max(0, end - width) : end] for end in range(1, len(values) + 1))
    return [sum(part) / len(part) for part in parts]


_ROW = 22


def matrix_chart(values: FloatArray, rows: Sequence[str], columns: Sequence[str], title: str) -> go.Figure:
    """A heat map of `values` `[R, C]`, each row scaled to its largest value; `title` names the columns."""
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


_KINDS = 9
_DEEP = 70
"""Number of layers above which nodes are drawn small."""
_LARGE, _SMALL = 11, 7
_PIXELS = 26
_STRUCTURE_FRAME = 110


def structure_chart(
    texts: Sequence[str],
    kinds: Sequence[str],
    edges: Sequence[tuple[int, int]],
    devices: Sequence[str] | None = None,
) -> go.Figure:
    """Nodes in layers along the flow of data, coloured by kind.

    Args:
        texts: hover text of each node.
        kinds: kind of each node; the most frequent kinds get their own colour.
        edges: pairs of node indices.
        devices: device names if the kinds are devices; edges between devices are then red.
    """
    layout = layered_layout(len(texts), edges)
    tall = max(layout.y, default=0.0) - min(layout.y, default=0.0)
    figure = new_figure(height=int(_STRUCTURE_FRAME + _PIXELS * (2 + tall)))
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


_GANTT_ROW = 30
_GANTT_FRAME = 80
_SHADES = (1.0, 0.75)
"""Alternating opacity, so that neighbouring bars can be distinguished."""

Bar = tuple[float, float, str]
"""Start and end in seconds, and a description."""


def gantt_chart(run: RunRecord) -> go.Figure:
    """Every op and transfer of a schedule as a bar over time, for schedules of up to a few thousand ops.

    A transfer is in the row of its channel, or of its link without a shared channel, in the colour of the sending device.
    """
    names = [label(device["name"]) for device in run["devices"]]
    longest_s = max([0.0, *run["ops"]["end_s"], *(row["end_s"] for row in run["transfers"])])
    unit, scale = time_unit(longest_s)
    ops, channels = _op_bars(run), _transfer_bars(run, names)
    figure = new_figure(height=_GANTT_FRAME + _GANTT_ROW * (len(names) + len({row for row, _ in channels})))
    for device, name in enumerate(names):
        _add_bars(figure, name, ops[device], device_colour(device), "", scale)
    for (row, source), bars in sorted(channels.items()):
        _add_bars(figure, row, bars, device_colour(source), "/", scale)
    figure.update_layout(barmode="overlay", bargap=0.2)
    figure.update_xaxes(title=f"time of one step ({unit}, simulated)", range=[0, longest_s / scale or 1.0])
    rows = list(dict.fromkeys([*names, *(row for row, _ in sorted(channels))]))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=rows, range=[len(rows) - 0.5, -0.5])
    return figure


def _op_bars(run: RunRecord) -> dict[int, list[Bar]]:
    """The bars of the ops, by device."""
    bars: dict[int, list[Bar]] = defaultdict(list)
    ops = run["ops"]
    for name, kind, device, start_s, end_s in zip(
        ops["name"], ops["type"], ops["device"], ops["start_s"], ops["end_s"], strict=True
    ):
        bars[device].append((start_s, end_s, f"{label(name)}, {label(kind)}"))
    return bars


def _transfer_bars(run: RunRecord, names: list[str]) -> dict[tuple[str, int], list[Bar]]:
    """The bars of the transfers, by row name and sending device."""
    bars: dict[tuple[str, int], list[Bar]] = defaultdict(list)
    for row in run["transfers"]:
        way = f"{names[row['source']]} → {names[row['target']]}"
        channel = way if row["channel"] is None else label(row["channel"])
        bars[channel, row["source"]].append((row["start_s"], row["end_s"], f"{label(row['tensor'])}, {way}"))
    return bars


def _add_bars(figure: go.Figure, row: str, bars: list[Bar], colour: str, pattern: str, scale: float) -> None:
    bars = sorted(bars)
    figure.add_bar(
        orientation="h",
        y=[row] * len(bars),
        base=[start_s / scale for start_s, _, _ in bars],
        x=[(end_s - start_s) / scale for start_s, end_s, _ in bars],
        text=[f"{what}<br>{format_s(start_s)} to {format_s(end_s)}" for start_s, end_s, what in bars],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        marker={
            "color": colour,
            "line": {"width": 0.5, "color": colour},  # keeps bars of less than a pixel visible
            "opacity": [_SHADES[number % 2] for number in range(len(bars))],
            "pattern": {"shape": pattern},
        },
    )
