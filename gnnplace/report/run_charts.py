"""Charts of one run: memory over time, and the progress of the search."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from gnnplace.report.answer import evaluator_of
from gnnplace.report.theme import MUTED, TRANSFER, device_colour, label, new_figure, time_unit
from gnnplace.run_record import RunRecord, memory_groups
from gnnplace.units import format_bytes, format_s

_ROW = 70
WIDE_RANGE = 20.0
"""Ratio of worst to best above which the time axis is logarithmic."""
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def memory_chart(run: RunRecord) -> go.Figure | None:
    """One row per memory: bytes in use during one step, with the capacity as a line; None for records without it.

    A capacity far above the peak appears only in the title, because the curve would be flat below it.
    """
    courses = run.get("memory_over_time")
    if courses is None or not run["devices"]:
        return None
    end_s = max([0.0, *run["ops"]["end_s"], *(row["end_s"] for row in run["transfers"])])
    unit, scale = time_unit(end_s)
    groups = memory_groups(run)
    figure = new_figure(
        _ROW * len(groups) + 70, rows=len(groups), cols=1, shared_xaxes=True, vertical_spacing=0.3 / len(groups),
        subplot_titles=[_title(run, devices) for devices in groups.values()],
    )  # fmt: skip
    for row, device in enumerate(groups, start=1):
        course = courses[device]
        _add_course(figure, run, device, row, [*course, (end_s, course[-1][1] if course else 0)], scale)
    figure.update_annotations(font={"size": 12}, xanchor="left", x=0)
    figure.update_xaxes(range=[0, end_s / scale or 1.0])
    figure.update_xaxes(title=f"time of one step ({unit}, simulated)", row=len(groups), col=1)
    return figure


def _title(run: RunRecord, devices: list[int]) -> str:
    """The title states the evaluated peak, because ops without duration change memory within an instant that no line shows."""
    names, capacity = [run["devices"][device]["name"] for device in devices], run["devices"][devices[0]]["memory_bytes"]
    limit = "no limit" if capacity is None else f"of {format_bytes(capacity)}"
    peak = format_bytes(run["peak_memory_bytes"].get(names[0], 0))
    return f"{label(', '.join(names), most=30)}: at most {peak} {limit}"


def _add_course(
    figure: go.Figure, run: RunRecord, device: int, row: int, course: list[tuple[float, int]], scale: float
) -> None:
    capacity, peak = run["devices"][device]["memory_bytes"], max(level for _, level in course)
    unit, size = next((unit for unit in _UNITS if peak >= unit[1]), _UNITS[-1])
    cell = {"row": row, "col": 1}
    figure.add_scatter(
        x=[time / scale for time, _ in course], y=[level / size for _, level in course], mode="lines", fill="tozeroy",
        line={"shape": "hv", "width": 1.5, "color": device_colour(device)},
        hovertext=[f"{format_bytes(level)} from {format_s(time)}" for time, level in course],
        hovertemplate="%{hovertext}<extra></extra>", **cell,
    )  # fmt: skip
    top = 1.1 * peak / size or 1.0
    if capacity is not None and capacity <= 3 * peak:
        figure.add_hline(y=capacity / size, line={"dash": "dash", "width": 1.5, "color": TRANSFER}, **cell)
        top = 1.1 * max(peak, capacity) / size
    figure.update_yaxes(nticks=3, range=[0, top], title=unit, fixedrange=True, **cell)


def stage_of(stages: Sequence[tuple[str, float | None]], best_s: float) -> str:
    """The stage that found a time: the first stage that ended with a best time at most `best_s`; empty if none did."""
    return next((name for name, after_s in stages if after_s is not None and after_s <= best_s), "")


def progress_chart(run: RunRecord) -> go.Figure:
    """The best time over evaluations, coloured by stage, with the lower bound as a dotted line."""
    points = [(count, wall, best) for count, wall, best in run["history"] if best is not None and math.isfinite(best)]
    worst_s = max((best for _, _, best in points), default=0.0)
    evaluations = run["summary"]["evaluations"]
    unit, scale = time_unit(worst_s)
    figure = new_figure(height=300)
    stages = [stage_of(run["stages"], best) for _, _, best in points]
    names = list(dict.fromkeys(stages))
    figure.add_scatter(
        x=[count for count, _, _ in points], y=[best / scale for _, _, best in points], mode="lines+markers",
        line={"shape": "hv", "color": device_colour(0), "width": 2},
        marker={"size": 6, "color": [device_colour(names.index(stage)) for stage in stages]},
        text=[
            f"{format_s(best)}<br>evaluation {count:,}, after {format_s(wall)}{f'<br>in {label(stage)}' if stage else ''}"
            for (count, wall, best), stage in zip(points, stages, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    if points and evaluations > points[-1][0]:
        figure.add_scatter(
            x=[points[-1][0], evaluations], y=[points[-1][2] / scale] * 2, mode="lines", hoverinfo="skip",
            line={"color": device_colour(0), "width": 2},
        )  # fmt: skip
    bound = run["lower_bound"]
    if bound is not None and bound["value_s"] > 0:
        name = f"lower bound by the cost model: {label(bound['name'])}"
        figure.add_hline(
            y=bound["value_s"] / scale, line={"dash": "dot", "color": MUTED},
            annotation={"text": name, "xanchor": "right", "yanchor": "top"},
        )  # fmt: skip
    is_wide = bool(points) and worst_s > WIDE_RANGE * points[-1][2] > 0
    figure.update_yaxes({"type": "log"} if is_wide else {"rangemode": "tozero"}, title=f"{unit} ({evaluator_of(run)})")
    figure.update_xaxes(title="evaluations", range=[0, 1.02 * max(1, evaluations)])
    return figure


def executed_steps_chart(run: RunRecord) -> go.Figure | None:
    """The measured difference of every executed step with its interval; None without such steps. Kept steps have a colour."""
    steps = [step for step in run.get("executed_steps", []) if step["difference"] is not None]
    if not steps:
        return None
    figure = new_figure(height=300)
    for is_kept, name, colour in ((True, "kept", device_colour(0)), (False, "taken back", MUTED)):
        shown = [step for step in steps if step["kept"] == is_kept]
        middle = [100 * (step["difference"] or 0.0) for step in shown]
        ends = [step["difference_interval"] or (step["difference"] or 0.0,) * 2 for step in shown]
        figure.add_scatter(
            x=[step["evaluations"] for step in shown], y=middle, mode="markers", name=name, marker={"color": colour, "size": 7},
            error_y={
                "array": [100 * high - at for (_, high), at in zip(ends, middle, strict=True)],
                "arrayminus": [at - 100 * low for (low, _), at in zip(ends, middle, strict=True)], "thickness": 1.5,
            },
            text=[f"{label(step['kind'])}, {step['moved']:,} op groups<br>{step['pairs']:,} runs of each" for step in shown],
            hovertemplate="%{y:+.1f} %<br>%{text}<extra></extra>",
        )  # fmt: skip
    differences = [
        abs(step["difference"] or 0.0) for step in steps if step["kept"] or (step["difference"] or 0.0) < 0.25
    ]
    largest = max(differences, default=0.0)
    figure.update_yaxes(
        title="time after over before (%)", range=[-110 * max(largest, 0.02), 110 * max(largest, 0.02)], zeroline=True
    )
    figure.update_xaxes(title="evaluations")
    figure.update_layout(showlegend=True)
    return figure
