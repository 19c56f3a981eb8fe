"""Ctrl-C in a block whose result must not be lost."""

import os
import signal

import pytest

from gnnplace.interruption import first_interrupt_noted, interrupts_held


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_ctrl_c_is_noted_and_the_second_ends_the_block() -> None:
    told: list[str] = []

    def work() -> None:
        with first_interrupt_noted(on_first=lambda: told.append("first")) as is_asked:
            told.append(str(is_asked()))
            interrupt()
            told.append(str(is_asked()))
            interrupt()
            told.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert told == ["False", "first", "True"]


def test_after_an_earlier_ctrl_c_the_next_one_is_the_second() -> None:
    with pytest.raises(KeyboardInterrupt), first_interrupt_noted(asked=True):
        interrupt()


def test_after_the_block_ctrl_c_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with first_interrupt_noted():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_held_ctrl_c_comes_at_the_end_of_the_block() -> None:
    told: list[str] = []

    def work() -> None:
        with interrupts_held():
            interrupt()
            told.append("inside")
        told.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert told == ["inside"]


def test_what_a_held_ctrl_c_does_is_what_it_would_have_done_before() -> None:
    with first_interrupt_noted() as is_asked:
        with interrupts_held():
            interrupt()
            assert not is_asked()
        assert is_asked()


def test_a_held_block_that_nobody_interrupts_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts_held():
        pass
    assert signal.getsignal(signal.SIGINT) is before
