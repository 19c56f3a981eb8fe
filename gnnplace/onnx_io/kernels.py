"""Which ops of a model a kernel of the optimised model stands for, as runtimes fuse, rename and reorder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from gnnplace.onnx_io.model import OnnxModel

__all__ = ["Kernel", "ops_of_kernels"]

# ONNX Runtime names a kernel in its blocked layout after the value that the op wrote, and appends what it fused.
_APPENDED = re.compile(r"(_nchwc|_token_\d+|_bn|_mul)$")


@dataclass(frozen=True)
class Kernel:
    """What a kernel of the optimised model does."""

    charged: int
    """The op that its seconds belong to."""
    ops: tuple[int, ...]
    """All ops whose work it does, ascending; none for a kernel that only changes a layout."""


def ops_of_kernels(model: OnnxModel, optimised: Path) -> dict[str, Kernel]:
    """The ops, by index, that each kernel of an optimised model stands for, by the kernel's name.

    A kernel is found again by the original value that it writes, or by its name. It does the work of all ops before
    that value that no earlier kernel has done, and is charged to the one with the most FLOPs; ops that were fused into
    it, folded away or removed get no kernel. A kernel that only changes a layout is charged to the op whose value it
    converts. Kernels without any such trace are left out. Linear in ops and kernels.
    """
    graph = model.graph
    nodes = list(model.model.graph)
    producer = {str(value.name): op for op, node in enumerate(nodes) for value in node.outputs if value.name}
    work = list(zip(graph.flops.tolist(), graph.bytes_accessed.tolist(), strict=True))
    done = [False] * graph.num_ops
    home: dict[str, int] = {}  # value of the optimised model -> op that it comes from
    found: dict[str, Kernel] = {}
    for kernel in ir.load(optimised).graph:
        last = next(_traces(kernel, producer, graph.op_index), None)
        fused = [] if last is None else _undone_before(last, model, done)
        if fused:
            op: int | None = max(fused, key=lambda v: (work[v], -v))
        elif last is not None:
            op = last
        else:
            op = next((home[str(v.name)] for v in kernel.inputs if v is not None and v.name in home), None)
        if op is None:
            continue
        found[str(kernel.name)] = Kernel(op, tuple(sorted(fused)))
        for value in kernel.outputs:
            home[str(value.name)] = op
    return found


def _traces(kernel: ir.Node, producer: Mapping[str, int], op_index: Mapping[str, int]) -> Iterator[int]:
    """Ops that the kernel may end with, the surest first."""
    yield from (producer[str(value.name)] for value in kernel.outputs if value.name in producer)
    if kernel.name in op_index:
        yield op_index[str(kernel.name)]
    name = str(kernel.name)
    while (shorter := _APPENDED.sub("", name)) != name:
        name = shorter
        if name in producer:
            yield producer[name]


def _undone_before(last: int, model: OnnxModel, done: list[bool]) -> list[int]:
    """`last` and its ancestors that are not done; they are afterwards."""
    graph = model.graph
    found: list[int] = []
    stack = [last]
    while stack:
        op = stack.pop()
        if done[op]:
            continue
        done[op] = True
        found.append(op)
        stack += [int(p) for p in graph.tensor_producer[graph.inputs_of(op)] if not done[p]]
    return found
