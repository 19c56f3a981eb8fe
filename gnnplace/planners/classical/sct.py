"""m-SCT: memory-constrained small communication times, with favourite children from a linear program."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, diags_array, eye_array

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.errors import InvalidInput
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.etf import MEMORY_SHARES, earliest_task_schedule, schedule_limit_s
from gnnplace.planners.classical.heft import evaluate_in_order
from gnnplace.planners.classical.list_schedule import mean_costs
from gnnplace.planners.search import Search, deadline
from gnnplace.planners.solution import Budget, Solution


@dataclass(frozen=True)
class SctConfig:
    """Rounding of the linear program's fractions to favourite children."""

    threshold: float = 0.1
    """Paid share of the transfer below which a child is the favourite; Baechi's default for TensorFlow.
    At most 0.5, Hanen and Munier's value: then no op has two favourites, and none is the favourite of two."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 0.5:
            raise InvalidInput(f"threshold is {self.threshold}; expected 0 (no favourite children) to 0.5")


@dataclass(frozen=True, eq=False)
class FavouriteChildren:
    """The solution of the linear program, over `P` pairs of ops with a tensor between them."""

    favourite: IntArray  # [N] favourite child of each op, -1: none
    producers: IntArray  # [P]
    consumers: IntArray  # [P]
    paid_share: FloatArray  # [P] 0: the consumer follows its producer at once, 1: it waits for the whole transfer
    makespan_s: float
    """Makespan of the relaxation: unlimited devices, fractions allowed."""


def plan(problem: Problem, budget: Budget, seed: int, config: SctConfig = SctConfig()) -> Solution:
    """The better of m-SCT's placement in its own order of ops, and the same placement in order of upward rank.

    Jeon et al. 2020 (Baechi), section 3, after Hanen and Munier 1995: as m-ETF, but a device reserves itself for the
    favourite child of its last op once the child's inputs exist, if the child could start nowhere earlier. A reserved
    device runs only that child, or an op whose inputs could be on any device by then. Departures are those of m-ETF.
    The linear program takes mean times where devices or links differ. Where half of the budget's seconds pass
    before it is solved, no op has a favourite child, which is m-ETF.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    with Search(problem, budget, "m-sct", seed) as search:
        if search.remaining:
            limit_s = None if budget.seconds is None else max(1e-3, 0.5 * budget.seconds - search.wall_s)
            favourite = favourite_children(problem, config.threshold, limit_s).favourite
            with deadline(schedule_limit_s(search)) as stop:
                schedules = (earliest_task_schedule(problem, share, favourite, stop) for share in MEMORY_SHARES)
                evaluate_in_order(search, schedules)
    return search.solution()


def favourite_children(problem: Problem, threshold: float = 0.1, limit_s: float | None = None) -> FavouriteChildren:
    """Solves Hanen and Munier's relaxation with HiGHS, within `limit_s` seconds.

    Minimises `w` with, for every op `i` of mean seconds `p_i` and every pair `i -> j` of mean transfer seconds `c_ij`,
    `s_i + p_i + c_ij x_ij <= s_j`, `s_i + p_i <= w` and `0 <= x_ij <= 1`. All children of an op but one are paid, and
    all parents of an op but one: `sum_j x_ij >= |children of i| - 1` and `sum_i x_ij >= |parents of j| - 1`.
    """
    num_ops = problem.graph.num_ops
    op_s, edge_s = mean_costs(problem)
    pairs, pair_of_edge = np.unique(np.stack(problem.graph.edges, axis=1), axis=0, return_inverse=True)
    producers, consumers = pairs[:, 0], pairs[:, 1]
    pair_s = np.bincount(pair_of_edge.reshape(-1), edge_s, len(pairs))
    none = FavouriteChildren(np.full(num_ops, -1), producers, consumers, np.ones(len(pairs)), np.inf)
    scale_s = max(float(op_s.max(initial=0.0)), float(pair_s.max(initial=0.0)))
    if not len(pairs) or not scale_s:
        return none
    result = linprog(
        np.concatenate([np.zeros(len(pairs) + num_ops), [1.0]]),
        *_constraints(producers, consumers, op_s / scale_s, pair_s / scale_s),
        bounds=np.array([(0.0, 1.0)] * len(pairs) + [(0.0, np.inf)] * (num_ops + 1)),
        method="highs",
        options={} if limit_s is None else {"time_limit": limit_s},
    )
    if result.status != 0:
        return none
    paid_share = np.asarray(result.x[: len(pairs)], dtype=np.float64)
    favourite = np.full(num_ops, -1, dtype=np.int64)
    chosen = paid_share < threshold
    favourite[producers[chosen]] = consumers[chosen]
    return FavouriteChildren(favourite, producers, consumers, paid_share, float(result.fun) * scale_s)


def _constraints(
    producers: IntArray, consumers: IntArray, op_s: FloatArray, pair_s: FloatArray
) -> tuple[csr_array, FloatArray]:
    """`A` and `b` of `A z <= b` for `z = (x [P], s [N], w)`."""
    num_pairs, num_ops = len(producers), len(op_s)
    produced, consumed = (
        csr_array((np.ones(num_pairs), (np.arange(num_pairs), ends)), shape=(num_pairs, num_ops))
        for ends in (producers, consumers)
    )
    matrix = block_array(
        [
            [diags_array(pair_s), produced - consumed, None],
            [None, eye_array(num_ops), -np.ones((num_ops, 1))],
            [-produced.T, None, None],
            [-consumed.T, None, None],
        ],
        format="csr",
    )
    paid = [1.0 - np.bincount(ends, minlength=num_ops) for ends in (producers, consumers)]
    return matrix, np.concatenate([-op_s[producers], -op_s, *paid])
