"""Ctrl-C where it must not cost what is there already."""

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
    """Within the block the first Ctrl-C only lets the function answer true; a second one ends the block as it always does.

    `asked` is true where there was a first one before; `on_first` may tell the user of it.
    """

    def remember(_: int, __: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        on_first()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: asked  # only the main thread is told of signals
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_told() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C does what it did before, and the function tells whether it came.

    The error alone does not: compiled code that is converting its arguments at that moment raises another one in its place.
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
    """A Ctrl-C within the block does at its end what it would have done.

    For compiled code that is handed a source of chance: numba runs Python to look into it, and where that is interrupted the
    process may crash.
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
