"""Op graphs as files: `gnnplace.graph/1`, for graphs that do not come from ONNX."""

import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.errors import InvalidGraph, did_you_mean, shown
from gnnplace.files import new_file, parsed_json, read_json, write_text
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.json_fields import JsonObject, checked_format

FORMAT = "gnnplace.graph/1"
_MOST_BYTES = 2**28
"""Largest size of a compressed file after unpacking; a graph of a million ops has less."""

_OP_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,), "type": (str,), "time_s": (dict, type(None)),
    "flops": (int, float), "bytes_accessed": (int, float), "memory_bytes": (int,), "workspace_bytes": (int,),
    "group": (str, type(None)), "devices": (list, type(None)), "dtype": (str,), "stage": (int, type(None)),
}  # fmt: skip


_GRAPH_KEYS = ("format", "name", "ops", "tensors", "shared_weights")
_TENSOR_KEYS = ("producer", "bytes", "consumers")


def read_graph(path: Path) -> OpGraph:
    """Reads an op graph from a file, which may be compressed (`.json.gz`).

    >>> from gnnplace.files import temporary_folder
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "g.json").write_text('{"format": "gnnplace.graph/1", "name": "g", "ops": [{"name": "a"}], "tensors": []}')
    ...     read_graph(folder / "g.json").num_ops
    1

    Raises:
        InvalidGraph: the file is missing, is not JSON, or breaks a rule of the format.
    """
    return graph_from_json(_document(path), str(path))


def read_noted_graph(path: Path) -> tuple[OpGraph, tuple[str, ...]]:
    """The graph of `read_graph`, and a line for each kind of unknown key that looks like a misspelt one; these have no effect.

    Raises:
        InvalidGraph: see `read_graph`.
    """
    document = _document(path)
    return graph_from_json(document, str(path)), tuple(_misspelt_keys(document))


def _misspelt_keys(document: Mapping[str, Any]) -> Iterator[str]:
    found = {
        "the graph": (_GRAPH_KEYS, set(document)),
        "ops": (_OP_KEYS, set().union(*document.get("ops", ()))),
        "tensors": (_TENSOR_KEYS, set().union(*document.get("tensors", ()))),
    }
    for what, (known, keys) in found.items():
        for key in sorted(keys - set(known)):
            if question := did_you_mean(key, known):
                yield f"the key {shown(key)} of {what} is unknown and has no effect; {question}"


def read_op_types(path: Path) -> frozenset[str]:
    """Op types of a graph that `write_graph` wrote, in a fifth of the time of `read_graph`, as nothing else is checked."""
    return frozenset(op["type"] for op in _document(path)["ops"])


def _document(path: Path) -> Any:
    if path.suffix != ".gz":
        return read_json(path, InvalidGraph)
    try:
        with gzip.open(path) as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise InvalidGraph(f"{path}: cannot be read ({reason}); check the path and that the file is whole") from None
    if len(text) > _MOST_BYTES:
        raise InvalidGraph(f"{path}: unpacks to more than {_MOST_BYTES >> 20} MiB; write a graph of that size as .json")
    return parsed_json(text, str(path), InvalidGraph)


def write_graph(graph: OpGraph, path: Path) -> None:
    """Writes an op graph for `read_graph`; compresses it if the name ends in `.gz`.

    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.graph.op_graph import Op
    >>> with temporary_folder() as folder:
    ...     write_graph(OpGraph.build("one", [Op("a")]), folder / "one.json.gz")
    ...     read_graph(folder / "one.json.gz").op_names
    ('a',)
    """
    if path.suffix != ".gz":
        write_text(path, json.dumps(graph_to_json(graph), indent=1) + "\n")
        return
    text = json.dumps(graph_to_json(graph), separators=(",", ":"))
    with new_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def graph_from_json(document: Any, where: str = "op graph") -> OpGraph:
    """Builds the op graph of a parsed `gnnplace.graph/1` document; errors name `where`.

    `memory_bytes` of an op includes its shared weights, which the optional list `shared_weights` states. So a reader
    that ignores that list never counts too little.

    >>> document = {"format": FORMAT, "name": "one", "ops": [{"name": "a"}], "tensors": []}
    >>> graph_from_json(document).op_names
    ('a',)
    """
    fields = checked_format(document, FORMAT, where, InvalidGraph)
    shared = [SharedWeight(row.count("bytes"), row.texts("consumers")) for row in fields.objects("shared_weights")]
    shared_bytes: Counter[str] = Counter()
    for weight in shared:
        shared_bytes.update(dict.fromkeys(weight.consumers, weight.bytes))
    ops = [_op(row, shared_bytes) for row in fields.objects("ops")]
    tensors = [
        Tensor(row.text("producer"), row.count("bytes"), row.texts("consumers")) for row in fields.objects("tensors")
    ]
    name = fields.text("name") if "name" in document else "graph"
    try:
        return OpGraph.build(name, ops, tensors, shared)
    except InvalidGraph as error:
        raise InvalidGraph(f"{where}: {error}") from None


def graph_to_json(graph: OpGraph) -> dict[str, Any]:
    """Converts an op graph to a `gnnplace.graph/1` document.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> pair = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",))])
    >>> graph_to_json(pair)["tensors"]
    [{'producer': 'a', 'bytes': 4, 'consumers': ['b']}]
    """
    memory = graph.memory_bytes.copy()
    np.add.at(memory, graph.weight_consumers, np.repeat(graph.weight_bytes, np.diff(graph.weight_offsets)))
    names, groups = graph.op_names, (*graph.colocation_names, None)  # an op without a group has the index -1
    ops: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        times = {key: float(row[index]) for key, row in graph.time_s.items() if not np.isnan(row[index])}
        allowed, dtype, stage = graph.allowed_devices[index], graph.dtypes[index], int(graph.stages[index])
        op = {
            "name": name,
            "type": graph.op_types[index],
            **({"time_s": times} if times else {}),
            "flops": float(graph.flops[index]),
            "bytes_accessed": float(graph.bytes_accessed[index]),
            "memory_bytes": int(memory[index]),
            "workspace_bytes": int(graph.workspace_bytes[index]),
            "group": groups[graph.colocation[index]],
            "devices": None if allowed is None else list(allowed),
            **({} if dtype == "float32" else {"dtype": dtype}),
            **({} if stage < 0 else {"stage": stage}),
        }
        ops.append(op)
    tensors = [
        {"producer": names[producer], "bytes": size, "consumers": [names[op] for op in graph.consumers_of(tensor)]}
        for tensor, (producer, size) in enumerate(
            zip(graph.tensor_producer.tolist(), graph.tensor_bytes.tolist(), strict=True)
        )
    ]
    shared = [
        {"bytes": size, "consumers": [names[op] for op in graph.weights_of(weight)]}
        for weight, size in enumerate(graph.weight_bytes.tolist())
    ]
    document = {"format": FORMAT, "name": graph.name, "ops": ops, "tensors": tensors}
    return document | ({"shared_weights": shared} if shared else {})


def _op(row: JsonObject, shared_bytes: Counter[str]) -> Op:
    name, fields = row.text("name"), row.fields
    whose = f"of op {name!r}"

    def refusal(what: str, value: Any, expected: str) -> InvalidGraph:
        return InvalidGraph(f"{row.where}: {what} is {shown(value)}; expected {expected}")

    for key, types in _OP_KEYS.items():
        if key in fields and (not isinstance(fields[key], types) or isinstance(fields[key], bool)):
            expected = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise refusal(f"{key!r} {whose}", fields[key], expected)
    for device, seconds in (fields.get("time_s") or {}).items():
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not abs(seconds) <= sys.float_info.max:
            raise refusal(f"time_s {whose} on {device!r}", seconds, "finite seconds")
    devices = fields.get("devices")
    if devices is not None and not all(isinstance(device, str) for device in devices):
        raise refusal(f"'devices' {whose}", devices, "a list of names or kinds")
    if (fields.get("stage") or 0) < 0:
        raise refusal(f"'stage' {whose}", fields["stage"], "0, 1, 2, ...")
    memory = fields.get("memory_bytes", 0)
    if memory < shared_bytes[name]:
        raise InvalidGraph(
            f"{row.where}: op {name!r} has {memory} memory_bytes, "
            f"less than the {shared_bytes[name]} bytes of its shared weights, which it must include"
        )
    stated = {key: value for key, value in fields.items() if key in _OP_KEYS}
    stated |= {"time_s": fields.get("time_s") or {}, "memory_bytes": memory - shared_bytes[name]}
    return Op(**stated | {"devices": None if devices is None else tuple(devices)})
