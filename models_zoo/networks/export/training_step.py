"""One training step of a torch network - forward, loss, backward, update - as standard ONNX.

Torch traces forward and backward together (`aot_export_module`), with every backward op decomposed into ops that
ONNX has; the result is exported like any forward pass, and the optimiser is appended.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from gnnplace.onnx_io.model import STATE_KEY
from models_zoo.networks.export.decompositions import training_decompositions
from models_zoo.networks.export.inference import export_module
from models_zoo.networks.export.optimizers import GRADIENT, append_update
from models_zoo.networks.recipe import TorchNetwork

LOSS = "loss"
NEW = ".new"


class _Loss(nn.Module):
    """The loss of a network on one batch."""

    def __init__(self, network: TorchNetwork) -> None:
        super().__init__()
        self.module = network.module
        self.network = (network,)  # in a tuple, so that its module is not registered a second time
        self.names = (*network.inputs, *network.targets)

    def forward(self, *batch: Tensor) -> tuple[Tensor]:
        """The loss, alone in a tuple."""
        (network,) = self.network
        values = dict(zip(self.names, batch, strict=True))
        found = self.module(**{name: values[name] for name in network.inputs})
        assert network.loss is not None
        return (network.loss(found, *(values[name] for name in network.targets)),)


class _Joint(nn.Module):
    """The traced loss and gradients, as a module that the exporter takes."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Everything that the trace returns."""
        found: tuple[Tensor, ...] = self.graph(*values)
        return found


@dataclass(frozen=True)
class _Trace:
    graph: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    state: Mapping[str, str]


def training_model(network: TorchNetwork) -> ir.Model:
    """One step as a model: batch, parameters, buffers and moments in; loss and their new values out.

    Parameters are inputs `NAME`, their moments `NAME.momentum` (or `NAME.first` and `NAME.second`); what replaces an
    input is the output `INPUT.new`, and the model's metadata `gnnplace.state` pairs them.
    """
    network.module.train()
    trace = _trace(network)
    batch = {**network.inputs, **network.targets}
    values = {**dict(network.module.named_parameters()), **dict(network.module.named_buffers()), **batch}
    inputs = {name: values[name].detach().clone() for name in trace.inputs}
    model = export_module(_Joint(trace.graph), inputs, trace.outputs, positional=True)
    updated = append_update(model, trace.parameters, network.optimizer)
    model.metadata_props[STATE_KEY] = json.dumps({**trace.state, **updated})
    return model


def _trace(network: TorchNetwork) -> _Trace:
    batch = (*network.inputs.values(), *network.targets.values())
    with (
        warnings.catch_warnings(action="ignore"),  # notes of the tracer on itself
        sdpa_kernel(SDPBackend.MATH),  # fused attention has a backward op of its own
        torch.backends.mkldnn.flags(enabled=False),  # and so have oneDNN's recurrent layers
    ):
        forward = _with_single_names(torch.export.export(_Loss(network), batch).module(check_guards=False))
        graph, signature = aot_export_module(
            forward, batch, trace_joint=True, output_loss_index=0, decompositions=training_decompositions()
        )
    backward = signature.backward_signature
    assert backward is not None
    assert isinstance(graph, torch.fx.GraphModule)
    known: dict[Any, str] = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = iter((*network.inputs, *network.targets))
    inputs = tuple(_own(known[node.name]) if node.name in known else next(names) for node in _placeholders(graph))
    # `backward.loss_output` counts from the first output, and that is a buffer's new value where there are buffers.
    labels: dict[Any, str] = {signature.user_outputs[0]: LOSS}
    state = {}
    for result, buffer in signature.buffers_to_mutate.items():
        labels[result] = state[_own(buffer)] = _own(buffer) + NEW
    for gradient, parameter in backward.gradients_to_parameters.items():
        labels[gradient] = _own(parameter) + GRADIENT
    results: Any = graph.graph.output_node().args[0]
    outputs = tuple(labels[node.name] for node in results)
    parameters = tuple(_own(name) for name in backward.gradients_to_parameters.values())
    return _Trace(graph, inputs, outputs, parameters, state)


def _with_single_names(traced: nn.Module) -> nn.Module:
    """The same module in which a parameter with two names, such as tied weights, keeps the first of them only.

    The tracer takes each name for a parameter of its own, of which all but one get no gradient.
    """
    assert isinstance(traced, torch.fx.GraphModule)
    first = {parameter: name for name, parameter in traced.named_parameters()}
    again = {
        name: first[parameter]
        for name, parameter in traced.named_parameters(remove_duplicate=False)
        if first[parameter] != name
    }
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            node.target = again.get(node.target, node.target)
    for name in again:
        path, _, attribute = name.rpartition(".")
        delattr(traced.get_submodule(path), attribute)
    traced.recompile()
    return traced


def _placeholders(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _own(name: str) -> str:
    """A parameter's name in the network, which is `module` in the loss."""
    return name.removeprefix("module.")
