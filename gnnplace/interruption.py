"""Handling of Ctrl-C: stop at the next occasion, notice it, or defer it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType


@contextmanager
def stop_requests(requested: bool = False, on_first: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Within the block, the first Ctrl-C makes the yielded function return true; a second one raises KeyboardInterrupt.

    `requested` is true if the first one came before the block; the first one calls `on_first`.
    """

    def request(_: int, __: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        on_first()

    with _handled(request):
        yield lambda: requested


@contextmanager
def noticed_interrupts() -> Iterator[Callable[[], bool]]:
    """Within the block, Ctrl-C acts as before, and the yielded function returns whether one came.

    The exception alone is no evidence: compiled code that converts its arguments at that moment raises another one.
    """
    came = False
    before = signal.getsignal(signal.SIGINT)

    def notice(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        assert callable(before)
        before(number, frame)

    with _handled(notice) if callable(before) else nullcontext():
        yield lambda: came


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defers a Ctrl-C within the block to its end.

    It protects compiled code that takes a random generator: numba unpacks the generator in Python, and an interrupt there
    may crash the process.
    """
    came = False

    def note(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True

    try:
        with _handled(note):
            yield
    finally:
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the block, `handler` receives Ctrl-C in the main thread; other threads receive no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
