"""A placement that somebody made, seen like the answer of a planner."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from gnnplace.api.options import Keywords, PlaceOptions, options_from, with_keyword_signature
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import setting_of, topology_of
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.devices.topology import Topology
from gnnplace.placement import Placement, check_legal
from gnnplace.planners.search import Solution

__all__ = ["GIVEN", "plan_of"]

GIVEN = "given"
"""Stands where the name of a planner would."""


@with_keyword_signature
def plan_of(
    model: ModelSource,
    devices: str | Path | Topology,
    placement: Placement,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """The plan of a given placement of every op: its simulated seconds, schedule, memory, and files.

    Nothing is searched or measured. Of the options, `dims`, `dims_objective`, `custom_ops` and `objective` count. A placement
    that does not fit makes a plan whose evaluation is infeasible.

    >>> import numpy as np
    >>> from gnnplace.graph.op_graph import Op, OpGraph, Tensor
    >>> from gnnplace.placement import Placement
    >>> pair = OpGraph.build("pair", [Op("a", flops=1e9), Op("b", flops=1e9)], [Tensor("a", 4, ("b",))])
    >>> apart, together = (plan_of(pair, "k40x2", Placement(np.array(row))) for row in ([0, 1], [0, 0]))
    >>> apart.makespan_s > together.makespan_s  # the transfer takes time
    True

    Raises:
        InvalidPlacement: it is not for this model and these devices.
        UnsupportedModel: the model cannot be read.
    """
    options = options_from(options, keywords)
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops)
    setting = setting_of(
        workload,
        topology_of(devices),
        None,
        options.objective,
        options.max_groups,
        options.dims_objective,
    )
    check_legal(workload.graph, setting.topology, placement)
    evaluation = setting.evaluator.evaluate(placement)
    seconds = setting.problem(setting.evaluator).penalised_s(evaluation)
    solution = Solution(GIVEN, options.seed, placement, seconds, 1, 0.0, ((1, 0.0, seconds),))
    return Plan(setting, solution, placement, evaluation, (), 0.0)
