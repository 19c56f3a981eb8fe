"""Depth-first topological orders."""

from __future__ import annotations

import numpy as np

from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.graph.orders import depth_first_order


def test_a_branch_is_finished_before_the_next_begins() -> None:
    ops = [Op(name) for name in ("root", "l0", "r0", "l1", "r1", "join")]
    tensors = [
        Tensor("root", 1, ("l0", "r0")), Tensor("l0", 1, ("l1",)), Tensor("r0", 1, ("r1",)),
        Tensor("l1", 1, ("join",)), Tensor("r1", 1, ("join",)),
    ]  # fmt: skip
    graph = OpGraph.build("two branches", ops, tensors)
    left = depth_first_order(graph.successor_offsets, graph.successors, np.array([0.0, 2, 1, 0, 0, 0]))
    right = depth_first_order(graph.successor_offsets, graph.successors, np.array([0.0, 1, 2, 0, 0, 0]))
    assert [graph.op_names[op] for op in left] == ["root", "l0", "l1", "r0", "r1", "join"]
    assert [graph.op_names[op] for op in right] == ["root", "r0", "r1", "l0", "l1", "join"]


def test_producers_come_before_consumers_whatever_the_priorities() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        tensors = [Tensor(f"o{i}", 1, tuple({f"o{j}" for j in rng.integers(i + 1, 40, 2)})) for i in range(39)]
        graph = OpGraph.build("random", [Op(f"o{i}") for i in range(40)], tensors)
        order = depth_first_order(graph.successor_offsets, graph.successors, rng.random(40))
        place = np.argsort(order)
        producers, consumers = graph.edges
        assert sorted(order) == list(range(40))
        assert (place[producers] < place[consumers]).all()
