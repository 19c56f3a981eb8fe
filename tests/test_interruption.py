"""Ctrl-C in a block whose result must not be lost."""

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from gnnplace.interruption import deferred_interrupts, stop_requests


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_ctrl_c_is_noted_and_the_second_ends_the_block() -> None:
    events: list[str] = []

    def work() -> None:
        with stop_requests(on_first=lambda: events.append("first")) as is_requested:
            events.append(str(is_requested()))
            interrupt()
            events.append(str(is_requested()))
            interrupt()
            events.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["False", "first", "True"]


def test_after_an_earlier_ctrl_c_the_next_one_is_the_second() -> None:
    with pytest.raises(KeyboardInterrupt), stop_requests(requested=True):
        interrupt()


@pytest.mark.parametrize("block", [stop_requests, deferred_interrupts])
def test_after_a_block_the_handler_of_ctrl_c_is_restored(block: Callable[[], AbstractContextManager[object]]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with block():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_held_ctrl_c_takes_effect_at_the_end_of_the_block() -> None:
    events: list[str] = []

    def work() -> None:
        with deferred_interrupts():
            interrupt()
            events.append("inside")
        events.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["inside"]


def test_a_held_ctrl_c_takes_effect_although_the_block_fails() -> None:
    def work() -> None:
        with deferred_interrupts():
            interrupt()
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        work()


def test_a_held_ctrl_c_reaches_the_handler_of_the_outer_block() -> None:
    with stop_requests() as is_requested:
        with deferred_interrupts():
            interrupt()
            assert not is_requested()
        assert is_requested()
