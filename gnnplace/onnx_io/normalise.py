"""Every node gets a name that no other node of the model has, the same at every reading."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from gnnplace.errors import UnsupportedModel, shown
from gnnplace.onnx_io.folding import fold_constants

__all__ = ["name_nodes", "normalise"]


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


_FIRST_IR_WITH_CONSTANT_INITIALIZERS = 4
_MOST_NODES = 1_000_000


def normalise(model: ir.Model, where: str) -> None:
    """Inlines functions, sorts, folds constants, removes dead code and names every node, in place.

    The model's inputs and outputs stay, but for initialisers that IR < 4 lists as inputs: those are constants.

    Raises:
        UnsupportedModel: the graph has a cycle, or a function cannot be inlined; the message begins with `where`.
    """
    if model.ir_version < _FIRST_IR_WITH_CONSTANT_INITIALIZERS:
        # From IR 4 on an initialiser that is no input is a constant, which is what these are.
        passes.RemoveInitializersFromInputsPass()(model)
        model.ir_version = _FIRST_IR_WITH_CONSTANT_INITIALIZERS
    _inline_functions(model, where)
    try:
        model.graph.sort()
    except ValueError:
        raise UnsupportedModel(f"{where}: the model's graph has a cycle; an ONNX graph is acyclic") from None
    fold_constants(model.graph, model.opset_imports.get("", 1))
    passes.RemoveUnusedNodesPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)
    name_nodes(model.graph)


def _inline_functions(model: ir.Model, where: str) -> None:
    if not model.functions:
        return
    _check_calls(model, where)
    name_nodes(model.graph)  # names of calls become prefixes of what is inlined
    for function in model.functions.values():
        name_nodes(function)
        _align_opsets(model, function)
    try:
        passes.InlinePass()(model)
    except (ValueError, RuntimeError, ir.passes.PassError, ir.passes.InvariantError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise UnsupportedModel(f"{where}: a local function cannot be inlined ({reason})") from None
    model.functions.clear()  # what is left was never called
    # Bodies that were inlined twice bring their subgraphs' value names twice.
    passes.NameFixPass()(model)


def _check_calls(model: ir.Model, where: str) -> None:
    """No function calls itself, and there are not too many nodes once all calls are replaced by what they stand for."""
    own = {key: [node.op_identifier() for node in function.all_nodes()] for key, function in model.functions.items()}
    count: dict[ir.OperatorIdentifier, int] = {}
    begun: set[ir.OperatorIdentifier] = set()
    stack = list(own)
    while stack:
        key = stack[-1]
        waits = [called for called in own[key] if called in own and called not in count]
        if key in count:
            stack.pop()
        elif not waits:
            count[key] = sum(count.get(called, 1) for called in own[key])
            stack.pop()
        elif key in begun:
            raise UnsupportedModel(f"{where}: a local function cannot be inlined ({shown(key[1])} calls itself)")
        else:
            begun.add(key)
            stack += dict.fromkeys(waits)
    total = sum(count.get(node.op_identifier(), 1) for node in model.graph.all_nodes())
    if total > _MOST_NODES:
        raise UnsupportedModel(
            f"{where}: has {total:.3g} nodes once its functions are inlined; up to {_MOST_NODES:,} can be placed"
        )


def _align_opsets(model: ir.Model, function: ir.Function) -> None:
    """Gives a function the model's opset version where every op that it uses is the same in both.

    ONNX allows a function to import another version as long as that holds.
    """
    for domain, version in list(function.opset_imports.items()):
        wanted = model.opset_imports.get(domain, version)
        types = {node.op_type for node in function.all_nodes() if node.domain == domain}
        if wanted != version and all(_since(t, version, domain) == _since(t, wanted, domain) for t in types):
            function.opset_imports[domain] = wanted


def _since(op_type: str, version: int, domain: str) -> int | None:
    """The version that defined the operator as it is at `version`; None when there is no such operator."""
    try:
        return onnx.defs.get_schema(op_type, version, domain).since_version
    except onnx.defs.SchemaError:
        return None
