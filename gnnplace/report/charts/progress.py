"""How the best placement improved, and what no placement can beat."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from gnnplace.report.answer import evaluator_of
from gnnplace.report.charts.theme import MUTED, device_colour, label, new_figure, time_unit
from gnnplace.run_record import RunRecord
from gnnplace.units import format_s

__all__ = ["progress_chart", "stage_of"]

WIDE_RANGE = 20.0  # above this ratio of worst to best the time axis is logarithmic


def stage_of(stages: Sequence[tuple[str, float | None]], best_s: float) -> str:
    """The stage that found a best: the first one after which nothing slower was the best; empty after all of them.

    >>> stage_of([("starts", 3.0), ("revisit", 2.0)], 2.5)
    'revisit'
    """
    return next((name for name, after_s in stages if after_s is not None and after_s <= best_s), "")


def progress_chart(run: RunRecord) -> go.Figure:
    """Best seconds so far over evaluations, as steps in the colours of the stages; the lower bound as a dotted line."""
    points = [(count, wall, best) for count, wall, best in run["history"] if best is not None and math.isfinite(best)]
    worst_s = max((best for _, _, best in points), default=0.0)
    unit, scale = time_unit(worst_s)
    figure = new_figure(height=300)
    stages = [stage_of(run["stages"], best) for _, _, best in points]
    names = list(dict.fromkeys(stages))
    figure.add_scatter(
        x=[count for count, _, _ in points],
        y=[best / scale for _, _, best in points],
        mode="lines+markers",
        line={"shape": "hv", "color": device_colour(0), "width": 2},
        marker={"size": 6, "color": [device_colour(names.index(stage)) for stage in stages]},
        text=[
            f"{format_s(best)}<br>evaluation {count:,}, after {format_s(wall)}{f'<br>in {label(stage)}' if stage else ''}"
            for (count, wall, best), stage in zip(points, stages, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )
    if points and run["summary"]["evaluations"] > points[-1][0]:
        figure.add_scatter(
            x=[points[-1][0], run["summary"]["evaluations"]],
            y=[points[-1][2] / scale] * 2,
            mode="lines",
            line={"color": device_colour(0), "width": 2},
            hoverinfo="skip",
        )
    bound = run["lower_bound"]
    if bound is not None and bound["value_s"] > 0:
        figure.add_hline(
            y=bound["value_s"] / scale,
            line={"dash": "dot", "color": MUTED},
            annotation={
                "text": f"lower bound by the cost model: {label(bound['name'])}",
                "xanchor": "right",
                "yanchor": "top",
            },
        )
    if points and worst_s > WIDE_RANGE * points[-1][2] > 0:
        figure.update_yaxes(type="log")
    else:
        figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(title="evaluations", range=[0, 1.02 * max(1, run["summary"]["evaluations"])])
    figure.update_yaxes(title=f"{unit} ({evaluator_of(run)})")
    return figure
