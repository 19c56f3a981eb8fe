"""The format of bench results, shared by the benches that write them and the pages that draw them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FORMAT", "device_letters", "devices_of_letters"]

FORMAT = "gnnplace.bench/1"
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def device_letters(devices: Iterable[int]) -> str:
    """Encodes the device of every op group as a letter, 0 to 9 and then a to z, which is compact in JSON."""
    return "".join(_LETTERS[device] for device in devices)


def devices_of_letters(letters: str) -> list[int]:
    """Decodes a text that `device_letters` wrote."""
    return [_LETTERS.index(letter) for letter in letters]
