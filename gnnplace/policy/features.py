"""Features for the encoder: units, edges and devices in relative numbers, never raw seconds or bytes.

An amount is divided by the graph's mean of its kind (or by the current makespan) and compressed by `log(1 + x)`, so graphs and
devices of any size have features of similar size. Op types are hashed into buckets; one bucket is for unknown types.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.arrays import Float32Array, FloatArray, IntArray, csr, frozen
from gnnplace.env.timing import Timing, UnitTables
from gnnplace.evaluation import Problem
from gnnplace.graph.orders import upward_rank

FEATURE_VERSION = 4
"""Grows with every change of a feature's meaning; a policy file states the version that it was trained with."""

NUM_TYPE_BUCKETS = 64

STATIC_NODE_FEATURES = (
    "time", "fastest_time", "time_spread", "memory", "input_bytes", "output_bytes", "transfer_to_compute",
    "top_level", "bottom_level", "in_degree", "out_degree", "allowed_devices",
)  # fmt: skip
DYNAMIC_NODE_FEATURES = ("start", "end", "slack", "slowdown", "device_load")
NODE_FEATURES = STATIC_NODE_FEATURES + DYNAMIC_NODE_FEATURES
STATIC_EDGE_FEATURES = ("bytes", "transfer_to_compute")
DYNAMIC_EDGE_FEATURES = ("is_cut", "wait")
EDGE_FEATURES = STATIC_EDGE_FEATURES + DYNAMIC_EDGE_FEATURES
DEVICE_FEATURES = ("slowdown", "memory", "bandwidth", "latency", "dispatch_overhead")
SCHEDULE_NODE_FEATURES = frozenset({"start", "end", "slack", "device_load"})
SCHEDULE_EDGE_FEATURES = frozenset({"wait"})
"""Node and edge features that name times of a schedule, or shares of its makespan; without them a placement follows from the graph and the devices alone."""


def seen_columns(names: Sequence[str], of_schedules: Collection[str], sees_schedules: bool) -> Float32Array:
    """`[F]` 1 for each feature, but 0 for those of a schedule where the policy does not see them."""
    return np.array([sees_schedules or name not in of_schedules for name in names], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class GraphFeatures:
    """Features of a problem that no placement changes."""

    nodes: Float32Array  # [U, static node features]
    type_buckets: IntArray  # [U] of the longest op of each unit
    ends: IntArray  # [2, E] producing and consuming unit, each pair once
    edges: Float32Array  # [E, static edge features]
    edge_pairs: IntArray  # [2, E] the ops (producer, consumer) of the heaviest tensor of each edge
    devices: Float32Array  # [D, device features]
    mean_unit_s: float
    """Mean seconds of a unit over the devices that may run it."""


def type_bucket(op_type: str) -> int:
    """The bucket of an op type: 0 for unknown, else 1 to 63 by a hash that is the same everywhere."""
    return 0 if op_type == "Unknown" else 1 + zlib.crc32(op_type.encode()) % (NUM_TYPE_BUCKETS - 1)


def graph_features(problem: Problem, tables: UnitTables) -> GraphFeatures:
    """The static features of a problem; linear in its size."""
    allowed = problem.action_mask
    times = np.where(allowed, tables.unit_time_s, 0.0)
    mean_s = times.sum(axis=1) / np.maximum(1, allowed.sum(axis=1))
    fastest_s = np.where(allowed, tables.unit_time_s, np.inf).min(axis=1)
    spread_s = np.sqrt(
        (np.where(allowed, times - mean_s[:, None], 0.0) ** 2).sum(axis=1) / np.maximum(1, allowed.sum(axis=1))
    )
    mean_unit_s = max(float(mean_s.mean()), 1e-30)
    latency_s, s_per_byte = problem.topology.mean_transfer
    ends = problem.unit_edges
    edge_bytes, edge_pairs = edge_tensors(problem)
    transfer_s = latency_s + edge_bytes * s_per_byte
    input_bytes = np.bincount(ends[1], weights=edge_bytes, minlength=problem.num_units)
    output_bytes = np.bincount(ends[0], weights=edge_bytes, minlength=problem.num_units)
    output_s = np.bincount(ends[0], weights=transfer_s, minlength=problem.num_units)
    sizes = np.bincount(problem.unit_of_op)
    top, bottom = _levels(problem, (mean_s / sizes)[problem.unit_of_op])
    nodes = {
        "time": np.log1p(mean_s / mean_unit_s),
        "fastest_time": np.log1p(fastest_s / mean_unit_s),
        "time_spread": spread_s / np.maximum(mean_s, 1e-30),
        "memory": np.log1p(_to_mean(tables.unit_memory_bytes)),
        "input_bytes": np.log1p(_to_mean(input_bytes)),
        "output_bytes": np.log1p(_to_mean(output_bytes)),
        "transfer_to_compute": np.log1p(output_s / np.maximum(mean_s, 1e-3 * mean_unit_s)),
        "top_level": top,
        "bottom_level": bottom,
        "in_degree": np.log1p(np.bincount(ends[1], minlength=problem.num_units)),
        "out_degree": np.log1p(np.bincount(ends[0], minlength=problem.num_units)),
        "allowed_devices": allowed.mean(axis=1),
    }
    edges = {"bytes": np.log1p(_to_mean(edge_bytes)), "transfer_to_compute": np.log1p(transfer_s / mean_unit_s)}
    return GraphFeatures(
        nodes=_stack(nodes, STATIC_NODE_FEATURES),
        type_buckets=_type_buckets(problem),
        ends=ends,
        edges=_stack(edges, STATIC_EDGE_FEATURES),
        edge_pairs=edge_pairs,
        devices=_device_features(problem, tables, mean_unit_s),
        mean_unit_s=mean_unit_s,
    )


def sweep_features(features: GraphFeatures, tables: UnitTables, timing: Timing) -> tuple[Float32Array, Float32Array]:
    """Node features `[U, B, F]` and edge features `[E, B, F]` of `B` placements, static and dynamic together."""
    makespan_s = np.maximum(timing.makespan_s, 1e-30)[:, None]
    batch, units = len(timing.makespan_s), len(features.nodes)
    by_unit, offsets = tables.unit_ops, tables.unit_offsets[:-1]
    device = timing.assignment[:, by_unit[offsets]]
    start = np.minimum.reduceat(timing.start_s[:, by_unit], offsets, axis=1) / makespan_s
    end = np.maximum.reduceat(timing.end_s[:, by_unit], offsets, axis=1) / makespan_s
    slack = np.minimum.reduceat(timing.slack_s[:, by_unit], offsets, axis=1) / makespan_s
    here_s = tables.unit_time_s[np.arange(units)[None, :], device]
    slowdown = np.log((here_s + 1e-30) / (tables.unit_time_s.min(axis=1) + 1e-30)[None, :])
    load = np.take_along_axis(timing.busy_s / makespan_s, device, axis=1)
    dynamic_nodes = np.stack([start, end, slack, slowdown, load], axis=-1).transpose(1, 0, 2)
    producer, consumer = features.edge_pairs
    cut = timing.assignment[:, producer] != timing.assignment[:, consumer]
    wait = (timing.start_s[:, consumer] - timing.end_s[:, producer]) / makespan_s
    dynamic_edges = np.stack([cut, wait], axis=-1).transpose(1, 0, 2)
    static_nodes, static_edges = (np.repeat(a[:, None, :], batch, axis=1) for a in (features.nodes, features.edges))
    nodes = np.concatenate([static_nodes, dynamic_nodes], axis=2, dtype=np.float32)
    edges = np.concatenate([static_edges, dynamic_edges], axis=2, dtype=np.float32)
    return nodes, edges


def unplaced_features(features: GraphFeatures) -> tuple[Float32Array, Float32Array]:
    """Node features `[U, 1, F]` and edge features `[E, 1, F]` before any unit is placed: what a placement determines is 0."""
    nodes = np.pad(features.nodes, ((0, 0), (0, len(DYNAMIC_NODE_FEATURES))))
    edges = np.pad(features.edges, ((0, 0), (0, len(DYNAMIC_EDGE_FEATURES))))
    return nodes[:, None, :], edges[:, None, :]


def edge_tensors(problem: Problem) -> tuple[FloatArray, IntArray]:
    """Bytes `[E]` between the units of each of `problem.unit_edges`, and the ops `[2, E]` of the heaviest tensor."""
    sources, targets = problem.graph.edges
    size = problem.graph.tensor_bytes[problem.graph.consumer_tensor].astype(np.float64)
    key = problem.unit_of_op[sources] * problem.num_units + problem.unit_of_op[targets]
    across = np.flatnonzero(problem.unit_of_op[sources] != problem.unit_of_op[targets])
    across = across[np.argsort(-size[across], kind="stable")]
    _, first, edge = np.unique(key[across], return_index=True, return_inverse=True)
    edge_bytes = np.bincount(edge, weights=size[across], minlength=len(first)).astype(np.float64)
    heaviest = across[first]
    return edge_bytes, np.stack([sources[heaviest], targets[heaviest]])


def _levels(problem: Problem, op_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`[U]` longest path to the start and from the end of each unit, as a fraction of the longest path of the graph."""
    graph = problem.graph
    latency_s, s_per_byte = problem.topology.mean_transfer
    edge_s = np.asarray(latency_s + s_per_byte * graph.tensor_bytes[graph.consumer_tensor], dtype=np.float64)
    order, (sources, targets) = graph.topological_order, graph.edges
    bottom = upward_rank(order, op_s, graph.successor_offsets, graph.successors, edge_s)
    offsets, edges = csr(targets, np.arange(len(targets)), graph.num_ops)
    through_s = upward_rank(frozen(order[::-1], np.int64), op_s, offsets, sources[edges], edge_s[edges])
    top = np.zeros(graph.num_ops)
    np.maximum.at(top, targets, through_s[sources] + edge_s)
    longest = max(float(bottom.max()), 1e-30)
    by_unit = np.zeros((2, problem.num_units))
    np.maximum.at(by_unit[0], problem.unit_of_op, top / longest)
    np.maximum.at(by_unit[1], problem.unit_of_op, bottom / longest)
    return by_unit[0], by_unit[1]


def _type_buckets(problem: Problem) -> IntArray:
    """`[U]` the bucket of the longest op of each unit."""
    op_s = np.where(np.isfinite(problem.op_time_s), problem.op_time_s, 0.0).sum(axis=1)
    longest_last = np.argsort(op_s, kind="stable")
    op_of_unit = np.zeros(problem.num_units, dtype=np.int64)
    op_of_unit[problem.unit_of_op[longest_last]] = longest_last
    return np.array([type_bucket(problem.graph.op_types[op]) for op in op_of_unit.tolist()], dtype=np.int64)


def _device_features(problem: Problem, tables: UnitTables, mean_unit_s: float) -> Float32Array:
    topology = problem.topology
    fastest_s = tables.unit_time_s.min(axis=1, keepdims=True)
    ratio = np.where(problem.action_mask, (tables.unit_time_s + 1e-30) / (fastest_s + 1e-30), 1.0)
    total = max(1.0, float(problem.graph.total_weight_bytes + problem.graph.tensor_bytes.sum()))
    mean_bytes = float(problem.graph.tensor_bytes.mean()) if problem.graph.num_tensors else 0.0
    is_routed = np.isfinite(tables.route_latency_s) & ~np.eye(topology.num_devices, dtype=np.bool_)
    count = np.maximum(1, is_routed.sum(axis=1))
    bandwidth_s = np.where(is_routed, tables.route_s_per_byte, 0.0).sum(axis=1) / count * mean_bytes
    latency_s = np.where(is_routed, tables.route_latency_s, 0.0).sum(axis=1) / count
    columns = {
        "slowdown": np.log(ratio).mean(axis=0),
        "memory": np.log1p(np.minimum(topology.memory_bytes / total, 1e3)),
        "bandwidth": np.log1p(bandwidth_s / mean_unit_s),
        "latency": np.log1p(latency_s / mean_unit_s),
        "dispatch_overhead": np.log1p((topology.dispatch_overhead_s + topology.segment_overhead_s) / mean_unit_s),
    }
    return _stack(columns, DEVICE_FEATURES)


def _to_mean(values: FloatArray | IntArray) -> FloatArray:
    """Each value over the mean of all; zeros stay zeros."""
    mean = float(values.mean()) if len(values) else 0.0
    return np.asarray(values / mean if mean > 0 else values, dtype=np.float64)


def _stack(columns: Mapping[str, FloatArray | IntArray], names: Sequence[str]) -> Float32Array:
    """The columns of these names, in their order."""
    return np.stack([columns[name] for name in names], axis=1).astype(np.float32)
