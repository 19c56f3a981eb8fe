"""A model whose weights lie in one file, so that many small models can share them without holding them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from gnnplace.onnx_io.model import OnnxModel

__all__ = ["light_copy"]

_SMALL_BYTES = 1024  # scalars and shapes stay in the model, where ONNX Runtime can fold them
_FEW_BYTES = 1 << 20


def light_copy(model: OnnxModel, folder: Path) -> tuple[ir.Model, Path]:
    """The same model with its weights outside, and the folder that they lie in.

    Weights that are outside already stay where they are; others are written to `folder`, unless there are hardly any. The
    nodes are the same, in the same order.
    """
    values = [value.const_value for graph in model.model.graphs() for value in graph.initializers.values()]
    inside = sum(tensor.nbytes for tensor in values if tensor is not None and not isinstance(tensor, ir.ExternalTensor))
    if inside <= _FEW_BYTES:
        return model.model, model.path.resolve().parent
    path = folder / "light.onnx"
    ir.save(model.model, path, external_data="weights.bin", size_threshold_bytes=_SMALL_BYTES)
    light = ir.load(path)
    for old, new in zip(_values(model.model.graph), _values(light.graph), strict=True):
        new.meta.update(old.meta)
    return light, folder


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
