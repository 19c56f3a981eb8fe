"""The input of graph partitioners: units as vertices, tensors as edges or nets, devices as parts."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from gnnplace.arrays import BoolArray, FloatArray, IntArray, csr
from gnnplace.evaluation import Problem


@dataclass(frozen=True, eq=False)
class Nets:
    """A hypergraph: one net for each of the `K` tensors that leave their unit."""

    offsets: IntArray  # [K + 1]
    units: IntArray  # the producer first, then the consumers, each once
    tensors: IntArray  # [K]


@dataclass(frozen=True, eq=False)
class Parts:
    """The `P` devices that take part, one for each part, fastest first."""

    devices: IntArray  # [P]
    speed: FloatArray  # [P] sums to 1
    unit_s: FloatArray  # [U, P] infinite where the unit may not run
    fallback: IntArray  # [U] the device of a unit that may not run on the device of its part

    @property
    def mean_s(self) -> FloatArray:
        """`[U]` mean seconds over the parts where the unit may run; 0 where there is none."""
        allowed = np.isfinite(self.unit_s)
        return np.asarray(np.where(allowed, self.unit_s, 0.0).sum(axis=1) / np.maximum(1, allowed.sum(axis=1)))

    def assignment(self, problem: Problem, part: IntArray) -> IntArray:
        """`[N]` from the part of each unit `[U]`; a unit that may not run on its part's device takes its fallback."""
        units = np.arange(problem.num_units)
        placed = np.where(problem.action_mask[units, self.devices[part]], self.devices[part], self.fallback)
        return np.asarray(placed[problem.unit_of_op])


def undirected_graph(problem: Problem) -> csr_array:
    """`[U, U]` bytes of all tensors between two units in either direction, with an entry where they exchange any.

    A tensor counts once for every unit that reads it: a graph cannot express that units on one device share a copy.
    """
    tensor, reader = _crossings(problem)
    writer = problem.unit_of_op[problem.graph.tensor_producer[tensor]]
    num_bytes = problem.graph.tensor_bytes[tensor]
    shape = (problem.num_units, problem.num_units)
    ends = np.concatenate([writer, reader]), np.concatenate([reader, writer])
    graph = coo_array((np.concatenate([num_bytes, num_bytes]), ends), shape=shape).tocsr()  # parallel edges are summed
    graph.sort_indices()
    return graph


def nets_of(problem: Problem) -> Nets:
    """One net for each tensor that a unit other than its producer's reads."""
    tensor, reader = _crossings(problem)
    tensors, net = np.unique(tensor, return_inverse=True)
    writer = problem.unit_of_op[problem.graph.tensor_producer[tensors]]
    rows = np.concatenate([np.arange(len(tensors)), net])
    offsets, units = csr(rows, np.concatenate([writer, reader]), len(tensors))
    return Nets(offsets, units, tensors)


def participants(problem: Problem, hosts: bool) -> BoolArray:
    """`[D]` true for the accelerators, and with `hosts` for all devices, that may run any unit.

    Hosts take part where no accelerator can. Of devices that share resources only those take part that can all compute at a time.
    """
    able: BoolArray = np.logical_or(problem.action_mask.any(axis=0), problem.num_units == 0)
    at_a_time = np.isin(np.arange(len(able)), problem.topology.apart)
    able = able & at_a_time if (able & at_a_time).any() else able
    accelerator = [not device.is_host for device in problem.topology.devices]
    return able & accelerator if (able & accelerator).any() and not hosts else able


def parts_of(problem: Problem, hosts: bool) -> Parts:
    """The participants that can exchange tensors with the fastest of them, and no more than there are units.

    Twice the speed means half the seconds for the same units.
    """
    unit_s = problem.unit_time_s
    finite = np.isfinite(unit_s)
    fastest_s = unit_s.min(axis=1, initial=np.inf)
    # Seconds of the same units on this device, and each on its fastest device.
    own_s = np.where(finite, unit_s, 0.0).sum(axis=0)
    ideal_s = np.where(finite, fastest_s[:, None], 0.0).sum(axis=0)
    slowness = np.divide(own_s, ideal_s, out=np.ones_like(own_s), where=ideal_s > 0)
    chosen = np.flatnonzero(participants(problem, hosts))
    chosen = chosen[np.argsort(slowness[chosen], kind="stable")]
    near = chosen[problem.topology.exchanges[chosen[0]][chosen]]
    devices = near[: max(1, problem.num_units)]
    speed = 1.0 / slowness[devices]
    return Parts(devices, speed / speed.sum(), unit_s[:, devices], problem.fastest_near(int(devices[0])))


def whole_numbers(values: FloatArray | IntArray, total: int = 1 << 24, least: int = 0) -> IntArray:
    """Integers in proportion to `values` that sum to about `total`, none below `least`; ones where all values are 0."""
    largest = float(values.max(initial=0.0))
    if largest <= 0.0:
        return np.ones(len(values), dtype=np.int64)
    shares = values / largest  # so that the sum cannot overflow
    return np.asarray(np.maximum(least, np.rint(shares * (total / shares.sum()))), dtype=np.int64)


def _crossings(problem: Problem) -> tuple[IntArray, IntArray]:
    """Every pair of a tensor and a unit that reads it, once, without the unit that produces it."""
    graph, unit = problem.graph, problem.unit_of_op
    reader = unit[graph.consumers]
    crosses = reader != unit[graph.tensor_producer][graph.consumer_tensor]
    pairs = np.unique(np.stack([graph.consumer_tensor[crosses], reader[crosses]]), axis=1)
    return pairs[0], pairs[1]
