"""The tables of a placed model's threads: what stays the same, and what threads change.

Python passes them to compiled functions as one array, a `book` of their addresses: with the tables themselves, a call takes 7 us.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import IntArray
from gnnplace.running.compiled.primitives import words_at

SPREAD = 8
"""Words between two that different threads write, so that no two lie on one line of the cache."""
FREE = -1
"""Number of a slot without a request, and holder of a core that is free."""
RUN, RELEASE, RELEASE_STATUS, CLOCK, YIELD = 0, 1, 2, 3, 4
"""Positions in `Program.functions` of what threads call."""
INFO, ELEMENT, RANK, SIZES, DATA, RELEASE_INFO = 5, 6, 7, 8, 9, 10
"""Positions of the functions that describe a value."""


class Program(NamedTuple):
    """What stays the same: `P` parts, `V` values, `E` threads, `R` cores that devices of different threads share."""

    sessions: IntArray  # [P] addresses
    thread_of: IntArray  # [P]
    thread_offsets: IntArray  # [E + 1]
    order: IntArray  # [P] the parts of each thread in their order
    input_offsets: IntArray  # [P + 1]
    inputs: IntArray  # values
    input_names: IntArray  # addresses
    output_offsets: IntArray  # [P + 1]
    outputs: IntArray
    output_names: IntArray
    successor_offsets: IntArray  # [P + 1]
    successors: IntArray  # parts that wait for each part
    waits: IntArray  # [P] parts that each part waits for
    uses: IntArray  # [V] parts that read each value, and one for the caller for inputs and outputs of the model
    given: IntArray  # [V] 1: an input of the model
    core_offsets: IntArray  # [P + 1]
    cores: IntArray  # shared cores that each part occupies
    core_of_thread: IntArray  # [E] the shared core that the thread is on, or -1
    lent: int
    """Thread whose work waiting callers do: the one that ends requests."""
    functions: IntArray  # addresses, in the order of the positions above
    system: IntArray  # [2] address of syscall, number of the futex call
    spins: int
    """Looks at the word that wakes a thread before it sleeps, while no request is under way."""
    patient_spins: int
    """The same while one is."""


class Shared(NamedTuple):
    """What threads change, for `S` slots; words of different threads lie apart."""

    number: IntArray  # [S * SPREAD] of the request in the slot, or FREE
    waits: IntArray  # [S * P] parts that a part still waits for
    uses: IntArray  # [S * V] parts that still read a value, and one for the caller
    values: IntArray  # [S * V] addresses; 0: none
    position: IntArray  # [S * E * SPREAD] next part of each thread
    left: IntArray  # [S * SPREAD] threads that have parts to run
    stopped: IntArray  # [S * SPREAD] 1: the other parts are skipped
    status: IntArray  # [S * SPREAD] address of an error's status; 0: none
    failed: IntArray  # [S * SPREAD] part that failed
    done: IntArray  # [S * SPREAD] requests that have ended
    part_ns: IntArray  # [S * P] nanoseconds of each part, with the release of its inputs
    role: IntArray  # [SPREAD] who does the work of the lent thread
    awake: IntArray  # [(E + 1) * SPREAD] of each thread: changes when there may be something to do; then that which wakes a caller
    asleep: IntArray  # [(E + 1) * SPREAD] 1: sleeps, or is about to; the last one for the caller
    holder: IntArray  # [R * SPREAD] thread that occupies the core, or FREE
    lock: IntArray  # [SPREAD] held while cores are claimed
    closing: IntArray  # [SPREAD]
    scratch: IntArray  # [E, 2 * most values of a part + 2]


def book_of(program: Program, shared: Shared) -> IntArray:
    """Address and length of each array, or the number itself and 0; the tables have to stay alive."""
    fields = [field.reshape(-1) if isinstance(field, np.ndarray) else field for field in (*program, *shared)]
    pairs = [(field.ctypes.data, field.size) if isinstance(field, np.ndarray) else (field, 0) for field in fields]
    return np.array(pairs, dtype=np.int64)


@njit(cache=True, nogil=True)
def _words(book: IntArray, number: int) -> IntArray:
    return words_at(book[number, 0], book[number, 1])


@njit(cache=True, nogil=True)
def opened(book: IntArray) -> tuple[Program, Shared]:
    """The tables of a book."""
    program = Program(
        _words(book, 0), _words(book, 1), _words(book, 2), _words(book, 3), _words(book, 4), _words(book, 5),
        _words(book, 6), _words(book, 7), _words(book, 8), _words(book, 9), _words(book, 10), _words(book, 11),
        _words(book, 12), _words(book, 13), _words(book, 14), _words(book, 15), _words(book, 16), _words(book, 17),
        book[18, 0], _words(book, 19), _words(book, 20), book[21, 0], book[22, 0],
    )  # fmt: skip
    threads = len(program.thread_offsets) - 1
    shared = Shared(
        _words(book, 23), _words(book, 24), _words(book, 25), _words(book, 26), _words(book, 27), _words(book, 28),
        _words(book, 29), _words(book, 30), _words(book, 31), _words(book, 32), _words(book, 33), _words(book, 34),
        _words(book, 35), _words(book, 36), _words(book, 37), _words(book, 38), _words(book, 39),
        _words(book, 40).reshape(threads, -1),
    )  # fmt: skip
    return program, shared
