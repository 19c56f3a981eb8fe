"""The forward pass of a torch network as an ONNX model."""

import ast
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import torch
from onnxscript import rewriter
from torch import Tensor, nn

from gnnplace.errors import UnsupportedModel
from models_zoo.networks.recipe import TorchNetwork

OPSET = 18
_SCOPES = "pkg.torch.onnx.name_scopes"
_FOREIGN = ("pkg.", "namespace")


def inference_model(network: TorchNetwork) -> ir.Model:
    """The network's forward pass in evaluation mode; every node is named after the module that it comes from."""
    module = network.module.eval()
    return export_module(module, network.inputs, network.outputs)


def export_module(
    module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str], *, positional: bool = False
) -> ir.Model:
    """A module as an ONNX model of `OPSET`, with the exporter's optimisations, and none of its notes on source lines.

    Inputs go to `forward` by name, or by position where their names are no names of Python.

    Raises:
        UnsupportedModel: the exporter has no ONNX for a part of the module.
    """
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision is missing: nothing here needs it
    # Warnings are notes of the exporter on itself.
    with warnings.catch_warnings(action="ignore"), torch.no_grad(), _without_pairs_of_slices():
        try:
            program = torch.onnx.export(
                module,
                tuple(inputs.values()) if positional else (),
                kwargs=None if positional else dict(inputs),
                input_names=list(inputs),
                output_names=list(outputs),
                opset_version=OPSET,
                dynamo=True,
                optimize=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as problem:
            raise UnsupportedModel(f"{type(module).__name__}: cannot be exported ({_reason(problem)})") from problem
    assert program is not None
    model = program.model
    if [str(value.name) for value in model.graph.inputs] != list(inputs):
        raise UnsupportedModel(f"{type(module).__name__}: the export lost an input, which has no effect on the outputs")
    _name_after_modules(model)
    return model


@contextmanager
def _without_pairs_of_slices() -> Iterator[None]:
    """Leaves out the exporter's rule that makes a Split of two Slices, which goes through the whole graph at every node.

    It costs half of the seconds at 3,000 nodes and nearly all at 10,000. onnxscript 0.7 has no public way to choose.
    """
    rules = rewriter._DEFAULT_REWRITE_RULES
    rewriter._DEFAULT_REWRITE_RULES = tuple(rule for rule in rules if rule.name != "SlicesSplit")
    try:
        yield
    finally:
        rewriter._DEFAULT_REWRITE_RULES = rules


def _name_after_modules(model: ir.Model) -> None:
    """Names nodes `module.path/OpType_3`, and drops metadata that speaks of the exporter's machine."""
    seen: dict[str, int] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
        path = next((scope for scope in reversed(scopes[:-1]) if scope), "")
        stem = f"{path}/{node.op_type}" if path else node.op_type
        number = seen[stem] = seen.get(stem, -1) + 1
        node.name = f"{stem}_{number}"
        _drop_foreign(node.metadata_props)
        for value in node.outputs:
            _drop_foreign(value.metadata_props)
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        _drop_foreign(value.metadata_props)
    for properties in (model.metadata_props, model.graph.metadata_props):
        _drop_foreign(properties)


def _drop_foreign(properties: dict[str, str]) -> None:
    for key in [key for key in properties if key.startswith(_FOREIGN)]:
        del properties[key]


def _reason(problem: BaseException) -> str:
    """The first line of what went wrong at the bottom."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return f"{type(problem).__name__}: {problem}".splitlines()[0]
