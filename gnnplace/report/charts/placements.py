"""Which device each op group sits on, per layer and in the order of the steps, one strip of cells per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnplace.report.bench_format import devices_of_letters
from gnnplace.report.charts.theme import device_colour, label, new_figure

__all__ = ["placements_chart"]

_CELL = 13
_TITLE = 30


def placements_chart(
    placements: Mapping[str, str], stages: Sequence[int], types: Sequence[str], devices: Sequence[str]
) -> go.Figure:
    """One picture per planner, one under the other, its rows the layers and its colours the devices.

    Args:
        placements: by planner, a letter for the device of every op group; see `device_letters`.
        stages: `[G]` layer of each group, -1 where unknown.
        types: `[G]` type of each group's heaviest op.
        devices: names.
    """
    layers = sorted(set(stages))
    row_of = {stage: row for row, stage in enumerate(layers)}
    columns = np.zeros(len(stages), dtype=np.int64)
    filled = dict.fromkeys(layers, 0)
    for group, stage in enumerate(stages):  # groups come in topological order
        columns[group], filled[stage] = filled[stage], filled[stage] + 1
    rows = np.array([row_of[stage] for stage in stages], dtype=np.int64)
    shape = (len(layers), max(filled.values(), default=1))
    each = _CELL * len(layers) + _TITLE
    figure = new_figure(height=each * max(1, len(placements)) + 40)
    if not placements:
        return figure
    grid = make_subplots(
        rows=len(placements), cols=1, subplot_titles=[label(planner) for planner in placements],
        vertical_spacing=_TITLE / (each * len(placements) + 40),
    )  # fmt: skip
    for number, letters in enumerate(placements.values(), start=1):
        device = np.full(shape, np.nan)
        text = np.full(shape, "", dtype=object)
        chosen = devices_of_letters(letters)
        device[rows, columns] = chosen
        text[rows, columns] = [
            f"{label(types[group])} on {label(devices[index])}" for group, index in enumerate(chosen)
        ]
        grid.add_heatmap(
            z=device, text=text, hovertemplate="layer %{y}: %{text}<extra></extra>", showscale=False, xgap=1, ygap=1,
            y=["no layer" if stage < 0 else str(stage) for stage in layers], zmin=-0.5, zmax=len(devices) - 0.5,
            colorscale=_scale(len(devices)), row=number, col=1,
        )  # fmt: skip
    grid.update_xaxes(showticklabels=False, showgrid=False)
    grid.update_yaxes(type="category", autorange="reversed", showgrid=False, tickfont={"size": 9})
    grid.update_layout(figure.layout)
    return grid


def _scale(count: int) -> list[tuple[float, str]]:
    """Steps instead of a gradient: one colour per device."""
    return [(edge / count, device_colour(device)) for device in range(count) for edge in (device, device + 1)]
