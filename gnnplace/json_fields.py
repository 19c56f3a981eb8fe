"""Fields of JSON documents, checked as they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnplace.errors import GnnplaceError, shown


@dataclass(frozen=True)
class JsonObject:
    """One object of a document; a field of another type raises `error` with a message that begins with `where`."""

    fields: Mapping[str, Any]
    where: str
    error: type[GnnplaceError]

    def text(self, key: str) -> str:
        """A required string."""
        if not isinstance(self.fields.get(key), str):
            raise self._refusal(f"{key!r} is {shown(self.fields.get(key))} in {shown(self.fields)}; expected text")
        return str(self.fields[key])

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        values = self.fields.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._refusal(f"{key!r} is {shown(values)}; expected a list of names")
        return tuple(values)

    def count(self, key: str) -> int:
        """A required whole number from 0 to 2^62."""
        value = self.fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
            raise self._refusal(f"{key!r} is {shown(value)} in {shown(self.fields)}; expected a count")
        return value

    def cost(self, key: str) -> float:
        """A required finite number, not negative."""
        value = self.fields.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise self._refusal(f"{key!r} is {shown(value)} in {shown(self.fields)}; expected a number from 0 on")
        return float(value)

    def object(self, key: str) -> JsonObject:
        """An object; empty when absent or null."""
        value = self.fields.get(key)
        if not isinstance(value, dict | None):
            raise self._refusal(f"{key!r} is {shown(value)}; expected an object")
        return JsonObject(value or {}, self.where, self.error)

    def objects(self, key: str, *, required: bool = False) -> list[JsonObject]:
        """A list of objects; empty when absent, unless it is required."""
        rows = self.fields.get(key, None if required else [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._refusal(f"{key!r} is {shown(rows)}; expected a list of objects")
        return [JsonObject(row, self.where, self.error) for row in rows]

    def _refusal(self, text: str) -> GnnplaceError:
        return self.error(f"{self.where}: {text}")


def json_object(document: Any, where: str, error: type[GnnplaceError]) -> JsonObject:
    """The object of a document; one without fields where the document is none, so that each required field is missing."""
    return JsonObject(document if isinstance(document, dict) else {}, where, error)


def checked_format(document: Any, expected: str, where: str, error: type[GnnplaceError]) -> JsonObject:
    """The top-level object of a document whose `format` field has the expected value."""
    found = document.get("format") if isinstance(document, dict) else type(document).__name__
    if not isinstance(document, dict) or found != expected:
        raise error(f'{where}: "format" is {shown(found)}; expected {expected!r}')
    return JsonObject(document, where, error)
