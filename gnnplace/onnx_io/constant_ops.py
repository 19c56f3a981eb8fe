"""Ops that give the same in every run, and that reading a model did not fold into weights: too large, shared, or inexact."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

__all__ = ["constant_ops", "is_deterministic"]


def constant_ops(model: ir.Model) -> list[bool]:
    """`[N]` for each node of the main graph: it is deterministic, and reads constants and other such nodes alone.

    Nodes with bodies and those of other domains than ONNX's own are never among them.
    """
    found: set[ir.Value] = set()
    marks = []
    version = model.opset_imports.get("", 0)
    for node in model.graph:
        read = [value for value in node.inputs if value is not None]
        # An initialiser that is an input may be overridden.
        known = all(value in found or (value.is_initializer() and not value.is_graph_input()) for value in read)
        marks.append(known and node.domain == "" and is_deterministic(node.op_type, version))
        if marks[-1]:
            found.update(node.outputs)
    return marks


def is_deterministic(op_type: str, version: int) -> bool:
    """The operator of ONNX's own domain gives the same for the same inputs; one with bodies never counts as such."""
    try:
        schema = defs.get_schema(op_type, version)
    except defs.SchemaError:
        return False
    deterministic = defs.OpSchema.NodeDeterminism.Deterministic
    return bool(schema.node_determinism == deterministic)  # type: ignore[attr-defined]  # not in the stub
