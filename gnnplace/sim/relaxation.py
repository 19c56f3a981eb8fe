"""A linear program that divides units over devices, and the lower bound that its dual proves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.graph.units import colocated_units
from gnnplace.placement import allowed_mask

_MAX_VARIABLES = 4_000
"""Limit of unknowns; larger programs are solved for sums of similar units, without paths."""


@dataclass(frozen=True, eq=False)
class Units:
    """Colocation groups and free ops, with their seconds and bytes."""

    unit_of_op: IntArray  # [N]
    op_time_s: FloatArray  # [N, D] infinite where not allowed
    time_s: FloatArray  # [U, D]
    memory_bytes: FloatArray  # [U] weights and results; each shared weight counts for one consumer

    @property
    def fastest_op_s(self) -> FloatArray:
        """`[N]` seconds of each op on its fastest device."""
        return np.asarray(self.op_time_s.min(axis=1))

    @classmethod
    def of(cls, graph: OpGraph, topology: Topology, op_time_s: FloatArray) -> Units:
        """The units of a graph on devices; times are infinite where an op of the unit cannot run."""
        unit = colocated_units(graph)
        time = np.where(allowed_mask(graph, topology), op_time_s, np.inf)
        unit_time = np.zeros((int(unit.max()) + 1, topology.num_devices))
        np.add.at(unit_time, unit, time)
        time = np.where(np.isfinite(unit_time)[unit], time, np.inf)
        memory = np.bincount(unit, weights=graph.memory_bytes).astype(np.float64)
        used = np.diff(graph.weight_offsets) > 0
        np.add.at(memory, unit[graph.weight_consumers[graph.weight_offsets[:-1][used]]], graph.weight_bytes[used])
        results = np.diff(graph.consumer_offsets) == 0
        np.add.at(memory, unit[graph.tensor_producer[results]], graph.tensor_bytes[results])
        return cls(unit, time, unit_time, memory)


class _Classes(NamedTuple):
    """Classes of devices with equal times and memory, and the `R` resources and `M` memories that they take up.

    Devices that share resources or memory are classes of one; otherwise a class has a resource and a memory of its own,
    which stand for those of all its devices.
    """

    op_time_s: FloatArray  # [N, K] infinite where not allowed
    unit_time_s: FloatArray  # [U, K]
    uses: FloatArray  # [R, K] 1 where the class uses the resource
    copies: FloatArray  # [R] resources that each stands for
    stores: FloatArray  # [M, K] 1 where the class uses the memory
    memory_bytes: FloatArray  # [M]

    @classmethod
    def of(cls, topology: Topology, units: Units) -> _Classes:
        if topology.shares_resources or topology.shares_memory:
            homes = np.unique(topology.memory_home)
            return cls(
                units.op_time_s, units.time_s, topology.uses_resource.T.astype(np.float64),
                np.ones(len(topology.resource_names)), (homes[:, None] == topology.memory_home).astype(np.float64),
                topology.memory_bytes[homes].astype(np.float64),
            )  # fmt: skip
        rows = np.column_stack([units.op_time_s.T, topology.memory_bytes])
        _, first, copies = np.unique(rows, axis=0, return_index=True, return_counts=True)
        sizes, one_each = copies.astype(np.float64), np.eye(len(first))
        return cls(
            units.op_time_s[:, first], units.time_s[:, first], one_each, sizes, one_each,
            sizes * topology.memory_bytes[first],
        )  # fmt: skip


class _Dual(NamedTuple):
    """Weights that prove a bound, see `relaxation_bound`; those of a resource cover all that it stands for."""

    work: FloatArray  # [R]
    memory: FloatArray  # [M] seconds per byte
    flow: FloatArray  # [N]


def relaxation_bound(graph: OpGraph, topology: Topology, units: Units, paths: bool) -> tuple[float, str]:
    """A lower bound of all feasible schedules in seconds, from dividing units over devices, and its name.

    The program: the least C such that every unit is divided over the devices that may run it, no resource works longer
    than C (each device has one of its own, or shares some), weights and results fit (if memory binds), and with `paths` no
    path is longer than C (while the program stays small). Its bound is recomputed from its dual, so that no tolerance of the
    solver can make it too large:
    for any weights y_r >= 0 of resources, z_m >= 0 of memories and any flow f of path weight on the graph, with sum(y)
    plus all path weight equal to 1, every schedule of length C satisfies
    C >= sum over units u of min_d (sum over ops v of u of (y_d + f_v) t_vd + z_d m_u) - sum_m z_m M_m,
    where y_d sums over the resources of d and z_d is that of its memory, because C is at least each resource's work and
    each path's length, and m fits in M. The solver only proposes y, z, f.
    """
    classes = _Classes.of(topology, units)
    tight = bool((units.memory_bytes.sum() > topology.memory_bytes).any())
    even = classes.copies / classes.copies.sum()
    evenly = _Dual(even, np.zeros(len(classes.memory_bytes)), np.zeros(graph.num_ops))
    best = _proven_s(units, classes, evenly), "work over all devices"
    if len(even) == 1 and not tight:
        return best
    paths = paths and classes.op_time_s.size + graph.num_ops <= _MAX_VARIABLES
    dual = _solve(graph, units, classes, paths, tight)
    if dual is None:
        return best
    parts = (("paths", dual.flow), ("work", dual.work), ("memory", dual.memory))
    name = ", ".join(part for part, weights in parts if weights.any()) + " over all devices"
    return max(best, (_proven_s(units, classes, dual), name), key=lambda bound: bound[0])


def _proven_s(units: Units, classes: _Classes, dual: _Dual) -> float:
    """Seconds of the bound that the weights prove."""
    work = (dual.work / classes.copies) @ classes.uses
    op_price = (work + dual.flow[:, None]) * _finite(classes.op_time_s)
    price = np.zeros(classes.unit_time_s.shape)
    np.add.at(price, units.unit_of_op, op_price)
    price += (dual.memory @ classes.stores) * units.memory_bytes[:, None]
    price[~np.isfinite(classes.unit_time_s)] = np.inf
    return float(price.min(axis=1).sum() - (dual.memory * classes.memory_bytes).sum())


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, 0.0)


def _solve(graph: OpGraph, units: Units, classes: _Classes, paths: bool, tight: bool) -> _Dual | None:
    """The dual that the solver proposes, in seconds and bytes; None if it finds none.

    Unknowns: the share of each unit on each class, the end of each op when paths count, and the length C.
    """
    scale = max(float(_finite(classes.unit_time_s).max()), 1e-30)
    full = max(1.0, float(units.memory_bytes.sum()))
    unit_time, unit_memory = classes.unit_time_s / scale, units.memory_bytes / full
    if not paths and unit_time.size > _MAX_VARIABLES:
        unit_time, unit_memory = _similar_joined(unit_time, unit_memory)
    num_units, num_classes = unit_time.shape
    shares = num_units * num_classes
    size = shares + (graph.num_ops if paths else 0) + 1
    unit = np.arange(shares) // num_classes
    num_resources, num_memories = len(classes.copies), len(classes.memory_bytes)
    loads = _of_classes(classes.uses, _finite(unit_time))
    lengths = (np.arange(num_resources), np.full(num_resources, size - 1), -classes.copies)
    rows = [_rows((num_resources, size), loads, lengths)]
    limits = [np.zeros(num_resources)]
    if tight:
        stored = _of_classes(classes.stores, np.repeat(unit_memory[:, None], num_classes, axis=1))
        rows.append(_rows((num_memories, size), stored))
        limits.append(classes.memory_bytes / full)
    if paths:
        rows.append(_path_rows(graph, units.unit_of_op, _finite(classes.op_time_s) / scale, size))
        limits.append(np.zeros(rows[-1].shape[0]))
    upper = np.append(np.isfinite(unit_time).ravel().astype(np.float64), np.full(size - shares, np.inf))
    result = linprog(
        np.append(np.zeros(size - 1), 1.0),
        A_ub=vstack(rows, format="csr"),
        b_ub=np.concatenate(limits),
        A_eq=_rows((num_units, size), (unit, np.arange(shares), np.ones(shares))),
        b_eq=np.ones(num_units),
        bounds=np.column_stack([np.zeros(size), upper]),
        method="highs",
    )
    if result.status != 0:
        return None
    weights = np.split(np.maximum(0.0, -result.ineqlin.marginals), np.cumsum([len(part) for part in limits])[:-1])
    work = weights[0] * classes.copies
    memory = weights[1] * (scale / full) if tight else np.zeros(num_memories)
    flow, path_weight = _repaired_flow(graph, weights[-1]) if paths else (np.zeros(graph.num_ops), 0.0)
    total = float(work.sum()) + path_weight
    return _Dual(work / total, memory / total, flow / total) if total > 0 else None


def _of_classes(uses: FloatArray, amounts: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Entries of rows that sum the shares `[U, K]`, times `amounts` `[U, K]`, over the classes that each row `uses` `[R, K]`."""
    row, used = np.nonzero(uses)
    columns = np.arange(amounts.size).reshape(amounts.shape)[:, used]
    return np.tile(row, len(amounts)), columns.ravel(), amounts[:, used].ravel()


def _path_rows(graph: OpGraph, unit_of_op: IntArray, op_time: FloatArray, size: int) -> csr_array:
    """Rows `<= 0`: every op takes its time, begins after its producers (a row per edge), and ends before C."""
    num_ops, num_classes = op_time.shape
    ends = size - 1 - num_ops + np.arange(num_ops)
    ops, classes = np.arange(num_ops), np.arange(num_classes)
    producers, consumers = graph.edges
    edges = np.arange(len(producers))

    def durations(row: IntArray, op: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        column = unit_of_op[op][:, None] * num_classes + classes
        return np.repeat(row, num_classes), column.ravel(), op_time[op].ravel()

    begin = _rows((num_ops, size), durations(ops, ops), (ops, ends, -np.ones(num_ops)))
    after = _rows(
        (len(edges), size),
        durations(edges, consumers),
        (edges, ends[producers], np.ones(len(edges))),
        (edges, ends[consumers], -np.ones(len(edges))),
    )
    last = _rows((num_ops, size), (ops, ends, np.ones(num_ops)), (ops, np.full(num_ops, size - 1), -np.ones(num_ops)))
    return vstack([begin, after, last], format="csr")


def _rows(shape: tuple[int, int], *entries: tuple[IntArray, IntArray, FloatArray]) -> csr_array:
    """A sparse matrix from (rows, columns, values), which are added at equal places."""
    row, column, value = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return csr_array(coo_array((value, (row, column)), shape=shape))


def _repaired_flow(graph: OpGraph, weights: FloatArray) -> tuple[FloatArray, float]:
    """Path weight through every op `[N]`, and in total, from the multipliers of the rows of `_path_rows`.

    The multipliers of a solver conserve flow only nearly. Here the flow that leaves an op by its edges is at most the flow that
    enters or begins there: missing flow begins at the op and counts in the total, and excess flow ends there.
    """
    edge, end = np.split(weights[graph.num_ops :], [len(graph.consumers)])
    through, arrived, total = np.zeros(graph.num_ops), np.zeros(graph.num_ops), 0.0
    for op in graph.topological_order.tolist():
        row = slice(int(graph.successor_offsets[op]), int(graph.successor_offsets[op + 1]))
        leaves = float(edge[row].sum() + end[op])
        through[op] = max(float(arrived[op]), leaves)
        total += max(0.0, leaves - float(arrived[op]))
        np.add.at(arrived, graph.successors[row], edge[row])
    return through, total


def _similar_joined(unit_time: FloatArray, unit_memory: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of units with similar ratios of times and memory, so that few units remain."""
    least = np.maximum(unit_time.min(axis=1, keepdims=True), 1e-12)
    ratios = np.column_stack([unit_time, unit_memory * len(unit_memory)]) / least
    logs = np.log(np.clip(ratios, 1e-6, 1e30))
    for step in (0.1, 0.5, 2.0, 8.0, 100.0):
        classes, index = np.unique(np.round(logs / step), axis=0, return_inverse=True)
        if classes.shape[0] * unit_time.shape[1] <= _MAX_VARIABLES:
            break
    time, memory = np.zeros((classes.shape[0], unit_time.shape[1])), np.zeros(classes.shape[0])
    np.add.at(time, index, unit_time)
    np.add.at(memory, index, unit_memory)
    return time, memory
