"""Coarsening: fewer ops, the same computation."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnplace.graph.coarsen import coarsen
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from tests.problems import chain
from tests.random_problems import random_graph


@pytest.mark.parametrize(("num_ops", "max_groups"), [(0, 1), (1, 1), (5, 5)])
def test_a_graph_that_is_small_enough_is_returned_itself(num_ops: int, max_groups: int) -> None:
    graph = chain(num_ops)
    coarsening = coarsen(graph, max_groups)
    assert coarsening.graph is graph
    assert coarsening.group_of_op.tolist() == list(range(num_ops))


def test_fewer_than_one_group_is_refused() -> None:
    with pytest.raises(ValueError, match="max_groups is 0"):
        coarsen(chain(3), max_groups=0)


def test_the_heaviest_tensors_stay_inside_groups() -> None:
    ops = [Op("a"), Op("b"), Op("c"), Op("d")]
    graph = OpGraph.build("chain", ops, [Tensor("a", 1, ("b",)), Tensor("b", 3, ("c",)), Tensor("c", 2, ("d",))])
    coarsening = coarsen(graph, max_groups=2)
    assert coarsening.graph.tensor_bytes.tolist() == [1]
    assert coarsening.group_of_op.tolist() == [0, 1, 1, 1]


def test_the_costs_of_a_group_are_those_of_its_members() -> None:
    ops = [
        Op("a", "Conv", {"gpu": 3.0, "cpu": 9.0}, 30.0, 7.0, 100, 5, dtype="float16", signature="sa"),
        Op("b", "Relu", {"gpu": 1.0}, 10.0, 8.0, 10, 50, signature="sb"),
        Op("c", "Gemm", {"gpu": 1.0, "cpu": 2.0}, 20.0, 9.0, 1, 0, signature="sc"),
    ]
    tensors = [Tensor("a", 1000, ("b",)), Tensor("b", 1, ("c",)), Tensor("a", 2, ("c",)), Tensor("b", 3)]
    graph = OpGraph.build("three", ops, tensors, [SharedWeight(40, ("a", "b")), SharedWeight(60, ("b", "c"))])
    coarse = coarsen(graph, max_groups=2).graph
    assert coarse.op_names == ("a", "c")
    assert coarse.op_types == ("Conv", "Gemm")
    assert coarse.dtypes == ("float16", "float32")
    assert coarse.signatures == ("", "sc")
    assert coarse.time_s["gpu"].tolist() == [4.0, 1.0]
    np.testing.assert_array_equal(coarse.time_s["cpu"], [np.nan, 2.0])  # b states nothing for it
    assert coarse.flops.tolist() == [40.0, 20.0]
    assert coarse.bytes_accessed.tolist() == [15.0, 9.0]
    assert coarse.memory_bytes.tolist() == [150, 1]  # the weight that only a and b use is resident there
    assert coarse.weight_bytes.tolist() == [60]
    assert coarse.weights_of(0).tolist() == [0, 1]
    assert coarse.workspace_bytes.tolist() == [1050, 0]  # while b runs, the inner tensor and b's workspace
    rows = [(int(b), coarse.consumers_of(t).tolist()) for t, b in enumerate(coarse.tensor_bytes)]
    assert sorted(rows) == [(1, [1]), (2, [1]), (3, [])]


def test_an_output_takes_room_only_from_the_member_on_that_produces_it() -> None:
    ops = [Op("a"), Op("b"), Op("c"), Op("d")]
    tensors = [Tensor("a", 10, ("b",)), Tensor("b", 9, ("c",)), Tensor("c", 7, ("d",))]
    coarse = coarsen(OpGraph.build("chain", ops, tensors), max_groups=2).graph
    assert coarse.workspace_bytes.tolist() == [19 - 7, 0]  # the peak is at b, before the output is there


@pytest.mark.parametrize("seed", range(20))
def test_groups_need_as_much_as_their_members_at_most_one_after_the_other(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 30)
    coarsening = coarsen(graph, max_groups=6)
    for group in range(coarsening.graph.num_ops):
        members = [op for op in graph.topological_order.tolist() if coarsening.group_of_op[op] == group]
        made = [tensor for tensor in range(graph.num_tensors) if graph.tensor_producer[tensor] in members]
        readers = {tensor: set(graph.consumers_of(tensor).tolist()) for tensor in made}
        outputs = [tensor for tensor in made if not readers[tensor] or readers[tensor] - set(members)]
        most = 0
        for number, op in enumerate(members):
            there = [tensor for tensor in made if graph.tensor_producer[tensor] in members[: number + 1]]
            live = [tensor for tensor in there if tensor in outputs or readers[tensor] & set(members[number:])]
            most = max(most, int(graph.tensor_bytes[live].sum() + graph.workspace_bytes[op]))
        expected = max(0, most - int(graph.tensor_bytes[outputs].sum()))
        assert coarsening.graph.workspace_bytes[group] == expected


def test_a_tensor_with_several_readers_in_one_group_is_sent_there_once() -> None:
    ops = [Op("a"), Op("b"), Op("c"), Op("d")]
    tensors = [Tensor("a", 5, ("b", "c", "d")), Tensor("b", 90, ("d",)), Tensor("c", 80, ("d",))]
    coarse = coarsen(OpGraph.build("fan", ops, tensors), max_groups=2).graph
    assert coarse.tensor_bytes.tolist() == [5]
    assert coarse.consumers.tolist() == [1]


def test_a_colocation_group_becomes_one_op_where_no_path_leaves_it_and_returns() -> None:
    ops = [Op("a", group="g"), Op("b"), Op("c", group="g"), Op("x", group="g")]
    coarsening = coarsen(OpGraph.build("v", ops, [Tensor("a", 1, ("b",)), Tensor("a", 1, ("c",))]), max_groups=9)
    group = coarsening.group_of_op
    assert group[0] == group[2] == group[3] != group[1]
    assert coarsening.graph.colocation_names == ()


def test_ops_that_cannot_merge_keep_their_colocation_label() -> None:
    ops = [Op("a", group="g"), Op("b"), Op("c", group="g")]
    graph = OpGraph.build("sandwich", ops, [Tensor("a", 1, ("b",)), Tensor("b", 1, ("c",))])
    assert coarsen(graph, max_groups=9).graph is graph
    ops = [Op("a0", group="g"), Op("a1", group="g"), Op("b"), Op("c", group="g")]
    tensors = [Tensor("a0", 1, ("a1",)), Tensor("a1", 1, ("b",)), Tensor("b", 1, ("c",))]
    coarsening = coarsen(OpGraph.build("sandwich", ops, tensors), max_groups=9)
    assert coarsening.group_of_op.tolist() == [0, 0, 1, 2]
    assert coarsening.graph.colocation_names == ("g",)
    assert coarsening.graph.colocation.tolist() == [0, -1, 0]


def test_two_interlocked_colocation_groups_merge_without_a_cycle() -> None:
    ops = [Op("a", group="g"), Op("b", group="h"), Op("c", group="h"), Op("d", group="g")]
    coarsening = coarsen(OpGraph.build("x", ops, [Tensor("a", 1, ("b",)), Tensor("c", 1, ("d",))]), max_groups=9)
    assert coarsening.graph.num_ops == 3  # merging both would close a cycle


def test_a_group_runs_where_its_strictest_op_may() -> None:
    ops = [Op("a", group="g", devices=("cpu", "gpu")), Op("b", group="g", devices=("cpu",)), Op("c", group="g")]
    coarse = coarsen(OpGraph.build("g", ops), max_groups=9).graph
    assert coarse.allowed_devices == (("cpu",),)


def test_ops_of_different_allowed_devices_never_merge() -> None:
    ops = [Op(f"o{i}", devices=("cpu",) if i % 2 else None) for i in range(6)]
    graph = OpGraph.build("zip", ops, [Tensor(f"o{i}", 1, (f"o{i + 1}",)) for i in range(5)])
    assert coarsen(graph, max_groups=2).graph.num_ops == 6


def test_no_group_exceeds_the_cap_while_edges_are_contracted() -> None:
    coarsening = coarsen(chain(100), max_groups=50, max_fraction=0.03)
    assert coarsening.graph.num_ops == 50
    assert np.bincount(coarsening.group_of_op).max() <= 3


def test_isolated_ops_are_spread_evenly() -> None:
    coarsening = coarsen(OpGraph.build("isolated", [Op(f"o{i}") for i in range(1000)]), max_groups=10)
    assert np.bincount(coarsening.group_of_op).tolist() == [100] * 10


def test_a_chain_of_ten_thousand_ops_needs_no_recursion() -> None:
    assert coarsen(chain(10_000), max_groups=64).graph.num_ops <= 64


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_ops=st.integers(2, 60),
    max_groups=st.integers(1, 30),
    labels=st.integers(0, 4),
    pinned=st.booleans(),
)
def test_coarsening_keeps_the_graph_acyclic_and_its_totals(
    seed: int, num_ops: int, max_groups: int, labels: int, pinned: bool
) -> None:
    graph = random_graph(np.random.default_rng(seed), num_ops, labels, pinned)
    coarsening = coarsen(graph, max_groups)
    coarse, group = coarsening.graph, coarsening.group_of_op
    if not labels and not pinned:
        assert coarse.num_ops <= max_groups
    quotient = nx.DiGraph()
    quotient.add_nodes_from(range(coarse.num_ops))
    quotient.add_edges_from({(group[p], group[c]) for p, c in zip(*graph.edges, strict=True) if group[p] != group[c]})
    assert nx.is_directed_acyclic_graph(quotient)
    assert set(quotient.edges) == {(int(p), int(c)) for p, c in zip(*coarse.edges, strict=True)}
    assert coarse.flops.sum() == graph.flops.sum()
    assert coarse.total_weight_bytes == graph.total_weight_bytes
    for label in range(len(graph.colocation_names)):
        used = np.unique(group[graph.colocation == label])
        assert len(used) <= 1 or (len(set(coarse.colocation[used])) == 1 and coarse.colocation[used[0]] >= 0)
    for op in range(graph.num_ops):
        allowed = coarse.allowed_devices[group[op]]
        assert graph.allowed_devices[op] in (None, allowed)
    labels_in = [set(graph.colocation[group == g]) - {-1} for g in range(coarse.num_ops)]
    assert max(map(len, labels_in)) <= 1
    outer = {
        (t, group[c]) for t, c in zip(graph.consumer_tensor, graph.consumers, strict=True)
        if group[c] != group[graph.tensor_producer[t]]
    }  # fmt: skip
    assert len(outer) == len(coarse.consumers)
    assignment = np.random.default_rng(seed).integers(0, 3, coarse.num_ops)
    np.testing.assert_array_equal(coarsening.project(coarsening.expand(assignment)), assignment)
    np.testing.assert_allclose(coarsening.total(graph.flops), coarse.flops)


def test_the_ops_of_one_kernel_stay_together_where_that_closes_no_cycle() -> None:
    ops = [Op(name) for name in ("conv", "norm", "side", "relu")]
    tensors = [Tensor("conv", 1, ("norm",)), Tensor("norm", 1, ("side", "relu")), Tensor("side", 1, ("relu",))]
    graph = OpGraph.build("block", ops, tensors)
    coarsening = coarsen(graph, max_groups=9, fused=np.array([0, 0, 2, 3]))
    assert coarsening.group_of_op.tolist() == [0, 0, 1, 2]
    around = coarsen(graph, max_groups=9, fused=np.array([0, 0, 2, 0]))  # a path leaves it over `side` and comes back
    assert around.group_of_op.tolist() == [0, 0, 1, 2]


def test_ops_of_different_colocation_groups_or_devices_stay_apart_in_one_kernel() -> None:
    ops = [Op("a", group="x"), Op("b"), Op("c", group="y"), Op("d", devices=("cpu",))]
    tensors = [Tensor("a", 1, ("b",)), Tensor("b", 1, ("c",)), Tensor("c", 1, ("d",))]
    coarsening = coarsen(OpGraph.build("g", ops, tensors), max_groups=9, fused=np.zeros(4, dtype=np.int64))
    groups = coarsening.group_of_op.tolist()
    assert len({groups[0], groups[2], groups[3]}) == 3
    assert groups[1] == groups[2]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kernels=st.integers(1, 30))
@example(seed=14, kernels=8)  # a kernel number beyond the number of ops
def test_random_kernels_leave_the_graph_acyclic_and_whole(seed: int, kernels: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 40, groups=3, pinned=True)
    coarse = coarsen(graph, 40, fused=rng.integers(0, kernels, graph.num_ops))
    assert coarse.graph.flops.sum() == graph.flops.sum()
    if coarse.graph is not graph:  # groups are numbered in topological order
        sources, targets = coarse.graph.edges
        assert (sources < targets).all()
