"""The state of a run: ready ops as bit sets, events as a heap, transfers as linked lists. Compiled."""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.sim.tables import EngineTables, IndexArray

Int32Array = NDArray[Any]
WordArray = NDArray[Any]
Index = Any

ONE = np.uint64(1)  # unsigned plus a plain 1 would be a float
WORD = np.uint64(6)  # 64 = 2**6 bits in a word
LOW = np.uint64(63)
NOTHING = np.uint32(2**32 - 1)  # stands for no row of `transfers`

# Positions in EngineState.counters.
COMPLETED, NUM_EVENTS, FREE_TRANSFER, NUM_TRANSFERS, SENT_BYTES, FAILED, RECORDED = range(7)
NUM_COUNTERS = 7
# Columns of EngineState.transfers; NEXT is the next transfer of the queue, or the next free row.
TENSOR, SOURCE, TARGET, HOP, NEXT = range(5)


def _lowest_bit_code(typing_context: Any, word: Any) -> Any:
    """Position of the lowest set bit of a word that is not zero; one machine instruction."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


_lowest_bit: Any = intrinsic(_lowest_bit_code)


@njit(cache=True, nogil=True, error_model="numpy")
def push_ready(bits: WordArray, summary: WordArray, device: Index, op: Index) -> None:
    """Adds an op to a device's ready set; `summary` has a bit for every nonzero word of `bits`."""
    word = op >> WORD
    bits[device, word] |= ONE << (op & LOW)
    summary[device, word >> WORD] |= ONE << (word & LOW)


@njit(cache=True, nogil=True, error_model="numpy")
def first_ready(bits: WordArray, summary: WordArray, device: Index) -> Index:
    """The smallest ready op, the one of highest priority; the set is not empty."""
    block = np.uint64(0)
    while summary[device, block] == 0:
        block += ONE
    word = (block << WORD) + _lowest_bit(summary[device, block])
    return (word << WORD) + _lowest_bit(bits[device, word])


@njit(cache=True, nogil=True, error_model="numpy")
def pop_ready(bits: WordArray, summary: WordArray, device: Index) -> Index:
    """Removes the smallest ready op; the set is not empty."""
    op = first_ready(bits, summary, device)
    word = op >> WORD
    bits[device, word] &= bits[device, word] - ONE
    if bits[device, word] == 0:
        summary[device, word >> WORD] &= summary[device, word >> WORD] - ONE
    return op


@njit(cache=True, nogil=True, error_model="numpy")
def touch(device: Index, touched: IndexArray, num_touched: int) -> int:
    """Adds a device to the `touched` list unless it is listed; returns the length of the list."""
    for position in range(num_touched):
        if touched[position] == device:
            return num_touched
    touched[num_touched] = device
    return num_touched + 1


@njit(cache=True, nogil=True, error_model="numpy")
def join(
    transfer: Index,
    channel: Index,
    queue_head: IndexArray,
    queue_tail: IndexArray,
    transfers: IndexArray,
    wake: IndexArray,
    num_wake: int,
) -> int:
    """Appends a transfer to a channel's queue; an idle channel joins the `wake` list. Returns the length of that list."""
    transfers[transfer, NEXT] = NOTHING
    if queue_head[channel] == NOTHING:
        queue_head[channel] = transfer
        wake[num_wake] = channel
        num_wake += 1
    else:
        transfers[queue_tail[channel], NEXT] = transfer
    queue_tail[channel] = transfer
    return num_wake


class EngineState(NamedTuple):
    """Everything that changes during a run; all fields from `missing` to `counters` are views of `memory`, to copy at once."""

    memory: IntArray
    uses: Int32Array  # [T * D] remaining uses of each copy; all zero between runs. With pools [2 * T * D]: copies in each pool
    transfers: IndexArray  # [C, 5] columns TENSOR, SOURCE, TARGET, HOP and NEXT
    wake: IndexArray  # [channels] scratch
    touched: IndexArray  # [D] scratch
    waiting: IntArray  # [2, D] scratch: ready ops and their devices, by priority
    total_s: FloatArray  # as `begun_s`: seconds of all ops of the placement, for runs with a limit
    missing: Int32Array  # [N] inputs that have not arrived
    ready: WordArray  # [D, N / 64] bit set of the ready ops
    ready_words: WordArray  # [D, N / 4096] bit set of the nonzero words of `ready`
    num_ready: Int32Array  # [D]
    running: Int32Array  # [D] op, or -1
    holder: Int32Array  # [resources] the device that occupies it, or -1; unused where no devices share a resource
    last_end_s: FloatArray  # [D]
    begins_s: FloatArray  # [D] seconds that the next op pays for beginning a segment
    live_bytes: IntArray  # [D] activations and workspace, without weights
    peak_bytes: IntArray  # [D]
    device_busy_s: FloatArray  # [D]
    begun_s: FloatArray  # [D], or [resources] where devices share them: seconds of the ops that have started
    event_s: FloatArray  # [D + channels] heap of future events
    event_id: Int32Array  # [D + channels] device, or D + channel
    queue_head: IndexArray  # [channels] transfer in progress, or NOTHING
    queue_tail: IndexArray  # [channels]
    channel_busy_s: FloatArray  # [channels]
    now_s: FloatArray  # [1]
    counters: IntArray  # [NUM_COUNTERS]


class Recording(NamedTuple):
    """Arrays that a run writes its schedule to, in the engine's numbers; empty arrays record nothing."""

    start_s: FloatArray  # [N]
    end_s: FloatArray  # [N]
    tensor: Int32Array  # [hops]
    target: Int32Array  # [hops]
    link: Int32Array  # [hops]
    hop_start_s: FloatArray  # [hops]
    hop_end_s: FloatArray  # [hops]


def engine_state(tables: EngineTables) -> EngineState:
    """New state for one thread."""
    (num_ops, devices), channels = tables.op_time_s.shape, tables.num_channels
    fields: list[tuple[type, tuple[int, ...]]] = [
        (np.int32, (num_ops,)),  # missing
        (np.uint64, (devices, num_ops // 64 + 1)),  # ready
        (np.uint64, (devices, num_ops // 4096 + 1)),  # ready_words
        *[(np.int32, (devices,))] * 2,  # num_ready, running
        (np.int32, (tables.num_resources,)),  # holder
        *[(np.float64, (devices,))] * 2,  # last_end_s, begins_s
        *[(np.int64, (devices,))] * 2,  # live_bytes, peak_bytes
        (np.float64, (devices,)),  # device_busy_s
        (np.float64, (max(devices, tables.num_resources),)),  # begun_s
        (np.float64, (devices + channels,)),  # event_s
        (np.int32, (devices + channels,)),  # event_id
        *[(np.uint32, (channels,))] * 2,  # queue_head, queue_tail
        (np.float64, (channels,)),  # channel_busy_s
        (np.float64, (1,)),  # now_s
        (np.int64, (NUM_COUNTERS,)),  # counters
    ]
    words = [-(-np.dtype(dtype).itemsize * prod(shape) // 8) for dtype, shape in fields]
    memory = np.zeros(sum(words), dtype=np.int64)
    parts = zip(fields, np.split(memory, np.cumsum(words)[:-1]), strict=True)
    return EngineState(
        memory,
        np.zeros(len(tables.tensor_bytes) * devices * (2 if tables.pooled else 1), dtype=np.int32),
        np.zeros((len(tables.consumers), 5), dtype=np.uint32),
        np.zeros(channels, dtype=np.uint32),
        np.zeros(devices, dtype=np.uint32),
        np.zeros((2, devices), dtype=np.int64),
        np.zeros(max(devices, tables.num_resources)),
        *(part.view(dtype)[: prod(shape)].reshape(shape) for (dtype, shape), part in parts),
    )


def recording(tables: EngineTables) -> Recording:
    """A recording for the schedule of one run."""
    longest = int(np.diff(tables.route_offsets).max(initial=0))
    return _recording(len(tables.num_inputs), len(tables.consumers) * longest)


def _recording(num_ops: int, hops: int) -> Recording:
    tensor, target, link = np.zeros((3, hops), dtype=np.int32)
    return Recording(np.zeros(num_ops), np.zeros(num_ops), tensor, target, link, np.zeros(hops), np.zeros(hops))


NO_RECORDING = _recording(0, 0)
"""Records nothing."""


@njit(cache=True, nogil=True, error_model="numpy")
def occupy(tables: EngineTables, state: EngineState, num_touched: int) -> int:
    """Gives free resources to the ready ops, by priority; an op that lacks one is passed over.

    Devices that may start then hold their resources and are in the `touched` list, whose new length is returned.
    """
    count, waiting = 0, state.waiting
    for device in range(len(state.running)):
        if state.running[device] < 0 and state.num_ready[device] > 0 and _is_free(tables, state, device):
            op = np.int64(first_ready(state.ready, state.ready_words, device))
            position = count
            while position > 0 and waiting[0, position - 1] > op:
                waiting[:, position] = waiting[:, position - 1]
                position -= 1
            waiting[0, position], waiting[1, position] = op, device
            count += 1
    for position in range(count):
        device = waiting[1, position]
        if _is_free(tables, state, device):
            for at in range(tables.resource_offsets[device], tables.resource_offsets[device + 1]):
                state.holder[tables.resources[at]] = device
            num_touched = touch(device, state.touched, num_touched)
    return num_touched


@njit(cache=True, nogil=True, error_model="numpy")
def _is_free(tables: EngineTables, state: EngineState, device: int) -> bool:
    for at in range(tables.resource_offsets[device], tables.resource_offsets[device + 1]):
        if state.holder[tables.resources[at]] >= 0:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def reset(tables: EngineTables, assignment: IndexArray, state: EngineState) -> None:
    """Resets the state to time 0, at which ops without inputs are ready; `assignment` `[N]` is in the engine's numbers."""
    state.num_ready[:] = 0
    state.running[:] = -1
    state.holder[:] = -1
    state.last_end_s[:] = 0.0
    state.begins_s[:] = 0.0
    state.live_bytes[:] = 0
    state.peak_bytes[:] = 0
    state.device_busy_s[:] = 0.0
    state.begun_s[:] = 0.0
    state.queue_head[:] = NOTHING
    state.channel_busy_s[:] = 0.0
    state.now_s[0] = 0.0
    if state.counters[FAILED]:
        state.uses[:] = 0
        state.ready[:] = 0
        state.ready_words[:] = 0
    state.counters[:] = 0
    state.counters[FREE_TRANSFER] = NOTHING
    for op in range(len(tables.num_inputs)):
        state.missing[op] = tables.num_inputs[op]
        if tables.num_inputs[op] == 0:
            device = assignment[op]
            push_ready(state.ready, state.ready_words, device, np.uint64(op))
            state.num_ready[device] += 1
