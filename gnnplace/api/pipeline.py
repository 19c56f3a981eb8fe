"""The first steps of the pipeline: a model and devices in, the problem that planners and environments take out."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from gnnplace.api.measuring import executable, profiled
from gnnplace.api.options import Keywords, PlaceOptions, options_from, with_keyword_signature
from gnnplace.api.problem_setup import ProblemSetup, setting_of, topology_of
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.cost.measured import MeasuredCost
from gnnplace.devices.topology import Topology
from gnnplace.evaluation import Problem

__all__ = ["problem", "set_up"]


@with_keyword_signature
def set_up(
    model: ModelSource,
    devices: str | Path | Topology,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> ProblemSetup:
    """A model on devices: its op graph, the seconds of every op on every device, op groups, and simulators.

    Of the options, `dims`, `dims_objective`, `custom_ops`, `objective`, `max_groups` and `measure` count. With `measure`, costs
    that this machine does not know yet are measured first.

    >>> setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    >>> setup.topology.num_devices, setup.op_time_s.shape[1], setup.problem().num_units <= 20
    (3, 3, True)

    Raises:
        UnsupportedModel: the model cannot be read, or is to be measured and is an op graph.
        InvalidGraph: the op graph breaks a rule.
        InvalidTopology: the devices cannot be understood.
        InvalidPlacement: an op that no device may run.
    """
    options = options_from(options, keywords)
    topology = topology_of(devices)
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops, to_run=options.measure)
    cost = None
    if options.measure:
        executable(workload)
        cost = MeasuredCost(profiled(workload, topology, options.seed))
    return setting_of(workload, topology, cost, options.objective, options.max_groups, options.dims_objective)


@with_keyword_signature
def problem(
    model: ModelSource,
    devices: str | Path | Topology,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> Problem:
    """The problem that planners and environments take; see `set_up` for the options and errors.

    >>> from gnnplace import Budget, load_planner
    >>> layered = problem("zoo:layered_200", "k40x2", max_groups=50)
    >>> solution = load_planner("heft")(layered, Budget(evaluations=10), seed=0)
    >>> solution.objective_s < layered.worst_case_s
    True
    """
    return set_up(model, devices, options, **keywords).problem()
