"""The pictures show exactly the schedule, graph and history of the run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.report.charts import graph_chart, progress_chart, schedule_chart
from gnnplace.report.charts.graph import MOST_NODES
from gnnplace.report.charts.layered_layout import layered_layout
from gnnplace.report.charts.schedule import MOST_BARS
from gnnplace.report.charts.theme import device_colour
from gnnplace.report.run_record import RunRecord


def chain(run: RunRecord, count: int, group_size: int) -> RunRecord:
    """The run with a chain of `count` ops of 1 ms, without pauses, alternating between devices in long stretches."""
    run["ops"] = {
        "name": [f"op{op}" for op in range(count)], "type": ["Add"] * count,
        "device": [2 * op // count for op in range(count)], "group": [op // group_size for op in range(count)],
        "start_s": [op * 1e-3 for op in range(count)], "end_s": [(op + 1) * 1e-3 for op in range(count)],
        "memory_bytes": [0] * count,
    }  # fmt: skip
    run["edges"] = [(op, op + 1, 4) for op in range(count - 1)]
    run["transfers"] = []
    return run


def test_every_op_and_transfer_is_a_bar_at_its_time_in_its_row(run: RunRecord) -> None:
    bars = [
        (row, start, start + length)
        for trace in schedule_chart(run).data
        for row, start, length in zip(trace.y, trace.base, trace.x, strict=True)
    ]
    assert bars == [("gpu:0", 0, 2), ("gpu:0", 2, 3), ("cpu:0", 3, 6), ("pcie", 2, 3)]


def test_a_transfer_without_a_channel_has_a_row_named_after_its_link(run: RunRecord) -> None:
    run["transfers"][0]["channel"] = None
    assert list(schedule_chart(run).layout.yaxis.categoryarray) == ["gpu:0", "cpu:0", "gpu:0 → cpu:0"]


def test_too_many_bars_become_stretches_that_cover_the_same_time(run: RunRecord) -> None:
    first, second = schedule_chart(chain(run, MOST_BARS + 2, 1)).data
    assert (len(first.x), len(second.x)) == (1, 1)
    assert first.x[0] + second.x[0] == pytest.approx(MOST_BARS * 1e-3 + 2e-3)
    assert first.text[0].startswith(f"{MOST_BARS // 2 + 1} of these, the first:<br><b>op0</b>")


def test_ops_have_the_colour_of_their_device_and_moving_tensors_a_line_of_their_own(run: RunRecord) -> None:
    stays, moves, on_gpu, on_cpu = graph_chart(run).data
    assert (len(stays.x), len(moves.x)) == (3, 3)  # two ends and a gap
    assert (on_gpu.marker.color, on_cpu.marker.color) == (device_colour(0), device_colour(1))
    assert [text.split("<br>")[0] for text in (*on_gpu.text, *on_cpu.text)] == [
        "<b>conv</b>",
        "<b>relu</b>",
        "<b>add</b>",
    ]


def test_large_graphs_are_drawn_by_group_and_too_large_ones_not_at_all(run: RunRecord) -> None:
    count = 2 * MOST_NODES
    figure = graph_chart(chain(run, count, 10))
    nodes = [text for trace in figure.data if trace.mode == "markers" for text in trace.text]
    assert len(nodes) == count // 10
    assert nodes[0].startswith("10 ops, the first: <b>op0</b>")
    assert graph_chart(chain(run, count, 1)) is None


def test_a_deep_graph_is_folded_without_two_nodes_on_one_spot(run: RunRecord) -> None:
    figure = graph_chart(chain(run, 300, 1))
    spots = [spot for trace in figure.data if trace.mode == "markers" for spot in zip(trace.x, trace.y, strict=True)]
    assert len(set(spots)) == 300
    assert max(x for x, _ in spots) < 70


def test_the_search_ends_at_its_last_evaluation_and_skips_what_did_not_fit(run: RunRecord) -> None:
    run["history"] = [(0, 0.0, float("inf")), (1, 0.1, None), *run["history"]]
    best, tail = progress_chart(run).data
    assert (list(best.x), list(best.y)) == ([1, 7, 30], [9, 7, 6])
    assert (list(tail.x), list(tail.y)) == ([30, 40], [6, 6])


def test_a_penalised_start_makes_the_axis_logarithmic(run: RunRecord) -> None:
    run["history"] = [(1, 0.0, 50.0), (2, 0.1, 0.006)]
    assert progress_chart(run).layout.yaxis.type == "log"


def test_a_source_is_drawn_beside_its_consumer() -> None:
    assert layered_layout(4, [(0, 1), (1, 2), (3, 2)]).x.tolist() == [0, 1, 2, 1]


def test_a_long_edge_runs_in_a_lane_beside_the_nodes() -> None:
    layout = layered_layout(3, [(0, 1), (1, 2), (0, 2)])
    middle = layout.lines[2][1]
    assert middle[0] == 1
    assert abs(middle[1] - layout.y[1]) >= 1


def test_a_cycle_of_groups_is_drawn_in_one_layer() -> None:
    assert layered_layout(3, [(0, 1), (1, 0), (1, 2)]).x.tolist() == [0, 0, 1]


def test_no_nodes_have_an_empty_layout() -> None:
    layout = layered_layout(0, [])
    assert (len(layout.x), len(layout.y), layout.lines) == (0, 0, ())


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 25).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_edges_of_a_dag_run_forwards_and_nodes_of_a_layer_keep_their_distance(
    case: tuple[int, set[tuple[int, int]]],
) -> None:
    count, pairs = case
    edges = sorted((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
    layout = layered_layout(count, edges)
    assert all(layout.x[tail] < layout.x[head] for tail, head in edges)
    assert all(
        line[0] == (layout.x[tail], layout.y[tail]) and line[-1] == (layout.x[head], layout.y[head])
        for line, (tail, head) in zip(layout.lines, edges, strict=True)
    )
    for one, other in itertools.combinations(range(count), 2):
        assert layout.x[one] != layout.x[other] or abs(layout.y[one] - layout.y[other]) > 1 - 1e-9
    assert np.isfinite(layout.y).all()
