"""Two threads that answer each other: how long a word takes from one core to another."""

from numba import njit

from gnnplace.arrays import IntArray
from gnnplace.running.compiled.primitives import load, relax, store

_COUNT, _STOP = 0, 8
"""Two words in cache lines of their own."""
_PATIENCE = 200_000
"""Looks at the word, some milliseconds, after which the other thread is not running."""


@njit(cache=True, nogil=True)
def volley(words: IntArray, side: int, begin: int, trips: int) -> bool:
    """Answers `trips` times on `side` 0 or 1; false where the other side does not.

    `words` `[16]` are zero before the first volley, whose `begin` is 0; each later one begins with the number of trips so far.
    """
    for trip in range(begin, begin + trips):
        looks = 0
        while load(words, _COUNT) != 2 * trip + side:
            relax()
            looks += 1
            if looks > _PATIENCE or load(words, _STOP):
                store(words, _STOP, 1)
                return False
        store(words, _COUNT, 2 * trip + side + 1)
    return True
