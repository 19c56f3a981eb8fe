"""Seconds of every op on a real device, from ONNX Runtime's profiler, and the machine's costs that follow from them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.cost.calibrate import FittedRoofline, fit_roofline
from gnnplace.cost.measured import CostStore, KindCosts, median_links
from gnnplace.devices.topology import Topology
from gnnplace.errors import MeasurementFailed
from gnnplace.files import temporary_folder
from gnnplace.graph.op_graph import OpGraph
from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.link_probe import device_pairs, dispatch_overhead_s, probe_links, probing_process
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.profile_job import PROFILE, ProfileJob
from gnnplace.measuring.provider_profile import measured_shares, process_for, whole_model
from gnnplace.measuring.timing import StoppingRule, quiet_s
from gnnplace.measuring.worker_process import Job
from gnnplace.onnx_io.kernels import ops_of_kernels
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.devices import check_offered, parse_device
from gnnplace.running.optimised import OPTIMISED

PROFILE_RULE = StoppingRule(
    warmup=3, min_repeats=11, max_repeats=50, max_s=5.0, relative_spread=0.02, spread_s=4.0, patience_s=PATIENCE_S
)
_TIMEOUT_S = 900.0  # for some thirty runs; the runs of one placement may take 300 s
_KERNEL = "_kernel_time"
_PROFILER_S = 4e-6
"""Most that the profiler adds to a kernel: 1.7 to 2.2 us were found on one core, 2.3 to 3.2 on two."""
_SHORTEST = 0.1
"""Quantile of the seconds of a model's kernels up to which they are taken to be the profiler's alone."""


def profile_model(
    model: OnnxModel, device_name: str, inputs: Mapping[str, NDArray[Any]], rule: StoppingRule = PROFILE_RULE
) -> tuple[FloatArray, IntArray]:
    """Seconds of each op of a model on a device such as `cpu:0`, measured in an isolated process; and its kernels.

    The profiled session uses all of ONNX Runtime's optimisations, as placed models do: at lower levels the same models take
    up to twice as long, unevenly. `ops_of_kernels` charges kernels to ops. The seconds of a kernel are the lower quartile of its
    runs, which alternate with those of a session without the profiler. What all kernels together take longer than that session
    is the profiler's own time, about the same for each kernel. The rest is scaled to the quiet seconds of the session.

    Only ONNX Runtime's CPU provider has such a profile. Another provider may compile whole subgraphs into one kernel, and on a GPU
    the profiler sees launches, as ONNX Runtime's packages are built without CUPTI. There ops share the session's seconds as
    `measured_shares` finds by running the model in many parts.

    Returns:
        `[N]` seconds, which add up to those of the whole session: 0 for an op that is fused into another or folded away; and
        `[N]` the first op of the kernel that computes each op, which fused ops share.

    Raises:
        InvalidTopology: the device is not on this machine.
        MissingDependency: ONNX Runtime has no provider for it.
        MeasurementFailed: the session fails, takes longer than 15 minutes or too much memory, or its process is lost twice; or
            the profile holds no kernel of the model.
    """
    device = parse_device(device_name)
    check_offered(device)
    with temporary_folder() as folder:
        maker = PartMaker(model, folder)
        part = whole_model(maker, model, device_name)
        with process_for(part, inputs, _TIMEOUT_S) as worker:
            context = f"{model.path.name} cannot be profiled on {device_name!r}"
            seconds = worker.samples(ProfileJob(part, folder, rule), context, model.remedy)
            shares_s = None if device.family == "cpu" else measured_shares(model, device_name, maker, worker, rule)
        op_s, kernel_of_op = np.zeros(model.graph.num_ops), np.arange(model.graph.num_ops)
        if shares_s is not None:
            op_s = shares_s
        else:
            profiled_s = _kernel_s(json.loads((folder / PROFILE).read_text(encoding="utf-8")), rule.warmup)
            kernel_s = without_profiler(profiled_s, float(quiet_s(seconds[-1])))
            for kernel, stands_for in ops_of_kernels(model, folder / OPTIMISED).items():
                op_s[stands_for.charged] += kernel_s.get(kernel, 0.0)
                kernel_of_op[list(stands_for.together)] = min(stands_for.together, default=0)
            if not kernel_s:  # ONNX Runtime has folded all ops
                op_s[:] = 1.0
    if not op_s.any():
        raise MeasurementFailed(f"{model.path.name}: the profile on {device_name!r} holds no kernel of the model")
    return op_s * (float(quiet_s(seconds[-1])) / float(op_s.sum())), kernel_of_op


def session_s(model: OnnxModel, device_name: str, inputs: Mapping[str, NDArray[Any]], rule: StoppingRule) -> float:
    """Quiet seconds of a model in one session on a device, measured in an isolated process.

    Raises:
        InvalidTopology: the device is not on this machine.
        MissingDependency: ONNX Runtime has no provider for it.
        MeasurementFailed: the session fails.
    """
    check_offered(parse_device(device_name))
    with temporary_folder() as folder:
        part = whole_model(PartMaker(model, folder), model, device_name)
        with process_for(part, inputs, _TIMEOUT_S) as worker:
            context = f"{model.path.name} does not run on {device_name!r}"
            samples = worker.samples(Job(((part,),), rule), context, model.remedy)
    return float(quiet_s(samples[0]))


def measured_costs(
    model: OnnxModel,
    topology: Topology,
    rng: np.random.Generator,
    rule: StoppingRule = PROFILE_RULE,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> tuple[CostStore, dict[str, FittedRoofline], dict[str, IntArray]]:
    """Measures the costs of a set of real devices, and by their kind the fitted roofline and the kernels of the model.

    The first device of each kind is profiled: the model's ops by signature, the dispatch overhead, the fitted roofline. Links
    are probed between the devices of `pairs`; None: between every two that a link joins.

    Raises:
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: a session fails.
    """
    inputs = sample_inputs(model, rng)
    kinds: dict[str, KindCosts] = {}
    fits: dict[str, FittedRoofline] = {}
    kernels: dict[str, IntArray] = {}
    with probing_process() as worker:
        for device in topology.devices:
            if device.kind in kinds:
                continue
            op_s, kernels[device.kind] = profile_model(model, device.name, inputs, rule)
            fit = fits[device.kind] = fit_roofline(model.graph, device, op_s)
            kinds[device.kind] = KindCosts(
                op_s=by_signature(model.graph, op_s),
                dispatch_overhead_s=dispatch_overhead_s(device.name, worker),
                efficiency=fit.efficiency,
                launch_s=fit.launch_s,
            )
        links = probe_links(device_pairs(topology) if pairs is None else pairs, worker)
    kind_of = {device.name: device.kind for device in topology.devices}
    of_kinds = median_links(((kind_of[source], kind_of[target]), costs) for (source, target), costs in links.items())
    return CostStore(kinds, of_kinds, links), fits, kernels


def by_signature(graph: OpGraph, op_s: FloatArray) -> dict[str, float]:
    """Mean seconds of the ops of each signature, which preserves the sum over the graph; skips ops without a signature."""
    seconds_of: dict[str, list[float]] = defaultdict(list)
    for signature, seconds in zip(graph.signatures, op_s.tolist(), strict=True):
        if signature:
            seconds_of[signature].append(seconds)
    return {signature: sum(seconds) / len(seconds) for signature, seconds in seconds_of.items()}


def _kernel_s(events: list[dict[str, Any]], skip: int) -> dict[str, float]:
    """Seconds of each kernel by name: the lower quartile of its runs after the first `skip`, as half of the short runs find cold caches."""
    runs: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            runs[event["name"].removesuffix(_KERNEL)].append(event["dur"] * 1e-6)
    return {name: float(np.quantile(seconds[skip:], 0.25)) for name, seconds in runs.items() if len(seconds) > skip}


def without_profiler(kernel_s: Mapping[str, float], session_s: float) -> dict[str, float]:
    """Seconds of kernels without those that the profiler adds; `session_s` are the seconds of all of them without a profiler.

    It adds about the same to each kernel, between its two readings of the clock. Scaling alone would take a third from the long
    kernels of a model whose kernels are mostly short, and give too much to the short ones. The shortest kernels bound what it
    adds, as they often only change a shape. What is still too much or too little in sum is left to scaling.
    """
    if not kernel_s:
        return {}
    profiled_s = np.array(list(kernel_s.values()))
    bound_s = min(_PROFILER_S, float(np.quantile(profiled_s, _SHORTEST)))
    added_s = float(np.clip((profiled_s.sum() - session_s) / profiled_s.size, 0.0, bound_s))
    return {name: max(seconds - added_s, 0.0) for name, seconds in kernel_s.items()}
