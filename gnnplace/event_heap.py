"""A binary heap of timed events in two arrays; compiled, for the simulator and for list schedulers."""

from typing import Any

from numpy.typing import NDArray

from gnnplace.arrays import FloatArray
from gnnplace.compiled_code import njit


@njit(cache=True, nogil=True, error_model="numpy")
def push_event(event_s: FloatArray, event_id: NDArray[Any], size: Any, when_s: float, new_id: Any) -> None:
    """Adds an event to a heap of `size` events; the earliest event is on top, the smallest id first at equal times."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if event_s[parent] < when_s or (event_s[parent] == when_s and event_id[parent] < new_id):
            break
        event_s[child] = event_s[parent]
        event_id[child] = event_id[parent]
        child = parent
    event_s[child] = when_s
    event_id[child] = new_id


@njit(cache=True, nogil=True, error_model="numpy")
def pop_event(event_s: FloatArray, event_id: NDArray[Any], size: Any) -> None:
    """Removes the top event of a heap; `size` events remain."""
    last_s, last_id = event_s[size], event_id[size]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            event_s[right] < event_s[child] or (event_s[right] == event_s[child] and event_id[right] < event_id[child])
        ):
            child = right
        if event_s[child] > last_s or (event_s[child] == last_s and event_id[child] >= last_id):
            break
        event_s[hole] = event_s[child]
        event_id[hole] = event_id[child]
        hole = child
    event_s[hole] = last_s
    event_id[hole] = last_id
