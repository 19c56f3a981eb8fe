"""Numbers, names and JSON values that break readers."""

from __future__ import annotations

__all__ = ["HOSTILE_INTS", "HOSTILE_JSON", "HOSTILE_NAMES"]

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
