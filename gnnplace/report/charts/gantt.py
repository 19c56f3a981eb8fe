"""A schedule as a still picture: a row per device and per channel that carries something, a bar for all that occupies it."""

from __future__ import annotations

from collections import defaultdict

import plotly.graph_objects as go

from gnnplace.report.charts.theme import device_colour, label, new_figure, time_unit
from gnnplace.run_record import RunRecord
from gnnplace.units import format_s

__all__ = ["gantt_chart"]

_ROW = 30
_FRAME = 80
_SHADES = (1.0, 0.75)
"""In turn, so that neighbours can be told apart."""

Bar = tuple[float, float, str]
"""From, to (seconds), and what it is."""


def gantt_chart(run: RunRecord) -> go.Figure:
    """Bars of ops and transfers over time, every one of them: for schedules of up to some thousand ops.

    A transfer has the row of its channel, or of its link where none is shared, and the colour of the device that sends.
    """
    names = [label(device["name"]) for device in run["devices"]]
    longest_s = max([0.0, *run["ops"]["end_s"], *(row["end_s"] for row in run["transfers"])])
    unit, scale = time_unit(longest_s)
    ops, channels = _op_bars(run), _transfer_bars(run, names)
    figure = new_figure(height=_FRAME + _ROW * (len(names) + len({row for row, _ in channels})))
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
    """By device."""
    bars: dict[int, list[Bar]] = defaultdict(list)
    ops = run["ops"]
    for name, kind, device, start_s, end_s in zip(
        ops["name"], ops["type"], ops["device"], ops["start_s"], ops["end_s"], strict=True
    ):
        bars[device].append((start_s, end_s, f"{label(name)}, {label(kind)}"))
    return bars


def _transfer_bars(run: RunRecord, names: list[str]) -> dict[tuple[str, int], list[Bar]]:
    """By the name of the row and the device that sends."""
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
