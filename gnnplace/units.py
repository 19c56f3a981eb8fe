"""Conversions between SI units and the texts that people type and read."""

import re

GIB = 1024**3

_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": GIB, "tib": 2**40}  # fmt: skip


def format_s(seconds: float) -> str:
    """Seconds as a text with three significant digits.

    >>> format_s(0.0123), format_s(2.5e-6), format_s(75.0), format_s(float("inf"))
    ('12.3 ms', '2.50 us', '75.0 s', 'never')
    """
    if seconds == float("inf"):
        return "never"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            value = seconds / scale
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def format_bytes(count: float) -> str:
    """Bytes as a text.

    >>> format_bytes(12 * GIB), format_bytes(1536)
    ('12.0 GiB', '1.5 KiB')
    """
    for unit, scale in (("TiB", 2**40), ("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def format_count(count: float) -> str:
    """A count as a text.

    >>> format_count(950), format_count(25_600_000), format_count(1.5e12)
    ('950', '25.6 M', '1.5 T')
    """
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f}"


def parse_bytes(text: str) -> int:
    """The number of bytes that a text states.

    >>> parse_bytes("12GiB") == 12 * GIB, parse_bytes("500 MB")
    (True, 500000000)

    Raises:
        ValueError: the text is not a number with an optional unit.
    """
    match = re.fullmatch(r"\s*([0-9]{1,20}(?:\.[0-9]*)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _BYTES:
        raise ValueError(f"{text!r} is no amount of bytes; write for example 12GiB")
    return int(float(match[1]) * _BYTES[match[2].lower()])
