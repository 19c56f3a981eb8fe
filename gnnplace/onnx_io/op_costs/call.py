"""A node with the tensors that it reads and writes; the argument of every cost rule."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

_NOTHING = TensorInfo(None, (0,))


@dataclass(frozen=True, slots=True)
class Call:
    """One node at concrete shapes; inputs and outputs have the positions of the operator's specification."""

    node: ir.Node
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]
    opset: int

    def has(self, position: int) -> bool:
        """Whether the input at `position` is present."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int = 0) -> TensorInfo:
        """The input at `position`; a tensor without elements if it is omitted."""
        return (self.inputs[position] if position < len(self.inputs) else None) or _NOTHING

    def output(self, position: int = 0) -> TensorInfo:
        """The output at `position`; a tensor without elements if it is omitted."""
        return (self.outputs[position] if position < len(self.outputs) else None) or _NOTHING

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs; a value at two positions counts twice."""
        return sum(tensor.bytes for tensor in self.inputs if tensor is not None)

    @property
    def output_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(tensor.bytes for tensor in self.outputs if tensor is not None)

    def number(self, attribute: str, default: int) -> int:
        """The value of an integer attribute."""
        return self.node.attributes.get_int(attribute, default)

    def text(self, attribute: str, default: str) -> str:
        """The value of a string attribute."""
        return self.node.attributes.get_string(attribute, default)


Rule = Callable[[Call], float]
"""Computes the FLOPs, or the moved bytes, of a node."""
