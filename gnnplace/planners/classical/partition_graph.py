"""What graph partitioners cut: units as vertices, tensors as edges or nets, devices as parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array

from gnnplace.arrays import FloatArray, IntArray, csr
from gnnplace.devices.topology import HOST_KIND_PREFIX
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.single import exchanges_with, fastest_elsewhere, unit_time_s

__all__ = ["Nets", "Parts", "UndirectedGraph", "nets_of", "parts_of", "undirected_graph", "whole_numbers"]


@dataclass(frozen=True, eq=False)
class UndirectedGraph:
    """`U` units and `E` edges between units that exchange tensors, each there in both directions, as rows."""

    offsets: IntArray  # [U + 1]
    neighbours: IntArray  # [2 E] ascending within a row
    edge_bytes: IntArray  # [2 E]


@dataclass(frozen=True, eq=False)
class Nets:
    """A hypergraph: one net for each of the `K` tensors that leave their unit."""

    offsets: IntArray  # [K + 1]
    units: IntArray  # the producer first, then the consumers, each once
    tensors: IntArray  # [K]


@dataclass(frozen=True, eq=False)
class Parts:
    """The devices that take part, one for each part, fastest first."""

    devices: IntArray  # [P]
    speed: FloatArray  # [P] sums to 1
    unit_s: FloatArray  # [U, P] infinite where the unit may not go
    fallback: IntArray  # [U] the device of a unit that may not run on the device of its part

    @property
    def mean_s(self) -> FloatArray:
        """`[U]` mean seconds over the parts where the unit may go; 0 where it may go to none and so loads none."""
        allowed = np.isfinite(self.unit_s)
        return np.asarray(np.where(allowed, self.unit_s, 0.0).sum(axis=1) / np.maximum(1, allowed.sum(axis=1)))

    def assignment(self, problem: Problem, part: IntArray) -> IntArray:
        """`[N]` from the part of each unit `[U]`; a unit that may not run on its part's device takes its fallback.

        >>> from dataclasses import replace
        >>> from gnnplace.sim.example import diamond
        >>> problem = replace(diamond(), op_time_s=np.array([[1.0, 1.0], [2.0, np.inf], [2.0, 2.0], [1.0, 1.0]]))
        >>> parts_of(problem, hosts=True).assignment(problem, np.array([1, 1, 1, 1])).tolist()  # one may not go there
        [1, 0, 1, 1]
        """
        units = np.arange(problem.num_units)
        placed = np.where(problem.action_mask[units, self.devices[part]], self.devices[part], self.fallback)
        return np.asarray(placed[problem.unit_of_op])


def undirected_graph(problem: Problem) -> UndirectedGraph:
    """Units that exchange tensors, with the bytes of all tensors between the two in either direction.

    A tensor counts once for every unit that reads it: a graph cannot say that units on one device share a copy.

    >>> from gnnplace.sim.example import diamond
    >>> graph = undirected_graph(diamond())
    >>> graph.offsets.tolist(), graph.neighbours.tolist(), graph.edge_bytes.tolist()
    ([0, 2, 4, 6, 8], [1, 2, 0, 3, 0, 3, 1, 2], [8, 8, 8, 8, 8, 8, 8, 8])
    """
    tensor, reader = _crossings(problem)
    writer = problem.unit_of_op[problem.graph.tensor_producer[tensor]]
    num_bytes = problem.graph.tensor_bytes[tensor]
    shape = (problem.num_units, problem.num_units)
    ends = np.concatenate([writer, reader]), np.concatenate([reader, writer])
    rows = coo_array((np.concatenate([num_bytes, num_bytes]), ends), shape=shape).tocsr()  # parallel edges are summed
    rows.sort_indices()
    return UndirectedGraph(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(np.int64))


def nets_of(problem: Problem) -> Nets:
    """One net for each tensor that another unit than its producer's reads.

    >>> from gnnplace.sim.example import diamond
    >>> nets = nets_of(diamond())
    >>> nets.offsets.tolist(), nets.units.tolist()
    ([0, 3, 5, 7], [0, 1, 2, 1, 3, 2, 3])
    """
    tensor, reader = _crossings(problem)
    tensors, net = np.unique(tensor, return_inverse=True)
    writer = problem.unit_of_op[problem.graph.tensor_producer[tensors]]
    rows = np.concatenate([np.arange(len(tensors)), net])
    offsets, units = csr(rows, np.concatenate([writer, reader]), len(tensors))
    return Nets(offsets, units, tensors)


def parts_of(problem: Problem, hosts: bool) -> Parts:
    """The accelerators, or every device with `hosts`, that can exchange tensors with the fastest of them.

    A device that may run no unit takes no part, nor do more devices than there are units. Where no accelerator can take
    part the hosts do. Speed is the share of seconds saved: with twice the speed the same units take half as long.

    >>> from gnnplace.sim.example import diamond
    >>> problem = diamond()
    >>> parts = parts_of(problem, hosts=True)
    >>> parts.devices.tolist(), parts.speed.tolist(), parts.mean_s.tolist()
    ([0, 1], [0.5, 0.5], [1.0, 2.0, 2.0, 1.0])
    >>> parts.assignment(problem, np.array([0, 0, 1, 1])).tolist()
    [0, 0, 1, 1]
    """
    unit_s = unit_time_s(problem)
    finite = np.isfinite(unit_s)
    fastest_s = unit_s.min(axis=1, initial=np.inf)
    # The same units on the device and each on its fastest one.
    own_s = np.where(finite, unit_s, 0.0).sum(axis=0)
    ideal_s = np.where(finite, fastest_s[:, None], 0.0).sum(axis=0)
    slowness = np.divide(own_s, ideal_s, out=np.ones_like(own_s), where=ideal_s > 0)
    kinds = [device.kind for device in problem.topology.devices]
    accelerator = np.array([not kind.startswith(HOST_KIND_PREFIX) for kind in kinds])
    able = finite.any(axis=0) | (problem.num_units == 0)
    chosen = np.flatnonzero(able & (accelerator | hosts) if (able & accelerator).any() else able)
    chosen = chosen[np.argsort(slowness[chosen], kind="stable")]
    near = chosen[exchanges_with(problem.topology, int(chosen[0]))[chosen]]
    devices = near[: max(1, problem.num_units)]
    speed = 1.0 / slowness[devices]
    fallback = fastest_elsewhere(problem, unit_s, int(devices[0]))
    return Parts(devices, speed / speed.sum(), unit_s[:, devices], fallback)


def whole_numbers(values: FloatArray | IntArray, total: int = 1 << 24, least: int = 0) -> IntArray:
    """Integers in proportion to `values` that sum to about `total`, none below `least`; ones where all values are 0.

    >>> whole_numbers(np.array([0.5, 0.25, 0.0]), total=12, least=1).tolist()
    [8, 4, 1]
    """
    largest = float(values.max(initial=0.0))
    if largest <= 0.0:
        return np.ones(len(values), dtype=np.int64)
    shares = values / largest  # so that the sum cannot overflow
    return np.asarray(np.maximum(least, np.rint(shares * (total / shares.sum()))), dtype=np.int64)


def _crossings(problem: Problem) -> tuple[IntArray, IntArray]:
    """Every (tensor, unit that reads it) once, without the unit that produces it."""
    graph, unit = problem.graph, problem.unit_of_op
    reader = unit[graph.consumers]
    crosses = reader != unit[graph.tensor_producer][graph.consumer_tensor]
    pairs = np.unique(np.stack([graph.consumer_tensor[crosses], reader[crosses]]), axis=1)
    return pairs[0], pairs[1]
