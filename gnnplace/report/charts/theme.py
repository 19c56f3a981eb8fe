"""What all charts share: colours that work on light and dark ground, units of time axes, inert labels."""

from __future__ import annotations

import html

import plotly.graph_objects as go

__all__ = ["MUTED", "TRANSFER", "device_colour", "label", "new_figure", "time_unit"]

PALETTE = (
    "#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#e45756", "#d4a72c", "#9d755d", "#ff9da6", "#6b7fd7",
)  # fmt: skip
MUTED = "#8b8f98"
TRANSFER = "#e45756"


def device_colour(device: int) -> str:
    """The colour of a device in every chart of a report; they repeat after ten."""
    return PALETTE[device % len(PALETTE)]


def label(text: str, most: int = 80) -> str:
    """A name from a model as text for Plotly, which reads tags in it; the middle of long ones is left out.

    >>> label("<b>conv</b>"), label("abcdefghij", most=7)
    ('&lt;b&gt;conv&lt;/b&gt;', 'abc…hij')
    """
    if len(text) > most:
        half = (most - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return html.escape(text)


def time_unit(longest_s: float) -> tuple[str, float]:
    """Name and seconds of the unit in which an axis up to `longest_s` reads well.

    >>> time_unit(0.02)
    ('ms', 0.001)
    """
    for name, scale in (("s", 1.0), ("ms", 1e-3)):
        if longest_s >= scale:
            return name, scale
    return "us", 1e-6


def new_figure(height: int) -> go.Figure:
    """An empty figure, see-through, so that the page's colours show."""
    figure = go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 32, "b": 8},  # the buttons have the top
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": MUTED},
        showlegend=False,
        hoverlabel={"align": "left"},
        modebar={"bgcolor": "rgba(0,0,0,0)"},
    )
    axis = {"gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "automargin": True, "ticklabelstandoff": 4}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure
