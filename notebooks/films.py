"""Animations of searches: the steps that a simulated search kept, and the executed steps of a measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from gnnplace.arrays import Float32Array, FloatArray, IntArray
from gnnplace.planners.solution import ExecutedStep
from gnnplace.report.layout import Layout, layered_layout, line_ends
from gnnplace.report.theme import MUTED, TRANSFER, device_colour, label, new_figure, time_unit

__all__ = ["RolloutStep", "executed_film", "rollout_chart"]

_MOVES = 8
"""Number of likely moves shown as bars."""
_HEIGHT = 620
_SMALLEST, _LARGEST = 7.0, 26.0
"""Node sizes, by the probability of a revisit."""
_RING = 8.0
"""Difference between the sizes of a ring and of its node."""


@dataclass(frozen=True, eq=False)
class RolloutStep:
    """One step that a search kept."""

    devices: IntArray  # [U] before the step
    chances: FloatArray  # [U, D] probability of every move of one group
    targets: IntArray  # [U] devices after the step
    seconds: float
    """Time of one step of the model before."""
    after_s: float
    """Time of one step of the model afterwards."""
    evaluations: int
    """Evaluations of the search after the step."""

    @property
    def moved(self) -> dict[int, int]:
        """New device of each op group that the step moves."""
        return {unit: int(self.targets[unit]) for unit in np.flatnonzero(self.targets != self.devices).tolist()}


def rollout_chart(
    steps: Sequence[RolloutStep],
    shown: Sequence[int],
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    devices: Sequence[str],
) -> go.Figure:
    """An animation with a frame for each step in `shown`, a slider and a play button.

    Left: the graph coloured by device, with larger nodes where a revisit is likelier, transfers in red, and rings around the op groups
    that the step moves. Right: the most likely moves of one group, with a frame around those that are part of the step, above the time
    after each step. `names` are the names of the op groups.
    """
    scene = _Scene(steps, edges, layered_layout(len(names), edges), names, devices)
    figure = make_subplots(
        rows=2, cols=2, specs=[[{"rowspan": 2}, {}], [None, {}]], column_widths=[0.6, 0.4], horizontal_spacing=0.13,
        vertical_spacing=0.2, subplot_titles=["", "the most likely moves", "one step of the model"],
    )  # fmt: skip
    figure.update_layout(new_figure(_HEIGHT).layout)
    for trace, column, row in scene.fixed():
        figure.add_trace(trace, row=row, col=column)
    fixed = len(figure.data)
    for trace, (column, row) in zip(scene.moving(shown[0]), _CELLS, strict=True):
        figure.add_trace(trace, row=row, col=column)
    moving = list(range(fixed, len(figure.data)))
    figure.frames = [
        go.Frame(name=str(step), data=scene.moving(step), traces=moving, layout={"title": {"text": scene.title(step)}})
        for step in shown
    ]
    _arrange(figure, scene, shown)
    return figure


def _backdrop(layout: Layout, devices: Sequence[str]) -> list[go.Scatter]:
    """All edges of the graph, and a legend of the devices."""
    x, y = line_ends(layout.lines)
    every = go.Scatter(
        x=x, y=y, mode="lines", line={"width": 1, "color": MUTED}, opacity=0.5, hoverinfo="skip", showlegend=False
    )
    legend = [
        go.Scatter(x=[None], y=[None], mode="markers", name=label(name), marker={"size": 10, "color": device_colour(number)})
        for number, name in enumerate(devices)
    ]  # fmt: skip
    return [every, *legend]


def _graph_traces(
    layout: Layout,
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    devices: IntArray,
    share: FloatArray,
    moved: Mapping[int, int],
) -> list[go.Scatter]:
    """Transfers, op groups and rings around the `moved` groups (group to device); `share` `[U]` from 0 to 1 sets the sizes."""
    sent = [line for line, (tail, head) in zip(layout.lines, edges, strict=True) if devices[tail] != devices[head]]
    x, y = line_ends(sent)
    units, sizes = list(moved), _SMALLEST + (_LARGEST - _SMALLEST) * share
    return [
        go.Scatter(x=x, y=y, mode="lines", line={"width": 1.2, "color": TRANSFER}, hoverinfo="skip", showlegend=False),
        go.Scatter(
            x=layout.x.astype(np.float32), y=layout.y.astype(np.float32), mode="markers", showlegend=False,
            marker={
                "color": [device_colour(device) for device in devices.tolist()],
                "size": sizes.astype(np.float32),
                "line": {"width": 0.5, "color": "white"}, "opacity": 0.95,
            },
            text=[label(name) for name in names], hovertemplate="%{text}<extra></extra>",
        ),
        go.Scatter(
            x=layout.x[units], y=layout.y[units], mode="markers", showlegend=False, hoverinfo="skip",
            marker={
                "symbol": "circle-open", "size": (sizes[units] + _RING).astype(np.float32), "line": {"width": 2.5},
                "color": [device_colour(device) for device in moved.values()],
            },
        ),
    ]  # fmt: skip


_CELLS = ((1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (2, 2))
"""Column and row of each animated trace."""


@dataclass(frozen=True, eq=False)
class _Scene:
    """The data of the animation."""

    steps: Sequence[RolloutStep]
    edges: Sequence[tuple[int, int]]
    layout: Layout
    names: Sequence[str]
    devices: Sequence[str]

    @property
    def unit(self) -> tuple[str, float]:
        """Name and seconds of the unit of the time axis."""
        return time_unit(max(step.seconds for step in self.steps))

    def fixed(self) -> list[tuple[go.Scatter, int, int]]:
        """(trace, column, row) of the traces that all frames share."""
        at, seconds = self._falling(len(self.steps) - 1)
        whole = go.Scatter(
            x=at, y=seconds, mode="lines", line={"width": 1, "color": MUTED, "shape": "hv"}, hoverinfo="skip", showlegend=False
        )  # fmt: skip
        return [*((trace, 1, 1) for trace in _backdrop(self.layout, self.devices)), (whole, 2, 2)]

    def moving(self, number: int) -> list[Any]:
        """The animated traces of one frame, in the order of `_CELLS`."""
        step = self.steps[number]
        share = np.sqrt(step.chances.sum(axis=1) / max(step.chances.sum(axis=1).max(), 1e-300))
        at, seconds = self._falling(number)
        scale = self.unit[1]
        return [
            *_graph_traces(self.layout, self.edges, self.names, step.devices, share, step.moved),
            self._bars(step),
            go.Scatter(
                x=at, y=seconds, mode="lines", line={"width": 2, "color": device_colour(0), "shape": "hv"},
                hoverinfo="skip", showlegend=False,
            ),
            go.Scatter(
                x=[step.evaluations], y=[step.after_s / scale], mode="markers", showlegend=False, hoverinfo="skip",
                marker={"size": 10, "color": device_colour(0)},
            ),
        ]  # fmt: skip

    def _bars(self, step: RolloutStep) -> go.Bar:
        """The most likely moves of one group."""
        moves = np.argsort(-step.chances, axis=None, kind="stable")[:_MOVES].tolist()
        units, devices = np.divmod(moves, step.chances.shape[1])
        percent = 100 * step.chances[units, devices]
        pairs = list(zip(units.tolist(), devices.tolist(), strict=True))
        return go.Bar(
            orientation="h", x=percent.astype(np.float32), y=np.arange(len(moves)), showlegend=False,
            marker={
                "color": [device_colour(device) for _, device in pairs],
                "line": {"color": "#222", "width": [2.5 if step.moved.get(unit) == device else 0 for unit, device in pairs]},
            },
            text=[f"{label(self.names[unit], 26)} → {label(self.devices[device])}" for unit, device in pairs],
            textposition="outside", cliponaxis=False, hovertemplate="%{text}: %{x:.2f} %<extra></extra>",
        )  # fmt: skip

    def _falling(self, number: int) -> tuple[Float32Array, Float32Array]:
        """Evaluations and the times of one step from the start to after step `number`."""
        points = [(0, self.steps[0].seconds), *((step.evaluations, step.after_s) for step in self.steps[: number + 1])]
        at, seconds = np.array(points, dtype=np.float32).T
        return at, seconds / np.float32(self.unit[1])

    def title(self, number: int) -> str:
        """The title of a frame."""
        step, (name, scale) = self.steps[number], self.unit
        units = list(step.moved)
        who = f"{len(units)} groups move" if len(units) > 1 else f"{label(self.names[units[0]], 30)} moves"
        to = ", ".join(dict.fromkeys(label(self.devices[device]) for device in step.moved.values()))
        return f"evaluation {step.evaluations}: {who} to {to}: {step.seconds / scale:.1f} → {step.after_s / scale:.1f} {name}"


_WIDEST = 0.3
"""Largest difference that the chart of a film shows in full."""


def executed_film(
    steps: Sequence[ExecutedStep],
    final: IntArray,
    edges: Sequence[tuple[int, int]],
    names: Sequence[str],
    devices: Sequence[str],
    work_s: FloatArray,
) -> go.Figure:
    """An animation with a frame for every executed step of a measured search that ended at `final` `[U]`.

    Left: the graph coloured by device, larger nodes where a group takes longer (`work_s` `[U]`), rings around the groups that the
    step moves in the colour of their new device. Right: the measured difference of each step so far with its interval, above the
    seconds of the current placement relative to the start.
    """
    layout, share = layered_layout(len(names), edges), np.sqrt(work_s / work_s.max())
    figure = make_subplots(
        rows=2, cols=2, specs=[[{"rowspan": 2}, {}], [None, {}]], column_widths=[0.6, 0.4], horizontal_spacing=0.13,
        vertical_spacing=0.2, subplot_titles=["", "difference of each step to the placement before", "current placement"],
    )  # fmt: skip
    figure.update_layout(new_figure(_HEIGHT).layout)
    for trace in _backdrop(layout, devices):
        figure.add_trace(trace, row=1, col=1)
    fixed, current, frames = len(figure.data), [1.0], []
    before = np.copy(final)
    for step in reversed([step for step in steps if step.is_kept]):
        before[step.change.units] = step.change.sources
    for number, step in enumerate(steps):
        moved = dict(zip(step.change.units.tolist(), step.change.targets.tolist(), strict=True))
        traces = [
            *_graph_traces(layout, edges, names, before, share, moved),
            _differences(steps[: number + 1], is_kept=True),
            _differences(steps[: number + 1], is_kept=False),
        ]
        if step.is_kept and step.difference is not None:
            current.append(current[-1] * (1.0 + step.difference.difference))
            before = np.copy(before)
            before[step.change.units] = step.change.targets
        else:
            current.append(current[-1])
        line = {"width": 2, "color": device_colour(0), "shape": "hv"}
        at = [100 * value for value in current]
        traces.append(go.Scatter(x=list(range(len(at))), y=at, mode="lines", line=line, showlegend=False))
        frames.append((str(number), traces, _step_title(number, step)))
    cells = (*_CELLS[:3], (2, 1), (2, 1), (2, 2))
    for trace, (column, row) in zip(frames[0][1], cells, strict=True):
        figure.add_trace(trace, row=row, col=column)
    moving = list(range(fixed, len(figure.data)))
    figure.frames = [
        go.Frame(name=name, data=traces, traces=moving, layout={"title": {"text": title}})
        for name, traces, title in frames
    ]
    figure.update_xaxes(visible=False, row=1, col=1)
    figure.update_yaxes(visible=False, autorange="reversed", row=1, col=1)
    for row in (1, 2):
        figure.update_xaxes(title="executed steps", range=[0, len(steps) + 1], row=row, col=2)
    figure.update_yaxes(title="%", range=[-100 * _WIDEST, 100 * _WIDEST], row=1, col=2)
    figure.add_hline(y=0, line={"color": MUTED, "width": 1, "dash": "dot"}, row=1, col=2)
    figure.update_yaxes(title="% of the start", range=[0, 105], row=2, col=2)
    _finish(figure, [(name, str(number + 1)) for number, (name, _, _) in enumerate(frames)], frames[0][2])
    return figure


def _differences(steps: Sequence[ExecutedStep], *, is_kept: bool) -> go.Scatter:
    """Points with intervals, clipped to what the axis shows."""
    shown = [
        (number, step.difference) for number, step in enumerate(steps) if step.is_kept == is_kept and step.difference
    ]
    middle, low, high = (
        [100 * float(np.clip(value, -_WIDEST, _WIDEST)) for value in values]
        for values in (
            [found.difference for _, found in shown], [found.low for _, found in shown], [found.high for _, found in shown]
        )
    )  # fmt: skip
    return go.Scatter(
        x=[number + 1 for number, _ in shown], y=middle, mode="markers", showlegend=False,
        marker={"size": 8, "color": device_colour(0) if is_kept else MUTED, "symbol": "circle" if is_kept else "x"},
        error_y={
            "array": [top - at for top, at in zip(high, middle, strict=True)],
            "arrayminus": [at - bottom for bottom, at in zip(low, middle, strict=True)], "thickness": 1.5,
        },
        hovertemplate="step %{x}: %{y:+.1f} %<extra></extra>",
    )  # fmt: skip


def _step_title(number: int, step: ExecutedStep) -> str:
    count, found = len(step.change.units), step.difference
    moved = f"step {number + 1}, from the {step.kind}: {count} op group{'s' * (count != 1)} moved"
    if found is None:
        return f"{moved}, failed to run"
    text = f"{100 * found.difference:+.1f} % ({100 * found.low:+.1f} to {100 * found.high:+.1f} %)"
    return f"{moved}: {text}, {'kept' if step.is_kept else 'taken back'}"


def _arrange(figure: go.Figure, scene: _Scene, shown: Sequence[int]) -> None:
    """Sets axes, title, slider and buttons."""
    name, scale = scene.unit
    highest = max(100 * float(scene.steps[step].chances.max()) for step in shown)
    slowest = max(*(scene.steps[step].after_s for step in shown), scene.steps[0].seconds) / scale
    figure.update_xaxes(visible=False, row=1, col=1)
    figure.update_yaxes(visible=False, autorange="reversed", row=1, col=1)
    figure.update_xaxes(title="probability (%)", range=[0, 2.5 * highest], row=1, col=2)
    figure.update_yaxes(visible=False, range=[_MOVES - 0.5, -0.5], row=1, col=2)
    figure.update_xaxes(title="evaluations", range=[0, scene.steps[-1].evaluations + 2], row=2, col=2)
    figure.update_yaxes(title=f"{name}, simulated", range=[0, 1.08 * slowest], row=2, col=2)
    _finish(figure, [(str(step), str(scene.steps[step].evaluations)) for step in shown], scene.title(shown[0]))


def _finish(figure: go.Figure, frames: Sequence[tuple[str, str]], title: str) -> None:
    """Sets the slider over frames (name and label of each), the first title, margins and legend."""
    figure.update_annotations(font={"size": 12, "color": MUTED})
    _animate(figure, frames)
    figure.update_layout(
        title={"text": title, "font": {"size": 14}, "x": 0.01, "y": 0.985},
        margin={"t": 64, "b": 8, "l": 8, "r": 24},
        showlegend=True,
        legend={"orientation": "h", "x": 0.0, "y": 1.0, "yanchor": "bottom"},
    )


def _animate(figure: go.Figure, frames: Sequence[tuple[str, str]]) -> None:
    """Adds a slider over frames (name and label of each), and buttons that play them."""
    instantly = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    playing = {"frame": {"duration": 350, "redraw": True}, "fromcurrent": True, "transition": {"duration": 0}}
    buttons = [
        {"label": "play", "method": "animate", "args": [None, playing]},
        {"label": "pause", "method": "animate", "args": [[None], instantly]},
    ]
    slider = {
        "active": 0, "x": 0.12, "len": 0.88, "y": -0.13, "currentvalue": {"visible": False}, "ticklen": 3,
        "steps": [{"label": shown, "method": "animate", "args": [[name], instantly]} for name, shown in frames],
    }  # fmt: skip
    menu = {
        "type": "buttons",
        "direction": "left",
        "buttons": buttons,
        "x": 0.0,
        "y": -0.15,
        "xanchor": "left",
        "yanchor": "top",
        "pad": {"t": 4},
    }
    figure.update_layout(updatemenus=[menu], sliders=[slider])
