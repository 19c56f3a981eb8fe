"""Ops that compute with shapes, which ONNX Runtime leaves to the CPU although a GPU could run them."""

import math
from collections import Counter
from pathlib import Path

import onnx

from gnnplace.onnx_io.external_data import bodies_of

_SOURCES = frozenset({"Shape", "Size"})
"""Ops of which the CUDA provider writes the outputs to main memory."""
_SMALL = 100  # elements; larger constants stay on the GPU, and so do ops that read them


def shape_ops(model: Path | bytes) -> Counter[str]:
    """Number of ops by type that depend on shapes, small constants and inputs of the model alone, and on one shape at least.

    The rule is that of ONNX Runtime (`GetCpuPreferredNodes` in its `fallback_cpu_capability.cc`), without its exceptions for narrow
    types and for inputs that kernels on a GPU read from main memory. So ONNX Runtime leaves no others to the CPU, but may leave fewer.

    >>> text = "g (float[N] x) => (float[1] y) { s = Shape(x) f = Cast<to = 1>(s) y = Sin(f) }"
    >>> sorted(shape_ops(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}').SerializeToString()))
    ['Cast', 'Shape', 'Sin']
    """
    proto = (
        onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    )
    counts: Counter[str] = Counter()
    _count(proto.graph, frozenset(), counts)
    return counts


def _count(graph: onnx.GraphProto, outer: frozenset[str], counts: Counter[str]) -> None:
    """Counts the ops of a graph and of the bodies in it; `outer` are values of outer graphs in main memory."""
    in_main_memory = set(outer)
    neutral = {"", *(value.name for value in graph.input)}
    neutral.update(tensor.name for tensor in graph.initializer if math.prod(tensor.dims) <= _SMALL)
    for node in graph.node:
        read = set(node.input)
        if node.op_type in _SOURCES or (read & in_main_memory and read <= in_main_memory | neutral):
            counts[node.op_type] += 1
            in_main_memory.update(node.output)
        elif node.op_type == "Constant":
            neutral.update(node.output)
        for body in bodies_of(node):
            _count(body, frozenset(in_main_memory), counts)
