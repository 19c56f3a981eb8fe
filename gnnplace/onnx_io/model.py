"""A model that was read, with its op graph and constant ops, and the placement hints in its `metadata_props`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import defs

from gnnplace.arrays import BoolArray
from gnnplace.errors import UnsupportedModel
from gnnplace.files import parsed_json
from gnnplace.graph.op_graph import OpGraph

_MOST_DIGITS = 9
STAGE_KEY = "gnnplace.stage"
"""Metadata of a node: number of its stage, such as a layer that an expert would keep on one device."""
GROUP_KEY = "gnnplace.group"
"""Metadata of a node: name of its colocation group; the nodes of a group share a device."""
STATE_KEY = "gnnplace.state"
"""Metadata of the model: JSON object that maps each state input to the output that replaces it in the next run."""


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
    assumed: tuple[str, ...] = ()
    """Symbolic dimensions of which no size is given, so that 1 is taken."""
    inputs: Mapping[str, NDArray[Any]] | None = None
    """Arrays with which the model is measured; None: random ones."""

    @cached_property
    def key(self) -> str:
        """Text that is equal for the same file at the same dimensions, and with the same inputs if some are given."""
        facts: list[object] = [self.sha256, dict(self.dims)]
        if self.inputs is not None:
            digest = hashlib.sha256()
            for name, array in sorted(self.inputs.items()):
                digest.update(repr((name, str(array.dtype), array.shape)).encode())
                digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
            facts.append(digest.hexdigest())
        return json.dumps(facts, sort_keys=True)

    @property
    def remedy(self) -> str:
        """The end of a message about a model that ONNX Runtime has refused to run; empty where its inputs were given."""
        if self.inputs is not None:
            return ""
        sizes = f", of size 1 along {', '.join(map(repr, self.assumed))}" if self.assumed else ""
        dims = "--dim NAME=N or " if self.assumed else ""
        return f" (inputs are random{sizes}; {dims}--input X.npz gives others)"

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


def node_stage(node: ir.Node, where: str) -> int | None:
    """The stage of a node; None if the model states none.

    Raises:
        UnsupportedModel: the stage is not a whole number.
    """
    text = node.metadata_props.get(STAGE_KEY)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise UnsupportedModel(
            f"{where}: metadata {STAGE_KEY} of node {node.name!r} is {text!r}; expected 0, 1, 2, ..."
        )
    return int(text)


def state_of(model: ir.Model, where: str) -> Mapping[str, str]:
    """State inputs, such as weights in training, with the outputs that replace them.

    Raises:
        UnsupportedModel: the metadata is not a JSON object, or names an unknown input or output.
    """
    text = model.metadata_props.get(STATE_KEY)
    if text is None:
        return {}
    what = f"{where}: metadata {STATE_KEY} of the model"
    pairs = parsed_json(text.encode(), what, UnsupportedModel)
    if not isinstance(pairs, dict) or not all(isinstance(output, str) for output in pairs.values()):
        raise UnsupportedModel(f"{what} is no object from input to output names")
    inputs, outputs = ({value.name for value in values} for values in (model.graph.inputs, model.graph.outputs))
    unknown = next((name for name in (*(pairs.keys() - inputs), *(set(pairs.values()) - outputs))), None)
    if unknown is not None:
        raise UnsupportedModel(f"{what} names {unknown!r}, which is no input or output")
    return pairs
