"""A search by the policy, step by step: the graph changes colours, the odds of the next moves, the seconds that fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.report.charts.layered_layout import Layout, layered_layout
from gnnplace.report.charts.structure import Float32Array, line_ends
from gnnplace.report.charts.theme import MUTED, TRANSFER, device_colour, label, new_figure, time_unit

__all__ = ["RolloutStep", "rollout_chart"]

_MOVES = 8
"""Of the likeliest moves, how many have a bar."""
_HEIGHT = 620
_SMALLEST, _LARGEST = 7.0, 26.0
"""Of a node, by how likely it is revisited."""


@dataclass(frozen=True, eq=False)
class RolloutStep:
    """One op group is revisited."""

    devices: IntArray  # [U] before the move
    chances: FloatArray  # [U, D] of every move; they add up to 1
    unit: int
    """Which was drawn."""
    device: int
    """Where it may go."""
    seconds: float
    """Of one step of the model before the move."""
    moved_s: float
    """The same after it."""
    is_kept: bool


def rollout_chart(
    steps: Sequence[RolloutStep],
    shown: Sequence[int],
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    devices: Sequence[str],
) -> go.Figure:
    """An animation with a frame for each of the steps `shown`; a slider, a play button.

    Left the graph, coloured by device, larger where the policy would rather revisit, tensors that travel in red; right the
    likeliest moves, the drawn one framed, above the seconds of all steps. `names` are those of the op groups.
    """
    scene = _Scene(steps, edges, layered_layout(len(names), edges), names, devices)
    figure = make_subplots(
        rows=2, cols=2, specs=[[{"rowspan": 2}, {}], [None, {}]], column_widths=[0.6, 0.4], horizontal_spacing=0.13,
        vertical_spacing=0.2, subplot_titles=["", "the likeliest moves", "one step of the model"],
    )  # fmt: skip
    figure.update_layout(new_figure(_HEIGHT).layout)
    for trace, column, row in scene.fixed():
        figure.add_trace(trace, row=row, col=column)
    fixed = len(figure.data)
    for trace, (column, row) in zip(scene.moving(shown[0]), _CELLS, strict=True):
        figure.add_trace(trace, row=row, col=column)
    moving = list(range(fixed, len(figure.data)))
    figure.frames = [
        go.Frame(name=str(step), data=scene.moving(step), traces=moving, layout={"title": {"text": scene.told(step)}})
        for step in shown
    ]
    _arrange(figure, scene, shown)
    return figure


_CELLS = ((1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (2, 2))
"""Column and row of each moving trace."""


@dataclass(frozen=True, eq=False)
class _Scene:
    """All that is drawn."""

    steps: Sequence[RolloutStep]
    edges: Sequence[tuple[int, int]]
    layout: Layout
    names: Sequence[str]
    devices: Sequence[str]

    @property
    def unit(self) -> tuple[str, float]:
        """Name and seconds of the unit of the lower axis."""
        return time_unit(max(step.seconds for step in self.steps))

    def fixed(self) -> list[tuple[go.Scatter, int, int]]:
        """(trace, column, row) of what is in every frame."""
        x, y = line_ends(self.layout.lines)
        every = go.Scatter(
            x=x, y=y, mode="lines", line={"width": 1, "color": MUTED}, opacity=0.5, hoverinfo="skip", showlegend=False
        )
        legend = [
            go.Scatter(x=[None], y=[None], mode="markers", name=label(name), marker={"size": 10, "color": device_colour(number)})
            for number, name in enumerate(self.devices)
        ]  # fmt: skip
        at, seconds = self._falling(len(self.steps) - 1)
        whole = go.Scatter(
            x=at, y=seconds, mode="lines", line={"width": 1, "color": MUTED, "shape": "hv"}, hoverinfo="skip", showlegend=False
        )  # fmt: skip
        return [(every, 1, 1), *((trace, 1, 1) for trace in legend), (whole, 2, 2)]

    def moving(self, number: int) -> list[Any]:
        """What a frame has of its own, in the order of `_CELLS`."""
        step = self.steps[number]
        drawn = device_colour(step.device)
        x, y = line_ends(
            [
                line
                for line, (tail, head) in zip(self.layout.lines, self.edges, strict=True)
                if step.devices[tail] != step.devices[head]
            ]
        )
        share = np.sqrt(step.chances.sum(axis=1) / max(step.chances.sum(axis=1).max(), 1e-300))
        at, seconds = self._falling(number)
        scale = self.unit[1]
        return [
            go.Scatter(
                x=x, y=y, mode="lines", line={"width": 1.2, "color": TRANSFER}, hoverinfo="skip", showlegend=False
            ),
            go.Scatter(
                x=self.layout.x.astype(np.float32), y=self.layout.y.astype(np.float32), mode="markers", showlegend=False,
                marker={
                    "color": [device_colour(device) for device in step.devices.tolist()],
                    "size": (_SMALLEST + (_LARGEST - _SMALLEST) * share).astype(np.float32),
                    "line": {"width": 0.5, "color": "white"}, "opacity": 0.95,
                },
                text=[label(name) for name in self.names], hovertemplate="%{text}<extra></extra>",
            ),
            go.Scatter(
                x=self.layout.x[[step.unit]], y=self.layout.y[[step.unit]], mode="markers", showlegend=False, hoverinfo="skip",
                marker={"symbol": "circle-open", "size": _LARGEST + 8, "color": drawn, "line": {"width": 3.5}},
            ),
            self._bars(step),
            go.Scatter(
                x=at, y=seconds, mode="lines", line={"width": 2, "color": device_colour(0), "shape": "hv"},
                hoverinfo="skip", showlegend=False,
            ),
            go.Scatter(
                x=[number + 1], y=[step.moved_s / scale], mode="markers", showlegend=False, hoverinfo="skip",
                marker={"size": 10, "symbol": "circle" if step.is_kept else "x", "color": drawn},
            ),
        ]  # fmt: skip

    def _bars(self, step: RolloutStep) -> go.Bar:
        """Of the likeliest moves, the drawn one among them."""
        order = np.argsort(-step.chances, axis=None, kind="stable")[:_MOVES].tolist()
        drawn = step.unit * step.chances.shape[1] + step.device
        moves = order if drawn in order else [*order[:-1], drawn]
        units, devices = np.divmod(moves, step.chances.shape[1])
        percent = 100 * step.chances[units, devices]
        return go.Bar(
            orientation="h", x=percent.astype(np.float32), y=np.arange(len(moves)), showlegend=False,
            marker={
                "color": [device_colour(device) for device in devices.tolist()],
                "line": {"color": "#222", "width": [2.5 if move == drawn else 0 for move in moves]},
            },
            text=[
                f"{label(self.names[unit], 26)} → {label(self.devices[device])}"
                for unit, device in zip(units.tolist(), devices.tolist(), strict=True)
            ],
            textposition="outside", cliponaxis=False, hovertemplate="%{text}: %{x:.2f} %<extra></extra>",
        )  # fmt: skip

    def _falling(self, number: int) -> tuple[Float32Array, Float32Array]:
        """Points of the seconds of one step, from the start to after step `number`, where they change."""
        scale = self.unit[1]
        after = [step.moved_s if step.is_kept else step.seconds for step in self.steps[: number + 1]]
        points = [(0.0, self.steps[0].seconds), *((at + 1.0, value) for at, value in enumerate(after))]
        kept = [point for place, point in enumerate(points) if place == 0 or point[1] != points[place - 1][1]]
        kept = kept if kept[-1] == points[-1] else [*kept, points[-1]]
        at, seconds = np.array(kept, dtype=np.float32).T
        return at, seconds / np.float32(scale)

    def told(self, number: int) -> str:
        """A frame in one line."""
        step, (name, scale) = self.steps[number], self.unit
        end = "kept" if step.is_kept else "not kept"
        return (
            f"step {number + 1}: {label(self.names[step.unit], 24)} from {label(self.devices[step.devices[step.unit]])} to "
            f"{label(self.devices[step.device])}: {step.seconds / scale:.1f} → {step.moved_s / scale:.1f} {name}, {end}"
        )


def _arrange(figure: go.Figure, scene: _Scene, shown: Sequence[int]) -> None:
    """Axes, title, slider and buttons."""
    name, scale = scene.unit
    highest = max(100 * float(scene.steps[step].chances.max()) for step in shown)
    slowest = max(*(scene.steps[step].moved_s for step in shown), scene.steps[0].seconds) / scale
    figure.update_xaxes(visible=False, row=1, col=1)
    figure.update_yaxes(visible=False, autorange="reversed", row=1, col=1)
    figure.update_xaxes(title="chance (%)", range=[0, 2.5 * highest], row=1, col=2)
    figure.update_yaxes(visible=False, range=[_MOVES - 0.5, -0.5], row=1, col=2)
    figure.update_xaxes(title="moves that were tried", range=[0, len(scene.steps) + 2], row=2, col=2)
    figure.update_yaxes(title=f"{name}, simulated", range=[0, 1.08 * slowest], row=2, col=2)
    figure.update_annotations(font={"size": 12, "color": MUTED})
    instantly = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    playing = {"frame": {"duration": 350, "redraw": True}, "fromcurrent": True, "transition": {"duration": 0}}
    buttons = [
        {"label": "play", "method": "animate", "args": [None, playing]},
        {"label": "pause", "method": "animate", "args": [[None], instantly]},
    ]
    slider = {
        "active": 0, "x": 0.12, "len": 0.88, "y": -0.13, "currentvalue": {"visible": False}, "ticklen": 3,
        "steps": [
            {"label": str(step + 1), "method": "animate", "args": [[str(step)], instantly]} for step in shown
        ],
    }  # fmt: skip
    figure.update_layout(
        title={"text": scene.told(shown[0]), "font": {"size": 14}, "x": 0.01, "y": 0.985},
        margin={"t": 64, "b": 8, "l": 8, "r": 24},
        showlegend=True,
        legend={"orientation": "h", "x": 0.0, "y": 1.0, "yanchor": "bottom"},
        updatemenus=[{"type": "buttons", "direction": "left", "buttons": buttons, "x": 0.0, "y": -0.15, "xanchor": "left", "yanchor": "top", "pad": {"t": 4}}],
        sliders=[slider],
    )  # fmt: skip
