"""A graph several times side by side: real training steps at sizes that no export reaches in reasonable time."""

from collections.abc import Iterator

import numpy as np

from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from models_zoo.networks.generated.structure import require


def widened(graph: OpGraph, copies: int) -> OpGraph:
    """`copies` towers of a graph that read one input and whose last results are summed up: an ensemble that trains in one step.

    Towers share nothing else; each has weights and colocation groups of its own. Seconds that the graph states are left out.

    >>> pair = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",)), Tensor("b", 4)])
    >>> wide = widened(pair, copies=2)
    >>> wide.op_names
    ('input', '0/a', '0/b', '1/a', '1/b', 'sum')
    >>> [[wide.op_names[op] for op in wide.consumers_of(tensor)] for tensor in range(wide.num_tensors)]
    [['0/a', '1/a'], ['0/b'], ['sum'], ['1/b'], ['sum']]

    Raises:
        UnsupportedModel: there are no copies, or no tensors.
    """
    require(copies >= 1, f"{copies} copies; expected 1 or more")
    require(graph.num_tensors > 0, f"{graph.name!r} has no tensors that a tower could hand on")
    first = np.flatnonzero(np.diff(graph.input_offsets) == 0).tolist()
    readers = tuple(_named(graph.op_names[op], copy) for copy in range(copies) for op in first)
    return OpGraph.build(
        f"{graph.name}_x{copies}",
        [Op("input", "Identity"), *(op for copy in range(copies) for op in _ops(graph, copy)), Op("sum", "Sum")],
        [
            Tensor("input", int(graph.tensor_bytes[0]), readers),
            *(tensor for copy in range(copies) for tensor in _tensors(graph, copy)),
        ],
        [weight for copy in range(copies) for weight in _weights(graph, copy)],
    )


def _named(name: str, copy: int) -> str:
    return f"{copy}/{name}"


def _ops(graph: OpGraph, copy: int) -> Iterator[Op]:
    for op in range(graph.num_ops):
        group = int(graph.colocation[op])
        yield Op(
            name=_named(graph.op_names[op], copy),
            type=graph.op_types[op],
            flops=float(graph.flops[op]),
            bytes_accessed=float(graph.bytes_accessed[op]),
            memory_bytes=int(graph.memory_bytes[op]),
            workspace_bytes=int(graph.workspace_bytes[op]),
            group=None if group < 0 else _named(graph.colocation_names[group], copy),
            devices=graph.allowed_devices[op],
            stage=None if graph.stages[op] < 0 else int(graph.stages[op]),
            dtype=graph.dtypes[op],
            signature=graph.signatures[op],
        )


def _tensors(graph: OpGraph, copy: int) -> Iterator[Tensor]:
    for tensor in range(graph.num_tensors):
        readers = [_named(graph.op_names[op], copy) for op in graph.consumers_of(tensor)]
        if tensor == graph.num_tensors - 1:
            readers.append("sum")
        producer = graph.op_names[graph.tensor_producer[tensor]]
        yield Tensor(_named(producer, copy), int(graph.tensor_bytes[tensor]), tuple(readers))


def _weights(graph: OpGraph, copy: int) -> Iterator[SharedWeight]:
    for weight, size in enumerate(graph.weight_bytes.tolist()):
        yield SharedWeight(size, tuple(_named(graph.op_names[op], copy) for op in graph.weights_of(weight)))
