"""Handling of Ctrl-C: stop at the next occasion, detect it, or defer it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["first_interrupt_noted", "interrupts_held", "interrupts_told"]


@contextmanager
def first_interrupt_noted(
    asked: bool = False, on_first: Callable[[], None] = lambda: None
) -> Iterator[Callable[[], bool]]:
    """Within the block, the first Ctrl-C makes the yielded function return true; a second one raises KeyboardInterrupt.

    `asked` is true if the first one came before the block; the first one calls `on_first`.
    """

    def remember(_: int, __: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        on_first()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: asked  # only the main thread receives signals
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_told() -> Iterator[Callable[[], bool]]:
    """Within the block, Ctrl-C acts as before, and the yielded function returns whether one came.

    The exception alone is no evidence: compiled code that converts its arguments at that moment raises another one.
    """
    came = False
    before = signal.getsignal(signal.SIGINT)

    def tell(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        if callable(before):
            before(number, frame)

    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: came
        return
    signal.signal(signal.SIGINT, tell)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Defers a Ctrl-C within the block to its end.

    It protects compiled code that takes a random generator: numba unpacks the generator in Python, and an interrupt there
    may crash the process.
    """
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(signal.SIGINT, None)
