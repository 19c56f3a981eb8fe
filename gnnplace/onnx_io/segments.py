"""Segments: runs of ops that one device executes without exchanging values, so that each becomes one session."""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.errors import InvalidPlacement
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.run_order import earliest_first


@dataclass(frozen=True)
class Segment:
    """Consecutive ops of one device, in run order."""

    device: int
    ops: tuple[int, ...]
    kernels: tuple[int, ...] | None = None
    """Kernels of the optimised model that execute the ops, in run order (see `kernels.KernelModel`); None: the ops as they are."""


def segments(
    graph: OpGraph,
    assignment: IntArray | Sequence[int],
    order: IntArray | Sequence[int],
    constant: BoolArray | Sequence[bool] | None = None,
    excludes: BoolArray | None = None,
) -> tuple[Segment, ...]:
    """Cuts a placement into segments, in a global order in which producers come before consumers.

    `order` `[N]` is the run order of ops, for example by start in a schedule; ops of one instant may be in any order.
    `constant` `[N]` marks ops whose values nobody sends, since every part that reads one contains the op (see
    `ModelCutter`); such an op belongs to the segment of the next op on its device. `excludes` `[D, D]` is true where two
    devices share a resource (`Topology.excludes`); None: none do.

    First, a segment is a maximal run of ops of one device such that
    (a) it ends after an op that another device reads, since the value is sent as soon as it exists,
    (b) only its first op reads from other devices, since ops before a reader need not wait for its inputs, and
    (c) no op of a device that shares a resource comes between its ops.
    Then every cut that lets nothing start earlier is undone; see `_merge`. So each op finishes as early as if every op
    were a segment, for any durations. One thing may be lost: the overlap of a transfer with the rest of its segment,
    where the readers wait for the rest anyway.

    Acyclic: let `first` and `last` be the positions of a segment's ends in `order`. If `T` reads from `S` on another
    device, it reads the last op of `S` by (a), and the reader is the first op of `T` by (b), so `last(S) < first(T)`.
    If `T` follows `S` on its device, `last(S) < first(T)` too. So every dependency leads to a later `first`, and there is
    no cycle. Devices that execute their segments in order cannot deadlock: the unfinished segment with the smallest
    `first` has all its inputs. `_merge` preserves this.

    Raises:
        InvalidPlacement: `assignment` or `order` does not belong to the graph.
    """
    device_of = [int(device) for device in assignment]
    if len(device_of) != graph.num_ops or sorted(int(op) for op in order) != list(range(graph.num_ops)):
        raise InvalidPlacement(
            f"{len(device_of)} devices and an order of {len(order)} ops are given for the {graph.num_ops} ops of {graph.name!r}"
        )
    successors = graph.successors.tolist()
    ends = pairwise(graph.successor_offsets.tolist())
    after = {op: successors[begin:end] for op, (begin, end) in enumerate(ends)}
    wanted_at = dict(enumerate(np.argsort(order).tolist()))
    run_order = earliest_first(after, wanted_at)  # `order` itself if it is topological
    steady = [False] * graph.num_ops if constant is None else [bool(mark) for mark in constant]
    sources: dict[int, list[int]] = {}  # op -> producers on other devices
    for producer, consumer in zip(*(ends.tolist() for ends in graph.edges), strict=True):
        if device_of[producer] != device_of[consumer] and not steady[producer]:
            sources.setdefault(consumer, []).append(producer)
    rivals = [] if excludes is None else [np.flatnonzero(row).tolist() for row in excludes]
    groups: dict[int, list[list[int]]] = defaultdict(list)  # device -> ops of each of its segments
    for ops in _cut(run_order, device_of, steady, sources, rivals):
        groups[device_of[ops[0]]].append(ops)
    position = np.argsort(run_order).tolist()

    def begin(ops: Sequence[int]) -> int:
        """Position of the first op of a segment that computes anything."""
        return int(position[next((op for op in ops if not steady[op]), ops[0])])

    while _merge(groups, device_of, sources, rivals, begin):
        pass
    return _global_order(groups, sources, begin, graph.num_ops)


def segment_numbers(found: Sequence[Segment], num_ops: int) -> list[int]:
    """`[N]` number of each op's segment."""
    numbers = [-1] * num_ops
    for number, segment in enumerate(found):
        for op in segment.ops:
            numbers[op] = number
    return numbers


def _cut(
    order: Sequence[int],
    device_of: Sequence[int],
    constant: Sequence[bool],
    sources: dict[int, list[int]],
    rivals: Sequence[Sequence[int]],
) -> list[list[int]]:
    """Ops of each segment by rules (a), (b) and (c), in the order of their first ops that are not constant.

    `rivals` lists for each device those that share a resource with it; it is empty where no devices do.
    """
    sends = {producer for producers in sources.values() for producer in producers}
    done: list[list[int]] = []
    opened: dict[int, list[int]] = {}  # device -> its unfinished segment
    waiting: dict[int, list[int]] = defaultdict(list)  # device -> constant ops for its next segment
    for op in order:
        device = device_of[op]
        if constant[op]:
            waiting[device].append(op)
            continue
        ops = opened.get(device)
        if ops is None or op in sources:
            opened[device] = ops = []
            done.append(ops)
        ops += [*waiting.pop(device, ()), op]
        for rival in rivals[device] if rivals else ():
            opened.pop(rival, None)
        if op in sends:
            del opened[device]
    for device, ops in waiting.items():
        last = next((found for found in reversed(done) if device_of[found[0]] == device), None)
        if last is None:
            done.append(ops)
        else:
            last += ops
    return done


def _merge(
    groups: dict[int, list[list[int]]],
    device_of: Sequence[int],
    sources: dict[int, list[int]],
    rivals: Sequence[Sequence[int]],
    begin: Callable[[Sequence[int]], int],
) -> bool:
    """Joins neighbours `A`, `B` on a device where no segment then starts later, in place; returns whether any joined.

    `last_read(S, e)` is the last segment of device `e` from which `S` or an earlier segment of its device reads. `A` and
    `B` join if all conditions hold:
    1. `B` reads nothing new: each remote segment that it reads is at most `last_read(A, e)`, so it is done when `A` starts.
    2. No reader waits longer: on each device, the first reader `C` of `A` has `last_read(C, device of A)` at `B` or later.
    3. No segment of a device that shares a resource begins between them, by `begin`. Such devices need
       not meet 1 and 2: what `B` reads there has ended when `A` starts, and readers there start after `B` anyway.
    The quotient stays acyclic: a path from `A` to `B` over another device would end in a segment that `B` reads, which
    is an ancestor of `A` by 1. Joining several pairs at once is safe, because `B` ran right after `A` anyway. One call is
    linear in segments and remote edges; its indices are those of the beginning of the call.
    """
    index = {op: number for rows in groups.values() for number, ops in enumerate(rows) for op in ops}
    last_read: dict[int, list[dict[int, int]]] = {}  # device -> per segment: other device -> last segment read
    reads: dict[int, list[dict[int, int]]] = {}  # the same for the segment alone
    first_reader: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # (device, segment) -> device -> segment
    for device, rows in groups.items():
        last_read[device], reads[device] = [], []
        so_far: dict[int, int] = {}
        for number, ops in enumerate(rows):
            own: dict[int, int] = {}
            for op in ops:
                for source in sources.get(op, ()):
                    other = device_of[source]
                    own[other] = max(own.get(other, -1), index[source])
                    first_reader[other, index[source]].setdefault(device, number)
            if own:
                so_far = {**so_far, **{other: max(last, so_far.get(other, -1)) for other, last in own.items()}}
            reads[device].append(own)
            last_read[device].append(so_far)

    begins = {device: [begin(ops) for ops in rows] for device, rows in groups.items()}
    joined = False
    for device, rows in groups.items():
        excluded = set(rivals[device] if rivals else ())
        between = sorted(begin for rival in excluded for begin in begins.get(rival, ()))
        merged: list[list[int]] = []
        first = 0  # first segment, by index, in the last entry of `merged`
        readers: dict[int, int] = {}  # device -> first segment that reads from the last entry of `merged`
        for number, ops in enumerate(rows):
            nothing_new = all(
                other in excluded or last <= last_read[device][first].get(other, -1)
                for other, last in reads[device][number].items()
            )
            nobody_waits = all(
                other in excluded or last_read[other][reader].get(device, -1) >= number
                for other, reader in readers.items()
            )
            is_disturbed = bisect(between, begins[device][first]) < bisect(between, begins[device][number])
            if merged and nothing_new and nobody_waits and not is_disturbed:
                merged[-1] += ops
                joined = True
                for other, reader in first_reader[device, number].items():
                    readers[other] = min(reader, readers.get(other, reader))
            else:
                merged.append(list(ops))
                first, readers = number, dict(first_reader[device, number])
        groups[device] = merged
    return joined


def _global_order(
    groups: dict[int, list[list[int]]],
    sources: dict[int, list[int]],
    begin: Callable[[Sequence[int]], int],
    num_ops: int,
) -> tuple[Segment, ...]:
    """All segments, each after those that it reads and its predecessor on the device; otherwise by first op."""
    found = [Segment(device, tuple(ops)) for device, rows in groups.items() for ops in rows]
    number_of = segment_numbers(found, num_ops)
    after: dict[int, set[int]] = {number: set() for number in range(len(found))}
    for number, segment in enumerate(found):
        for op in segment.ops:
            for source in sources.get(op, ()):
                after[number_of[source]].add(number)
        if number and found[number - 1].device == segment.device:
            after[number - 1].add(number)
    order = earliest_first(after, {number: begin(segment.ops) for number, segment in enumerate(found)})
    return tuple(found[number] for number in order)
