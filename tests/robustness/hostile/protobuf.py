"""Changes of the fields of a protobuf message without its schema, so that an ONNX file remains one.

A field of bytes counts as a message where it can be read as one (Protocol Buffers, "Encoding").
"""

from __future__ import annotations

import re
from random import Random

from tests.robustness.hostile.values import HOSTILE_INTS, HOSTILE_NAMES

__all__ = ["fields_of", "mutated_protobuf"]

Field = tuple[int, bytes | int]
"""Tag (field number times eight plus wire type) and value."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NAME = re.compile(rb"[A-Za-z_][\w./:-]{0,40}")
_DEEPEST = 12


def mutated_protobuf(data: bytes, rng: Random, other: bytes = b"") -> bytes | None:
    """The message after one change at a random depth, or None if it is no message; `other` is a source of fields."""
    fields = fields_of(data)
    if not fields:
        return None
    names = _NAME.findall(data)
    return _joined(_changed(fields, fields_of(other) or [], rng, names, 0))


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a message; None for other bytes."""
    fields: list[Field] = []
    position = 0
    try:
        while position < len(data):
            tag, position = _varint(data, position)
            value: bytes | int
            match tag & 7:
                case 0:
                    value, position = _varint(data, position)
                case 1 | 5 as kind:
                    size = 8 if kind == _FIXED64 else 4
                    value, position = data[position : position + size], position + size
                case 2:
                    size, position = _varint(data, position)
                    value, position = data[position : position + size], position + size
                case _:
                    return None
            if tag < 8 or position > len(data):
                return None
            fields.append((tag, value))
    except IndexError:
        return None
    return fields


def _changed(fields: list[Field], others: list[Field], rng: Random, names: list[bytes], depth: int) -> list[Field]:
    """The fields after one change in them, or in the message that one of them holds."""
    fields = list(fields)
    at = rng.randrange(len(fields))
    tag, value = fields[at]
    if depth < _DEEPEST and tag & 7 == _BYTES and isinstance(value, bytes) and rng.random() < 0.85:
        inner = fields_of(value)
        if inner:
            same = [found for number, found in others if number == tag and isinstance(found, bytes)]
            donors = (fields_of(rng.choice(same)) or []) if same else []
            fields[at] = tag, _joined(_changed(inner, donors, rng, names, depth + 1))
            return fields
    match rng.randrange(10):
        case 0:
            del fields[at]
        case 1:
            fields[at:at] = [fields[at]] * rng.choice((1, 2, 30))
        case 2:
            to = rng.randrange(len(fields))
            fields[at], fields[to] = fields[to], fields[at]
        case 3 if others:
            fields.insert(at, rng.choice(others))
        case 4:
            fields[at] = rng.choice((tag, 8 * rng.randrange(1, 30) + (tag & 7))), value
        case 5:
            fields[at] = tag, rng.choice(fields)[1] if tag & 7 == _BYTES else _number(tag, rng)
            if isinstance(fields[at][1], int) != (tag & 7 == _VARINT):
                fields[at] = tag, value
        case _:
            fields[at] = tag, _text(value, rng, names) if tag & 7 == _BYTES else _number(tag, rng)
    return fields


def _text(value: bytes | int, rng: Random, names: list[bytes]) -> bytes:
    """Another name of the file, a hostile name, packed numbers, or a shorter or longer value."""
    assert isinstance(value, bytes)
    match rng.randrange(6):
        case 0 | 1 if names:
            return rng.choice(names)
        case 2:
            return rng.choice(HOSTILE_NAMES).encode()
        case 3:
            return b"".join(_as_varint(rng.choice(HOSTILE_INTS)) for _ in range(rng.choice((1, 2, 4, 100))))
        case 4:
            return value[: rng.randrange(len(value) + 1)]
        case _:
            return value + value[-rng.choice((1, 4, 8)) :]


def _number(tag: int, rng: Random) -> bytes | int:
    number = rng.choice(HOSTILE_INTS)
    if tag & 7 == _VARINT:
        return number
    return rng.choice((number.to_bytes(8, "little"), b"\xff" * 8, b"\0\0\0\0\0\0\xf0\x7f"))[
        -8 if tag & 7 == _FIXED64 else -4 :
    ]


def _joined(fields: list[Field]) -> bytes:
    parts = []
    for tag, value in fields:
        parts.append(_as_varint(tag))
        if isinstance(value, int):
            parts.append(_as_varint(value))
        else:
            parts.append((_as_varint(len(value)) if tag & 7 == _BYTES else b"") + value)
    return b"".join(parts)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
