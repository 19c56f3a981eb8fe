"""A model that has been read: the normalised ONNX model and its op graph, op by op the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx_ir as ir

from gnnplace.arrays import BoolArray
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.constant_ops import constant_ops

__all__ = ["OnnxModel"]


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
