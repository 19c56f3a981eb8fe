"""A node with the tensors that it reads and writes; the argument of every cost rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

__all__ = ["Call", "Rule"]

_NOTHING = TensorInfo(None, (0,))


@dataclass(frozen=True, slots=True)
class Call:
    """One node at concrete shapes; inputs and outputs have the positions of the operator's specification."""

    node: ir.Node
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]
    opset: int

    @classmethod
    def of(cls, node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> Call:
        """The node with its tensors; omitted ones are None."""
        inputs = tuple(None if value is None else tensors[value] for value in node.inputs)
        outputs = tuple(tensors[value] if value.name else None for value in node.outputs)
        return cls(node, inputs, outputs, opset)

    def has(self, position: int) -> bool:
        """Whether the input at `position` is present."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int = 0) -> TensorInfo:
        """The input at `position`; a tensor without elements if it is omitted."""
        found = self.inputs[position] if position < len(self.inputs) else None
        return _NOTHING if found is None else found

    def output(self, position: int = 0) -> TensorInfo:
        """The output at `position`; a tensor without elements if it is omitted."""
        found = self.outputs[position] if position < len(self.outputs) else None
        return _NOTHING if found is None else found

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs; a value at two positions counts twice."""
        return sum(tensor.bytes for tensor in self.inputs if tensor is not None)

    @property
    def output_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(tensor.bytes for tensor in self.outputs if tensor is not None)

    @property
    def output_size(self) -> int:
        """Elements of all outputs."""
        return sum(tensor.size for tensor in self.outputs if tensor is not None)

    def number(self, attribute: str, default: int) -> int:
        """The value of an integer attribute."""
        return self.node.attributes.get_int(attribute, default)

    def numbers(self, attribute: str, default: Sequence[int] = ()) -> Sequence[int]:
        """The value of an attribute of type list of integers."""
        return self.node.attributes.get_ints(attribute, default)

    def text(self, attribute: str, default: str) -> str:
        """The value of a string attribute."""
        return self.node.attributes.get_string(attribute, default)

    def size_along(self, axis: int) -> int:
        """Elements of the first input along an axis; 1 if there is no such axis."""
        return self.input().size_along(axis)

    def window(self) -> int:
        """Elements of the `kernel_shape` attribute."""
        return math.prod(self.numbers("kernel_shape", (1,)))


Rule = Callable[[Call], float]
"""Computes the FLOPs, or the moved bytes, of a node."""
