"""Subgraphs of If, Loop and Scan: possible branches, trip counts, and the layout of a Scan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gnnplace.onnx_io.folding import subgraphs
from gnnplace.onnx_io.shapes.tensor_info import TensorInfo

_ENDLESS = 2**31
"""Smallest trip count that means "until the condition ends the loop"; exporters write the largest integer."""


def branches_taken(node: ir.Node, tensors: Mapping[ir.Value, TensorInfo]) -> list[ir.Graph]:
    """The branches of an If that can run: one if the condition is a constant, otherwise both."""
    source = node.inputs[0] if node.inputs else None
    condition = None if source is None else tensors[source].value
    if condition is None:
        return list(subgraphs(node))
    return [node.attributes["then_branch" if condition.any() else "else_branch"].as_graph()]


def trip_count(node: ir.Node, opset: int, tensors: Mapping[ir.Value, TensorInfo]) -> int | None:
    """Trip count of a Scan, or largest trip count of a Loop; None if it depends on the data."""
    if node.op_type == "Scan":
        layout = ScanLayout.of(node, opset)
        has_steps = bool(layout.sequences) and layout.sequences[0] is not None
        return math.prod(layout.batch_and_steps(tensors)) if has_steps else None
    if node.op_type != "Loop" or not node.inputs or node.inputs[0] is None:
        return None
    limit = tensors[node.inputs[0]].value
    if limit is None or limit.size != 1 or int(limit.ravel()[0]) >= _ENDLESS:
        return None
    return max(int(limit.ravel()[0]), 0)


@dataclass(frozen=True)
class ScanLayout:
    """How a Scan slices its inputs and stacks its outputs.

    In opset 8 all of them have a leading batch axis, and the first input is the lengths.
    """

    states: tuple[ir.Value | None, ...]
    sequences: tuple[ir.Value | None, ...]
    axes: tuple[int, ...]
    """Scanned axis of each sequence; more entries do not count."""
    output_axes: Sequence[int]
    """Stacking axis of each stacked output; 0 if absent."""
    has_batch: bool

    @classmethod
    def of(cls, node: ir.Node, opset: int) -> ScanLayout:
        """The layout of one Scan node."""
        has_batch = opset < 9
        inputs = node.inputs[1:] if has_batch else node.inputs
        num_states = len(inputs) - node.attributes.get_int("num_scan_inputs", 1)
        sequences = tuple(inputs[num_states:])
        stated = () if has_batch else node.attributes.get_ints("scan_input_axes", ())
        axes = (*stated, *(int(has_batch),) * len(sequences))
        output_axes = () if has_batch else node.attributes.get_ints("scan_output_axes", ())
        return cls(tuple(inputs[:num_states]), sequences, axes, output_axes, has_batch)

    def batch_and_steps(self, tensors: Mapping[ir.Value, TensorInfo]) -> tuple[int, ...]:
        """The batch size, if there is a batch, and the steps of the first sequence."""
        first = self.sequences[0] if self.sequences else None
        if first is None:
            return (1,) * (1 + self.has_batch)
        steps = tensors[first].size_along(self.axes[0])
        return (tensors[first].size_along(0), steps) if self.has_batch else (steps,)

    def step(self, sequence: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the slice of a sequence that one step reads."""
        axis = self.axes[sequence] % max(len(shape), 1)
        return tuple(size for i, size in enumerate(shape) if i != axis and not (self.has_batch and i == 0))

    def stacked(self, output: int, batch_and_steps: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a stacked output whose slices have this shape."""
        axis = self.output_axes[output] if output < len(self.output_axes) else 0
        axis %= len(shape) + 1
        return (*shape[:axis], *batch_and_steps, *shape[axis:])
