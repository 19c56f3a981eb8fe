"""A placement that somebody made, seen like the answer of a planner."""

from __future__ import annotations

from pathlib import Path

from gnnplace.api.options import PlaceOptions
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import setting_of, topology_of
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.devices.topology import Topology
from gnnplace.placement import Placement, check_legal
from gnnplace.planners.search import Solution

__all__ = ["GIVEN", "plan_of"]

GIVEN = "given"
"""Stands where the name of a planner would."""


def plan_of(
    model: ModelSource,
    devices: str | Path | Topology,
    placement: Placement,
    options: PlaceOptions = PlaceOptions(),
) -> Plan:
    """The plan that a placement of every op is: its simulated seconds, schedule, memory, and files.

    Nothing is searched or measured; of the options only the sizes of inputs, custom operators and the objective count. A
    placement that does not fit is told as that.

    Raises:
        InvalidPlacement: it is not for this model and these devices.
        UnsupportedModel: the model cannot be read.
    """
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
