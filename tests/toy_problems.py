"""Problems small enough to know the optimum by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.sim.simulator import Simulator


def full_mesh(num_devices: int, memory_bytes: int | None = None) -> Topology:
    """Devices `d0`, `d1`, ... with links of 0.5 s latency and 10 bytes per second between every two."""
    names = [f"d{i}" for i in range(num_devices)]
    devices = tuple(Device(name, "unit", memory_bytes) for name in names)
    links = tuple(Link(a, b, 0.5, 10.0) for a in names for b in names if a != b)
    return Topology("mesh", devices, links)


def problem_on(
    graph: OpGraph, topology: Topology, op_time_s: np.ndarray | None = None, objective: Objective = "latency"
) -> Problem:
    """A simulated problem; every op takes 1 s everywhere by default."""
    times = np.ones((graph.num_ops, topology.num_devices)) if op_time_s is None else op_time_s
    simulator = Simulator(graph, topology, times, num_threads=1)
    return Problem(graph, topology, times, simulator, simulator, objective)


def two_chains(length: int = 3, num_devices: int = 2, memory_bytes: int | None = None) -> Problem:
    """Two independent chains `a0 -> a1 ...` and `b0 -> b1 ...`: 2 * length seconds on one device, length on two."""
    names = [f"{chain}{i}" for i in range(length) for chain in "ab"]
    tensors = [Tensor(f"{c}{i}", 5, (f"{c}{i + 1}",)) for c in "ab" for i in range(length - 1)]
    graph = OpGraph.build("two chains", [Op(name, memory_bytes=10) for name in names], tensors)
    return problem_on(graph, full_mesh(num_devices, memory_bytes))


def random_layers(seed: int = 0, num_ops: int = 30, num_devices: int = 3) -> Problem:
    """A random layered graph with one colocation group of two ops, op times and tensors of all sizes."""
    rng = np.random.default_rng(seed)
    groups = {4: "pair", 9: "pair"}
    ops = [
        Op(f"o{i}", f"Type{i % 4}", memory_bytes=int(rng.integers(1, 50)), group=groups.get(i)) for i in range(num_ops)
    ]
    tensors = [
        Tensor(f"o{i}", int(rng.integers(0, 20)), tuple({f"o{j}" for j in rng.integers(i + 1, min(num_ops, i + 6), 2)}))
        for i in range(num_ops - 1)
    ]
    graph = OpGraph.build("layers", ops, tensors)
    return problem_on(graph, full_mesh(num_devices), rng.uniform(0.2, 2.0, (num_ops, num_devices)))


def renamed(problem: Problem, order: np.ndarray) -> Problem:
    """The same problem with its ops reordered: op `i` was op `order[i]`. For at most one tensor per op."""
    graph = problem.graph
    ops = [
        Op(graph.op_names[v], graph.op_types[v], memory_bytes=int(graph.memory_bytes[v]),
           group=None if graph.colocation[v] < 0 else graph.colocation_names[graph.colocation[v]])
        for v in order
    ]  # fmt: skip
    tensors = [
        Tensor(graph.op_names[graph.tensor_producer[t]], int(graph.tensor_bytes[t]),
               tuple(graph.op_names[c] for c in graph.consumers_of(t)))
        for t in range(graph.num_tensors)
    ]  # fmt: skip
    other = OpGraph.build(graph.name, ops, tensors)
    return problem_on(other, problem.topology, problem.op_time_s[order])


class MeasuredLike:
    """A measured evaluator whose seconds are simulated; it records the executed assignments."""

    def __init__(self, problem: Problem) -> None:
        self.kind = "measured"
        self._inner = problem.evaluator
        self.executed: list[np.ndarray] = []

    def evaluate(self, placement):  # type: ignore[no-untyped-def]
        """The simulator's result."""
        self.executed.append(placement.assignment)
        return replace(self._inner.evaluate(placement), evaluator="measured")

    def evaluate_batch(self, assignments):  # type: ignore[no-untyped-def]
        """The simulator's result."""
        self.executed.extend(assignments)
        return self._inner.evaluate_batch(assignments)
