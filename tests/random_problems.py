"""Small random problems for property tests: every feature of graphs and topologies turns up."""

from dataclasses import replace
from functools import partial

import numpy as np

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor


def random_graph(generator: np.random.Generator, max_ops: int = 14, groups: int = 0, pinned: bool = False) -> OpGraph:
    """Ops with workspaces and weights, several outputs, shared weights, tensors of zero bytes, unused outputs.

    Half of the ops may be in one of `groups` colocation groups, and a fifth of them run only on a CPU.
    """
    num_ops = int(generator.integers(1, max_ops + 1))
    names = [f"op{i}" for i in range(num_ops)]
    ops = [
        Op(
            name,
            type=f"Type{i % 3}",
            time_s={"fast": float(i)} if i % 7 else {},
            flops=float(i + 1),
            bytes_accessed=float(i % 11),
            memory_bytes=int(generator.integers(0, 50)),
            workspace_bytes=int(generator.integers(0, 20)),
            group=f"g{generator.integers(groups)}" if groups and generator.random() < 0.5 else None,
            devices=("cpu",) if pinned and generator.random() < 0.2 else None,
        )
        for i, name in enumerate(names)
    ]
    tensors = []
    for producer in range(num_ops):
        for _ in range(int(generator.integers(0, 3))):
            later = [c for c in range(producer + 1, num_ops) if generator.random() < 0.3]
            size = 0 if generator.random() < 0.1 else int(generator.integers(1, 100))
            tensors.append(Tensor(names[producer], size, tuple(names[c] for c in later)))
    weights = [
        SharedWeight(
            int(generator.integers(1, 40)), tuple(generator.choice(names, size=min(3, num_ops), replace=False))
        )
        for _ in range(int(generator.integers(0, 3)))
    ]
    shuffled = [ops[i] for i in generator.permutation(num_ops)]
    return OpGraph.build("random", shuffled, tensors, weights)


def random_topology(generator: np.random.Generator, max_devices: int = 4, shared: bool = False) -> Topology:
    """A host and devices around it; some pairs linked directly, some links on a shared channel.

    With `shared`, devices occupy one to three of three resources, and some have a memory in common.
    """
    num_devices = int(generator.integers(1, max_devices + 1))
    names = ["cpu:0", *(f"gpu:{i}" for i in range(1, num_devices))]
    devices = tuple(
        Device(
            name,
            kind=name.split(":")[0],
            memory_bytes=None if generator.random() < 0.3 else int(generator.integers(50, 600)),
            dispatch_overhead_s=float(generator.choice([0.0, 0.25, 1.0])),
            segment_overhead_s=float(generator.choice([0.0, 0.5])),
            intake_bandwidth_bytes_per_s=generator.choice([None, 40.0]),
        )
        for name in names
    )
    if shared:
        devices = tuple(map(partial(sharing, generator, devices[0].memory_bytes), devices))
    links = []
    for source in names:
        for target in names:
            over_host = "cpu:0" in (source, target)
            if source != target and (over_host or generator.random() < 0.4):
                channel = "bus" if generator.random() < 0.4 else None
                latency = float(generator.choice([0.0, 0.5, 1.0]))
                links.append(Link(source, target, latency, float(generator.choice([10.0, 50.0, 1e9])), channel))
    return Topology("random", devices, tuple(links))


def sharing(generator: np.random.Generator, pool_bytes: int | None, device: Device) -> Device:
    """The device with one to three of three resources, and perhaps in a pool of memory."""
    resources = generator.choice(["r0", "r1", "r2"], size=int(generator.integers(1, 4)), replace=False)
    pooled = {"memory_pool": "host", "memory_bytes": pool_bytes} if generator.random() < 0.5 else {}
    return replace(device, resources=tuple(resources.tolist()), **pooled)


def random_times(generator: np.random.Generator, graph: OpGraph, topology: Topology, zeros: bool = True) -> np.ndarray:
    """Whole seconds, so that many things happen at the same instant; a few ops take none."""
    times = generator.integers(0 if zeros else 1, 5, size=(graph.num_ops, topology.num_devices)).astype(np.float64)
    return times if generator.random() < 0.5 else times * generator.uniform(0.5, 1.5, size=times.shape)
