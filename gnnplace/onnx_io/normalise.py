"""The normal form of a model: functions inlined, nodes sorted, constants folded, dead code removed, unique node names."""

from graphlib import CycleError, TopologicalSorter

import onnx_ir as ir
import onnx_ir.passes.common as passes

from gnnplace.errors import UnsupportedModel, shown
from gnnplace.onnx_io.folding import fold_constants, subgraphs, values_read
from gnnplace.onnx_io.model import op_schema

_FIRST_IR_WITH_CONSTANT_INITIALIZERS = 4
_MOST_NODES = 1_000_000


def normalise(model: ir.Model, where: str) -> None:
    """Inlines functions, sorts, folds constants, removes dead code and names every node, in place.

    Inputs and outputs stay, except initialisers that models before IR 4 list as inputs: these are constants.

    Raises:
        UnsupportedModel: the graph has a cycle, or a function cannot be inlined; the message begins with `where`.
    """
    if model.ir_version < _FIRST_IR_WITH_CONSTANT_INITIALIZERS:
        passes.RemoveInitializersFromInputsPass()(model)
        model.ir_version = _FIRST_IR_WITH_CONSTANT_INITIALIZERS
    _inline_functions(model, where)
    try:
        model.graph.sort()
    except ValueError:
        raise UnsupportedModel(f"{where}: the model's graph has a cycle; an ONNX graph is acyclic") from None
    fold_constants(model.graph, model.opset_imports.get("", 1))
    _detach_dead_bodies(model.graph)
    passes.RemoveUnusedNodesPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
    name_nodes(model.graph)


def _detach_dead_bodies(graph: ir.Graph) -> None:
    """Empties the bodies of nodes that no output needs, so that what only these bodies capture counts as unused too."""
    alive: set[ir.Node | None] = {None}
    waiting = [value.producer() for value in graph.outputs]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in alive:
            alive.add(node)
            waiting += [value.producer() for value in values_read(node)]
    for node in graph:
        for body in () if node in alive else subgraphs(node):
            for inner in body.all_nodes():
                for index in range(len(inner.inputs)):
                    inner.replace_input_with(index, None)


def _inline_functions(model: ir.Model, where: str) -> None:
    if not model.functions:
        return
    _check_calls(model, where)
    name_nodes(model.graph)  # names of calls become prefixes of the inlined nodes
    for function in model.functions.values():
        name_nodes(function)
        _align_opsets(model, function)
    try:
        passes.InlinePass()(model)
    except (ValueError, RuntimeError, ir.passes.PassError, ir.passes.InvariantError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise UnsupportedModel(f"{where}: a local function cannot be inlined ({reason})") from None
    model.functions.clear()  # the rest is never called
    passes.NameFixPass()(model)  # a body that was inlined twice repeats the value names of its subgraphs


def _check_calls(model: ir.Model, where: str) -> None:
    """Refuses recursive functions, and models with too many nodes after inlining."""
    own = {key: [node.op_identifier() for node in function.all_nodes()] for key, function in model.functions.items()}
    count: dict[ir.OperatorIdentifier, int] = {}
    calls = {key: [called for called in called_by if called in own] for key, called_by in own.items()}
    try:
        for key in TopologicalSorter(calls).static_order():
            count[key] = sum(count.get(called, 1) for called in own[key])
    except CycleError as problem:
        name = shown(problem.args[1][1][1])
        raise UnsupportedModel(f"{where}: a local function cannot be inlined ({name} calls itself)") from None
    total = sum(count.get(node.op_identifier(), 1) for node in model.graph.all_nodes())
    if total > _MOST_NODES:
        raise UnsupportedModel(
            f"{where}: has {total:.3g} nodes once its functions are inlined; up to {_MOST_NODES:,} can be placed"
        )


def _align_opsets(model: ir.Model, function: ir.Function) -> None:
    """Gives a function the model's opset version if all its ops are equal in both versions, as ONNX requires."""
    for domain, version in list(function.opset_imports.items()):
        wanted = model.opset_imports.get(domain, version)
        types = {node.op_type for node in function.all_nodes() if node.domain == domain}
        defined = [[getattr(op_schema(t, v, domain), "since_version", None) for t in types] for v in (version, wanted)]
        if wanted != version and defined[0] == defined[1]:
            function.opset_imports[domain] = wanted


def name_nodes(graph: ir.Graph | ir.Function) -> None:
    """Gives the nodes of `graph` and of its subgraphs unique names, the same at every reading.

    The first node with a name keeps it; later ones become `NAME_2`, `NAME_3`, ... A node without a name gets its type
    and a number from 1. Numbers that would repeat an existing name are skipped.
    """
    used: set[str] = set()
    to_name: list[ir.Node] = []
    for node in graph.all_nodes():
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
