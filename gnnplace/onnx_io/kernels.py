"""Matches kernels of an optimised model with the ops they execute, although runtimes fuse, rename and reorder ops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import onnx
import onnx_ir as ir

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment, segments
from gnnplace.onnx_io.value_types import detach_map_types

# ONNX Runtime names a kernel in its blocked layout after the value that the op wrote, and appends what it fused.
_APPENDED = re.compile(r"(_nchwc|_token_\d+|_bn|_mul)$")
_REORDERED = "reorder_"  # prefix of a value of the model in another layout
_FUSION = re.compile(r"/\w*Fusion\w*$")  # suffix of an op that was fused with its successors


@dataclass(frozen=True)
class Kernel:
    """The ops that a kernel of the optimised model executes."""

    charged: int
    """Op that gets the kernel's seconds."""
    ops: tuple[int, ...]
    """All ops that it executes, in ascending order; none for a change of layout."""
    together: tuple[int, ...]
    """These, and the ops of all kernels with which it exchanges values that the original model lacks."""


@dataclass(frozen=True, eq=False)
class KernelModel:
    """A model of `N` ops as a runtime optimises it for this machine: `K` kernels.

    Parts that are cut out of it run the kernels of a session of the whole model: nothing is fused less, and values cross in the
    layout in which kernels compute.
    """

    model: OnnxModel
    """The optimised model; its graph has one op per kernel, in the order in which a session of the original model runs them."""
    op_of_kernel: IntArray  # [K] op whose device the kernel takes
    kernel_of_op: IntArray  # [N] kernel that executes each op
    made_for: Mapping[str, str]
    """The kind of machine and the runtime for which it was optimised, as names with values."""

    @classmethod
    def of(cls, original: OnnxModel, optimised: OnnxModel, made_for: Mapping[str, str]) -> Self:
        """Matches two models.

        Raises:
            UnsupportedModel: the optimised model has no kernels, or other inputs or outputs.
        """
        for kind in ("inputs", "outputs"):
            before, after = (
                sorted(str(value.name) for value in getattr(one.model.graph, kind)) for one in (original, optimised)
            )
            if before != after or not optimised.graph.num_ops:
                raise UnsupportedModel(f"{original.path}: the optimised model has the {kind} {after}, not {before}")
        found = matched_kernels(original, optimised.model.graph)
        kernel_of_op, op_of_kernel = np.full(original.graph.num_ops, -1), np.full(len(found), -1)
        for number, kernel in enumerate(found):
            if kernel is not None:
                op_of_kernel[number] = kernel.charged
                kernel_of_op[list(kernel.ops)] = number
        _fill(kernel_of_op, original)
        graph = optimised.graph
        for number in np.flatnonzero(op_of_kernel < 0).tolist():  # behind its first input
            inputs = graph.tensor_producer[graph.inputs_of(number)]
            op_of_kernel[number] = op_of_kernel[inputs[0]] if len(inputs) else 0
        return cls(optimised, op_of_kernel, kernel_of_op, made_for)

    def segments(
        self, assignment: IntArray, order: IntArray, excludes: BoolArray | None, runs_kernels: BoolArray
    ) -> tuple[Segment, ...] | None:
        """The segments of the kernels, with the ops that they execute, for an assignment `[N]` and a run order `[N]` of ops.

        None where the ops of a kernel are on several devices, where a device is used that does not run kernels (`runs_kernels` is
        `[D]`), or where one device runs the whole model: a runtime optimises it.
        """
        device = assignment[self.op_of_kernel]
        is_cut = (device != device[0]).any() and (device[self.kernel_of_op] == assignment).all()
        if not (is_cut and runs_kernels[device].all()):
            return None
        position = np.argsort(order)
        kernel_order = np.lexsort((np.arange(len(device)), position[self.op_of_kernel]))
        found = segments(self.model.graph, device, kernel_order, self.model.constant_ops, excludes)
        members = np.split(
            np.argsort(self.kernel_of_op, kind="stable"),
            np.cumsum(np.bincount(self.kernel_of_op, minlength=len(device))),
        )
        return tuple(
            Segment(one.device, tuple(int(op) for kernel in one.ops for op in members[kernel]), one.ops)
            for one in found
        )


def _fill(kernel_of_op: IntArray, model: OnnxModel) -> None:
    """Gives ops without a kernel, as they were folded or removed, the kernel of a reader, else of a producer, in place."""
    graph = model.graph
    producers, readers = graph.edges
    for known, unknown in ((readers, producers), (producers, readers)):
        order = np.argsort(np.argsort(graph.topological_order)[known])
        for edge in (order[::-1] if known is readers else order).tolist():
            if kernel_of_op[unknown[edge]] < 0:
                kernel_of_op[unknown[edge]] = kernel_of_op[known[edge]]
    kernel_of_op[kernel_of_op < 0] = 0


def ops_of_kernels(model: OnnxModel, optimised: Path) -> dict[str, Kernel]:
    """The ops, by index, that each kernel of an optimised model file executes, by kernel name; see `matched_kernels`."""
    proto = onnx.load(optimised, load_external_data=False)
    detach_map_types(proto.graph)
    nodes = list(ir.from_proto(proto).graph)
    pairs = zip(nodes, matched_kernels(model, nodes), strict=True)
    return {str(node.name): kernel for node, kernel in pairs if kernel is not None}


def matched_kernels(model: OnnxModel, kernels: Iterable[ir.Node]) -> list[Kernel | None]:
    """The ops, by index, that each of the nodes `kernels` of the optimised model executes, in their order.

    The value that a kernel writes, or its name, identifies the last op. The kernel executes all ops before that value
    that no earlier kernel executed, and the op with the most FLOPs is charged. Ops that were fused into it, folded or
    removed get no kernel of their own. A change of layout is charged to the op whose value it converts. None for kernels
    without any trace. Linear in ops and kernels.
    """
    graph = model.graph
    nodes = list(model.model.graph)
    producer = {str(value.name): op for op, node in enumerate(nodes) for value in node.outputs if value.name}
    work = list(zip(graph.flops.tolist(), graph.bytes_accessed.tolist(), strict=True))
    done = [False] * graph.num_ops
    origin: dict[str, int] = {}  # value of the optimised model -> op that it comes from
    found: list[tuple[int, list[int]] | None] = []
    together: dict[object, _Together] = {}  # by number of the kernel, and by value that the model lacks
    for number, kernel in enumerate(kernels):
        inputs = [str(value.name) for value in kernel.inputs if value is not None]
        last = next(_last_ops(kernel, producer, graph.op_index), None)
        fused = [] if last is None else _undone_before(last, model, done)
        if fused:
            op: int | None = max(fused, key=lambda v: (work[v], -v))
        else:
            op = last if last is not None else next((origin[name] for name in inputs if name in origin), None)
        found.append(None if op is None else (op, sorted(fused)))
        if op is None:
            continue
        joined = _joined(inputs, together)
        joined.ops.update(fused)
        joined.add(number, together)
        for value in kernel.outputs:
            name = str(value.name)
            origin[name] = op
            if not name.startswith(_REORDERED) and all(shorter not in producer for shorter in _shortened(name)):
                joined.add(name, together)
    return [
        None if one is None else Kernel(one[0], tuple(one[1]), tuple(sorted(together[number].ops)))
        for number, one in enumerate(found)
    ]


@dataclass(eq=False)
class _Together:
    """Ops that one kernel executes, or several that exchange values which the model lacks."""

    ops: set[int] = field(default_factory=set)
    keys: list[object] = field(default_factory=list)

    def add(self, key: object, together: dict[object, _Together]) -> None:
        self.keys.append(key)
        together[key] = self


def _joined(inputs: Sequence[str], together: dict[object, _Together]) -> _Together:
    """Joins the ops of some values. The smaller sets move to the largest one, so no key moves often."""
    found = {id(each): each for name in inputs if (each := together.get(name)) is not None}
    *smaller, whole = sorted(found.values(), key=lambda each: len(each.keys)) or [_Together()]
    for each in smaller:
        whole.ops |= each.ops
        for key in each.keys:
            whole.add(key, together)
    return whole


def _shortened(name: str) -> Iterator[str]:
    """A name, then the name without one appended suffix after the other."""
    yield name
    while (shorter := _APPENDED.sub("", name)) != name:
        name = shorter
        yield name


def _last_ops(kernel: ir.Node, producer: Mapping[str, int], op_index: Mapping[str, int]) -> Iterator[int]:
    """Candidates for the last op of a kernel, the most certain first."""
    yield from (producer[str(value.name)] for value in kernel.outputs if value.name in producer)
    name = str(kernel.name)
    yield from (op_index[known] for known in (name, _FUSION.sub("", name)) if known in op_index)
    yield from (producer[shorter] for shorter in _shortened(name) if shorter != name and shorter in producer)


def _undone_before(last: int, model: OnnxModel, done: list[bool]) -> list[int]:
    """`last` and its ancestors that are not done yet; marks them as done."""
    graph = model.graph
    found: list[int] = []
    stack = [last]
    while stack:
        op = stack.pop()
        if not done[op]:
            done[op] = True
            found.append(op)
            stack += [int(p) for p in graph.tensor_producer[graph.inputs_of(op)] if not done[p]]
    return found
