"""Which ops of a model a kernel of the optimised model stands for, as runtimes fuse, rename and reorder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.value_types import set_aside

__all__ = ["Kernel", "ops_of_kernels"]

# ONNX Runtime names a kernel in its blocked layout after the value that the op wrote, and appends what it fused.
_APPENDED = re.compile(r"(_nchwc|_token_\d+|_bn|_mul)$")
_RELAID = "reorder_"  # a value of the model in another layout, by another name
_FUSION = re.compile(r"/\w*Fusion\w*$")  # after the name of an op that was fused with what follows it


@dataclass(frozen=True)
class Kernel:
    """What a kernel of the optimised model does."""

    charged: int
    """The op that its seconds belong to."""
    ops: tuple[int, ...]
    """All ops whose work it does, with the kernels that it exchanges values with which the model does not have; ascending, none for
    a kernel that only changes a layout."""


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
    charged: dict[str, int] = {}
    together: dict[str, set[int]] = {}  # by kernel, and by value that the model does not have
    proto = onnx.load(optimised, load_external_data=False)
    set_aside(proto.graph)
    for kernel in ir.from_proto(proto).graph:
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
        charged[str(kernel.name)] = op
        ops = _joined([str(v.name) for v in kernel.inputs if v is not None], together)
        ops.update(fused)
        together[str(kernel.name)] = ops
        for value in kernel.outputs:
            home[str(value.name)] = op
            relaid = str(value.name).startswith(_RELAID)
            if not relaid and all(name not in producer for name in _shortened(str(value.name))):
                together[str(value.name)] = ops
    return {name: Kernel(op, tuple(sorted(together[name]))) for name, op in charged.items()}


def _joined(inputs: Sequence[str], together: dict[str, set[int]]) -> set[int]:
    """The ops of all kernels that some of these values join, as one set from now on."""
    sets = [together[name] for name in inputs if name in together]
    if not sets:
        return set()
    whole = sets[0]
    for other in sets[1:]:
        whole |= other
    for name, ops in together.items() if len(sets) > 1 else ():
        if any(ops is other for other in sets):
            together[name] = whole
    return whole


def _shortened(name: str) -> Iterator[str]:
    """A name, then without what was appended to it, one after the other."""
    yield name
    while (shorter := _APPENDED.sub("", name)) != name:
        name = shorter
        yield name


def _traces(kernel: ir.Node, producer: Mapping[str, int], op_index: Mapping[str, int]) -> Iterator[int]:
    """Ops that the kernel may end with, the surest first."""
    yield from (producer[str(value.name)] for value in kernel.outputs if value.name in producer)
    name = str(kernel.name)
    yield from (op_index[known] for known in (name, _FUSION.sub("", name)) if known in op_index)
    yield from (producer[shorter] for shorter in _shortened(name) if shorter != name and shorter in producer)


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
