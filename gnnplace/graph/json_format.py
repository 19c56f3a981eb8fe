"""Op graphs as files: `gnnplace.graph/1`, for graphs that do not come from ONNX."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.errors import InvalidGraph, shown
from gnnplace.files import new_file, parsed_json, read_json, write_text
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor

__all__ = ["FORMAT", "graph_from_json", "graph_to_json", "read_graph", "write_graph"]

FORMAT = "gnnplace.graph/1"
MOST_BYTES = 2**28
"""Of a compressed file once it is unpacked: a graph of a million ops has less."""

_OP_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "type": (str,),
    "time_s": (dict, type(None)),
    "flops": (int, float),
    "bytes_accessed": (int, float),
    "memory_bytes": (int,),
    "workspace_bytes": (int,),
    "group": (str, type(None)),
    "devices": (list, type(None)),
    "dtype": (str,),
    "stage": (int, type(None)),
}


def read_graph(path: Path) -> OpGraph:
    """The op graph in a file, which may be compressed (`.json.gz`).

    >>> from gnnplace.files import temporary_folder
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "g.json").write_text('{"format": "gnnplace.graph/1", "name": "g", "ops": [{"name": "a"}], "tensors": []}')
    ...     read_graph(folder / "g.json").num_ops
    1

    Raises:
        InvalidGraph: the file is missing, is no JSON, or breaks a rule of the format.
    """
    if path.suffix != ".gz":
        return graph_from_json(read_json(path, InvalidGraph), str(path))
    try:
        with gzip.open(path) as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise InvalidGraph(f"{path}: cannot be read ({reason}); check the path and that the file is whole") from None
    if len(text) > MOST_BYTES:
        raise InvalidGraph(f"{path}: unpacks to more than {MOST_BYTES >> 20} MiB; write a graph of that size as .json")
    return graph_from_json(parsed_json(text, str(path), InvalidGraph), str(path))


def write_graph(graph: OpGraph, path: Path) -> None:
    """Writes an op graph, compressed where the name ends in `.gz`; `read_graph` gives it back equal.

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
    """The op graph that a parsed `gnnplace.graph/1` document describes; `where` is named in errors.

    A shared weight is counted in `memory_bytes` of each of its ops, and the optional list `shared_weights` says which
    of those bytes are the same, so a reader that knows only `memory_bytes` never counts too little.

    >>> document = {"format": FORMAT, "name": "one", "ops": [{"name": "a"}], "tensors": []}
    >>> graph_from_json(document).op_names
    ('a',)
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InvalidGraph(f'{where}: "format" is {shown(found)}; expected {FORMAT!r}')
    shared = [
        SharedWeight(_number(w, "bytes", where), tuple(_names(w, "consumers", where)))
        for w in _rows(document, "shared_weights", where)
    ]
    shared_bytes: dict[str, int] = {}
    for weight in shared:
        for consumer in weight.consumers:
            shared_bytes[consumer] = shared_bytes.get(consumer, 0) + weight.bytes
    ops = [_op(row, shared_bytes, where) for row in _rows(document, "ops", where)]
    tensors = [
        Tensor(_text(row, "producer", where), _number(row, "bytes", where), tuple(_names(row, "consumers", where)))
        for row in _rows(document, "tensors", where)
    ]
    try:
        return OpGraph.build(_text({"name": "graph", **document}, "name", where), ops, tensors, shared)
    except InvalidGraph as error:
        raise InvalidGraph(f"{where}: {error}") from None


def graph_to_json(graph: OpGraph) -> dict[str, Any]:
    """The `gnnplace.graph/1` document of an op graph.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> pair = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",))])
    >>> graph_to_json(pair)["tensors"]
    [{'producer': 'a', 'bytes': 4, 'consumers': ['b']}]
    """
    memory = graph.memory_bytes.copy()
    np.add.at(memory, graph.weight_consumers, np.repeat(graph.weight_bytes, np.diff(graph.weight_offsets)))
    names = graph.op_names
    ops: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        op: dict[str, Any] = {"name": name, "type": graph.op_types[index]}
        times = {key: float(row[index]) for key, row in graph.time_s.items() if not np.isnan(row[index])}
        if times:
            op["time_s"] = times
        op["flops"] = float(graph.flops[index])
        op["bytes_accessed"] = float(graph.bytes_accessed[index])
        op["memory_bytes"] = int(memory[index])
        op["workspace_bytes"] = int(graph.workspace_bytes[index])
        group = int(graph.colocation[index])
        op["group"] = None if group < 0 else graph.colocation_names[group]
        allowed = graph.allowed_devices[index]
        op["devices"] = None if allowed is None else list(allowed)
        if graph.dtypes[index] != "float32":
            op["dtype"] = graph.dtypes[index]
        if graph.stages[index] >= 0:
            op["stage"] = int(graph.stages[index])
        ops.append(op)
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": graph.name,
        "ops": ops,
        "tensors": [
            {
                "producer": names[graph.tensor_producer[tensor]],
                "bytes": int(graph.tensor_bytes[tensor]),
                "consumers": [names[op] for op in graph.consumers_of(tensor)],
            }
            for tensor in range(graph.num_tensors)
        ],
    }
    if len(graph.weight_bytes):
        document["shared_weights"] = [
            {"bytes": int(size), "consumers": [names[op] for op in graph.weights_of(weight)]}
            for weight, size in enumerate(graph.weight_bytes)
        ]
    return document


def _op(row: dict[str, Any], shared_bytes: Mapping[str, int], where: str) -> Op:
    name = _text(row, "name", where)
    for key, types in _OP_KEYS.items():
        if key in row and (not isinstance(row[key], types) or isinstance(row[key], bool)):
            expected = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise InvalidGraph(f"{where}: {key!r} of op {name!r} is {shown(row[key])}; expected {expected}")
    times = row.get("time_s") or {}
    for device, seconds in times.items():
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not _is_finite(seconds):
            raise InvalidGraph(
                f"{where}: time_s of op {name!r} on {device!r} is {shown(seconds)}; expected finite seconds"
            )
    devices = row.get("devices")
    if devices is not None and not all(isinstance(device, str) for device in devices):
        raise InvalidGraph(f"{where}: 'devices' of op {name!r} is {shown(devices)}; expected a list of names or kinds")
    if row.get("stage") is not None and row["stage"] < 0:
        raise InvalidGraph(f"{where}: 'stage' of op {name!r} is {row['stage']}; expected 0, 1, 2, ...")
    memory = row.get("memory_bytes", 0) - shared_bytes.get(name, 0)
    if memory < 0:
        raise InvalidGraph(
            f"{where}: op {name!r} has {row.get('memory_bytes', 0)} memory_bytes, "
            f"less than the {shared_bytes.get(name, 0)} bytes of its shared weights, which it must include"
        )
    return Op(
        name=name,
        type=row.get("type", "Unknown"),
        time_s=times,
        flops=row.get("flops", 0.0),
        bytes_accessed=row.get("bytes_accessed", 0.0),
        memory_bytes=memory,
        workspace_bytes=row.get("workspace_bytes", 0),
        group=row.get("group"),
        devices=None if devices is None else tuple(devices),
        dtype=row.get("dtype", "float32"),
        stage=row.get("stage"),
    )


def _is_finite(value: float) -> bool:
    """Whether it is, as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _rows(document: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    rows = document.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidGraph(f"{where}: {key!r} is no list of objects")
    return rows


def _text(row: dict[str, Any], key: str, where: str) -> str:
    if not isinstance(row.get(key), str):
        raise InvalidGraph(f"{where}: {key!r} is {shown(row.get(key))} in {shown(row)}; expected text")
    return str(row[key])


def _number(row: dict[str, Any], key: str, where: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise InvalidGraph(f"{where}: {key!r} is {shown(value)} in {shown(row)}; expected a count of bytes")
    return value


def _names(row: dict[str, Any], key: str, where: str) -> list[str]:
    names = row.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidGraph(f"{where}: {key!r} is {shown(names)}; expected a list of op names")
    return names
