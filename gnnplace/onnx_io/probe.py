"""The smallest model that moves data: for measuring what calls and handovers cost."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["probe_model"]


def probe_model(num_floats: int, source: str, target: str) -> bytes:
    """A model of one op: the tensor `target` is the negative of `source`, both of `num_floats` float32 numbers."""
    tensor, shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([num_floats])
    read = ir.Value(name=source, shape=shape, type=tensor)
    node = ir.node("Neg", inputs=[read], name="probe")
    written = node.outputs[0]
    written.name, written.shape, written.type = target, shape, tensor
    graph = ir.Graph([read], [written], nodes=[node], opset_imports={"": 13}, name="probe")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString())
