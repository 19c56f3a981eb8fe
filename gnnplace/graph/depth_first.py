"""Topological orders that follow one branch to its end before they begin the next."""

from __future__ import annotations

import numpy as np
from numba import njit

from gnnplace.arrays import FloatArray, IntArray

__all__ = ["depth_first_order"]


@njit(cache=True, nogil=True)
def depth_first_order(successor_offsets: IntArray, successors: IntArray, priority: FloatArray) -> IntArray:
    """`[N]`: a topological order that goes on with what the last op made ready, the higher `priority` `[N]` first.

    Consecutive pieces of such an order have few tensors between them. Linear, apart from sorting ready siblings.
    On a cycle it is shorter than `N`.

    >>> offsets, successors = np.array([0, 2, 3, 3, 3]), np.array([1, 2, 3])  # 0 -> 1 -> 3, 0 -> 2
    >>> depth_first_order(offsets, successors, np.array([0.0, 1.0, 0.0, 0.0])).tolist()
    [0, 1, 3, 2]
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
                # Insertion keeps the newly ready ones sorted; the top of the stack is taken next.
                place = top
                while place > first and priority[stack[place - 1]] >= priority[target]:
                    stack[place] = stack[place - 1]
                    place -= 1
                stack[place] = target
                top += 1
    return order[:done]
