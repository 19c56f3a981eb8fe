"""One graph on one topology as the compact arrays that the engine runs over."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidGraph
from gnnplace.graph.op_graph import OpGraph

IndexArray = NDArray[Any]
"""`uint32`; for unsigned indices the compiler drops the test for negative ones. `Any`, since mypy cannot follow mixed integers."""

FIRST_HOP, LAST_HOP = 1, 2
LONGEST_S = 1e100
"""Limit of all seconds added up; squares and products of seconds stay finite below it."""


class EngineTables(NamedTuple):
    """A graph on a topology, ops renumbered by priority: op numbers compare as priorities, and memory is read forwards.

    `N` ops, `T` tensors in the order of their producers, `C` (tensor, consumer) pairs, `W` shared weights, `D` devices,
    `R` hops of all routes. `old_op` and `old_tensor` map back to the graph's numbers.
    """

    old_op: IndexArray  # [N]
    num_inputs: IndexArray  # [N]
    op_time_s: FloatArray  # [N, D]
    tail_s: FloatArray  # [N] lower bound on the seconds from the end of the op to the end of the step
    start_bytes: IntArray  # [N] outputs and workspace, allocated when the op starts
    workspace_bytes: IntArray  # [N]
    memory_bytes: IntArray  # [N]
    output_offsets: IndexArray  # [N + 1]
    input_offsets: IndexArray  # [N + 1]
    input_tensors: IndexArray  # [C]
    old_tensor: IndexArray  # [T]
    tensor_bytes: IntArray  # [T]
    consumer_offsets: IndexArray  # [T + 1]
    consumers: IndexArray  # [C] in the order of the graph's consumer lists
    weight_bytes: IntArray  # [W]
    weight_offsets: IntArray  # [W + 1]
    weight_consumers: IntArray  # [weight_offsets[-1]]
    dispatch_overhead_s: FloatArray  # [D]
    segment_overhead_s: FloatArray  # [D]
    intake_s_per_byte: FloatArray  # [D]
    capacity_bytes: IntArray  # [D]
    route_offsets: IndexArray  # [D * D + 1] first hop of the route from `s` to `t` at `s * D + t`
    hop_link: IndexArray  # [R]
    hop_channel: IndexArray  # [R]
    hop_place: IndexArray  # [R] FIRST_HOP + LAST_HOP, one of them, or 0
    hop_latency_s: FloatArray  # [R]
    hop_bandwidth: FloatArray  # [R] bytes per second
    num_channels: int
    resource_offsets: IndexArray  # [D + 1] where the resources of each device begin in `resources`
    resources: IndexArray
    num_resources: int
    excludes: bool  # some devices share a resource
    memory_home: IndexArray  # [D] the first device of each device's memory pool
    pooled: bool  # some devices share a memory


def check_sums(graph: OpGraph, topology: Topology, op_time_s: FloatArray) -> None:
    """Checks that the longest possible schedule is a finite number: slowest devices, all tensors over all links.

    Raises:
        InvalidGraph: all seconds together exceed `LONGEST_S`.
    """
    sent_bytes = float(graph.tensor_bytes.sum())
    with np.errstate(all="ignore"):
        ops_s = np.where(np.isfinite(op_time_s), op_time_s, 0.0).max(axis=1, initial=0.0).sum()
        overheads_s = (topology.dispatch_overhead_s + topology.segment_overhead_s).sum() * graph.num_ops
        links_s = graph.num_tensors * topology.latency_s.sum() + sent_bytes * (1 / topology.bandwidth_bytes_per_s).sum()
        intake_s = sent_bytes * (1 / topology.intake_bandwidth_bytes_per_s).sum()
        most_s = ops_s + overheads_s + topology.num_devices * (links_s + intake_s)
    if not most_s < LONGEST_S:
        raise InvalidGraph(
            f"graph {graph.name!r} on {topology.name!r}: the seconds of all ops and transfers add up to {most_s:.3g}; "
            f"up to {LONGEST_S:.0g} can be computed with, so check the times, rates and latencies"
        )


def mean_upward_rank(graph: OpGraph, topology: Topology, op_time_s: FloatArray) -> FloatArray:
    """`[N]` upward rank (HEFT) in seconds over mean op times and mean transfer times: the default priorities."""
    runs = np.isfinite(op_time_s)
    mean_s = np.where(runs, op_time_s, 0.0).sum(axis=1) / np.maximum(runs.sum(axis=1), 1)
    latency_s, per_byte_s = topology.mean_transfer
    edge_s: FloatArray = latency_s + per_byte_s * graph.tensor_bytes[graph.consumer_tensor].astype(np.float64)
    return graph.upward_rank(mean_s, edge_s)


def priority_order(graph: OpGraph, priorities: FloatArray) -> IntArray:
    """`[N]` ops by descending priority, ties by topological index."""
    return np.lexsort((np.argsort(graph.topological_order), -priorities))


def engine_tables(graph: OpGraph, topology: Topology, op_time_s: FloatArray, order: IntArray) -> EngineTables:
    """The engine's arrays; `order` `[N]` lists the ops by descending priority."""
    new_op = np.argsort(order).astype(np.uint32)
    tensor_order = np.argsort(new_op[graph.tensor_producer], kind="stable")
    consumer_offsets, consumers = _reordered(graph.consumer_offsets, graph.consumers, tensor_order)
    input_offsets, input_tensors = _reordered(graph.input_offsets, graph.input_tensors, order)
    output_bytes = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(output_bytes, graph.tensor_producer, graph.tensor_bytes)
    num_outputs = np.diff(graph.output_offsets)[order]
    fastest_s = op_time_s.min(axis=1, initial=np.inf)
    fastest_s[~np.isfinite(fastest_s)] = 0.0
    return EngineTables(
        old_op=order.astype(np.uint32),
        num_inputs=np.diff(input_offsets).astype(np.uint32),
        op_time_s=np.ascontiguousarray(op_time_s[order], dtype=np.float64),
        tail_s=(graph.upward_rank(fastest_s) - fastest_s)[order],  # transfers are free
        start_bytes=(output_bytes + graph.workspace_bytes)[order],
        workspace_bytes=graph.workspace_bytes[order],
        memory_bytes=graph.memory_bytes[order],
        output_offsets=np.concatenate([[0], np.cumsum(num_outputs)]).astype(np.uint32),
        input_offsets=input_offsets,
        input_tensors=np.argsort(tensor_order).astype(np.uint32)[input_tensors],
        old_tensor=tensor_order.astype(np.uint32),
        tensor_bytes=graph.tensor_bytes[tensor_order],
        consumer_offsets=consumer_offsets,
        consumers=new_op[consumers],
        weight_bytes=graph.weight_bytes.copy(),
        weight_offsets=graph.weight_offsets.copy(),
        weight_consumers=new_op[graph.weight_consumers].astype(np.int64),
        dispatch_overhead_s=topology.dispatch_overhead_s.copy(),
        segment_overhead_s=topology.segment_overhead_s.copy(),
        intake_s_per_byte=1.0 / topology.intake_bandwidth_bytes_per_s,
        capacity_bytes=topology.memory_bytes.copy(),
        route_offsets=topology.route_offsets.astype(np.uint32),
        hop_link=topology.route_links.astype(np.uint32),
        hop_channel=topology.link_channel[topology.route_links].astype(np.uint32),
        hop_place=_hop_places(topology.route_offsets),
        hop_latency_s=topology.latency_s[topology.route_links],
        hop_bandwidth=topology.bandwidth_bytes_per_s[topology.route_links],
        num_channels=len(topology.channel_names),
        resource_offsets=np.concatenate([[0], np.cumsum(topology.uses_resource.sum(axis=1))]).astype(np.uint32),
        resources=np.nonzero(topology.uses_resource)[1].astype(np.uint32),
        num_resources=len(topology.resource_names),
        excludes=topology.shares_resources,
        memory_home=topology.memory_home.astype(np.uint32),
        pooled=topology.shares_memory,
    )


def _hop_places(route_offsets: IntArray) -> IndexArray:
    """`[R]` flags of the hops that begin or end a route."""
    places = np.zeros(route_offsets[-1], dtype=np.uint32)
    used = np.diff(route_offsets) > 0
    places[route_offsets[:-1][used]] += FIRST_HOP
    places[route_offsets[1:][used] - 1] += LAST_HOP
    return places


def _reordered(offsets: IntArray, values: IntArray, order: IntArray) -> tuple[IndexArray, IntArray]:
    """The rows of a CSR structure in another order."""
    lengths = np.diff(offsets)[order]
    new_offsets = np.concatenate([[0], np.cumsum(lengths)])
    picks = np.arange(new_offsets[-1]) - np.repeat(new_offsets[:-1], lengths) + np.repeat(offsets[:-1][order], lengths)
    return new_offsets.astype(np.uint32), values[picks]
