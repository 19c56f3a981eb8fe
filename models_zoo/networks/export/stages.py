"""Which stage of the human placement each op belongs to, from the weights that it reads."""

import re
from collections.abc import Sequence

import onnx_ir as ir

from gnnplace.onnx_io.folding import values_read
from gnnplace.onnx_io.model import GROUP_KEY, STAGE_KEY
from models_zoo.networks.export.training_step import LOSS
from models_zoo.networks.recipe import StageRule

LAST = "last"


def mark_stages(model: ir.Model, rule: StageRule) -> None:
    """Writes the stage of every node into its metadata, in place.

    A node that reads a weight, in a subgraph too, or comes from a module, that the rule knows belongs to its stage.
    Another follows its inputs: up to the loss the last stage of them, after it the first, since a backward op reads
    what its forward op left and what comes back from later stages. What only one stage's updates read, such as the
    gradient of its weights, is its own. What follows nothing goes where it is first read.
    """
    if not rule.patterns:
        return
    nodes = list(model.graph)
    inputs = (*model.graph.inputs, *model.graph.initializers.values())
    rule = _numbered(rule, [str(value.name) for value in inputs])
    forward = _ancestors(model.graph)
    gradients = _gradients(nodes, forward, rule)
    stage: dict[ir.Node, int] = {}
    weights: dict[ir.Value, int] = {}
    for value in inputs:
        found = _match(rule, str(value.name))
        if found is not None:
            weights[value] = found
    for node in nodes:
        own = gradients.get(node)
        if own is None and "/" in str(node.name):
            own = _match(rule, str(node.name).split("/")[0] + ".")
        read = [weights[value] for value in values_read(node) if value in weights]
        behind = [stage[value.producer()] for value in node.inputs if value is not None and value.producer() in stage]  # type: ignore[index]
        if own is None and read:
            own = max(read)
        if own is None and behind:
            own = max(behind) if node in forward else min(behind)
        if own is None:
            continue
        stage[node] = own
        if len(node.inputs) == 1 and node.inputs[0] in weights:  # a view of the weight
            weights.update(dict.fromkeys(node.outputs, own))
    for node in reversed(nodes):
        if node not in stage:
            ahead = [stage[use.node] for value in node.outputs for use in value.uses() if use.node in stage]
            stage[node] = min(ahead, default=max(stage.values(), default=0))
    for node, number in stage.items():
        node.metadata_props[STAGE_KEY] = str(number)


def _gradients(nodes: Sequence[ir.Node], forward: set[ir.Node], rule: StageRule) -> dict[ir.Node, int]:
    """The stages of updates, by their colocation group, and of backward ops that nothing else reads."""
    found: dict[ir.Node, int] = {}
    for node in reversed(nodes):
        stage = _match(rule, node.metadata_props.get(GROUP_KEY, "")) if GROUP_KEY in node.metadata_props else None
        if stage is None and node not in forward:
            readers = {found.get(use.node) for value in node.outputs for use in value.uses()}
            stage = readers.pop() if len(readers) == 1 else None
        if stage is not None:
            found[node] = stage
    return found


def _numbered(rule: StageRule, weights: Sequence[str]) -> StageRule:
    """The rule with the number that "last" stands for in a model with these weights."""
    others = StageRule(tuple(pattern for pattern in rule.patterns if pattern[1] != LAST))
    last = max((stage for name in weights if (stage := _match(others, name)) is not None), default=0)
    return StageRule(tuple((text, last if stage == LAST else stage) for text, stage in rule.patterns))


def _match(rule: StageRule, name: str) -> int | None:
    for pattern, stage in rule.patterns:
        found = re.match(pattern, name)
        if found:
            return stage if isinstance(stage, int) else int(found.expand(stage))
    return None


def _ancestors(graph: ir.Graph) -> set[ir.Node]:
    """Every node that the loss depends on; all nodes where there is no loss."""
    loss = next((value for value in graph.outputs if value.name == LOSS), None)
    if loss is None:
        return set(graph)
    found: set[ir.Node] = set()
    open_nodes = [loss.producer()]
    while open_nodes:
        node = open_nodes.pop()
        if node is not None and node not in found:
            found.add(node)
            open_nodes.extend(value.producer() for value in node.inputs if value is not None)
    return found
