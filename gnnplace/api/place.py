"""The main path: a model and devices in, a plan out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from gnnplace.api.host_placing import means_hosts, measured_on_hosts, setting_on_hosts
from gnnplace.api.hosts import simulated_on_hosts
from gnnplace.api.measuring import place_measured
from gnnplace.api.options import Keywords, PlaceOptions, options_from, with_keyword_signature
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup, setting_of, topology_of
from gnnplace.api.solution import chosen_planner, planned, planner_row
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.devices.topology import Topology
from gnnplace.distributed.cluster import connected
from gnnplace.interruption import first_interrupt_noted
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Solution
from gnnplace.running.devices import is_real

__all__ = ["BASELINES", "place"]

BASELINES = ("single", "heft")
"""Run with every `place`; they take one or a few evaluations each."""


@with_keyword_signature
def place(
    model: ModelSource,
    devices: str | Path | Topology,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """The best placement of a model on devices that the chosen planner finds, compared with simple ones.

    The answer is never worse than the best single device: when the plan does not beat it, that is the answer. Ctrl-C gives
    the best so far.

    >>> plan = place("zoo:layered_200", "k40x2", planner="annealing", evaluations=200)
    >>> plan.evaluation.feasible, plan.makespan_s <= plan.rows[0]["makespan_s"]  # never worse than the best single device
    (True, True)

    Args:
        model: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, or what `read_onnx` gave.
        devices: a topology, its file, a preset such as `k40x4`, real devices such as `cpu:0,cpu:1`, or `auto`;
            with `options.ray` those of its hosts, such as `host1/cpu:0,host2/cpu:0`, or `auto` for all of them.
        options: an object with the options of the search.
        keywords: fields of `PlaceOptions`, which replace those of `options`.

    Raises:
        UnsupportedModel: the model cannot be read.
        InvalidGraph: the op graph breaks a rule.
        InvalidTopology: the devices cannot be understood.
        InvalidPlacement: an op that no device may run.
        KeyboardInterrupt: there was no placement yet.
    """
    begin_s, options = time.perf_counter(), options_from(options, keywords)
    chosen_planner(options.planner, options.policy)
    if options.ray is not None and means_hosts(devices, options.ray):
        return _place_on_hosts(model, str(devices), options, begin_s)
    topology = topology_of(devices)
    workload = load_workload(
        model, options.dims, custom_ops=options.custom_ops, to_run=options.measure or is_real(topology)
    )
    if options.measure:
        return place_measured(workload, topology, options, begin_s)
    setting = setting_of(workload, topology, None, options.objective, options.max_groups, options.dims_objective)
    return _searched(setting, options, begin_s)


def _place_on_hosts(model: ModelSource, devices: str, options: PlaceOptions, begin_s: float) -> Plan:
    """The same for devices of several hosts."""
    assert options.ray is not None
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops, to_run=True)
    with connected(options.ray):
        setting, warnings = setting_on_hosts(workload, devices, options)
        placed = measured_on_hosts if options.measure else _searched
        plan = placed(setting, options, begin_s)
    return replace(plan, warnings=(*warnings, *plan.warnings))


def _searched(setting: ProblemSetup, options: PlaceOptions, begin_s: float) -> Plan:
    """The best that the chosen planner finds in the simulator."""
    planner = chosen_planner(options.planner, options.policy)
    planners = {name: (load_planner(name), Budget()) for name in BASELINES} | {
        options.planner: (planner, options.budget)
    }
    solutions: dict[str, Solution] = {}
    interrupted = False
    warnings: list[str] = []
    try:
        chosen = setting.for_planner(options.planner)
        with simulated_on_hosts(chosen, options.ray, warnings.append) as evaluator:
            for name, (plan, budget) in planners.items():
                if not interrupted:
                    problem = setting.for_planner(name).problem(evaluator if name == options.planner else None)
                    solutions[name] = plan(problem, budget, options.seed)
                    interrupted = solutions[name].interrupted
    except KeyboardInterrupt:  # this planner has no placement yet
        interrupted = True
        if not solutions:
            raise
    with first_interrupt_noted(interrupted):  # it is nearly done
        answer = _answer(setting, solutions, options.planner, begin_s)
        answer = replace(answer, warnings=(*warnings, *answer.warnings))
        return answer.cut_short() if interrupted else answer


def _answer(setting: ProblemSetup, solutions: Mapping[str, Solution], planner: str, begin_s: float) -> Plan:
    """The solution of the chosen planner, of the last one where it was not reached; the best single device where that is better."""
    runs = {name: planned(setting.for_planner(name), solution) for name, solution in solutions.items()}
    found = planner if planner in runs else list(runs)[-1]
    solution, placement, evaluation = runs[found]
    warnings: tuple[str, ...] = ()
    kept = None
    full = setting.problem(setting.evaluator)
    single = runs.get("single", runs[found])
    if full.penalised_s(single[2]) < full.penalised_s(evaluation):
        placement, evaluation, kept = single[1], single[2], "single"
        warnings = (f"the placement of {found!r} does not beat the best single device, which is the answer",)
    rows = tuple(planner_row(setting, *run) for run in runs.values())
    wall_s = time.perf_counter() - begin_s
    return Plan(setting, solution, placement, evaluation, rows, wall_s, warnings=warnings, kept=kept)
