"""Every node gets a name that no other node of the model has, the same at every reading."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["name_nodes"]


def name_nodes(graph: ir.Graph | ir.Function) -> None:
    """Names the nodes of `graph` and of its subgraphs.

    The first node of a name keeps it. Others get `NAME_2`, `NAME_3`, ..., and a node without a name is called after its
    type, numbered from 1; numbers that make a name that exists are left out.
    """
    nodes = list(graph.all_nodes())
    used: set[str] = set()
    to_name: list[ir.Node] = []
    for node in nodes:
        if node.name and node.name not in used:
            used.add(node.name)
        else:
            to_name.append(node)
    next_number: dict[str, int] = {}
    for node in to_name:
        stem = node.name or node.op_type
        number = next_number.get(stem, 2 if node.name else 1)
        while f"{stem}_{number}" in used:
            number += 1
        next_number[stem] = number + 1
        node.name = f"{stem}_{number}"
        used.add(node.name)
