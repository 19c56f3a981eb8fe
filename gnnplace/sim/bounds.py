"""Lower bounds of the seconds of all feasible placements."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.graph.orders import upward_rank
from gnnplace.objectives import Objective
from gnnplace.sim.relaxation import Units, relaxation_bound


@dataclass(frozen=True)
class LowerBound:
    """No feasible placement takes less than `value_s` seconds; `name` is the bound that proves it."""

    value_s: float
    name: str


def lower_bound(graph: OpGraph, topology: Topology, op_time_s: FloatArray, objective: Objective) -> LowerBound:
    """The greatest of several lower bounds of the seconds of one step, or between pipelined steps.

    - critical path (latency only): every op on its fastest device, free transfers;
    - largest unit: the ops of a colocation group run on one device, one after the other;
    - work over all devices: a linear program that divides units over devices, each of which has the objective's seconds.
      Weights and results must fit in each memory, if memory binds. For latency every path must fit as well, while the
      program stays small;
    - forced transfer: a connected part that no single device can hold is cut somewhere, see `_forced_transfer_s`.

    `op_time_s` is `[N, D]`, infinite where an op cannot run.

    >>> from gnnplace.devices.topology import Device
    >>> from gnnplace.graph.op_graph import Op
    >>> pair = OpGraph.build("pair", [Op("a"), Op("b")])
    >>> lower_bound(pair, Topology("two", (Device("x"), Device("y"))), np.full((2, 2), 3.0), "latency")
    LowerBound(value_s=3.0, name='critical path')
    """
    if graph.num_ops == 0:
        return LowerBound(0.0, "critical path")
    units = Units.of(graph, topology, op_time_s)
    bounds: list[LowerBound] = []
    if objective == "latency":
        bounds.append(LowerBound(float(graph.upward_rank(units.fastest_op_s).max()), "critical path"))
    bounds.append(LowerBound(float(units.time_s.min(axis=1).max()), "largest unit"))
    bounds.append(LowerBound(_forced_transfer_s(graph, topology, units, objective), "forced transfer"))
    bounds.append(LowerBound(*relaxation_bound(graph, topology, units, paths=objective == "latency")))
    return max(bounds, key=lambda bound: bound.value_s)


def _forced_transfer_s(graph: OpGraph, topology: Topology, units: Units, objective: Objective) -> float:
    """Seconds of the cheapest way to cut a connected part of the graph that no single device can hold.

    A connected part on several devices has a tensor `t`, from op `u` to op `w`, that crosses devices. All ops on a path to
    `u` run before the transfer, and all ops on a path from `w` run after it. So the step lasts at least
    head(u) + transfer(t) + tail(w), with the fastest devices and the cheapest route; and some link is occupied for at
    least the cheapest link's time. The minimum over all tensors that may cross holds for any of them. A device cannot hold
    a part if it may not run one of its units, or has less memory than its weights and results, which all exist at the end
    of the step. Zero if no transfer is forced.
    """
    producers, consumers = graph.edges
    num_units = len(units.memory_bytes)
    source, target = units.unit_of_op[producers], units.unit_of_op[consumers]
    crossing = np.flatnonzero(source != target)
    ends = coo_array((np.ones(len(crossing)), (source[crossing], target[crossing])), shape=(num_units, num_units))
    count, part = connected_components(ends, directed=False)
    size = np.bincount(part, weights=units.memory_bytes, minlength=count)
    holds = size[:, None] <= topology.memory_bytes
    np.logical_and.at(holds, part, np.isfinite(units.time_s))
    forced = ~holds.any(axis=1)
    if not forced.any() or not topology.links:
        return 0.0
    transfer_s = _cheapest_transfer_s(topology, graph.tensor_bytes, objective)[graph.consumer_tensor[crossing]]
    if objective == "latency":
        backwards, sources = graph.topological_order[::-1].copy(), producers[np.argsort(consumers, kind="stable")]
        heads = upward_rank(backwards, units.fastest_op_s, graph.input_offsets, sources, np.zeros(len(sources)))
        tails = graph.upward_rank(units.fastest_op_s)
        transfer_s = heads[producers[crossing]] + transfer_s + tails[consumers[crossing]]
    least = np.full(count, np.inf)
    np.minimum.at(least, part[source[crossing]], transfer_s)
    least = least[forced & np.isfinite(least)]  # infinite: the part fits nowhere, which other code reports
    return float(least.max(initial=0.0))


def _cheapest_transfer_s(topology: Topology, num_bytes: IntArray, objective: Objective) -> FloatArray:
    """`[T]` seconds over the cheapest route between two devices; for throughput, on the cheapest link."""
    latency_s, s_per_byte = topology.latency_s, 1.0 / topology.bandwidth_bytes_per_s
    if objective == "latency":
        apart = np.isfinite(topology.route_latency_s) & ~np.eye(topology.num_devices, dtype=np.bool_)
        latency_s, s_per_byte = topology.route_latency_s[apart], topology.route_s_per_byte[apart]
    least = np.full(len(num_bytes), np.inf)
    for route in np.unique(np.stack([latency_s, s_per_byte]), axis=1).T:
        np.minimum(least, route[0] + route[1] * num_bytes, out=least)
    return least
