"""Measured segments: their kind, ops, expected seconds and arrived bytes."""

import numpy as np

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring.grouped_parts import measured_segments

PAIR = Topology(
    "pair", (Device("a", "slow"), Device("b", "fast")), (Link("a", "b", 0.0, 1.0), Link("b", "a", 0.0, 1.0))
)
GRAPH = OpGraph.build(
    "g",
    [Op(name) for name in "vwxyz"],
    [Tensor("v", 7, ("w", "x", "y")), Tensor("w", 5, ("z",)), Tensor("x", 3, ("z",)), Tensor("y", 2, ("z",))],
)
OP_TIME_S = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, 50.0]])


def part(device: str, *ops: int) -> tuple[str, tuple[int, ...]]:
    return device, ops


def test_a_copy_counts_only_for_the_first_part_that_reads_it() -> None:
    parts = [part("a", 0, 1), part("b", 2), part("b", 3), part("a", 4)]
    found = measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.array([4.0, 31.0, 41.0, 6.0]))
    assert [segment.kind for segment in found] == ["slow", "fast", "fast", "slow"]
    assert [segment.ops for segment in found] == [(0, 1), (2,), (3,), (4,)]
    assert [segment.expected_s for segment in found] == [3.0, 30.0, 40.0, 5.0]
    assert [segment.arrived_bytes for segment in found] == [0.0, 7.0, 0.0, 5.0]
    assert [segment.seconds for segment in found] == [4.0, 31.0, 41.0, 6.0]


def test_a_model_on_one_device_has_no_measured_segments() -> None:
    parts = [part("a", 0, 1, 2), part("a", 3, 4)]
    assert measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.ones(2)) == []


def test_outputs_of_constant_ops_are_never_copied() -> None:
    parts = [part("a", 0, 1), part("b", 2), part("b", 3), part("a", 4)]
    constant = np.array([True, False, False, False, False])
    found = measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.ones(4), constant)
    assert [segment.arrived_bytes for segment in found] == [0.0, 0.0, 0.0, 5.0]
