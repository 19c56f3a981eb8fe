"""Bars, curves and coloured tables show their numbers."""

import numpy as np
import pytest

from gnnplace.report.theme import device_colour
from notebooks.charts import bars_chart, curves_chart, matrix_chart


def test_every_category_has_a_bar_of_each_series_in_the_order_in_which_they_come() -> None:
    chart = bars_chart({"<a>": {"x": 1.0, "y": 2.0}, "b": {"y": 4.0}}, "ms")
    assert [(bars.name, list(bars.y), list(bars.x)) for bars in chart.data] == [
        ("x", ["&lt;a&gt;", "b"], [1.0, None]),
        ("y", ["&lt;a&gt;", "b"], [2.0, 4.0]),
    ]
    assert [bars.marker.color for bars in chart.data] == [device_colour(0), device_colour(1)]
    assert chart.layout.xaxis.title.text == "ms"
    assert chart.layout.yaxis.autorange == "reversed"


def test_a_limit_is_a_line_beside_the_bars_of_its_category() -> None:
    (line,) = bars_chart({"a": {"x": 1.0}, "b": {"x": 2.0}}, "s", limits={"b": 1.5}).layout.shapes
    assert (line.x0, line.x1) == (1.5, 1.5)
    assert line.y0 < 1 < line.y1


@pytest.mark.parametrize(
    ("values", "inside"), [((1.0, 3.0), (0.0, 3.0)), ((-1.0, 3.0), (-1.0, 3.0)), ((0.0,), (0.0, 0.0))]
)
def test_the_axis_has_room_for_all_bars_and_their_labels(
    values: tuple[float, ...], inside: tuple[float, float]
) -> None:
    low, high = bars_chart({str(value): {"x": value} for value in values}, "s").layout.xaxis.range
    assert low <= inside[0]
    assert high > inside[1]
    assert (low < 0) == (inside[0] < 0)


def test_a_curve_goes_through_its_points() -> None:
    chart = curves_chart({"one": [(0, 3.0), (1, 2.0)], "two": []}, "updates", "gain")
    assert [(curve.name, list(curve.x), list(curve.y)) for curve in chart.data] == [
        ("one", [0, 1], [3.0, 2.0]),
        ("two", [], []),
    ]
    assert (chart.layout.xaxis.title.text, chart.layout.yaxis.title.text) == ("updates", "gain")


def test_colours_are_shares_of_the_largest_of_a_row_and_numbers_are_shown_unchanged() -> None:
    (table,) = matrix_chart(np.array([[1.0, -4.0], [0.0, 0.0]]), ["r", "s"], ["<c>", "d"], "columns").data
    assert np.array(table.z).tolist() == [[0.25, -1.0], [0.0, 0.0]]
    assert np.array(table.customdata).tolist() == [[1.0, -4.0], [0.0, 0.0]]
    assert table.text[0][0] == "&lt;c&gt;"
