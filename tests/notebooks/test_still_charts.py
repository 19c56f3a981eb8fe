"""Still pictures of a graph and of a schedule show all that is in them."""

import numpy as np

from gnnplace.report.theme import MUTED, TRANSFER, device_colour
from gnnplace.run_record import RunRecord
from notebooks.charts import gantt_chart, structure_chart
from tests.example_run import empty_run


def test_a_graph_has_its_nodes_by_kind_and_rare_kinds_together() -> None:
    kinds = [f"kind {number}" for number in range(12)] + ["kind 3"]
    *_, nodes, last = structure_chart([str(node) for node in range(13)], kinds, [(0, 1)]).data
    every = structure_chart([str(node) for node in range(13)], kinds, [(0, 1)]).data[2:]
    assert (every[0].name, len(every[0].x)) == ("kind 3 (2)", 2)
    assert (nodes.name, last.name) == ("kind 8 (1)", "others (3)")
    assert sum(len(trace.x) for trace in every) == 13


def test_a_placed_graph_has_the_colours_of_its_devices_and_red_lines_between_them() -> None:
    names = ["gpu:0", "gpu:1", "idle"]
    stays, moves, *nodes = structure_chart("abc", ["gpu:1", "gpu:1", "gpu:0"], [(0, 1), (0, 2)], names).data
    assert [np.isnan(lines.x).sum() for lines in (stays, moves)] == [1, 1]  # a gap after each line
    assert (stays.line.color, moves.line.color) == (MUTED, TRANSFER)
    assert [(trace.name, trace.marker.color) for trace in nodes] == [
        ("gpu:0 (1)", device_colour(0)),
        ("gpu:1 (2)", device_colour(1)),
        ("idle (0)", device_colour(2)),
    ]


def test_a_graph_without_nodes_is_an_empty_picture() -> None:
    assert sum(len(trace.x) for trace in structure_chart([], [], []).data) == 0


def test_every_op_and_transfer_is_a_bar_of_the_gantt_chart_at_its_time_in_its_row(run: RunRecord) -> None:
    bars = [
        (row, start, start + length)
        for trace in gantt_chart(run).data
        for row, start, length in zip(trace.y, trace.base, trace.x, strict=True)
    ]
    assert bars == [("gpu:0", 0, 2), ("gpu:0", 2, 3), ("cpu:0", 3, 6), ("pcie", 2, 3)]
    assert gantt_chart(run).layout.xaxis.title.text == "time of one step (ms, simulated)"


def test_a_transfer_without_a_channel_has_a_row_of_its_link_in_the_colour_of_its_sender(run: RunRecord) -> None:
    run["transfers"][0]["channel"] = None
    chart = gantt_chart(run)
    assert list(chart.layout.yaxis.categoryarray) == ["gpu:0", "cpu:0", "gpu:0 → cpu:0"]
    assert chart.data[-1].marker.color == device_colour(0)


def test_a_run_without_ops_has_empty_rows() -> None:
    chart = gantt_chart(empty_run())
    assert [len(trace.x) for trace in chart.data] == [0, 0]
    assert list(chart.layout.xaxis.range) == [0, 1]
