"""Ops that give the same in every run, and that reading a model did not fold into weights: too large, shared, or inexact."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx import defs

from gnnplace.arrays import BoolArray
from gnnplace.graph.op_graph import OpGraph

__all__ = ["OnnxModel", "constant_ops", "is_deterministic"]


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


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """What `read_onnx` gives: `graph.op_names[i]` is the name of `model.graph[i]`."""

    path: Path
    """The file that was read."""
    sha256: str
    """Of that file."""
    model: ir.Model
    """Functions inlined, constants folded, every node uniquely named, in topological order; weights by reference."""
    graph: OpGraph
    dims: Mapping[str, int]
    """The value taken for each symbolic dimension."""
    warnings: tuple[str, ...] = ()
    custom_ops: tuple[Path, ...] = ()
    """Shared libraries with operators that ONNX Runtime does not have."""

    @property
    def key(self) -> str:
        """Tells models apart: equal for the same file with the same dimensions."""
        return json.dumps([self.sha256, dict(self.dims)], sort_keys=True)

    @cached_property
    def constant_ops(self) -> BoolArray:
        """`[N]` ops that give the same in every run."""
        return np.array(constant_ops(self.model), dtype=bool)
