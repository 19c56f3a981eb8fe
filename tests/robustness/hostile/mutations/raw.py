"""Bytes of any file, changed without knowing what they mean."""

from __future__ import annotations

from random import Random

from tests.robustness.hostile.mutations.values import HOSTILE_NAMES

__all__ = ["mutated_bytes"]

_INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0" * 8,
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"{",
    b"[",
    b'"',
    b"}",
    b"-",
    b"e9",
)


def mutated_bytes(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """One change: cut off, a piece left out, doubled, overwritten or moved, a bit turned, the rest of another file."""
    if not data:
        return other[: rng.randrange(64)] or rng.choice(_INTERESTING)
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
            return data[:begin] + rng.choice(_INTERESTING) + data[end:]
        case 6:
            return data[:begin] + other[rng.randrange(len(other) + 1) :]
        case _:
            return data[:begin] + rng.choice(HOSTILE_NAMES).encode() + data[end:]
