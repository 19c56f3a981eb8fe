"""PEFT: predicted earliest finish time."""

import heapq

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.heft import MEMORY_AND_ACTIVATION_SHARES, evaluate_in_order
from gnnplace.planners.classical.list_schedule import ListSchedule, ScheduleOptions, list_schedule, mean_costs
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution


def plan(problem: Problem, budget: Budget, seed: int) -> Solution:
    """The better of PEFT's placement in PEFT's order of ops, and the same placement in order of upward rank.

    Arabnejad and Barbosa 2014, section 4. Of the ops whose inputs are placed, PEFT takes the one with the largest mean
    of its row of the optimistic cost table. The op goes where its earliest finish time (with insertion) plus its entry
    in the table is least. Departures are those of `heft`, memory included.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "peft", seed) as search:
        evaluate_in_order(search, (peft_schedule(problem, *shares) for shares in MEMORY_AND_ACTIVATION_SHARES))
    return search.solution()


def peft_schedule(problem: Problem, memory_share: float | None = None, activation_share: float = 0.0) -> ListSchedule:
    """PEFT's schedule; `ScheduleOptions` documents the shares."""
    table = optimistic_cost_table(problem)
    order = peft_order(problem, table)
    options = ScheduleOptions(
        memory_share=memory_share, activation_share=activation_share, order=order, remaining_s=table
    )
    return list_schedule(problem, options)


def optimistic_cost_table(problem: Problem) -> FloatArray:
    """`[N, D]` seconds from the end of an op on a device to the end of the graph, if every device were free.

    Equation (5): the worst child, on its best device, with its own entry and the mean transfer unless it stays.
    """
    graph = problem.graph
    times = np.where(problem.action_mask[problem.unit_of_op], problem.op_time_s, np.inf)
    _, edge_s = mean_costs(problem)
    table = np.zeros_like(times)
    for op in graph.topological_order[::-1].tolist():
        begin, end = graph.successor_offsets[op], graph.successor_offsets[op + 1]
        if begin == end:
            continue
        children = graph.successors[begin:end]
        stay = table[children] + times[children]  # [children, D]
        leave = stay.min(axis=1) + edge_s[begin:end]
        table[op] = np.minimum(stay, leave[:, None]).max(axis=0)
    return table


def peft_order(problem: Problem, table: FloatArray) -> IntArray:
    """`[N]` ops by largest mean entry among those whose inputs are placed; equal ones in topological order."""
    graph = problem.graph
    position = np.argsort(graph.topological_order).tolist()
    rank = table.mean(axis=1).tolist()
    missing = np.diff(graph.input_offsets).tolist()
    ready = [(-rank[op], position[op], op) for op in range(graph.num_ops) if not missing[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        op = heapq.heappop(ready)[2]
        order.append(op)
        for child in graph.successors[graph.successor_offsets[op] : graph.successor_offsets[op + 1]].tolist():
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (-rank[child], position[child], child))
    return np.array(order, dtype=np.int64)
