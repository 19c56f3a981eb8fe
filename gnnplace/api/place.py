"""The main path: a model and devices in, a plan out."""

from __future__ import annotations

import time
from pathlib import Path

from gnnplace.api.measuring import place_measured
from gnnplace.api.options import PlaceOptions
from gnnplace.api.plan import Plan
from gnnplace.api.setting import MAX_GROUPS, setting_of, topology_of
from gnnplace.api.solved import chosen_planner, planned, planner_row
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.devices.topology import Topology
from gnnplace.executors.devices import is_real
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner

__all__ = ["BASELINES", "place"]

BASELINES = ("single", "heft")
"""Run with every `place`; they take one or a few evaluations each."""


def place(model: ModelSource, devices: str | Path | Topology, options: PlaceOptions = PlaceOptions()) -> Plan:
    """The best placement of a model on devices that the chosen planner finds, compared with simple ones.

    The answer is never worse than the best single device: when the plan does not beat it, that is the answer.

    Args:
        model: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or what `read_onnx` gave.
        devices: a topology, its file, a preset such as `k40x4`, real devices such as `cpu:0,cpu:1`, or `auto`.
        options: how to search.

    Raises:
        UnsupportedModel: the model cannot be read.
        InvalidGraph: the op graph breaks a rule.
        InvalidTopology: the devices cannot be understood.
        InvalidPlacement: an op that no device may run.
    """
    begin_s = time.perf_counter()
    planner = chosen_planner(options.planner, options.policy)
    topology = topology_of(devices)
    workload = load_workload(
        model, options.dims, custom_ops=options.custom_ops, to_run=options.measure or is_real(topology)
    )
    if options.measure:
        return place_measured(workload, topology, options, begin_s)
    setting = setting_of(
        workload, topology, None, options.objective, options.max_groups or MAX_GROUPS, options.dims_objective
    )
    problem = setting.problem()
    runs = {name: planned(setting, load_planner(name)(problem, Budget(), options.seed)) for name in BASELINES}
    runs[options.planner] = planned(setting, planner(problem, options.budget, options.seed))
    solution, placement, evaluation = runs[options.planner]
    single = runs["single"]
    full = setting.problem(setting.evaluator)
    warnings: tuple[str, ...] = ()
    kept = None
    if full.penalised_s(single[2]) < full.penalised_s(evaluation):
        placement, evaluation, kept = single[1], single[2], "single"
        warnings = (f"the placement of {options.planner!r} does not beat the best single device, which is the answer",)
    rows = tuple(planner_row(setting, *run) for run in runs.values())
    return Plan(
        setting, solution, placement, evaluation, rows, time.perf_counter() - begin_s, warnings=warnings, kept=kept
    )
