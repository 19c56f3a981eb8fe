"""Page-locked memory, made by a stand-in for the CUDA driver."""

import ctypes
import gc

import numpy as np
import pytest

from gnnplace.running import pinned_memory
from gnnplace.running.pinned_memory import PinnedMemory


class Driver:
    """Makes ordinary memory, and knows what has been made and freed."""

    def __init__(self) -> None:
        self.held: dict[int, object] = {}
        self.made: list[tuple[int, int]] = []

    def make(self, num_bytes: int, gpu: int) -> int:
        memory = ctypes.create_string_buffer(num_bytes)
        address = ctypes.addressof(memory)
        self.held[address] = memory
        self.made.append((num_bytes, gpu))
        return address

    def free(self, address: int, gpu: int) -> None:
        del self.held[address]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(pinned_memory, "pinned_memory", made.make)
    monkeypatch.setattr(pinned_memory, "free_pinned_memory", made.free)
    return made


def zeros(memory: PinnedMemory, *shape: int, gpu: int = 0) -> np.ndarray | None:
    array = memory.array(np.dtype(np.float32), shape, gpu)
    if array is not None:
        array[...] = 0
    return array


def test_the_memory_of_a_dropped_array_is_used_again(driver: Driver) -> None:
    memory = PinnedMemory()
    first, second = zeros(memory, 2, 3), zeros(memory, 6, gpu=1)
    assert first is not None
    assert (first.shape, first.flags.writeable) == ((2, 3), True)
    kept, address = first[1], first.ctypes.data
    del first
    gc.collect()
    third = zeros(memory, 3, 2)
    assert third is not None
    assert third.ctypes.data != address, "a view still reads it"
    del kept
    gc.collect()
    fourth = zeros(memory, 3, 2)
    assert fourth is not None
    assert fourth.ctypes.data == address
    assert driver.made == [(24, 0), (24, 1), (24, 0)]
    assert second is not None


def test_beyond_the_limit_unused_memory_is_freed_before_there_is_none(driver: Driver) -> None:
    memory = PinnedMemory(limit_bytes=100)
    first, second = zeros(memory, 10), zeros(memory, 10)
    assert second is not None
    assert zeros(memory, 10) is None
    del first
    gc.collect()
    assert zeros(memory, 15) is not None
    assert driver.made == [(40, 0), (40, 0), (60, 0)]
    assert len(driver.held) == 2
