"""Small problems that several tests place: graphs, connected devices, and a simulator of both."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Objective, Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.sim.simulator import Simulator


def devices_of(kinds: Iterable[str], memory_bytes: int | None = None) -> tuple[Device, ...]:
    """Devices of some kinds, named `gpu0`, `gpu1`, `cpu2`, ..."""
    return tuple(Device(f"{kind}{i}", kind, memory_bytes) for i, kind in enumerate(kinds))


def connected(*devices: Device, latency_s: float = 0.0, bandwidth: float = 1.0) -> Topology:
    """Devices with a link from each to each other one."""
    links = (Link(a.name, b.name, latency_s, bandwidth) for a, b in itertools.permutations(devices, 2))
    return Topology("connected", devices, tuple(links))


def full_mesh(num_devices: int, memory_bytes: int | None = None) -> Topology:
    """Devices `d0`, `d1`, ... with links of 0.5 s latency and 10 bytes per second between every two."""
    return connected(*devices_of("d" * num_devices, memory_bytes), latency_s=0.5, bandwidth=10.0)


def problem_of(
    graph: OpGraph, topology: Topology | Iterable[Device], times: ArrayLike = 1.0, objective: Objective = "latency"
) -> Problem:
    """A simulated problem, by default of ops of 1 s; links between bare devices take 1 s of latency and 1 ms per byte."""
    if not isinstance(topology, Topology):
        topology = connected(*topology, latency_s=1.0, bandwidth=1e3)
    op_time_s = np.array(np.broadcast_to(np.asarray(times, np.float64), (graph.num_ops, topology.num_devices)))
    simulator = Simulator(graph, topology, op_time_s, num_threads=1)
    return Problem(graph, topology, op_time_s, simulator, simulator, objective)


def chain(length: int, memory_bytes: int = 0) -> OpGraph:
    """Ops of one FLOP one after the other, with tensors of no bytes between them."""
    ops = [Op(f"o{i}", flops=1.0, memory_bytes=memory_bytes) for i in range(length)]
    return OpGraph.build("chain", ops, [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(length - 1)])


def ladders(sizes: Sequence[int], between: Mapping[tuple[int, int], int] = {}, **allowed: tuple[str, ...]) -> OpGraph:
    """Clusters of ops `c0_0`, `c0_1`, ..., each read by the next two ops of its cluster: 1000 bytes, 10 resident ones.

    `between` gives the bytes from the end of one cluster to the start of another.
    """
    names = [[f"c{c}_{i}" for i in range(size)] for c, size in enumerate(sizes)]
    tensors = [Tensor(row[i], 1000, tuple(row[i + 1 : i + 3])) for row in names for i in range(len(row) - 1)]
    tensors += [Tensor(names[a][-1], num_bytes, (names[b][0],)) for (a, b), num_bytes in between.items()]
    ops = [Op(name, memory_bytes=10, devices=allowed.get(name)) for row in names for name in row]
    return OpGraph.build("ladders", ops, tensors)


def task_problem(seconds: ArrayLike, edges: Mapping[tuple[int, int], int]) -> Problem:
    """The example of a paper: tasks numbered from 1 on connected devices, with seconds for each pair and each edge."""
    times = np.asarray(seconds, np.float64)
    tensors = [Tensor(f"n{a}", size, (f"n{b}",)) for (a, b), size in edges.items()]
    graph = OpGraph.build("paper", [Op(f"n{i + 1}") for i in range(len(times))], tensors)
    return problem_of(graph, connected(*devices_of("p" * times.shape[1])), times)


def random_reads(
    rng: np.random.Generator, num_ops: int, num_bytes: tuple[int, int], readers: int = 2, memory_bytes: int = 0
) -> OpGraph:
    """A random graph: each op but the last has one tensor, which up to `readers` later ops read."""
    tensors = []
    for i in range(num_ops - 1):
        size = int(rng.integers(*num_bytes))
        tensors.append(Tensor(f"o{i}", size, tuple({f"o{j}" for j in rng.integers(i + 1, num_ops, readers)})))
    return OpGraph.build("random", [Op(f"o{i}", memory_bytes=memory_bytes) for i in range(num_ops)], tensors)


def optimum_s(problem: Problem) -> float:
    """Least penalised seconds of all assignments."""
    choices = itertools.product(range(problem.topology.num_devices), repeat=problem.graph.num_ops)
    batch = problem.evaluator.evaluate_batch(np.array(list(choices), dtype=np.int64))
    return float(problem.penalised_batch_s(batch).min())


def two_chains(length: int = 3, num_devices: int = 2, memory_bytes: int | None = None) -> Problem:
    """Two independent chains `a0 -> a1 ...` and `b0 -> b1 ...`: 2 * length seconds on one device, length on two."""
    names = [f"{chain}{i}" for i in range(length) for chain in "ab"]
    tensors = [Tensor(f"{c}{i}", 5, (f"{c}{i + 1}",)) for c in "ab" for i in range(length - 1)]
    graph = OpGraph.build("two chains", [Op(name, memory_bytes=10) for name in names], tensors)
    return problem_of(graph, full_mesh(num_devices, memory_bytes))


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
    return problem_of(graph, full_mesh(num_devices), rng.uniform(0.2, 2.0, (num_ops, num_devices)))


def rebuilt(graph: OpGraph, groups: Sequence[str | None], order: Iterable[int]) -> OpGraph:
    """The same graph without shared weights, in other colocation groups, and with its ops reordered: op `i` was `order[i]`."""
    ops = [
        Op(graph.op_names[v], graph.op_types[v], memory_bytes=int(graph.memory_bytes[v]),
           workspace_bytes=int(graph.workspace_bytes[v]), group=groups[v])
        for v in order
    ]  # fmt: skip
    tensors = [
        Tensor(graph.op_names[graph.tensor_producer[t]], int(graph.tensor_bytes[t]),
               tuple(graph.op_names[c] for c in graph.consumers_of(t)))
        for t in range(graph.num_tensors)
    ]  # fmt: skip
    return OpGraph.build(graph.name, ops, tensors)


def renamed(problem: Problem, order: np.ndarray) -> Problem:
    """The same problem with its ops reordered. For at most one tensor per op."""
    graph = problem.graph
    groups = [None if label < 0 else graph.colocation_names[label] for label in graph.colocation]
    return problem_of(rebuilt(graph, groups, order), problem.topology, problem.op_time_s[order])


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
