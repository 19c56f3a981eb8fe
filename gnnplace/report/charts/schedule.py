"""The schedule as a Gantt chart: one row per device, then one per channel that carried something."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import plotly.graph_objects as go

from gnnplace.report.charts.theme import device_colour, label, new_figure, time_unit
from gnnplace.report.run_record import RunRecord
from gnnplace.units import format_bytes, format_s

__all__ = ["schedule_chart"]

MOST_BARS = 3000
RESOLUTION = 2000  # of a row with too many bars: gaps below this part of the makespan are not drawn
ROW_HEIGHT = 30
SHADES = (1.0, 0.75)  # in turn, so that neighbours can be told apart


@dataclass(frozen=True)
class Bar:
    """Something that occupies a row from start to end."""

    start_s: float
    end_s: float
    text: str


def schedule_chart(run: RunRecord) -> go.Figure:
    """Bars of ops and transfers over time, zoomable along time; rows with very many bars show stretches of them."""
    ops, devices = run["ops"], run["devices"]
    longest_s = max([0.0, *ops["end_s"], *(row["end_s"] for row in run["transfers"])])
    unit, scale = time_unit(longest_s)
    device_rows, channel_rows = _device_rows(run), _channel_rows(run)
    num_bars = len(ops["name"]) + len(run["transfers"])
    finest_s = longest_s / RESOLUTION if num_bars > MOST_BARS else 0.0
    figure = new_figure(height=80 + ROW_HEIGHT * (len(devices) + len(channel_rows)))
    for device, bars in enumerate(device_rows):
        _add_row(figure, label(devices[device]["name"]), _joined(bars, finest_s), device_colour(device), "", scale)
    for (name, source), bars in channel_rows.items():
        _add_row(figure, name, _joined(bars, finest_s), device_colour(source), "/", scale)
    figure.update_layout(barmode="overlay", bargap=0.2)
    figure.update_xaxes(title=f"time of one step ({unit}, simulated)", range=[0, longest_s / scale or 1.0])
    rows = [label(device["name"]) for device in devices] + [name for name, _ in channel_rows]
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=list(dict.fromkeys(rows)),
        autorange="reversed",
        fixedrange=True,
        type="category",
    )
    return figure


def _device_rows(run: RunRecord) -> list[list[Bar]]:
    ops = run["ops"]
    rows: list[list[Bar]] = [[] for _ in run["devices"]]
    for name, kind, device, start_s, end_s in zip(
        ops["name"], ops["type"], ops["device"], ops["start_s"], ops["end_s"], strict=True
    ):
        text = f"<b>{label(name)}</b><br>{label(kind)}, {format_s(end_s - start_s)}"
        rows[device].append(Bar(start_s, end_s, text))
    return rows


def _channel_rows(run: RunRecord) -> dict[tuple[str, int], list[Bar]]:
    """The bars of each channel, by its label and the device that sends; without a shared channel, a link is its own."""
    names = [label(device["name"]) for device in run["devices"]]
    rows: dict[tuple[str, int], list[Bar]] = defaultdict(list)
    for row in run["transfers"]:
        way = f"{names[row['source']]} → {names[row['target']]}"
        channel = way if row["channel"] is None else label(row["channel"])
        text = f"<b>{label(row['tensor'])}</b><br>{way}<br>{format_bytes(row['bytes'])}, {format_s(row['end_s'] - row['start_s'])}"
        rows[channel, row["source"]].append(Bar(row["start_s"], row["end_s"], text))
    return dict(sorted(rows.items()))


def _joined(bars: list[Bar], finest_s: float) -> list[Bar]:
    """Bars by start; neighbours closer than `finest_s` become one (none do at 0)."""
    joined: list[list[Bar]] = []
    end_s = float("-inf")
    for bar in sorted(bars, key=lambda bar: (bar.start_s, bar.end_s)):
        if joined and bar.start_s - end_s < finest_s:
            joined[-1].append(bar)
        else:
            joined.append([bar])
        end_s = max(end_s, bar.end_s)
    return [_stretch(part) for part in joined]


def _stretch(part: list[Bar]) -> Bar:
    if len(part) == 1:
        return part[0]
    return Bar(part[0].start_s, max(bar.end_s for bar in part), f"{len(part)} of these, the first:<br>{part[0].text}")


def _add_row(figure: go.Figure, row: str, bars: list[Bar], colour: str, pattern: str, scale: float) -> None:
    figure.add_bar(
        orientation="h",
        y=[row] * len(bars),
        base=[bar.start_s / scale for bar in bars],
        x=[(bar.end_s - bar.start_s) / scale for bar in bars],
        text=[f"{bar.text}<br>from {format_s(bar.start_s)} to {format_s(bar.end_s)}" for bar in bars],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        marker={
            "color": colour,
            "line": {"width": 0.5, "color": colour},  # keeps bars of less than a pixel visible
            "opacity": [SHADES[number % 2] for number in range(len(bars))],
            "pattern": {"shape": pattern},
        },
    )
