"""Placement hints in a model's `metadata_props`: stages, colocation groups, state."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gnnplace.errors import UnsupportedModel
from gnnplace.files import parsed_json

__all__ = ["GROUP_KEY", "STAGE_KEY", "STATE_KEY", "node_stage", "state_of"]

_MOST_DIGITS = 9
STAGE_KEY = "gnnplace.stage"
"""Metadata of a node: number of its stage, such as a layer that an expert would keep on one device."""
GROUP_KEY = "gnnplace.group"
"""Metadata of a node: name of its colocation group; the nodes of a group share a device."""
STATE_KEY = "gnnplace.state"
"""Metadata of the model: JSON object that maps each state input to the output that replaces it in the next run."""


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
