"""A model that was read: the normalised ONNX model, its op graph, and the ops whose results never change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import defs

from gnnplace.arrays import BoolArray
from gnnplace.graph.op_graph import OpGraph

__all__ = ["OnnxModel", "constant_ops", "op_schema"]


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model file as `read_onnx` returns it: `graph.op_names[i]` is the name of node `model.graph[i]`."""

    path: Path
    """The model file."""
    sha256: str
    """SHA-256 of the model file, in hexadecimal."""
    model: ir.Model
    """Functions inlined, constants folded, nodes uniquely named and in topological order; weights by reference."""
    graph: OpGraph
    dims: Mapping[str, int]
    """Size of each symbolic dimension."""
    warnings: tuple[str, ...] = ()
    custom_ops: tuple[Path, ...] = ()
    """Shared libraries with operators that ONNX Runtime lacks."""

    @property
    def key(self) -> str:
        """Text that is equal for the same file at the same dimensions."""
        return json.dumps([self.sha256, dict(self.dims)], sort_keys=True)

    @cached_property
    def constant_ops(self) -> BoolArray:
        """`[N]` whether each op gives the same results in every run."""
        return np.array(constant_ops(self.model), dtype=bool)


def constant_ops(model: ir.Model) -> list[bool]:
    """`[N]` whether each node of the main graph is deterministic and reads only constants and other such nodes.

    Reading a model leaves such nodes where folding would be too large, stored twice or inexact. Nodes with bodies and
    nodes of other domains never count.
    """
    found: set[ir.Value] = set()
    marks = []
    version = model.opset_imports.get("", 0)
    deterministic = defs.OpSchema.NodeDeterminism.Deterministic
    for node in model.graph:
        read = [value for value in node.inputs if value is not None]
        # A caller may override an initialiser that is an input.
        known = all(value in found or (value.is_initializer() and not value.is_graph_input()) for value in read)
        schema = op_schema(node.op_type, version) if known and node.domain == "" else None
        marks.append(schema is not None and bool(schema.node_determinism == deterministic))  # type: ignore[attr-defined]
        if marks[-1]:
            found.update(node.outputs)
    return marks


@lru_cache(4096)
def op_schema(op_type: str, version: int, domain: str = "") -> defs.OpSchema | None:
    """An operator's definition in a version of its domain; None if ONNX does not know it."""
    try:
        return defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None
