from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.errors import InvalidPlacement
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.onnx_io.segments import Segment, segment_numbers, segments


def graph_of(num_ops: int, edges: list[tuple[int, int]]) -> OpGraph:
    names = [f"op{i}" for i in range(num_ops)]
    return OpGraph.build("g", [Op(n) for n in names], [Tensor(names[a], 4, (names[b],)) for a, b in edges])


def ops_of(found: tuple[Segment, ...]) -> list[tuple[int, ...]]:
    return [segment.ops for segment in found]


@st.composite
def placed_graphs(draw: st.DrawFn) -> tuple[OpGraph, list[int], list[int]]:
    num_ops = draw(st.integers(1, 24))
    pairs = st.tuples(st.integers(0, num_ops - 1), st.integers(0, num_ops - 1))
    edges = [(min(p), max(p)) for p in draw(st.lists(pairs, max_size=40)) if p[0] != p[1]]
    names = draw(st.permutations(range(num_ops)))  # so that op indices are in no order
    devices = draw(st.lists(st.integers(0, 3), min_size=num_ops, max_size=num_ops))
    order = draw(st.permutations(range(num_ops)))  # ops of one instant: any order
    return graph_of(num_ops, [(names[a], names[b]) for a, b in edges]), devices, order


def remote_edges(graph: OpGraph, devices: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in zip(*(e.tolist() for e in graph.edges), strict=True) if devices[a] != devices[b]]


@pytest.mark.parametrize(
    ("edges", "devices", "order", "expected"),
    [
        pytest.param([], [], [], [], id="an empty graph has no segment"),
        pytest.param(
            [(0, 1), (0, 2), (1, 3), (2, 3)], [1, 1, 1, 1], [0, 2, 1, 3], [(0, 2, 1, 3)], id="one device, one segment"
        ),
        pytest.param(
            [(0, 1), (1, 2), (0, 3)], [0, 0, 0, 1], [0, 1, 2, 3], [(0,), (1, 2), (3,)],
            id="a segment ends after an op that another device reads",
        ),
        # op 2 can start at once, so op 3, which needs op 1 of the other device, must not delay it
        pytest.param(
            [(0, 1), (2, 3), (1, 3)], [1, 1, 0, 0], [0, 2, 1, 3], [(0, 1), (2,), (3,)],
            id="a segment begins before an op that waits for another device",
        ),
        pytest.param(
            [(0, 1), (0, 2)], [1, 0, 0], [0, 1, 2], [(0,), (1, 2)],
            id="a remote input that the segment has waited for cuts nothing",
        ),
        pytest.param(
            [(0, 2), (1, 2)], [0, 0, 1], [0, 1, 2], [(0, 1), (2,)], id="outputs with a common reader are sent together"
        ),
        pytest.param(
            [(0, 2), (1, 3), (2, 3)], [0, 0, 1, 1], [0, 1, 2, 3], [(0,), (1,), (2,), (3,)],
            id="an output that another device can start with is sent at once",
        ),
        pytest.param(
            [(0, 1), (1, 2), (2, 3)], [0, 1, 0, 1], [0, 1, 2, 3], [(0,), (1,), (2,), (3,)],
            id="alternating devices keep every cut",
        ),
        pytest.param(
            [(0, 1), (1, 2)], [0, 0, 0], [2, 1, 0], [(0, 1, 2)], id="producers come first whatever the order says"
        ),
    ],
)  # fmt: skip
def test_segments_are_the_longest_that_delay_nothing(
    edges: list[tuple[int, int]], devices: list[int], order: list[int], expected: list[tuple[int, ...]]
) -> None:
    assert ops_of(segments(graph_of(len(devices), edges), devices, order)) == expected


def test_segment_numbers_are_positions_in_the_global_order() -> None:
    assert segment_numbers([Segment(0, (2, 0)), Segment(1, (1,))], 3) == [0, 1, 0]


@pytest.mark.parametrize(("devices", "order"), [([0], [0, 1]), ([0, 0], [0]), ([0, 0], [0, 0]), ([0, 0], [0, 2])])
def test_an_assignment_or_order_of_another_graph_is_refused(devices: list[int], order: list[int]) -> None:
    with pytest.raises(InvalidPlacement, match="'g'"):
        segments(graph_of(2, [(0, 1)]), devices, order)


@given(placed_graphs())
@settings(deadline=None, max_examples=300)
def test_every_op_is_in_one_segment_of_its_device_after_all_that_it_reads(
    placed: tuple[OpGraph, list[int], list[int]],
) -> None:
    graph, devices, order = placed
    found = segments(graph, np.array(devices), np.array(order))
    number = segment_numbers(found, graph.num_ops)
    assert sorted(op for segment in found for op in segment.ops) == list(range(graph.num_ops))
    assert all(devices[op] == segment.device for segment in found for op in segment.ops)
    place = {op: i for i, op in enumerate(op for segment in found for op in segment.ops)}
    for producer, consumer in zip(*(e.tolist() for e in graph.edges), strict=True):
        assert place[producer] < place[consumer]
    assert all(number[a] < number[b] for a, b in remote_edges(graph, devices))


def test_a_segment_is_cut_where_a_device_that_shares_a_resource_runs_an_op() -> None:
    graph, excludes = graph_of(4, []), np.zeros((3, 3), dtype=bool)
    excludes[0, 2] = excludes[2, 0] = True
    assert ops_of(segments(graph, [0, 1, 2, 0], [0, 1, 2, 3], excludes=excludes)) == [(0,), (1,), (2,), (3,)]
    assert ops_of(segments(graph, [0, 2, 1, 0], [0, 2, 1, 3], excludes=excludes)) == [(0,), (2,), (1,), (3,)]
    assert ops_of(segments(graph, [0, 1, 0, 2], [0, 1, 2, 3], excludes=excludes)) == [(0, 2), (1,), (3,)]


def test_a_segment_goes_on_where_only_devices_that_share_its_resource_read_from_it() -> None:
    """Ops 0, 1 and 2 of the set run one after the other, and no core can start op 3 or 4 before they have ended."""
    graph, excludes = graph_of(6, [(0, 1), (0, 3), (1, 2), (1, 4), (3, 5), (4, 5)]), np.zeros((3, 3), dtype=bool)
    excludes[2, :2] = excludes[:2, 2] = True
    found = segments(graph, [2, 2, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5], excludes=excludes)
    assert ops_of(found) == [(0, 1, 2), (3,), (4,), (5,)]


@given(placed_graphs(), st.integers(0, 63), st.integers(0, 2**24 - 1))
@settings(deadline=None, max_examples=300)
def test_segments_on_devices_that_share_a_resource_do_not_interleave(
    placed: tuple[OpGraph, list[int], list[int]], pairs: int, marks: int
) -> None:
    graph, devices, _ = placed
    reads = set(graph.consumers.tolist())
    constant = [op not in reads and bool(marks >> op & 1) for op in range(graph.num_ops)]
    excludes = np.zeros((4, 4), dtype=bool)
    for bit, (one, other) in enumerate(combinations(range(4), 2)):
        excludes[one, other] = excludes[other, one] = bool(pairs >> bit & 1)
    order = graph.topological_order
    place = np.argsort(order)
    found = segments(graph, devices, order, constant, excludes)
    assert sorted(op for segment in found for op in segment.ops) == list(range(graph.num_ops))
    sent = [(a, b) for a, b in remote_edges(graph, devices) if not constant[a]]
    number = segment_numbers(found, graph.num_ops)
    assert all(number[a] < number[b] for a, b in sent)
    busy = [(segment.device, [place[op] for op in segment.ops if not constant[op]]) for segment in found]
    spans = [(device, min(places), max(places)) for device, places in busy if places]
    for (one, begin, end), (other, first, last) in combinations(spans, 2):
        assert not excludes[one, other] or end < first or last < begin


@given(placed_graphs(), st.lists(st.floats(0.01, 10.0), min_size=24, max_size=24))
@settings(deadline=None, max_examples=300)
def test_merged_segments_finish_every_op_as_early_as_ops_run_one_by_one(
    placed: tuple[OpGraph, list[int], list[int]], seconds: list[float]
) -> None:
    """Without transfer times, an op that is its own segment can be sent at once and waits for nothing but itself."""
    graph, devices, order = placed
    found = segments(graph, devices, order)
    (repaired,) = ops_of(segments(graph, [0] * graph.num_ops, order))  # one device for all shows the order
    singles = [Segment(devices[op], (op,)) for op in repaired]
    merged_end, alone_end = (finish_times(graph, devices, list(row), seconds) for row in (found, singles))
    for segment in found:
        assert merged_end[segment.ops[-1]] == pytest.approx(alone_end[segment.ops[-1]])


def finish_times(graph: OpGraph, devices: list[int], found: list[Segment], seconds: list[float]) -> dict[int, float]:
    """End of each op in seconds, where a segment waits for its remote inputs and sends its outputs at its end."""
    free: dict[int, float] = {}
    sent: dict[int, float] = {}
    end: dict[int, float] = {}
    sources: dict[int, list[int]] = {}
    for producer, consumer in remote_edges(graph, devices):
        sources.setdefault(consumer, []).append(producer)
    for segment in found:
        clock = max([free.get(segment.device, 0.0), *(sent[s] for op in segment.ops for s in sources.get(op, []))])
        for op in segment.ops:
            clock += seconds[op]
            end[op] = clock
        sent.update(dict.fromkeys(segment.ops, clock))
        free[segment.device] = clock
    return end


def test_a_constant_op_is_not_transferred_and_joins_the_next_segment_of_its_device() -> None:
    # 0 is constant and read by 2 and 4 of the other device; 2 also waits for 1.
    graph = graph_of(5, [(0, 2), (1, 2), (2, 3), (0, 4)])
    devices, order = [0, 1, 0, 0, 1], [0, 1, 2, 3, 4]
    assert ops_of(segments(graph, devices, order)) == [(0,), (1,), (2, 3), (4,)]
    constant = [True, False, False, False, False]
    assert ops_of(segments(graph, devices, order, constant)) == [(1,), (0, 2, 3), (4,)]


def test_constant_ops_after_all_others_join_the_last_segment_of_their_device() -> None:
    graph = graph_of(4, [(0, 1), (2, 1)])
    constant = [False, False, True, True]
    assert ops_of(segments(graph, [0, 0, 0, 0], [0, 2, 1, 3], constant)) == [(0, 2, 1, 3)]
    assert ops_of(segments(graph, [0, 0, 1, 1], [0, 2, 1, 3], constant)) == [(0, 1), (2, 3)]
