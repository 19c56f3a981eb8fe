"""Files inside files: a compressed text, an archive of arrays, tensors behind a JSON header."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from random import Random

from tests.robustness.hostile.mutations.json_text import mutated_json
from tests.robustness.hostile.mutations.raw import mutated_bytes
from tests.robustness.hostile.mutations.values import HOSTILE_INTS

__all__ = ["mutated_gzip", "mutated_npz", "mutated_safetensors"]

_BOMB = 2**28
_OBJECTS = (b"'|O'", b"'<f8'", b"'<i8'", b"'|V999999999'", b"'<U99999999'", b"[('a','<f4')]")
_SHAPES = (b"()", b"(-1,)", b"(99999999999,)", b"(2,3)", b"(1,)*9", b"(4611686018427387904, 4)")


def mutated_gzip(data: bytes, rng: Random) -> bytes | None:
    """Compressed again after a change of what is inside; at times it unpacks to a great deal more."""
    try:
        inside = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None
    if rng.randrange(400) == 0:
        inside = inside[:-2] + b" " * _BOMB + inside[-2:]
        return gzip.compress(inside, 1)
    return gzip.compress(mutated_json(inside, rng) or mutated_bytes(inside, rng), 1)


def mutated_npz(data: bytes, rng: Random) -> bytes | None:
    """Another archive: one array says that it is of another type or shape, has another name, or other bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError, zlib.error):
        return None
    if not members:
        return None
    name = rng.choice(list(members))
    content = members.pop(name)
    change: Callable[[bytes], bytes] = rng.choice(
        (
            lambda content: content.replace(b"'<f4'", rng.choice(_OBJECTS), 1),
            lambda content: content.replace(b"(2, 2)", rng.choice(_SHAPES), 1),
            lambda content: mutated_bytes(content, rng),
            lambda content: content,
        )
    )
    members[rng.choice((name, name, name, "../x.npy", "/x.npy", "x", "z" * 5000))] = change(content)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return target.getvalue()


def mutated_safetensors(data: bytes, rng: Random) -> bytes | None:
    """Other tensors in the header, or another length of it."""
    length = int.from_bytes(data[:8], "little")
    head = mutated_json(data[8 : 8 + length], rng)
    if head is None:
        return None
    stated = rng.choice((len(head), len(head), len(head), rng.choice(HOSTILE_INTS)))
    return stated.to_bytes(8, "little") + head + data[8 + length :]
