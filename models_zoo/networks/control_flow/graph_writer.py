"""ONNX nodes in the order in which they are written, bodies of control flow included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch import Tensor, nn

IR_VERSION = 10


def typed(value: ir.Value, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
    """The same value with its type stated."""
    value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
    return value


@dataclass
class GraphWriter:
    """Nodes `SCOPE/OpType_n` and weights; what a body reads from outside is captured."""

    nodes: list[ir.Node] = field(default_factory=list)
    weights: dict[str, ir.Value] = field(default_factory=dict)
    """Initialisers of the main graph by name, bodies write theirs there as well."""
    counts: dict[str, int] = field(default_factory=dict)
    """Nodes so far of each name, over all bodies."""

    @classmethod
    def after(cls, graph: ir.Graph) -> GraphWriter:
        """A writer whose nodes are to follow those of a graph: `graph.extend(writer.nodes)`."""
        return cls(counts={str(node.name).rpartition("_")[0]: len(graph) for node in graph})

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        """A value that no node gives: an input of the graph or of a body."""
        return typed(ir.Value(name=name), dtype, shape)

    def op(self, op_type: str, *inputs: ir.Value | None, at: str = "", **attributes: Any) -> ir.Value:
        """The only output of a new node."""
        (value,) = self.ops(op_type, *inputs, at=at, **attributes)
        return value

    def ops(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, at: str = "", **attributes: Any
    ) -> Sequence[ir.Value]:
        """The outputs of a new node."""
        stem = f"{at}/{op_type}" if at else op_type
        number = self.counts[stem] = self.counts.get(stem, -1) + 1
        node = ir.node(op_type, inputs, attributes, num_outputs=outputs, name=f"{stem}_{number}")
        for index, value in enumerate(node.outputs):
            value.name = f"{node.name}:{index}"
        self.nodes.append(node)
        return node.outputs

    def weight(self, name: str, tensor: Tensor) -> ir.Value:
        """An initialiser; the same name gives the same one."""
        if name not in self.weights:
            const = tensor_adapters.TorchTensor(tensor.detach().contiguous(), name=name)
            value = ir.Value(name=name, const_value=const)
            self.weights[name] = typed(value, const.dtype, list(tensor.shape))
        return self.weights[name]

    def constant(self, values: float | Sequence[int], dtype: torch.dtype = torch.int64) -> ir.Value:
        """A small initialiser that is named after what it holds."""
        kind = str(dtype).removeprefix("torch.")
        return self.weight(f"{kind}:{values}", torch.tensor(values, dtype=dtype))

    def linear(self, x: ir.Value, layer: nn.Linear, at: str) -> ir.Value:
        """A linear layer on `[B, I]`; its weights are `AT.weight` and `AT.bias`."""
        return self.op("Gemm", x, *self.parameters(layer, at), at=at, transB=1)

    def parameters(self, layer: nn.Module, at: str) -> list[ir.Value]:
        """The parameters of a layer in its order, as initialisers `AT.NAME`."""
        return [self.weight(f"{at}.{name}", value) for name, value in layer.named_parameters()]

    def body(self) -> GraphWriter:
        """A writer for a body that may read everything that is written here."""
        return GraphWriter(weights=self.weights, counts=self.counts)

    def graph(self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        """The body."""
        return ir.Graph(inputs, outputs, nodes=self.nodes, name=name)

    def model(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], opset: int) -> ir.Model:
        """The model."""
        weights = list(self.weights.values())
        graph = ir.Graph(inputs, outputs, nodes=self.nodes, initializers=weights, opset_imports={"": opset})
        return ir.Model(graph, ir_version=IR_VERSION)
