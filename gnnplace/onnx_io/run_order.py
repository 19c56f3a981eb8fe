"""The order in which ONNX Runtime runs the nodes of a session, and how a file lists nodes so that they run in a wanted order.

ONNX Runtime searches depth-first from the nodes that nobody reads, the last in the file first, and from the inputs of a node in the
same order; a node runs when all that it reads have run. The file of an optimised model lists the nodes as the session that wrote
it runs them, but a session of that file runs them in another order. An NMT model whose decoder reads 35 MB of weights in each step
took up to 1.3 times as long in it, as the weights left the caches between two uses.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import chain

Producers = Mapping[int, Set[int]]
"""The nodes whose values each node reads, among those of one session."""


def runtime_order(listed: Sequence[int], producers: Producers) -> list[int]:
    """The order in which a session runs the nodes of a file that lists them as `listed`.

    >>> runtime_order([0, 1, 2], {0: set(), 1: set(), 2: {0, 1}})
    [1, 0, 2]
    """
    place = {node: position for position, node in enumerate(listed)}
    read = set(chain.from_iterable(producers.values()))
    stack = [(node, False) for node in listed if node not in read]
    found, seen = list[int](), set[int]()
    while stack:
        node, is_done = stack.pop()
        if is_done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(producer, False) for producer in sorted(producers[node] - seen, key=place.__getitem__)]
    return found


def listed_to_run(order: Collection[int], producers: Producers) -> list[int]:
    """Nodes as a file lists them so that a session runs them in an `order`, or in one that is near; producers come before readers.

    What runs first has to be listed as late as can be. Neither of two ways to do so is always the better one: from the front,
    where the node that runs last is taken of those whose producers are listed, and from the back, where the one that runs first
    is taken of those whose readers are listed. The one after which more nodes run at their place is taken.

    >>> listed_to_run([0, 1, 2], {0: set(), 1: set(), 2: {0, 1}})
    [1, 0, 2]
    """
    wanted = list(order)
    place = {node: position for position, node in enumerate(wanted)}
    readers: dict[int, list[int]] = {node: [] for node in wanted}
    for node, read in producers.items():
        for producer in read:
            readers[producer].append(node)
    from_front = earliest_first(readers, {node: -position for node, position in place.items()})
    from_back = earliest_first(producers, place)[::-1]

    def misplaced(listed: Sequence[int]) -> int:
        return sum(node != other for node, other in zip(runtime_order(listed, producers), wanted, strict=True))

    return min(from_front, from_back, key=misplaced)


def earliest_first(after: Mapping[int, Iterable[int]], key: Mapping[int, int]) -> list[int]:
    """Topological order of nodes with successors `after` that always takes the ready node with the smallest `key`.

    >>> earliest_first({0: [2], 1: [], 2: []}, {0: 1, 1: 2, 2: 0})
    [0, 2, 1]
    """
    missing = Counter(chain.from_iterable(after.values()))
    ready = [(key[node], node) for node in after if not missing[node]]
    heapq.heapify(ready)
    found: list[int] = []
    while ready:
        _, node = heapq.heappop(ready)
        found.append(node)
        for successor in after[node]:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, (key[successor], successor))
    assert len(found) == len(after), "the dependencies form a cycle"
    return found
