"""An input that is not as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.robustness.hostile.folder import Files
from tests.robustness.hostile.mutations.containers import mutated_gzip, mutated_npz, mutated_safetensors
from tests.robustness.hostile.mutations.json_text import mutated_json
from tests.robustness.hostile.mutations.protobuf import mutated_protobuf
from tests.robustness.hostile.mutations.raw import mutated_bytes

__all__ = ["LARGEST_BYTES", "mutant", "mutated"]

LARGEST_BYTES = 2**21
"""Bytes; what doubles again and again stays below it."""


def mutant(seeds: Sequence[Files], rng: Random) -> Files:
    """One of `seeds` after one to four changes; at times it stays whole."""
    files = rng.choice(seeds)
    if rng.randrange(200) == 0:
        return files
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        files = mutated(files, seeds, rng)
    return files


def mutated(files: Files, seeds: Sequence[Files], rng: Random) -> Files:
    """The files with one change in one of them; the whole of a file may be missing or stand in for another."""
    name = rng.choice(list(files))
    others = rng.choice(seeds)
    other = others.get(name) or rng.choice(list(others.values()))
    if rng.randrange(100) == 0:
        return {**files, name: other}
    if rng.randrange(100) == 0 and len(files) > 1:
        return {known: content for known, content in files.items() if known != name}
    changed = None
    if rng.random() < 0.85:
        changed = _by_format(name, files[name], other, rng)
    changed = mutated_bytes(files[name], rng, other) if changed is None else changed
    return {**files, name: changed[:LARGEST_BYTES]}


def _by_format(name: str, data: bytes, other: bytes, rng: Random) -> bytes | None:
    match name.rpartition(".")[2]:
        case "json":
            return mutated_json(data, rng)
        case "onnx":
            return mutated_protobuf(data, rng, other)
        case "gz":
            return mutated_gzip(data, rng)
        case "npz":
            return mutated_npz(data, rng)
        case "safetensors":
            return mutated_safetensors(data, rng)
    return None
