"""The devices that `auto` means for one model: those of this machine whose provider runs it."""

from collections.abc import Callable

import numpy as np

from gnnplace.api.problem_setup import measurement_store, topology_of
from gnnplace.api.workload import Workload
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.topology import Topology
from gnnplace.measuring.provider_profile import refusal
from gnnplace.onnx_io.sample_inputs import sample_inputs

AUTO = "auto"


def auto_for(workload: Workload, topology: Topology, on_warning: Callable[[str], None]) -> Topology:
    """The topology of `auto` without the providers that refuse a model; `on_warning` receives a line for each of these.

    ONNX Runtime's own providers, for CPUs and for CUDA, run every model. For each other provider, the first device runs the model once,
    unless the model was profiled on such a device before.
    """
    model = workload.onnx
    if model is None:
        return topology
    first = {parse_real(device.name).provider: device for device in reversed(topology.devices)}
    others = {provider: device for provider, device in first.items() if parse_real(device.name).family == "ep"}
    refused = set[str]()
    for provider, device in others.items():
        if not measurement_store().kernels({device.kind}, model.key):
            reason = refusal(model, device.name, sample_inputs(model, np.random.default_rng(0)))
            if reason is not None:
                refused.add(provider)
                on_warning(f"auto leaves out {provider}: {reason}")
    return topology_of(AUTO, without=refused) if refused else topology
