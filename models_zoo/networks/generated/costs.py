"""Random costs of a graph as FLOPs and bytes, with a given communication-to-computation ratio on a reference device."""

import dataclasses
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray, IntArray, frozen
from gnnplace.cost.cost_model import RooflineCost, op_class
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from models_zoo.networks.generated.structure import Structure, require

REFERENCE = "p100x2"
"""The preset on which times and the communication-to-computation ratio are as the settings state."""

_ELEMENT_BYTES = 4  # float32
_HEAVY_TYPES = ("MatMul", "Conv")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Settings of the costs of ops and tensors.

    The communication-to-computation ratio is that of Topcuoglu et al. (2002), section 5.1: the mean cost of an edge
    over the mean cost of an op. The cost of an edge is the seconds that its tensor takes from one device of the
    reference, a pair of P100 on PCIe, to the other, latency and the way over the host included. The cost of an op is
    its seconds on one of them by the roofline model with published efficiencies, launch included. On other devices
    the ratio is another one, as it is for a network.

    Departures from that paper: an op has one output that all its consumers read, as in networks, so the edges of one
    producer cost the same. Costs are log-normal and not uniform. They are FLOPs and bytes and not seconds per
    processor; `unrelated` adds those where they are wanted.
    """

    seed: int = 0
    ccr: float = 1.0
    """Communication-to-computation ratio on the reference; the paper has 0.1, 0.5, 1, 5 and 10."""
    op_time_s: float = 5e-4
    """Mean seconds of an op on the reference."""
    size_spread: float = 0.75
    """Standard deviation of the natural logarithm of the tensors' bytes."""
    intensity_spread: float = 0.75
    """Standard deviation of the natural logarithm of a heavy op's FLOPs per byte of output."""
    heavy_share: float = 0.5
    """Part of the ops that multiply matrices or convolve; the others do one FLOP per element and are memory-bound."""
    weight_share: float = 0.3
    """Part of the weights in the bytes of weights and tensors together; only heavy ops have weights."""

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"seed is {self.seed}; expected 0 or more")
        for name in ("ccr", "op_time_s"):
            value = getattr(self, name)
            require(0 < value < np.inf, f"{name} is {value}; expected more than 0")
        for name in ("size_spread", "intensity_spread"):
            value = getattr(self, name)
            require(0 <= value <= 3, f"{name} is {value}; expected 0 to 3")
        require(0 < self.heavy_share <= 1, f"heavy_share is {self.heavy_share}; expected more than 0 and at most 1")
        require(0 <= self.weight_share < 1, f"weight_share is {self.weight_share}; expected 0 or more and less than 1")


def priced(name: str, structure: Structure, costs: Costs, rng: np.random.Generator) -> OpGraph:
    """The op graph of a structure with random costs; ops are named after type and number.

    Every op reads its inputs and its weights once and writes its output. That bounds the ratio from above, by about
    80 over one plus the mean number of inputs, since a P100 reads a tensor about 80 times faster than PCIe carries it;
    the latency bounds it from below.

    Raises:
        UnsupportedModel: the ratio is out of these bounds.
    """
    count, producers, consumers = structure.num_ops, structure.producers, structure.consumers
    heavy = np.zeros(count, dtype=np.bool_)
    heavy[rng.permutation(count)[: max(1, round(costs.heavy_share * count))]] = True
    num_inputs = np.bincount(consumers, minlength=count)
    light_types = np.where(num_inputs > 1, "Sum", "Relu")
    types = np.where(heavy, np.array(_HEAVY_TYPES)[rng.integers(0, len(_HEAVY_TYPES), count)], light_types).tolist()
    output_bytes = _output_bytes(producers, count, costs, rng)
    weight_bytes = _weight_bytes(heavy, output_bytes, costs, rng)
    read_bytes = np.bincount(consumers, output_bytes[producers], minlength=count)
    accessed = (read_bytes + output_bytes + weight_bytes).astype(np.float64)
    intensity = np.exp(rng.normal(0.0, costs.intensity_spread, count))
    flops = np.where(heavy, output_bytes * intensity, output_bytes / _ELEMENT_BYTES)
    flops[heavy] *= _flops_scale(flops, accessed, heavy, types, costs)
    flops = np.rint(flops)  # whole numbers are the same on all machines, and short in a file
    names = [f"{op_type}_{index}" for index, op_type in enumerate(types)]
    columns = zip(names, types, flops.tolist(), accessed.tolist(), weight_bytes.tolist(), strict=True)
    ops = [
        Op(op, op_type, flops=work, bytes_accessed=touched, memory_bytes=resident)
        for op, op_type, work, touched, resident in columns
    ]
    ends = np.searchsorted(producers, np.arange(count + 1)).tolist()
    readers = [names[index] for index in consumers.tolist()]
    tensors = [
        Tensor(op, size, tuple(readers[ends[index] : ends[index + 1]]))
        for index, (op, size) in enumerate(zip(names, output_bytes.tolist(), strict=True))
    ]
    return OpGraph.build(name, ops, tensors)


def communication_ratio(graph: OpGraph, topology: Topology | None = None) -> float:
    """Mean seconds of an edge from the first device to the second, over mean seconds of an op on the first.

    Args:
        graph: has at least one edge.
        topology: two devices or more with a way between the first two; the reference if none is given.
    """
    devices = topology or preset(REFERENCE)
    latency_s, s_per_byte = _way(devices)
    edge_s = latency_s + s_per_byte * graph.tensor_bytes[graph.consumer_tensor].mean()
    return float(edge_s / RooflineCost().op_time_s(graph, devices)[:, 0].mean())


def latency_ratio(op_time_s: float) -> float:
    """The communication-to-computation ratio of empty tensors on the reference: the least there can be."""
    return _way(_reference())[0] / op_time_s


def unrelated(graph: OpGraph, topology: Topology, beta: float, rng: np.random.Generator) -> OpGraph:
    """The graph with stated seconds on each kind of device: the roofline's, times a random factor per op and kind.

    Factors are uniform in `1 - beta / 2` to `1 + beta / 2`: the range percentage of Topcuoglu et al. (2002), section
    5.1. On devices of other kinds the graph costs what it did.
    """
    require(0 <= beta < 2, f"beta is {beta}; expected 0 or more and less than 2")
    seconds = RooflineCost().op_time_s(graph, topology)
    column = {device.kind: index for index, device in reversed(list(enumerate(topology.devices)))}
    stated = {
        kind: frozen(seconds[:, index] * rng.uniform(1 - beta / 2, 1 + beta / 2, graph.num_ops), np.float64)
        for kind, index in sorted(column.items())
    }
    return dataclasses.replace(graph, time_s={**graph.time_s, **stated})


@cache
def _reference() -> Topology:
    return preset(REFERENCE)


def _way(topology: Topology) -> tuple[float, float]:
    """Seconds of latency, and seconds per byte, from the first device to the second."""
    links = [topology.links[index] for index in topology.route(0, 1) or ()]
    return sum(link.latency_s for link in links), sum(1 / link.bandwidth_bytes_per_s for link in links)


def _output_bytes(producers: IntArray, count: int, costs: Costs, rng: np.random.Generator) -> IntArray:
    latency_s, s_per_byte = _way(_reference())
    wanted_s = costs.ccr * costs.op_time_s - latency_s
    require(
        wanted_s > 0,
        f"ccr is {costs.ccr:g}; at {costs.op_time_s:g} s per op the latency alone makes it "
        f"{latency_ratio(costs.op_time_s):g}; raise ccr or op_time_s",
    )
    sizes = np.exp(rng.normal(0.0, costs.size_spread, count))
    mean_size = sizes[producers].mean()
    results = np.bincount(producers, minlength=count) == 0
    sizes[results] = np.minimum(sizes[results], mean_size)  # no edge carries them, so the ratio would not bound them
    scale = wanted_s / s_per_byte / mean_size
    elements: IntArray = np.ceil(sizes * (scale / _ELEMENT_BYTES)).astype(np.int64)
    return elements * _ELEMENT_BYTES


def _weight_bytes(heavy: BoolArray, output_bytes: IntArray, costs: Costs, rng: np.random.Generator) -> IntArray:
    shares = np.where(heavy, np.exp(rng.normal(0.0, costs.size_spread, len(heavy))), 0.0)
    total = output_bytes.sum() * costs.weight_share / (1 - costs.weight_share)
    elements: IntArray = np.rint(shares * (total / shares.sum() / _ELEMENT_BYTES)).astype(np.int64)
    return elements * _ELEMENT_BYTES


def _flops_scale(flops: FloatArray, accessed: FloatArray, heavy: BoolArray, types: list[str], costs: Costs) -> float:
    """The factor on the FLOPs of heavy ops that gives the wanted mean time of an op.

    Solves `sum of max(memory, scale * compute) = wanted` over the heavy ops, which is piecewise linear in the scale.
    """
    cost, device = RooflineCost(), _reference().devices[0]
    classes = {op_type: cost.efficiency[op_class(op_type)] for op_type in set(types)}
    compute_rate = np.array([classes[op_type].compute for op_type in types]) * device.peak_flops_per_s["float32"]
    bandwidth = np.array([classes[op_type].bandwidth for op_type in types]) * (device.memory_bandwidth_bytes_per_s or 0)
    compute_s, memory_s = flops / compute_rate, accessed / bandwidth
    light_s = np.maximum(compute_s, memory_s)[~heavy].sum()
    wanted_s = len(flops) * (costs.op_time_s - cost.launch_s) - light_s
    least_s = memory_s[heavy].sum()
    require(
        wanted_s > least_s,
        f"ccr is {costs.ccr:g} at {costs.op_time_s:g} s per op; reading and writing the tensors alone takes "
        f"{(least_s + light_s) / len(flops) + cost.launch_s:.3g} s per op; lower ccr, weight_share or the number of edges",
    )
    breaks = memory_s[heavy] / compute_s[heavy]
    order = np.argsort(breaks)
    rising = np.cumsum(compute_s[heavy][order])
    flat = least_s - np.cumsum(memory_s[heavy][order])
    last = np.searchsorted(breaks[order] * rising + flat, wanted_s, side="right") - 1
    return float((wanted_s - flat[last]) / rising[last])
