"""A problem as plain arrays over units and tensors, for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnplace.arrays import FloatArray, IntArray, frozen
from gnnplace.evaluation import Problem

__all__ = ["UnitTables", "unit_tables"]


class UnitTables(NamedTuple):
    """Static arrays of one problem. A unit is a colocation group or a free op; its ops move together."""

    unit_of_op: IntArray  # [N]
    unit_offsets: IntArray  # [U + 1]
    unit_ops: IntArray  # [N] ops grouped by unit
    op_time_s: FloatArray  # [N, D] infinite where the op cannot run
    unit_time_s: FloatArray  # [U, D]
    topological_position: IntArray  # [N]
    unit_memory_bytes: FloatArray  # [U] resident, each shared weight split evenly among its consumers
    input_offsets: IntArray  # [N + 1]
    input_tensors: IntArray
    output_offsets: IntArray  # [N + 1]
    tensor_producer: IntArray  # [T]
    tensor_bytes: FloatArray  # [T]
    consumer_offsets: IntArray  # [T + 1]
    consumers: IntArray
    route_latency_s: FloatArray  # [D, D] summed over the hops; infinite where there is no route
    route_s_per_byte: FloatArray  # [D, D]


def unit_tables(problem: Problem) -> UnitTables:
    """The arrays of a problem."""
    graph, units = problem.graph, problem.num_units
    return UnitTables(
        unit_of_op=problem.unit_of_op,
        unit_offsets=frozen(np.searchsorted(np.sort(problem.unit_of_op), np.arange(units + 1)), np.int64),
        unit_ops=frozen(np.argsort(problem.unit_of_op, kind="stable"), np.int64),
        op_time_s=frozen(problem.op_time_s, np.float64),
        unit_time_s=problem.unit_time_s,
        topological_position=frozen(np.argsort(graph.topological_order), np.int64),
        unit_memory_bytes=frozen(_unit_memory_bytes(problem), np.float64),
        input_offsets=graph.input_offsets,
        input_tensors=graph.input_tensors,
        output_offsets=graph.output_offsets,
        tensor_producer=graph.tensor_producer,
        tensor_bytes=frozen(graph.tensor_bytes, np.float64),
        consumer_offsets=graph.consumer_offsets,
        consumers=graph.consumers,
        route_latency_s=problem.topology.route_latency_s,
        route_s_per_byte=problem.topology.route_s_per_byte,
    )


def _unit_memory_bytes(problem: Problem) -> FloatArray:
    graph = problem.graph
    op_bytes = graph.memory_bytes.astype(np.float64)
    shares = np.diff(graph.weight_offsets)
    np.add.at(op_bytes, graph.weight_consumers, np.repeat(graph.weight_bytes / np.maximum(shares, 1), shares))
    return np.bincount(problem.unit_of_op, weights=op_bytes, minlength=problem.num_units).astype(np.float64)
