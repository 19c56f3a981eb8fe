"""How long tests wait for what should happen soon."""

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Seconds: only what hangs takes longer, also on a slow machine that does other work."""


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds; an error if it does not in `PATIENCE_S`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.001)
