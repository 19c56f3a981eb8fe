"""Arrays in page-locked memory of the host, from and to which GPUs copy several times as fast as from and to ordinary memory.

On an H200, 4 MiB take 86 us instead of 340. Making such memory takes longer than a copy, so that of arrays that have been dropped
is used again for others of the same size.
"""

import ctypes
import weakref
from collections import defaultdict, deque
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnplace.devices.cuda_driver import free_pinned_memory, pinned_memory

LIMIT_BYTES = 2**30
"""Page-locked memory of a process at most: the system cannot use it for anything else."""


class PinnedMemory:
    """Page-locked memory for arrays, for several threads."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Memory that no array uses, by size in bytes: its address, and the GPU that it was made for."""
        self._dropped: deque[tuple[int, tuple[int, int]]] = deque()
        """Memory of arrays that were dropped, with its size; appended to at any moment, on any thread."""
        self._lock = Lock()

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...], gpu: int) -> NDArray[Any] | None:
        """An array with undefined content, for copies from and to `gpu` first of all; None where the limit is reached.

        Raises:
            RuntimeError: the driver refuses memory.
        """
        count = int(np.prod(shape, dtype=np.int64))
        block = self._block(count * dtype.itemsize, gpu)
        return None if block is None else np.frombuffer(block, dtype, count).reshape(shape)

    def _block(self, num_bytes: int, gpu: int) -> Any:
        with self._lock:
            while self._dropped:
                size, memory = self._dropped.popleft()
                self._free[size].append(memory)
            if not self._free[num_bytes]:
                if self._num_bytes + num_bytes > self._limit_bytes:
                    self._free_all()
                if self._num_bytes + num_bytes > self._limit_bytes:
                    return None
                self._free[num_bytes].append((pinned_memory(num_bytes, gpu), gpu))
                self._num_bytes += num_bytes
            memory = self._free[num_bytes].pop()
        block = (ctypes.c_ubyte * num_bytes).from_address(memory[0])
        weakref.finalize(block, self._dropped.append, (num_bytes, memory)).atexit = False
        return block

    def _free_all(self) -> None:
        for size, memory in self._free.items():
            for address, gpu in memory:
                free_pinned_memory(address, gpu)
                self._num_bytes -= size
        self._free.clear()
