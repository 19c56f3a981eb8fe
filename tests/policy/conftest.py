"""Torch on one thread: networks here are tiny, and waking other threads costs more than it saves."""

from collections.abc import Iterator

import pytest

from gnnplace.policy import network


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For every test of this folder."""
    with network.one_thread():
        yield
