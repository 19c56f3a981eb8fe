"""Placements of op groups, simulated op by op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.arrays import IntArray
from gnnplace.evaluation import Evaluation, EvaluationBatch, EvaluatorKind, LocalSearch, Problem
from gnnplace.graph.coarsen import Coarsening
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule

if TYPE_CHECKING:
    from gnnplace.sim.simulator import Simulator

__all__ = ["GroupedSimulator", "expanded"]


def expanded(coarsening: Coarsening, placement: Placement) -> Placement:
    """A placement of groups as one of ops, which take over the device and, if there are any, the priority of their group.

    >>> import numpy as np
    >>> from gnnplace.graph.coarsen import coarsen
    >>> from gnnplace.graph.op_graph import Op, OpGraph, Tensor
    >>> pair = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 4, ("b",))])
    >>> expanded(coarsen(pair, max_groups=1), Placement(np.array([1]))).assignment.tolist()
    [1, 1]
    """
    priorities = placement.priorities
    return Placement(
        coarsening.expand(placement.assignment), None if priorities is None else coarsening.expand(priorities)
    )


@dataclass(frozen=True, eq=False)
class GroupedSimulator:
    """Evaluator of `G` op groups by the simulator of the whole graph of `N` ops.

    A group as one op would wait for all of its inputs and hand on everything at its end: on a deep graph that is half
    as fast as its ops are. Only `schedule`, which features are made of, is that of the groups.

    >>> from gnnplace.graph.coarsen import coarsen
    >>> from gnnplace.sim.example import diamond
    >>> whole = diamond().evaluator
    >>> coarsening = coarsen(whole.graph, max_groups=2, max_fraction=1.0)
    >>> grouped = whole.over_groups(coarsening)
    >>> coarsening.group_of_op.tolist(), round(grouped.evaluate(Placement(np.array([0, 1]))).makespan_s, 3)
    ([0, 0, 0, 1], 6.001)
    >>> grouped.schedule(Placement(np.array([0, 1]))).end_s.round(3).tolist()  # as one op, it hands on everything at its end
    [5.0, 6.002]
    >>> grouped.evaluate_batch(np.array([[0, 0], [0, 1]])).makespan_s.round(3).tolist()
    [6.0, 6.001]
    >>> grouped.evaluate_moves(np.array([0, 0]), np.array([1]), np.array([1])).makespan_s.round(3).tolist()
    [6.001]
    >>> one = grouped.over_groups(coarsen(coarsening.graph, max_groups=1, max_fraction=1.0))
    >>> one.evaluate(Placement(np.array([1]))).makespan_s
    6.0
    """

    coarsening: Coarsening
    whole: Simulator
    groups: Simulator

    @property
    def kind(self) -> EvaluatorKind:
        """Simulated."""
        return "simulated"

    def evaluate(self, placement: Placement) -> Evaluation:
        """The cost of one placement `[G]`; the ops of a group have its priority."""
        return self.whole.evaluate(expanded(self.coarsening, placement))

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The costs of `[B, G]` assignments with the ops' own priorities."""
        return self.whole.evaluate_batch(self.coarsening.expand(np.asarray(assignments)))

    def schedule(self, placement: Placement) -> Schedule:
        """When each group would run, were it one op."""
        return self.groups.schedule(placement)

    def evaluate_moves(self, assignment: IntArray, ops: IntArray, devices: IntArray) -> EvaluationBatch:
        """`M` moves of groups, each from `assignment` `[G]`; see `ScheduleEstimator`."""
        group_of_op = self.coarsening.group_of_op
        moved = ops[:, group_of_op] if ops.ndim == 2 else group_of_op[None, :] == ops[:, None]
        return self.whole.evaluate_moves(self.coarsening.expand(assignment), moved, devices)

    def local_search(self, problem: Problem) -> LocalSearch:
        """Random moves of units of groups, simulated op by op; see `ScheduleEstimator`.

        >>> from gnnplace.graph.coarsen import coarsen
        >>> from gnnplace.sim.example import diamond
        >>> whole = diamond().evaluator
        >>> coarsening = coarsen(whole.graph, max_groups=2, max_fraction=1.0)
        >>> search = whole.over_groups(coarsening).local_search(diamond().over_groups(coarsening))
        >>> search.ops_per_evaluation  # the ops of two groups
        4
        """
        return self.whole.local_search_over(problem, self.coarsening.expand(problem.unit_of_op))

    def over_groups(self, coarsening: Coarsening) -> GroupedSimulator:
        """For placements of groups of these groups; see `ScheduleEstimator`."""
        return GroupedSimulator(coarsening.after(self.coarsening), self.whole, self.groups.of_groups(coarsening))
