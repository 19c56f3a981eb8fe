"""Orders and ranks of the ops of a graph: topological orders, cycles, upward ranks."""

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.compiled_code import njit


@njit(cache=True, nogil=True)
def topological_order(num_ops: int, successor_offsets: IntArray, successors: IntArray) -> IntArray:
    """Kahn's order with a first-in first-out queue that starts with the sources by index; incomplete on a cycle."""
    missing = np.zeros(num_ops, dtype=np.int64)
    for target in successors:
        missing[target] += 1
    order = np.empty(num_ops, dtype=np.int64)
    head, tail = 0, 0
    for op in range(num_ops):
        if missing[op] == 0:
            order[tail] = op
            tail += 1
    while head < tail:
        op = order[head]
        head += 1
        for edge in range(successor_offsets[op], successor_offsets[op + 1]):
            target = successors[edge]
            missing[target] -= 1
            if missing[target] == 0:
                order[tail] = target
                tail += 1
    return order[:tail]


def find_cycle(num_ops: int, successor_offsets: IntArray, successors: IntArray) -> list[int]:
    """Ops along one cycle of a graph that has one, the first repeated at the end."""
    done = set(topological_order(num_ops, successor_offsets, successors).tolist())
    # Every remaining op has a remaining predecessor, so a backward walk must meet itself.
    predecessor: dict[int, int] = {}
    for op in range(num_ops):
        if op not in done:
            for target in successors[successor_offsets[op] : successor_offsets[op + 1]].tolist():
                predecessor[target] = op
    start = next(op for op in predecessor if op not in done)
    path, seen = [start], {start: 0}
    while True:
        step = predecessor[path[-1]]
        if step in seen:
            return [step, *reversed(path[seen[step] :])]
        seen[step] = len(path)
        path.append(step)


@njit(cache=True, nogil=True)
def upward_rank(
    order: IntArray, op_cost: FloatArray, successor_offsets: IntArray, successors: IntArray, edge_cost: FloatArray
) -> FloatArray:
    """`[N]` cost of the most expensive path from the start of each op to the end of the graph.

    `edge_cost` is aligned with `successors`. Topcuoglu et al. 2002, equation (9) when costs are means over devices.
    """
    rank = np.zeros(len(order), dtype=np.float64)
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        below = 0.0
        for edge in range(successor_offsets[op], successor_offsets[op + 1]):
            below = max(below, edge_cost[edge] + rank[successors[edge]])
        rank[op] = op_cost[op] + below
    return rank


@njit(cache=True, nogil=True)
def depth_first_order(successor_offsets: IntArray, successors: IntArray, priority: FloatArray) -> IntArray:
    """`[N]` topological order that continues with the ops that the last op made ready, higher `priority` `[N]` first.

    Few tensors connect consecutive pieces of such an order. Linear, apart from sorting ready siblings. Incomplete on a
    cycle.
    """
    num_ops = len(priority)
    missing = np.zeros(num_ops, dtype=np.int64)
    for target in successors:
        missing[target] += 1
    stack = np.empty(num_ops, dtype=np.int64)
    order = np.empty(num_ops, dtype=np.int64)
    sources = np.flatnonzero(missing == 0)
    sources = sources[np.argsort(-priority[sources], kind="mergesort")]
    top, done = len(sources), 0
    stack[:top] = sources[::-1]
    while top:
        top -= 1
        op = stack[top]
        order[done] = op
        done += 1
        first = top
        for edge in range(successor_offsets[op], successor_offsets[op + 1]):
            target = successors[edge]
            missing[target] -= 1
            if missing[target] == 0:
                # Insertion sort of the ops that became ready; the loop pops the top of the stack next.
                place = top
                while place > first and priority[stack[place - 1]] >= priority[target]:
                    stack[place] = stack[place - 1]
                    place -= 1
                stack[place] = target
                top += 1
    return order[:done]
