"""What each thread of a placed model runs: its parts in their order, for all requests under way. Compiled by numba.

A thread serves one or more devices with the same first core, such as `cpu:0` and `cpu:0-1`. A part is ready when all parts
that it waits for have ended; the thread then runs that of the oldest request. Devices of other threads that share a core
exclude it through `holder`. Nothing here holds the interpreter lock.

A caller that waits for its request does the work of one thread meanwhile, the lent one, so that neither has to wake the other up;
`role` says who does that work at the moment.

Python passes the tables of threads as one array, a `book` of their addresses: with the tables themselves, a call takes 7 us.

A slot carries one request at a time. Its number is written last when a request begins and cleared when its last part has
ended; a thread that has read anything else of a slot reads the number again, so that it never acts on a mixture of two.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gnnplace.arrays import IntArray
from gnnplace.running.compiled.primitives import (
    call,
    exchange,
    fetch_add,
    load,
    relax,
    sleep_on,
    store,
    wake,
    words_at,
)

SPREAD = 8
"""Words between two that different threads write, so that no two lie on one line of the cache."""
FREE = -1
"""Number of a slot without a request, and holder of a core that is free."""
_NOTHING = -1
_NOBODY, _WORKER, CALLER = 0, 1, 2
"""Who does the work of the lent thread."""
TAKEN, DONE, LATE = 0, 1, 2
"""Why a caller ends its work: somebody else does it, the request has ended, or time is up."""
_RUN, _RELEASE, _RELEASE_STATUS, _CLOCK, _YIELD = 0, 1, 2, 3, 4  # positions in `Program.functions`
_INFO, _ELEMENT, _RANK, _SIZES, _DATA, _RELEASE_INFO = 5, 6, 7, 8, 9, 10
MOST_SIZES = 12
"""Dimensions of a value that `describe` can tell."""
ADDRESS_AT, ELEMENT_AT, RANK_AT, SIZES_AT = 0, 1, 2, 3
"""Columns of what `describe` writes."""
_INFO_AT = SIZES_AT + MOST_SIZES
DESCRIPTION = _INFO_AT + 1
"""Number of these columns."""
_LOOKS = 1024  # some 25 us, after which other threads may have the core
_MONOTONIC = 1  # a clock of clock_gettime


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
def _opened(book: IntArray) -> tuple[Program, Shared]:
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


@njit(cache=True, nogil=True)
def serve(program: Program, shared: Shared, thread: int) -> None:
    """Runs the parts of one thread until `closing`."""
    while True:
        seen = load(shared.awake, thread * SPREAD)
        slot, is_lent = _NOTHING, thread == program.lent
        if not is_lent or exchange(shared.role, 0, _NOBODY, _WORKER):
            slot, part = _claimed(program, shared, thread)
            if slot != _NOTHING:
                _run(program, shared, thread, slot, part)
            if is_lent:
                store(shared.role, 0, _NOBODY)
        if slot == _NOTHING:
            if load(shared.closing, 0) == 1:
                return
            _rest(program, shared, thread, seen, 0)


@njit(cache=True, nogil=True)
def serve_until(book: IntArray, place: int, ended: int, limit: IntArray) -> int:
    """Does the work of the lent thread until `done` at `place` has reached `ended`, on the calling thread; says why it ends.

    It also ends after about `limit` `[2]` seconds and nanoseconds, and on a signal. The lent thread is not woken then: the caller
    goes on at once, or gives the request up and wakes all.
    """
    program, shared = _opened(book)
    thread = program.lent
    if load(shared.done, place) >= ended:
        return DONE
    if not exchange(shared.role, 0, _NOBODY, CALLER):
        rouse(program, shared, thread)  # it may have looked before the request began
        return TAKEN
    until_ns = _now_ns(program, shared.scratch[thread]) + limit[0] * 1_000_000_000 + limit[1]
    found = LATE
    while load(shared.closing, 0) == 0:
        seen = load(shared.awake, thread * SPREAD)
        if load(shared.done, place) >= ended:
            found = DONE
            break
        slot, part = _claimed(program, shared, thread)
        if slot != _NOTHING:
            _run(program, shared, thread, slot, part)
        elif not _rest(program, shared, thread, seen, limit.ctypes.data):
            break
        if _now_ns(program, shared.scratch[thread]) > until_ns:
            break
    store(shared.role, 0, _NOBODY)
    for slot in range(len(shared.number) // SPREAD if found == DONE else 0):
        if load(shared.number, slot * SPREAD) != FREE:  # the thread goes on
            rouse(program, shared, thread)
            break
    return found


@njit(cache=True, nogil=True)
def _rest(program: Program, shared: Shared, thread: int, seen: int, timeout: int) -> bool:
    """Waits until `awake` of a thread has changed from `seen`: looks for a while, then sleeps; false if it has not changed.

    `timeout` is the address of the longest sleep of a caller; 0: the thread itself waits, for ever.
    One whose core another device has taken sleeps at once, as ONNX Runtime's own threads compute there; the lent thread does, too,
    while a caller does its work.
    """
    place, core, spins, is_caller = thread * SPREAD, program.core_of_thread[thread], program.spins, timeout != 0
    bed = (len(program.thread_offsets) - 1 if is_caller else thread) * SPREAD
    may_be_idle = thread == program.lent and not is_caller
    for slot in range(len(shared.number) // SPREAD):
        if load(shared.number, slot * SPREAD) != FREE:
            spins = program.patient_spins
    for look in range(1, spins + 1):
        if load(shared.awake, place) != seen:
            return True
        if look % _LOOKS == 0:
            call(program.functions[_YIELD], (0,))
        if core >= 0 and load(shared.holder, core * SPREAD) != FREE:
            break
        if may_be_idle and load(shared.role, 0) == CALLER:
            break
        relax()
    last = load(shared.awake, bed) if is_caller else seen
    store(shared.asleep, bed, 1)
    if load(shared.awake, place) == seen:
        sleep_on(shared.awake, bed, last, (program.system[0], program.system[1]), timeout)
    store(shared.asleep, bed, 0)
    return bool(load(shared.awake, place) != seen)


@njit(cache=True, nogil=True)
def rouse(program: Program, shared: Shared, thread: int) -> None:
    """Makes a thread look again, or the caller that does its work.

    A caller that ends at the same moment makes the thread look itself; one that begins looks at everything first.
    """
    fetch_add(shared.awake, thread * SPREAD, 1)
    bed = thread * SPREAD
    if thread == program.lent and load(shared.role, 0) == CALLER:
        bed = (len(program.thread_offsets) - 1) * SPREAD
    if load(shared.asleep, bed) == 1:
        if bed != thread * SPREAD:
            fetch_add(shared.awake, bed, 1)
        wake(shared.awake, bed, (program.system[0], program.system[1]))


@njit(cache=True, nogil=True)
def _claimed(program: Program, shared: Shared, thread: int) -> tuple[int, int]:
    """Slot and part of the oldest request whose next part is ready and whose cores are free, which are then taken."""
    slots, parts, threads = len(shared.number) // SPREAD, len(program.sessions), len(program.thread_offsets) - 1
    begin = program.thread_offsets[thread]
    count, tried = program.thread_offsets[thread + 1] - begin, -1
    while True:
        oldest, found, chosen = np.iinfo(np.int64).max, _NOTHING, _NOTHING
        for slot in range(slots):
            number = load(shared.number, slot * SPREAD)
            if number <= tried or number >= oldest:
                continue
            position = load(shared.position, (slot * threads + thread) * SPREAD)
            if position >= count:
                continue
            part = program.order[begin + position]
            if load(shared.waits, slot * parts + part) == 0 and load(shared.number, slot * SPREAD) == number:
                oldest, found, chosen = number, slot, part
        if found == _NOTHING or _take(program, shared, thread, chosen):
            return found, chosen
        tried = oldest


@njit(cache=True, nogil=True)
def _take(program: Program, shared: Shared, thread: int, part: int) -> bool:
    """Occupies the shared cores of a part; false if one is taken."""
    begin, end = program.core_offsets[part], program.core_offsets[part + 1]
    if begin == end:
        return True
    while not exchange(shared.lock, 0, 0, 1):
        relax()
    is_free = True
    for at in range(begin, end):
        is_free = is_free and load(shared.holder, program.cores[at] * SPREAD) == FREE
    for at in range(begin, end if is_free else begin):
        store(shared.holder, program.cores[at] * SPREAD, thread)
    store(shared.lock, 0, 0)
    return is_free


@njit(cache=True, nogil=True)
def _now_ns(program: Program, scratch: IntArray) -> int:
    call(program.functions[_CLOCK], (_MONOTONIC, scratch.ctypes.data))
    return int(scratch[0] * 1_000_000_000 + scratch[1])


@njit(cache=True, nogil=True)
def _run(program: Program, shared: Shared, thread: int, slot: int, part: int) -> None:
    """Runs one part of a request, or skips it after a failure, and tells those that wait for it."""
    parts, threads = len(program.sessions), len(program.thread_offsets) - 1
    values, scratch = slot * (len(shared.values) // (len(shared.number) // SPREAD)), shared.scratch[thread]
    begin_ns = _now_ns(program, scratch)
    if load(shared.stopped, slot * SPREAD) == 0:
        _compute(program, shared, scratch, slot, part, values)
    first, last = program.core_offsets[part], program.core_offsets[part + 1]
    for at in range(first, last):
        store(shared.holder, program.cores[at] * SPREAD, FREE)
    for at in range(program.input_offsets[part], program.input_offsets[part + 1]):
        _drop(program, shared, values + program.inputs[at], 1)
    for at in range(program.output_offsets[part], program.output_offsets[part + 1]):
        _drop(program, shared, values + program.outputs[at], 0)
    shared.part_ns[slot * parts + part] = _now_ns(program, scratch) - begin_ns
    place = (slot * threads + thread) * SPREAD
    position = load(shared.position, place) + 1
    store(shared.position, place, position)
    for at in range(program.successor_offsets[part], program.successor_offsets[part + 1]):
        successor = program.successors[at]
        if fetch_add(shared.waits, slot * parts + successor, -1) == 1 and program.thread_of[successor] != thread:
            rouse(program, shared, program.thread_of[successor])
    for other in range(threads if last > first else 0):  # some may have found the cores taken
        if other != thread:
            rouse(program, shared, other)
    is_last = position == program.thread_offsets[thread + 1] - program.thread_offsets[thread]
    if is_last and fetch_add(shared.left, slot * SPREAD, -1) == 1:
        store(shared.number, slot * SPREAD, FREE)
        fetch_add(shared.done, slot * SPREAD, 1)
        wake(shared.done, slot * SPREAD, (program.system[0], program.system[1]))
        if thread != program.lent and load(shared.role, 0) == CALLER:  # it may wait for this request
            rouse(program, shared, program.lent)


@njit(cache=True, nogil=True)
def _compute(program: Program, shared: Shared, scratch: IntArray, slot: int, part: int, values: int) -> None:
    """Calls the session of a part; an error stops the request."""
    first, last = program.input_offsets[part], program.input_offsets[part + 1]
    begin, end = program.output_offsets[part], program.output_offsets[part + 1]
    made = last - first
    for at in range(first, last):
        scratch[at - first] = load(shared.values, values + program.inputs[at])
    scratch[made : made + end - begin] = 0
    status = call(
        program.functions[_RUN],
        (
            program.sessions[part], 0, program.input_names.ctypes.data + 8 * first, scratch.ctypes.data, last - first,
            program.output_names.ctypes.data + 8 * begin, end - begin, scratch.ctypes.data + 8 * made,
        ),
    )  # fmt: skip
    for at in range(begin, end):
        store(shared.values, values + program.outputs[at], scratch[made + at - begin])
    if status != 0:
        store(shared.stopped, slot * SPREAD, 1)
        if exchange(shared.status, slot * SPREAD, 0, status):
            store(shared.failed, slot * SPREAD, part)
        else:  # another part of the request has failed already, and its error is the one that is raised
            call(program.functions[_RELEASE_STATUS], (status,))


@njit(cache=True, nogil=True)
def _drop(program: Program, shared: Shared, value: int, uses: int) -> None:
    """Gives up uses of a value; the last one releases it."""
    if fetch_add(shared.uses, value, -uses) == uses:
        address = load(shared.values, value)
        if address != 0:
            store(shared.values, value, 0)
            call(program.functions[_RELEASE], (address,))


@njit(cache=True, nogil=True)
def await_done(done: IntArray, place: int, ended: int, system: IntArray, timeout: int) -> bool:
    """True once the word has reached `ended`; false if it has not after about the time at the address `timeout`."""
    seen = load(done, place)
    if seen < ended:
        sleep_on(done, place, seen, (system[0], system[1]), timeout)
    return bool(load(done, place) >= ended)


@njit(cache=True, nogil=True)
def begin(book: IntArray, slot: int, number: int, caller_waits: bool) -> None:
    """Starts a request in a free slot whose inputs are among `values`; a caller that waits does the work of the lent thread."""
    program, shared = _opened(book)
    parts, values, place = len(program.waits), len(program.uses), slot * SPREAD
    threads = len(program.thread_offsets) - 1
    shared.waits[slot * parts : (slot + 1) * parts] = program.waits
    shared.uses[slot * values : (slot + 1) * values] = program.uses
    for thread in range(threads):
        store(shared.position, (slot * threads + thread) * SPREAD, 0)
    store(shared.left, place, threads)
    store(shared.stopped, place, 0)
    store(shared.status, place, 0)
    store(shared.number, place, number)
    for thread in range(threads):
        if thread != program.lent or not caller_waits:
            rouse(program, shared, thread)


@njit(cache=True, nogil=True)
def rouse_all(system: IntArray, shared: Shared) -> None:
    """Makes all threads and a caller look again."""
    for who in range(len(shared.awake) // SPREAD):
        fetch_add(shared.awake, who * SPREAD, 1)
        wake(shared.awake, who * SPREAD, (system[0], system[1]))


@njit(cache=True, nogil=True)
def describe(book: IntArray, slot: int, values: IntArray, found: IntArray) -> None:
    """Writes what `array`s of values `[W]` of an ended request need into `found` `[W, DESCRIPTION]`.

    The rank is -1 where a value has more than `MOST_SIZES` dimensions or ONNX Runtime gives an error.
    """
    program, shared = _opened(book)
    functions = program.functions
    for row in range(len(values)):
        value, out = load(shared.values, slot * len(program.uses) + values[row]), found[row].ctypes.data
        found[row] = 0
        status = call(functions[_INFO], (value, out + 8 * _INFO_AT))
        if status == 0:
            info = found[row, _INFO_AT]
            call(functions[_ELEMENT], (info, out + 8 * ELEMENT_AT))
            call(functions[_RANK], (info, out + 8 * RANK_AT))
            if found[row, RANK_AT] <= MOST_SIZES:
                call(functions[_SIZES], (info, out + 8 * SIZES_AT, found[row, RANK_AT]))
            else:
                found[row, RANK_AT] = -1
            call(functions[_RELEASE_INFO], (info,))
            status = call(functions[_DATA], (value, out + 8 * ADDRESS_AT))
        if status != 0:
            call(functions[_RELEASE_STATUS], (status,))
            found[row, RANK_AT] = -1


@njit(cache=True, nogil=True)
def clear(book: IntArray, slot: int) -> None:
    """Removes all values of an ended request and releases those that its parts made."""
    program, shared = _opened(book)
    first = slot * len(program.uses)
    for value in range(len(program.uses)):
        address = load(shared.values, first + value)
        store(shared.values, first + value, 0)
        if address != 0 and program.given[value] == 0:
            call(program.functions[_RELEASE], (address,))
