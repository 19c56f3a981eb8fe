"""Colours that work on light and dark backgrounds, units of time axes, and escaped labels; all charts use them."""

import html
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

PALETTE = (
    "#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#e45756", "#d4a72c", "#9d755d", "#ff9da6", "#6b7fd7",
)  # fmt: skip
MUTED = "#8b8f98"
TRANSFER = "#e45756"


def device_colour(device: int) -> str:
    """The colour of a device in every chart; colours repeat after ten devices."""
    return PALETTE[device % len(PALETTE)]


def label(text: str, most: int = 80) -> str:
    """Escapes a name for Plotly, which interprets tags, and shortens long names in the middle."""
    if len(text) > most:
        half = (most - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return html.escape(text)


def time_unit(longest_s: float) -> tuple[str, float]:
    """Name and seconds of the unit for an axis that ends at `longest_s`."""
    return ("s", 1.0) if longest_s >= 1.0 else ("ms", 1e-3) if longest_s >= 1e-3 else ("us", 1e-6)


def new_figure(height: int, **subplots: Any) -> go.Figure:
    """An empty figure with a transparent background; `subplots` are the arguments of Plotly's `make_subplots`."""
    figure = make_subplots(**subplots) if subplots else go.Figure()
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 32, "b": 8},  # the top holds Plotly's buttons
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
