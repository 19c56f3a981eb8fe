"""The pictures show exactly the schedule, graph and history of the run."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.report.layout import MOST_GROUPS, graph_picture, layered_layout
from gnnplace.report.run_charts import memory_chart, progress_chart
from gnnplace.run_record import RunRecord
from tests.example_run import chain_run


def test_every_op_group_is_a_node_and_edges_inside_a_group_vanish(run: RunRecord) -> None:
    picture = graph_picture(run)
    assert picture["of_op"] == [0, 0, 1]
    assert [edge[:2] for edge in picture["edges"]] == [(0, 1)]
    assert picture["x"][0] < picture["x"][1]


def test_too_many_groups_are_drawn_as_stretches_of_one_device() -> None:
    run = chain_run(2 * MOST_GROUPS, group_size=1)
    picture = graph_picture(run)
    assert max(picture["of_op"]) + 1 == len(picture["x"]) <= MOST_GROUPS
    device_of = dict(zip(picture["of_op"], run["ops"]["device"], strict=True))
    assert [device_of[node] for node in picture["of_op"]] == run["ops"]["device"]


def test_a_deep_graph_is_folded_without_two_nodes_on_one_spot() -> None:
    picture = graph_picture(chain_run(300, group_size=1))
    assert len(set(zip(picture["x"], picture["y"], strict=True))) == 300
    assert max(picture["x"]) < 40


def test_memory_over_time_has_a_row_per_device_with_its_peak_and_capacity(run: RunRecord) -> None:
    figure = memory_chart(run)
    assert [list(trace.x) for trace in figure.data] == [[0, 3, 6], [0, 2, 6]]
    assert [list(trace.y) for trace in figure.data] == [[2, 1, 1], [512, 768, 768]]
    assert [title.text for title in figure.layout.annotations] == [
        "gpu:0: at most 2.0 KiB of 4.0 KiB",
        "cpu:0: at most 768 B no limit",
    ]
    assert [line.y0 for line in figure.layout.shapes] == [4]
    run["peak_memory_bytes"]["gpu:0"] = 3072  # within an instant, as the evaluation knows
    assert memory_chart(run).layout.annotations[0].text == "gpu:0: at most 3.0 KiB of 4.0 KiB"


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
        line[[0, -1]].tolist() == [[layout.x[end], layout.y[end]] for end in (tail, head)]
        for line, (tail, head) in zip(layout.lines, edges, strict=True)
    )
    for one, other in itertools.combinations(range(count), 2):
        assert layout.x[one] != layout.x[other] or abs(layout.y[one] - layout.y[other]) > 1 - 1e-9
    assert np.isfinite(layout.y).all()
