"""One step of SGD with momentum or Adam, appended to a model that computes gradients."""

# mypy: disable-error-code="operator, return-value, type-var"
# The functions under `@script` are ONNX in the shape of Python; only their source is read.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes
from numpy.typing import NDArray
from onnxscript import FLOAT, script
from onnxscript import opset18 as op

from gnnplace.onnx_io.model import GROUP_KEY
from models_zoo.networks.recipe import Optimizer

LEARNING_RATE = {"sgd": 0.1, "adam": 1e-3}
GRADIENT = ".grad"


@script(default_opset=op)
def sgd(parameter: FLOAT, gradient: FLOAT, momentum: FLOAT) -> tuple[FLOAT, FLOAT]:
    """`torch.optim.SGD` with momentum 0.9 (Sutskever et al. 2013)."""
    new_momentum = momentum * 0.9 + gradient
    new_parameter = parameter - new_momentum * 0.1
    return new_parameter, new_momentum


@script(default_opset=op)
def adam(parameter: FLOAT, gradient: FLOAT, first: FLOAT, second: FLOAT, step: FLOAT) -> tuple[FLOAT, FLOAT, FLOAT]:
    """`torch.optim.Adam` with its defaults (Kingma and Ba 2015, algorithm 1); `step` counts from 1."""
    new_first = first * 0.9 + gradient * 0.1
    new_second = second * 0.999 + (gradient * gradient) * 0.001
    mean = new_first / (1.0 - op.Pow(0.9, step))
    spread = op.Sqrt(new_second / (1.0 - op.Pow(0.999, step)))
    new_parameter = parameter - mean / (spread + 1e-8) * 0.001
    return new_parameter, new_first, new_second


@dataclass(frozen=True)
class _Rule:
    function: object
    moments: tuple[str, ...]
    counts: bool


_RULES: Mapping[Optimizer, _Rule] = {
    "sgd": _Rule(sgd, ("momentum",), counts=False),
    "adam": _Rule(adam, ("first", "second"), counts=True),
}


def moments_of(optimizer: Optimizer) -> tuple[str, ...]:
    """Names of the tensors that the optimiser keeps beside each parameter; the first holds the gradient, scaled."""
    return _RULES[optimizer].moments


def append_update(model: ir.Model, parameters: Sequence[str], optimizer: Optimizer) -> dict[str, str]:
    """Turns outputs `P.grad` into new parameters and moments, in place; the outputs that replace inputs, by input.

    Every parameter is read through an `Identity` that shares a colocation group with its update, as a variable and its
    assignment do in the systems of the papers: whoever reads it elsewhere pays for the transfer, in every step.
    """
    rule = _RULES[optimizer]
    graph = model.graph
    inputs = {str(value.name): value for value in graph.inputs}
    outputs = {str(value.name): value for value in graph.outputs}
    function = ir.serde.deserialize_function(rule.function.to_function_proto())  # type: ignore[attr-defined]
    model.functions[function.identifier()] = function
    model.opset_imports[function.domain] = 1
    first = graph[0]
    step = []
    state: dict[str, str] = {}
    if rule.counts:
        step = [ir.Value(name="step", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([]))]
        graph.inputs.extend(step)
    for name in parameters:
        parameter, gradient = inputs[name], outputs[name + GRADIENT]
        read = ir.Node("", "Identity", [parameter], name=f"{name}/read")
        value = read.outputs[0]
        value.name, value.type, value.shape = f"{name}/value", parameter.type, parameter.shape
        ir.convenience.replace_all_uses_with(parameter, value)
        read.replace_input_with(0, parameter)
        graph.insert_before(first, read)
        moments = [
            ir.Value(name=f"{name}.{moment}", type=parameter.type, shape=parameter.shape) for moment in rule.moments
        ]
        graph.inputs.extend(moments)
        update = ir.Node(
            function.domain, function.name, [value, gradient, *moments, *step],
            num_outputs=1 + len(moments), name=f"{name}/update",
        )  # fmt: skip
        for result, source in zip(update.outputs, (parameter, *moments), strict=True):
            result.name, result.type, result.shape = f"{source.name}.new", source.type, source.shape
            state[str(source.name)] = str(result.name)
        graph.append(update)
        read.metadata_props[GROUP_KEY] = update.metadata_props[GROUP_KEY] = name
        graph.outputs.remove(gradient)
        graph.outputs.extend(update.outputs)
    _inline(model)
    return state


def _inline(model: ir.Model) -> None:
    """The updates' bodies in their places, each in the group of its call."""
    groups = {
        str(node.name): node.metadata_props[GROUP_KEY] for node in model.graph if GROUP_KEY in node.metadata_props
    }
    for function in model.functions.values():
        for index, node in enumerate(function):
            node.name = f"{node.op_type}_{index}"
    passes.InlinePass()(model)
    model.functions.clear()
    for node in model.graph:
        call = str(node.name).split("/update/")[0]
        if f"{call}/update" in groups and "/update/" in str(node.name):
            node.metadata_props[GROUP_KEY] = groups[f"{call}/update"]


def zero_moments(values: Mapping[str, NDArray[Any]], optimizer: Optimizer) -> dict[str, NDArray[Any]]:
    """Initial state of the optimiser: zero moments, and step 1 if it counts steps."""
    rule = _RULES[optimizer]
    zeros = {f"{name}.{moment}": np.zeros_like(value) for name, value in values.items() for moment in rule.moments}
    return {**zeros, **({"step": np.ones((), dtype=np.float32)} if rule.counts else {})}
