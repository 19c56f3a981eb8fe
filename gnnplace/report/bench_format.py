"""What a bench's JSON and its page agree on."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FORMAT", "device_letters", "devices_of_letters"]

FORMAT = "gnnplace.bench/1"
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def device_letters(devices: Iterable[int]) -> str:
    """A letter for the device of every op group, 0 to 9 and then a to z: compact in JSON.

    >>> device_letters([0, 2, 10])
    '02a'
    """
    return "".join(_LETTERS[device] for device in devices)


def devices_of_letters(letters: str) -> list[int]:
    """The devices that `device_letters` has written.

    >>> devices_of_letters("02a")
    [0, 2, 10]
    """
    return [_LETTERS.index(letter) for letter in letters]
