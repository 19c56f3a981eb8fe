"""What each thread of a placed model runs: its parts in their order, for all requests under way. Compiled by numba.

A thread serves one or more devices with the same first core, such as `cpu:0` and `cpu:0-1`. A part is ready when all parts
that it waits for have ended; the thread then runs that of the oldest request. Devices of other threads that share a core
exclude it through `holder`. Nothing here holds the interpreter lock.

A caller that waits for its request does the work of one thread meanwhile, the lent one, so that neither has to wake the other up;
`role` says who does that work at the moment.

A slot carries one request at a time. Its number is written last when a request begins and cleared when its last part has
ended; a thread that has read anything else of a slot reads the number again, so that it never acts on a mixture of two.
"""

import numpy as np
from numba import njit

from gnnplace.arrays import IntArray
from gnnplace.running.compiled.book import (
    CLOCK,
    FREE,
    RELEASE,
    RELEASE_STATUS,
    RUN,
    SPREAD,
    YIELD,
    Program,
    Shared,
    opened,
)
from gnnplace.running.compiled.primitives import call, exchange, fetch_add, load, relax, sleep_on, store, wake

_NOTHING = -1
_NOBODY, _WORKER, CALLER = 0, 1, 2
"""Who does the work of the lent thread."""
TAKEN, DONE, LATE = 0, 1, 2
"""Why a caller ends its work: somebody else does it, the request has ended, or time is up."""
_LOOKS = 1024  # some 25 us, after which other threads may have the core
_MONOTONIC = 1  # a clock of clock_gettime


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
    program, shared = opened(book)
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
            call(program.functions[YIELD], (0,))
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
    call(program.functions[CLOCK], (_MONOTONIC, scratch.ctypes.data))
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
        program.functions[RUN],
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
            call(program.functions[RELEASE_STATUS], (status,))


@njit(cache=True, nogil=True)
def _drop(program: Program, shared: Shared, value: int, uses: int) -> None:
    """Gives up uses of a value; the last one releases it."""
    if fetch_add(shared.uses, value, -uses) == uses:
        address = load(shared.values, value)
        if address != 0:
            store(shared.values, value, 0)
            call(program.functions[RELEASE], (address,))


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
    program, shared = opened(book)
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
