"""What a model file says about its own placement, in `metadata_props`: stages, colocation, state."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gnnplace.errors import UnsupportedModel
from gnnplace.files import parsed_json

__all__ = ["GROUP_KEY", "STAGE_KEY", "STATE_KEY", "node_group", "node_stage", "state_of"]

_MOST_DIGITS = 9
STAGE_KEY = "gnnplace.stage"
"""Of a node: the number of the stage, such as a layer, that people would keep on one device."""
GROUP_KEY = "gnnplace.group"
"""Of a node: nodes of one group share a device."""
STATE_KEY = "gnnplace.state"
"""Of the model: a JSON object from inputs that live on between runs to the outputs that replace them."""


def node_stage(node: ir.Node, where: str) -> int | None:
    """The stage of a node; None where the file states none.

    Raises:
        UnsupportedModel: it is no whole number.
    """
    text = node.metadata_props.get(STAGE_KEY)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise UnsupportedModel(
            f"{where}: metadata {STAGE_KEY} of node {node.name!r} is {text!r}; expected 0, 1, 2, ..."
        )
    return int(text)


def node_group(node: ir.Node) -> str | None:
    """The colocation group of a node; None where the file states none."""
    return node.metadata_props.get(GROUP_KEY) or None


def state_of(model: ir.Model, where: str) -> Mapping[str, str]:
    """The inputs that live on between runs, such as weights in training, and the outputs that replace them.

    Raises:
        UnsupportedModel: the metadata is no such object, or names what is no input or output.
    """
    text = model.metadata_props.get(STATE_KEY)
    if text is None:
        return {}
    pairs = parsed_json(text.encode(), f"{where}: metadata {STATE_KEY} of the model", UnsupportedModel)
    inputs = {value.name for value in model.graph.inputs}
    outputs = {value.name for value in model.graph.outputs}
    if not isinstance(pairs, dict) or not all(isinstance(output, str) for output in pairs.values()):
        raise UnsupportedModel(f"{where}: metadata {STATE_KEY} of the model is no object from input to output names")
    lost = [
        name for pair in pairs.items() for name, known in zip(pair, (inputs, outputs), strict=True) if name not in known
    ]
    if lost:
        raise UnsupportedModel(
            f"{where}: metadata {STATE_KEY} of the model names {lost[0]!r}, which is no input or output"
        )
    return pairs
