"""Values of a JSON document: replaced, left out, doubled, exchanged, renamed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.robustness.hostile.mutations.values import HOSTILE_JSON, HOSTILE_NAMES

__all__ = ["mutated_json"]

_MARK = "\x02raw\x03"
Place = tuple[Any, Any]
"""A dictionary or list, and a key or index in it."""


def mutated_json(data: bytes, rng: Random) -> bytes | None:
    """The document after one to four changes; None where it is no JSON or has nothing to change."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = _place(document, rng)
        if place is None:
            return None
        _change(place, document, rng, raw)
    text = json.dumps(document)
    for value in raw:
        text = text.replace(json.dumps(_MARK), value, 1)
    return text.encode()


def _place(document: Any, rng: Random) -> Place | None:
    """A random place; deeper ones are as likely as those near the top."""
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
        other = _place(document, rng)
        assert other is not None
        inside[key] = json.loads(json.dumps(other[0][other[1]]))  # a copy, as a value may not hold itself
    elif isinstance(inside, list):
        inside[key:key] = [inside[key]] * rng.choice((1, 2, 60))
    elif kind == 7:
        # The same key twice.
        old = json.dumps(inside[key])
        inside[key] = _MARK
        raw.append(f"{rng.choice(HOSTILE_JSON)}, {json.dumps(key)}: {old}")
    else:
        names = [*inside, *HOSTILE_NAMES]
        inside[rng.choice(names)] = inside.pop(key)
