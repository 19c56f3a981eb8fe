"""Segments: what one device runs between two exchanges with others, so that each becomes one session."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gnnplace.arrays import BoolArray, IntArray
from gnnplace.errors import InvalidPlacement
from gnnplace.graph.op_graph import OpGraph

__all__ = ["Segment", "segment_numbers", "segments"]


@dataclass(frozen=True)
class Segment:
    """Consecutive ops of one device, in the order in which they run."""

    device: int
    ops: tuple[int, ...]


def segments(
    graph: OpGraph,
    assignment: IntArray | Sequence[int],
    order: IntArray | Sequence[int],
    constant: BoolArray | Sequence[bool] | None = None,
) -> tuple[Segment, ...]:
    """The segments of a placement, in a global order in which producers come before consumers.

    Ops that are `constant` `[N]` are exchanged with nobody, as each part that reads one holds it too (see `ModelCutter`): such an
    op is in the segment of the op that its device runs next. `order` is when ops run, `[N]`, for example by start in a schedule; ops of one instant may be in any order. Each
    device runs its ops in this order. At first a segment is a maximal run of ops of one device such that
    (a) it ends after an op whose output another device reads, as that is sent as soon as it exists, and
    (b) only its first op reads from other devices, as ops before a reader need not wait for what it reads.
    Then every cut that lets nothing start earlier is undone; see `_merge`. So an op is done as early as if each op were a
    segment, however long ops take. What may be lost is that a transfer overlaps with computing: a value is sent with the
    rest of its segment when its readers wait for the rest anyway.

    Acyclic: let `first` and `last` be the positions of a segment's ends in `order`. If `T` reads from `S` on another
    device, the op it reads is the last one of `S` by (a) and the reader is the first one of `T` by (b), so
    `last(S) < first(T)`. If `T` follows `S` on its device, `last(S) < first(T)` too. So every dependency, between devices
    and along a device, leads to a later `first`: there is no cycle. Executing the segments of each device in order cannot
    deadlock: of all unfinished segments the one with the smallest `first` has all that it waits for. `_merge` keeps this.

    >>> from gnnplace.graph.op_graph import Op, Tensor
    >>> graph = OpGraph.build("g", [Op("a"), Op("b"), Op("c")], [Tensor("a", 4, ("b", "c"))])
    >>> [segment.ops for segment in segments(graph, [0, 0, 1], [0, 1, 2])]
    [(0,), (1,), (2,)]

    Raises:
        InvalidPlacement: `assignment` or `order` does not belong to the graph.
    """
    device_of = [int(device) for device in assignment]
    if len(device_of) != graph.num_ops or sorted(int(op) for op in order) != list(range(graph.num_ops)):
        raise InvalidPlacement(
            f"{len(device_of)} devices and an order of {len(order)} ops are given for the {graph.num_ops} ops of {graph.name!r}"
        )
    run_order = _linear_extension(graph, order)
    position = [0] * graph.num_ops
    for place, op in enumerate(run_order):
        position[op] = place
    steady = [False] * graph.num_ops if constant is None else [bool(mark) for mark in constant]
    sources, sends = _remote_edges(graph, device_of, steady)
    return _merge(_cut(run_order, device_of, steady, (sources, sends)), device_of, sources, position)


def segment_numbers(found: Sequence[Segment], num_ops: int) -> list[int]:
    """`[N]` the number of each op's segment."""
    numbers = [-1] * num_ops
    for number, segment in enumerate(found):
        for op in segment.ops:
            numbers[op] = number
    return numbers


def _linear_extension(graph: OpGraph, order: IntArray | Sequence[int]) -> list[int]:
    """`order` itself when producers come first in it; else the nearest one: always the earliest op that is free."""
    position = [0] * graph.num_ops
    for place, op in enumerate(order):
        position[int(op)] = place
    missing = [0] * graph.num_ops
    for consumer in graph.consumers.tolist():
        missing[consumer] += 1
    ready = [(position[op], op) for op in range(graph.num_ops) if not missing[op]]
    heapq.heapify(ready)
    offsets, successors = graph.successor_offsets.tolist(), graph.successors.tolist()
    result = []
    while ready:
        _, op = heapq.heappop(ready)
        result.append(op)
        for successor in successors[offsets[op] : offsets[op + 1]]:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, (position[successor], successor))
    return result


def _remote_edges(
    graph: OpGraph, device_of: Sequence[int], constant: Sequence[bool]
) -> tuple[dict[int, list[int]], set[int]]:
    """The producers on other devices of each op that has some, and the ops whose output another device reads; no constant ones."""
    sources: dict[int, list[int]] = defaultdict(list)
    sends: set[int] = set()
    edge_producers, edge_consumers = graph.edges
    for producer, consumer in zip(edge_producers.tolist(), edge_consumers.tolist(), strict=True):
        if device_of[producer] != device_of[consumer] and not constant[producer]:
            sources[consumer].append(producer)
            sends.add(producer)
    return dict(sources), sends


def _cut(
    order: Sequence[int],
    device_of: Sequence[int],
    constant: Sequence[bool],
    exchange: tuple[dict[int, list[int]], set[int]],
) -> list[Segment]:
    """Segments by rules (a) and (b), by the position of their first op that is not constant; `exchange` is `_remote_edges`."""
    sources, sends = exchange
    done: list[list[int]] = []
    opened: dict[int, list[int]] = {}  # device -> the segment that is being filled
    waiting: dict[int, list[int]] = defaultdict(list)  # device -> constant ops for the next segment to hold
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
        if op in sends:
            del opened[device]
    for device, ops in waiting.items():
        last = next((found for found in reversed(done) if device_of[found[0]] == device), None)
        if last is None:
            done.append(ops)
        else:
            last += ops
    return [Segment(device_of[ops[0]], tuple(ops)) for ops in done]


def _merge(
    cut: Sequence[Segment], device_of: Sequence[int], sources: dict[int, list[int]], position: Sequence[int]
) -> tuple[Segment, ...]:
    """Joins neighbours `A`, `B` on a device where no segment starts later for it, however long ops take.

    `heard(S, e)` is the last segment of device `e` that `S` or an earlier segment of its device reads from. `A` and `B` join when
    1. `B` reads nothing new: each remote segment that it reads from is at most `heard(A, e)`, so it is done when `A` starts;
    2. nobody is kept waiting: on each device the first reader `C` of `A` has `heard(C, device of A)` at `B` or later.
    The quotient stays acyclic: a path from `A` to `B` over another device would end in a segment that `B` reads from, which by 1.
    is an ancestor of `A`. Joining several pairs at once is safe, as every op still can run when it ran before: `B` ran
    right after `A` anyway. Repeated until nothing joins; each pass is linear in segments and remote edges.
    """
    groups: dict[int, list[list[int]]] = defaultdict(list)  # device -> its segments' ops
    for segment in cut:
        groups[segment.device].append(list(segment.ops))
    while _merge_pass(groups, device_of, sources):
        pass
    return _global_order(groups, sources, position)


def _merge_pass(groups: dict[int, list[list[int]]], device_of: Sequence[int], sources: dict[int, list[int]]) -> bool:
    """One pass over all neighbours; true when something was joined. Indices stay those of the pass's beginning."""
    index = {op: number for rows in groups.values() for number, ops in enumerate(rows) for op in ops}
    heard: dict[int, list[dict[int, int]]] = {}  # device -> per segment: other device -> last segment heard
    reads: dict[int, list[dict[int, int]]] = {}  # the same of this segment alone
    first_reader: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # (device, segment) -> device -> segment
    for device, rows in groups.items():
        heard[device], reads[device] = [], []
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
            heard[device].append(so_far)

    joined = False
    for device, rows in groups.items():
        merged: list[list[int]] = []
        first = 0  # of the pass's segments that the last entry of `merged` begins with
        readers: dict[int, int] = {}  # device -> first segment that reads from the last entry of `merged`
        for number, ops in enumerate(rows):
            nothing_new = all(
                last <= heard[device][first].get(other, -1) for other, last in reads[device][number].items()
            )
            nobody_waits = all(heard[other][reader].get(device, -1) >= number for other, reader in readers.items())
            if merged and nothing_new and nobody_waits:
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
    groups: dict[int, list[list[int]]], sources: dict[int, list[int]], position: Sequence[int]
) -> tuple[Segment, ...]:
    """All segments, each after what it reads from and after its predecessor on the device; else by their first op."""
    found = [Segment(device, tuple(ops)) for device, rows in groups.items() for ops in rows]
    number_of = segment_numbers(found, len(position))
    before: list[set[int]] = [{number_of[s] for op in segment.ops for s in sources.get(op, ())} for segment in found]
    for number in range(1, len(found)):
        if found[number].device == found[number - 1].device:
            before[number].add(number - 1)
    after: list[list[int]] = [[] for _ in found]
    for number, earlier in enumerate(before):
        for other in earlier:
            after[other].append(number)
    missing = [len(earlier) for earlier in before]
    ready = [(position[found[number].ops[0]], number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    result = []
    while ready:
        _, number = heapq.heappop(ready)
        result.append(found[number])
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (position[found[other].ops[0]], other))
    assert len(result) == len(found), "the quotient of the segments has a cycle"
    return tuple(result)
