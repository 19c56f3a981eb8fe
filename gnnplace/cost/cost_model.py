"""The protocol of cost models, and the two that need no measurements."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.devices.topology import Device, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.graph.op_graph import OpGraph
from gnnplace.placement import allowed_mask

OpClass = str
CONVOLUTION, MATRIX, OTHER = "convolution", "matrix", "other"

# Names of integer variants and of fused ops contain the name of the plain op.
_CLASS_WORDS: tuple[tuple[OpClass, tuple[str, ...]], ...] = (
    (CONVOLUTION, ("conv",)),
    (MATRIX, ("matmul", "gemm", "attention", "einsum", "lstm", "gru", "rnn")),
)


@runtime_checkable
class CostModel(Protocol):
    """Seconds of every op on every device, and of transfers on links."""

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op cannot run."""

    def calibrated(self, topology: Topology) -> Topology:
        """The same devices and links with this model's latencies, bandwidths and overheads."""


@dataclass(frozen=True)
class Efficiency:
    """Fractions of a device's published rates that one class of ops attains."""

    compute: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (0 < self.compute < np.inf and 0 < self.bandwidth < np.inf):
            raise InvalidTopology(f"an efficiency is {self.compute} or {self.bandwidth}; expected more than zero")


def _published() -> Mapping[OpClass, Efficiency]:
    """Estimates for devices that are not calibrated.

    Library kernels attain half or more of the peak on large problems; streaming kernels attain 0.7 to 0.8 of the memory
    bandwidth, as the STREAM benchmark does; other kernels use no tensor units but transcendental functions.
    """
    return {
        CONVOLUTION: Efficiency(compute=0.5, bandwidth=0.7),
        MATRIX: Efficiency(compute=0.6, bandwidth=0.7),
        OTHER: Efficiency(compute=0.1, bandwidth=0.7),
    }


@dataclass(frozen=True)
class Scaling:
    """How long ops take on several cores together: Amdahl (1967) by op class, plus the threads' meeting at the end of an op."""

    serial: Mapping[OpClass, float]
    """Share of an op's seconds on one core that more cores do not shorten."""
    serial_types: frozenset[str]
    """Types that ONNX Runtime runs on one thread."""
    sync_s: float
    """Seconds that two threads need to start and to meet; grows with the logarithm of their number."""

    def seconds(self, graph: OpGraph, bound: FloatArray, cores: int) -> FloatArray:
        """`[N]` seconds on several cores, from the `bound` `[N]` at the rates of all of them."""
        share = {t: 1.0 if t in self.serial_types else self.serial[op_class(t)] for t in set(graph.op_types)}
        serial = np.array([share[t] for t in graph.op_types], dtype=np.float64)
        return np.asarray(bound * (1.0 - serial + serial * cores) + self.sync_s * np.log2(cores))


SERIAL_TYPES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Unsqueeze",
    "Where",
})  # fmt: skip
"""Types that move data and gain nothing from a second thread: measured for most (`gnnplace bench scaling`), assumed for Expand,
Flatten, Identity and Shape."""


def _measured_scaling() -> Scaling:
    """Medians over the kernels of 13 zoo models that ONNX Runtime 1.31 ran with one and with two threads on an AMD EPYC.

    `gnnplace bench scaling` measures them; a share below zero counts as zero. That more threads take the logarithm of their
    number to meet is an assumption.
    """
    return Scaling({CONVOLUTION: 0.05, MATRIX: 0.0, OTHER: 0.1}, SERIAL_TYPES, 4.5e-6)


@dataclass(frozen=True)
class RooflineCost:
    """Time = max(FLOPs / attained FLOP rate, bytes / attained bandwidth) + launch (Williams et al. 2009).

    Seconds that the graph states win: by device name, then by kind. An op without FLOPs and bytes takes the launch alone.
    """

    efficiency: Mapping[OpClass, Efficiency] = field(default_factory=_published)
    launch_s: float = 5e-6
    """Seconds to launch one kernel on an accelerator; frameworks need 3 to 10 us."""
    host_launch_s: float = 1e-6
    """Seconds to start one kernel on a CPU: a function call and the executor's bookkeeping around it."""
    scaling: Scaling | None = field(default_factory=_measured_scaling)
    """Applies to hosts with several resources, which are cores; None: their rates are attained by all ops."""

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        Raises:
            InvalidTopology: a device lacks a rate for an op without a stated time.
        """
        allowed = allowed_mask(graph, topology)
        columns = [
            self.completed(graph, device, stated_time_s(graph, device), allowed[:, index])
            for index, device in enumerate(topology.devices)
        ]
        return np.stack(columns, axis=1)

    def calibrated(self, topology: Topology) -> Topology:
        """The topology as it is."""
        return topology

    def completed(self, graph: OpGraph, device: Device, known_s: FloatArray, allowed: BoolArray) -> FloatArray:
        """`[N]` seconds on one device: `known_s` where it is a number, else the roofline; infinite where not `allowed`.

        Raises:
            InvalidTopology: the device lacks a rate.
        """
        seconds = np.where(allowed, known_s, np.inf)
        missing = np.isnan(seconds)
        if missing.any():
            launch_s = self.host_launch_s if device.is_host else self.launch_s
            bound, cores = bound_s(graph, device, self.efficiency, missing), len(device.resources)
            if device.is_host and cores > 1 and self.scaling is not None:
                bound = self.scaling.seconds(graph, bound, cores)
            seconds[missing] = bound[missing] + launch_s
            endless = np.flatnonzero(missing & np.isinf(seconds))
            if endless.size:
                raise InvalidTopology(
                    f"device {device.name!r}: op {graph.op_names[endless[0]]!r} would take more seconds than a number holds; "
                    "check its flops and bytes and the rates of the device"
                )
        return seconds


@dataclass(frozen=True)
class PerTypeCost:
    """Seconds of another model times a random factor per op type and kind of device.

    The logarithm of the factor is normal with standard deviation `spread`. It follows from the seed and the two names, so
    that a type has the same factor in every graph.
    """

    base: CostModel
    seed: int
    spread: float = 0.0

    def op_time_s(self, graph: OpGraph, topology: Topology) -> FloatArray:
        """`[N, D]` seconds; infinite where the op may not run.

        Raises:
            InvalidTopology: a device lacks a rate that the base model needs.
        """
        seconds = self.base.op_time_s(graph, topology)
        if not self.spread:
            return seconds
        types, row = np.unique(np.array(graph.op_types, dtype=np.str_), return_inverse=True)
        factors = np.array([[self.factor(name, device.kind) for device in topology.devices] for name in types.tolist()])
        return np.asarray(seconds * factors.reshape(len(types), topology.num_devices)[row])

    def calibrated(self, topology: Topology) -> Topology:
        """The topology as the base model calibrates it."""
        return self.base.calibrated(topology)

    def factor(self, op_type: str, kind: str) -> float:
        """Multiplier of the base model's seconds."""
        rng = np.random.default_rng([self.seed, zlib.crc32(f"{op_type} on {kind}".encode())])
        return float(np.exp(self.spread * rng.normal()))


@cache
def op_class(op_type: str) -> OpClass:
    """Class of ops whose kernels attain similar rates, such as `convolution` for `QLinearConv`."""
    lower = op_type.lower()
    return next((name for name, words in _CLASS_WORDS if any(word in lower for word in words)), OTHER)


def stated_time_s(graph: OpGraph, device: Device) -> FloatArray:
    """`[N]` seconds that the graph states for a device, by its name, else by its kind; NaN where it states none."""
    unknown = np.full(graph.num_ops, np.nan)
    by_kind = graph.time_s.get(device.kind, unknown)
    by_name = graph.time_s.get(device.name, unknown)
    return np.where(np.isnan(by_name), by_kind, by_name)


def bound_s(graph: OpGraph, device: Device, efficiency: Mapping[OpClass, Efficiency], wanted: BoolArray) -> FloatArray:
    """`[N]` seconds of computing or of moving data, the longer one, without launch; meaningful where `wanted`.

    Raises:
        InvalidTopology: the device lacks a rate that a wanted op needs.
    """
    default = device.peak_flops_per_s.get("float32", np.nan)
    rates = {dtype: device.peak_flops_per_s.get(dtype.removeprefix("u"), default) for dtype in set(graph.dtypes)}
    peak = np.array([rates[dtype] for dtype in graph.dtypes], dtype=np.float64)
    bandwidth = np.full(graph.num_ops, device.memory_bandwidth_bytes_per_s or np.nan)
    for work, rate, key in (
        (graph.flops, peak, "peak_flops_per_s"),
        (graph.bytes_accessed, bandwidth, "memory_bandwidth_bytes_per_s"),
    ):
        lacking = np.flatnonzero(wanted & (work > 0) & np.isnan(rate))
        if lacking.size:
            raise InvalidTopology(
                f"device {device.name!r} states no {key}, and op {graph.op_names[lacking[0]]!r} "
                f"no time_s for it or for its kind {device.kind!r}; state one of the two"
            )
    per_class = [efficiency[op_class(op_type)] for op_type in graph.op_types]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):  # an infinite time is refused later
        compute = peak * np.array([entry.compute for entry in per_class])
        memory = bandwidth * np.array([entry.bandwidth for entry in per_class])
        return np.maximum(_quotient(graph.flops, compute), _quotient(graph.bytes_accessed, memory))


def _quotient(work: FloatArray, rate: FloatArray) -> FloatArray:
    return np.divide(work, rate, out=np.zeros(len(work)), where=work > 0)
