"""Damaged and harmful variants of files: bytes, JSON values, archives, tensors behind a header, ONNX models."""

import gzip
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.robustness.hostile.room import Files

HOSTILE_NAMES = (
    "", " ", ".", "..", "../../x", "../../../../../../etc/passwd", "/etc/passwd", "outside/passwd", "~/x", "a/b", "x\0y", "\n", "\x1b[2J",
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "${title}", "%s%n{0}{x}", "'; DROP TABLE", "\u202egnp.x", "\ufffe",
    "n" * 300, "n" * 10_000, "cpu:0", "cpu:0-99999999999", "cpu:99", "cuda:0", "ep:X:1", "__class__", "NaN", "-1", "If", "Loop",
)  # fmt: skip
HOSTILE_INTS = (
    0, 1, 2, 7, 14, 127, 255, 2**15, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
HOSTILE_JSON = (
    "null", "true", "false", "0", "-0", "-0.0", "1", "-1", "0.5", "1e-320", "5e-324", "1e300", "1e308", "1e999", "-1e999", "NaN", "Infinity",
    "-Infinity", "9007199254740993", "4611686018427387904", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "1" + "0" * 400, "9" * 5000, "[]", "{}", "[[]]", '{"":0}', "[null]", '[""]', '"\\ud800"', '"\\u0000"', "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "0" + "}" * 3000, "[0,0]", "[1e308,1e308,1e308]",
)  # fmt: skip
"""JSON values as text, as the `json` module cannot write all of them."""
LARGEST_BYTES = 2**21
"""Limit of a file's size, as repeated doubling would exceed any."""


def mutant(seeds: Sequence[Files], rng: Random) -> Files:
    """One of `seeds` after one to four changes, or rarely unchanged."""
    files = rng.choice(seeds)
    if rng.randrange(200) == 0:
        return files
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        files = mutated(files, seeds, rng)
    return files


def mutated(files: Files, seeds: Sequence[Files], rng: Random) -> Files:
    """The files with one change in one of them; rarely a file is removed or replaced by another."""
    name = rng.choice(list(files))
    others = rng.choice(seeds)
    other = others.get(name) or rng.choice(list(others.values()))
    if rng.randrange(100) == 0:
        return {**files, name: other}
    if rng.randrange(100) == 0 and len(files) > 1:
        return {known: content for known, content in files.items() if known != name}
    changed = None
    by_format = _BY_FORMAT.get(name.rpartition(".")[2])
    if rng.random() < 0.85 and by_format is not None:
        changed = by_format(files[name], rng, other)
    changed = mutated_bytes(files[name], rng, other) if changed is None else changed
    return {**files, name: changed[:LARGEST_BYTES]}


_BYTES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"{", b"[", b'"', b"}", b"-", b"e9")  # fmt: skip


def mutated_bytes(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """The bytes after one change: truncation, a piece removed, repeated, overwritten or moved, a flipped bit, or foreign bytes."""
    if not data:
        return other[: rng.randrange(64)] or rng.choice(_BYTES)
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice((1, 2, 4, 8, 16, 64, 256, len(data))))
    piece = data[begin:end]
    match rng.randrange(8):
        case 0:
            return data[:begin]
        case 1:
            return data[:begin] + data[end:]
        case 2:
            return data[:end] + piece * rng.choice((1, 2, 40)) + data[end:]
        case 3:
            at = rng.randrange(len(data))
            return data[:at] + piece + data[at + len(piece) :]
        case 4:
            return data[:begin] + bytes([data[begin] ^ 1 << rng.randrange(8)]) + data[begin + 1 :]
        case 5:
            return data[:begin] + rng.choice(_BYTES) + data[end:]
        case 6:
            return data[:begin] + other[rng.randrange(len(other) + 1) :]
        case _:
            return data[:begin] + rng.choice(HOSTILE_NAMES).encode() + data[end:]


_MARK = "\x02raw\x03"
Place = tuple[Any, Any]
"""A dictionary or list with a key or index in it."""


def mutated_json(data: bytes, rng: Random, _: bytes = b"") -> bytes | None:
    """The document after one to four changes; None if it is no JSON or empty."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = _random_place(document, rng)
        if place is None:
            return None
        _change(place, document, rng, raw)
    text = json.dumps(document)
    for value in raw:
        text = text.replace(json.dumps(_MARK), value, 1)
    return text.encode()


def _random_place(document: Any, rng: Random) -> Place | None:
    """A random place, where deep places are as likely as those near the top."""
    found: Place | None = None
    inside = document
    while isinstance(inside, dict | list) and inside:
        key = rng.choice(list(inside)) if isinstance(inside, dict) else rng.randrange(len(inside))
        found, inside = (inside, key), inside[key]
        if rng.random() < 0.25:
            break
    return found


def _change(place: Place, document: Any, rng: Random, raw: list[str]) -> None:
    inside, key = place
    kind = rng.randrange(10)
    if kind < 4:
        inside[key] = _MARK
        raw.append(rng.choice(HOSTILE_JSON))
    elif kind == 4:
        inside[key] = rng.choice(HOSTILE_NAMES)
    elif kind == 5:
        del inside[key]
    elif kind == 6:
        other = _random_place(document, rng)
        assert other is not None
        inside[key] = json.loads(json.dumps(other[0][other[1]]))  # a copy, as a value must not contain itself
    elif isinstance(inside, list):
        inside[key:key] = [inside[key]] * rng.choice((1, 2, 60))
    elif kind == 7:
        # a duplicate key
        old = json.dumps(inside[key])
        inside[key] = _MARK
        raw.append(f"{rng.choice(HOSTILE_JSON)}, {json.dumps(key)}: {old}")
    else:
        names = [*inside, *HOSTILE_NAMES]
        inside[rng.choice(names)] = inside.pop(key)


_BOMB = 2**28
_OBJECTS = (b"'|O'", b"'<f8'", b"'<i8'", b"'|V999999999'", b"'<U99999999'", b"[('a','<f4')]")
_SHAPES = (b"()", b"(-1,)", b"(99999999999,)", b"(2,3)", b"(1,)*9", b"(4611686018427387904, 4)")


def mutated_gzip(data: bytes, rng: Random, _: bytes = b"") -> bytes | None:
    """The archive after a change of its content; rarely it unpacks to much more."""
    try:
        inside = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None
    if rng.randrange(400) == 0:
        inside = inside[:-2] + b" " * _BOMB + inside[-2:]
        return gzip.compress(inside, 1)
    return gzip.compress(mutated_json(inside, rng) or mutated_bytes(inside, rng), 1)


def mutated_npz(data: bytes, rng: Random, _: bytes = b"") -> bytes | None:
    """An archive in which one array states another type or shape, or has another name or other bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError, zlib.error):
        return None
    if not members:
        return None
    name = rng.choice(list(members))
    content = members.pop(name)
    kind = rng.randrange(4)
    if kind < 2:
        old, others = ((b"'<f4'", _OBJECTS), (b"(2, 2)", _SHAPES))[kind]
        content = content.replace(old, rng.choice(others), 1)
    elif kind == 2:
        content = mutated_bytes(content, rng)
    members[rng.choice((name, name, name, "../x.npy", "/x.npy", "x", "z" * 5000))] = content
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return target.getvalue()


def mutated_safetensors(data: bytes, rng: Random, _: bytes = b"") -> bytes | None:
    """A file with other tensors in the header, or another header length."""
    length = int.from_bytes(data[:8], "little")
    head = mutated_json(data[8 : 8 + length], rng)
    if head is None:
        return None
    stated = rng.choice((len(head), len(head), len(head), rng.choice(HOSTILE_INTS)))
    return stated.to_bytes(8, "little") + head + data[8 + length :]


_NAME = re.compile(rb"[A-Za-z_][\w./:-]{0,40}")
_FLOATS = (0.0, -1.0, 5e-324, 1e308, math.nan, math.inf)


def mutated_model(data: bytes, rng: Random, other: bytes = b"") -> bytes | None:
    """An ONNX model after one change at a random depth; None if it cannot be read. `other` is a model to copy from."""
    model, donor = onnx.ModelProto(), onnx.ModelProto()
    try:
        model.ParseFromString(data)
        message = _random_message(model, rng)
        match rng.randrange(8):
            case 0:
                donor.ParseFromString(other)
                same = (_random_message(donor, rng) for _ in range(20))
                message.MergeFrom(next((found for found in same if isinstance(found, type(message))), message))
            case 1:
                message.ParseFromString(mutated_bytes(message.SerializeToString(), rng))
            case _:
                names = [name.decode() for name in _NAME.findall(data)]
                _change_field(message, rng, [*names, *rng.choices(HOSTILE_NAMES, k=1 + len(names) // 2)])
    except (DecodeError, UnicodeDecodeError):
        return None
    return model.SerializeToString()


def _random_message(message: Message, rng: Random) -> Message:
    """The message, or one at a random depth inside."""
    while rng.random() < 0.85:
        found = [(field, value) for field, value in message.ListFields() if field.message_type is not None]
        if not found:
            break
        field, value = rng.choice(found)
        message = rng.choice(value) if field.is_repeated else value
    return message


def _change_field(message: Message, rng: Random, names: Sequence[str]) -> None:
    """Removes, repeats or moves values of a random field, or sets it to another or a harmful value."""
    field = rng.choice(message.DESCRIPTOR.fields)
    found = message.ListFields()
    if found and rng.random() < 0.8:
        field = rng.choice(found)[0]
    values = list(getattr(message, field.name)) if field.is_repeated else [getattr(message, field.name)]
    message.ClearField(field.name)
    at = rng.randrange(len(values)) if values else 0
    match rng.randrange(6):
        case 0:
            rng.shuffle(values)
        case 1 | 2 if field.is_repeated:
            values[at:at] = values[at : at + 1] * rng.choice((1, 2, 30))
        case 3 | 4 | 5 if field.message_type is None:
            old = values[at] if values else b""
            values[at : at + 1] = [_other_value(field, old, rng, names) for _ in range(rng.choice((1, 1, 1, 2, 100)))]
        case _:
            del values[at : at + 1]
    if field.is_repeated:
        getattr(message, field.name).extend(values)
    elif values and field.message_type is not None:
        getattr(message, field.name).CopyFrom(values[0])
    elif values:
        setattr(message, field.name, values[0])


def _other_value(field: FieldDescriptor, old: Any, rng: Random, names: Sequence[str]) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return mutated_bytes(old, rng)
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(names)
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        case FieldDescriptor.CPPTYPE_UINT64:
            return rng.choice(HOSTILE_INTS)
    size = 4 if field.cpp_type == FieldDescriptor.CPPTYPE_INT32 else 8
    return int.from_bytes(rng.choice(HOSTILE_INTS).to_bytes(8, "little")[:size], "little", signed=True)


_BY_FORMAT: Mapping[str, Callable[[bytes, Random, bytes], bytes | None]] = {
    "json": mutated_json, "onnx": mutated_model, "gz": mutated_gzip, "npz": mutated_npz, "safetensors": mutated_safetensors,
}  # fmt: skip
