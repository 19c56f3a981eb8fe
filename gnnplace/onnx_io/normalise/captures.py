"""What a node reads: its inputs, and what its subgraphs take from outside of them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

__all__ = ["captured_values", "subgraphs", "values_read"]


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs that a node holds as attributes, as If, Loop and Scan do; not the graphs inside those."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def captured_values(node: ir.Node) -> tuple[ir.Value, ...]:
    """Values that the subgraphs of `node`, at any depth, read and do not define; each once, in order of first use.

    Unlike `onnx_ir.analysis.analyze_implicit_usage` this counts a subgraph that returns an outer value as it is.
    """
    used: dict[ir.Value, None] = {}
    defined: set[ir.Value] = set()
    open_graphs = list(subgraphs(node))
    while open_graphs:
        graph = open_graphs.pop(0)
        defined.update(graph.inputs, graph.initializers.values())
        for inner in graph:
            defined.update(inner.outputs)
            used.update((value, None) for value in inner.inputs if value is not None)
            open_graphs.extend(subgraphs(inner))
        used.update((value, None) for value in graph.outputs)
    return tuple(value for value in used if value not in defined)


def values_read(node: ir.Node) -> tuple[ir.Value, ...]:
    """Inputs of `node` that are given, then what its subgraphs capture; each once."""
    inputs = (value for value in node.inputs if value is not None)
    return tuple(dict.fromkeys((*inputs, *captured_values(node))))
