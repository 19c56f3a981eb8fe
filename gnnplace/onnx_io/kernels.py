"""Matches kernels of an optimised model with the ops they execute, although runtimes fuse, rename and reorder ops."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from gnnplace.onnx_io.model import OnnxModel
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
    """All ops, in ascending order, of this kernel and of those that it exchanges new values with; none for a change of
    layout."""


def ops_of_kernels(model: OnnxModel, optimised: Path) -> dict[str, Kernel]:
    """The ops, by index, that each kernel of an optimised model file executes, by kernel name.

    The value that a kernel writes, or its name, identifies the last op. The kernel executes all ops before that value
    that no earlier kernel executed, and the op with the most FLOPs is charged. Ops that were fused into it, folded or
    removed get no kernel. A change of layout is charged to the op whose value it converts. Kernels without any trace are
    left out. Linear in ops and kernels.
    """
    graph = model.graph
    nodes = list(model.model.graph)
    producer = {str(value.name): op for op, node in enumerate(nodes) for value in node.outputs if value.name}
    work = list(zip(graph.flops.tolist(), graph.bytes_accessed.tolist(), strict=True))
    done = [False] * graph.num_ops
    origin: dict[str, int] = {}  # value of the optimised model -> op that it comes from
    charged: dict[str, int] = {}
    together: dict[str, set[int]] = {}  # ops by kernel, and by value that the model lacks
    proto = onnx.load(optimised, load_external_data=False)
    detach_map_types(proto.graph)
    for kernel in ir.from_proto(proto).graph:
        inputs = [str(value.name) for value in kernel.inputs if value is not None]
        last = next(_last_ops(kernel, producer, graph.op_index), None)
        fused = [] if last is None else _undone_before(last, model, done)
        if fused:
            op: int | None = max(fused, key=lambda v: (work[v], -v))
        else:
            op = last if last is not None else next((origin[name] for name in inputs if name in origin), None)
        if op is None:
            continue
        charged[str(kernel.name)] = op
        ops = _joined(inputs, together)
        ops.update(fused)
        together[str(kernel.name)] = ops
        for value in kernel.outputs:
            name = str(value.name)
            origin[name] = op
            if not name.startswith(_REORDERED) and all(shorter not in producer for shorter in _shortened(name)):
                together[name] = ops
    return {name: Kernel(op, tuple(sorted(together[name]))) for name, op in charged.items()}


def _joined(inputs: Sequence[str], together: dict[str, set[int]]) -> set[int]:
    """Joins the op sets of some values into one set."""
    sets = [together[name] for name in inputs if name in together]
    whole = sets[0] if sets else set()
    for other in sets[1:]:
        whole |= other
    for name, ops in together.items() if len(sets) > 1 else ():
        if any(ops is other for other in sets):
            together[name] = whole
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
