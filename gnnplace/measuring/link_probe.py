"""Measured costs of a session call and of a hand-over between two devices, with the runner that placed models use."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, cycle, pairwise

import numpy as np

from gnnplace.cost.measured import LinkCosts
from gnnplace.devices.topology import Topology
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.timing import StoppingRule, quiet_s
from gnnplace.measuring.worker_process import Job, Setup, WorkerProcess
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.sample_inputs import wide_probe_model

PROBE_RULE = StoppingRule(
    warmup=3, min_repeats=15, max_repeats=40, max_s=1.0, relative_spread=0.05, patience_s=PATIENCE_S
)
# Two lengths of a chain of one-op parts: their difference is free of the fixed cost of a run.
_SHORT, _LONG = 4, 24
FLOATS = (1, 1 << 16, 1 << 18, 1 << 20)
"""Numbers per tensor in each of the probes."""
_VALUES = 8  # of a hand-over in the probe of what each further value takes
_OUTPUT = "y"
_TIMEOUT_S = 300.0  # for the some hundred sessions of one probe
# Bandwidth where more bytes make no measurable difference: several cores may read from one cache.
_FREE_BYTES_PER_S = 1e11


def probing_process() -> WorkerProcess:
    """A process that runs probes of any devices; use it as a context."""
    feed = {_input(size): np.ones(size, dtype=np.float32) for size in FLOATS}
    return WorkerProcess(Setup(tuple(feed), (_OUTPUT,), (feed,), kept_jobs=0), _TIMEOUT_S)


def dispatch_overhead_s(device: str, worker: WorkerProcess, rule: StoppingRule = PROBE_RULE) -> float:
    """Seconds of one more session call on a device.

    Raises:
        MeasurementFailed: the device does not run the probe, or its process is lost twice.
    """
    return _per_part_s(((device,),), 1, worker, rule)[0]


def probe_link(source: str, target: str, worker: WorkerProcess, rule: StoppingRule = PROBE_RULE) -> LinkCosts:
    """Costs of a hand-over between two devices, as the mean over both directions.

    The probe compares a chain of parts that alternate between the devices with chains on each of them alone, which cancels
    the session calls and the ops. The latency is that of a tensor of four bytes; eight such tensors at once show what each
    further one takes.

    Raises:
        MeasurementFailed: as `dispatch_overhead_s`.
    """

    def extra_s(num_floats: int, values: int = 1) -> float:
        patterns = (source, target), (source,), (target,)
        alternating, on_source, on_target = _per_part_s(patterns, num_floats, worker, rule, values)
        return alternating - (on_source + on_target) / 2

    costs = fitted_link([extra_s(num_floats) for num_floats in FLOATS])
    more_s = (extra_s(FLOATS[0], _VALUES) - costs.latency_s) / (_VALUES - 1)
    return replace(costs, next_value_s=min(max(more_s, 0.0), costs.latency_s))


def fitted_link(extra_s: Sequence[float]) -> LinkCosts:
    """Latency and bandwidth from the hand-over seconds of tensors with `FLOATS` numbers, by least squares."""
    latency_s = max(extra_s[0], 0.0)
    num_bytes = 4.0 * np.array(FLOATS[1:])
    beyond_s = np.array(extra_s[1:]) - latency_s
    s_per_byte = float(num_bytes @ beyond_s / (num_bytes @ num_bytes))
    return LinkCosts(latency_s, 1 / max(s_per_byte, 1 / _FREE_BYTES_PER_S))


def probe_links(
    pairs: Iterable[tuple[str, str]], worker: WorkerProcess, rule: StoppingRule = PROBE_RULE
) -> dict[tuple[str, str], LinkCosts]:
    """Costs between the devices of each pair, by device names; one probe serves both directions."""
    costs: dict[tuple[str, str], LinkCosts] = {}
    for source, target in pairs:
        costs[source, target] = costs[target, source] = probe_link(source, target, worker, rule)
    return costs


def device_pairs(topology: Topology) -> list[tuple[str, str]]:
    """Pairs of device names that a link joins, each once."""
    linked = {frozenset((link.source, link.target)) for link in topology.links}
    return [pair for pair in combinations(topology.device_names, 2) if frozenset(pair) in linked]


def _per_part_s(
    patterns: tuple[tuple[str, ...], ...], num_floats: int, worker: WorkerProcess, rule: StoppingRule, values: int = 1
) -> list[float]:
    """Seconds of one more part in a chain that repeats each of the patterns of devices; parts hand over `values` tensors."""
    chains = tuple(_chain(num_floats, pattern, length, values) for pattern in patterns for length in (_SHORT, _LONG))
    devices = " and ".join(repr(device) for device in patterns[0])
    samples = worker.samples(Job(chains, rule), f"{devices} cannot be probed")
    pairs = quiet_s(samples).reshape(len(patterns), 2)  # the difference would magnify what other processes add
    return [max(float(long_s - short_s), 0.0) / (_LONG - _SHORT) for short_s, long_s in pairs]


def _chain(num_floats: int, pattern: tuple[str, ...], length: int, values: int) -> tuple[Part, ...]:
    """Parts that each read the outputs of the one before, on the devices of the pattern in turn."""
    between = [tuple(f"v{number}.{value}" for value in range(values)) for number in range(1, length)]
    tensors = [(_input(num_floats),), *between, (_OUTPUT,)]
    return tuple(
        Part(f"probe {number}", device, wide_probe_model(num_floats, sources, targets), sources, targets)
        for number, (device, (sources, targets)) in enumerate(zip(cycle(pattern), pairwise(tensors), strict=False))
    )


def _input(num_floats: int) -> str:
    """Name of the model input with that many numbers."""
    return f"x{num_floats}"
