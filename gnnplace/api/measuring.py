"""The main path with executed rewards: profile, search by running placements, then the best few side by side."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnnplace.api.hosts import executed_on_hosts
from gnnplace.api.options import PlaceOptions
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import MAX_GROUPS, ProblemSetup, measurement_store, setting_of
from gnnplace.api.solution import chosen_planner, finite, planned
from gnnplace.api.workload import Workload
from gnnplace.cost.calibrate import FittedRoofline
from gnnplace.cost.measured import CostStore, LinkCosts, MeasuredCost
from gnnplace.cost.measurement_store import measured_ops
from gnnplace.devices.topology import Topology
from gnnplace.errors import MeasurementFailed, UnsupportedModel
from gnnplace.evaluation import Evaluation
from gnnplace.interruption import first_interrupt_noted
from gnnplace.measuring.busy import check_free
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.measuring.link_probe import device_pairs, probe_links, probing_process
from gnnplace.measuring.measured_evaluator import Comparison, Kept, MeasuredEvaluator
from gnnplace.measuring.profile import measured_costs
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Solution
from gnnplace.run_record import MeasuredRecord, MeasuredSearch, PlannerRow

__all__ = [
    "MEASURE_OPTIONS",
    "REHEARSED",
    "REQUESTS",
    "Finalist",
    "executable",
    "finalists_of",
    "measured_evaluation",
    "place_measured",
    "profiled",
    "profiled_anew",
    "side_by_side_plan",
]

MEASURE_OPTIONS = MeasureOptions()
"""How long measuring may take."""
REQUESTS = 8
"""That follow each other where throughput is measured: filling and draining the pipeline then counts for little."""
_FINALISTS = 3
"""How many placements of the search are measured side by side in the end."""
_MAX_PAIRS = 6
"""Of devices between which every link is probed before placements are run; a probe takes some seconds."""
_SHARES_OF_GROUPS = (1.0, 1.0, 0.5, 0.25, 0.1, 0.05)
"""Of every new model so many random stretches of its op groups are placed at random, to learn what segments, short and long, cost."""
_PATIENT = StoppingRule(min_repeats=10, max_repeats=60, max_s=6.0, relative_spread=0.01)
"""For these, in turns."""
REHEARSED = ("single", "heft", "annealing")
"""Planned in the simulator, then measured beside what was found by measuring."""


def executable(workload: Workload) -> OnnxModel:
    """The ONNX model of a workload.

    Raises:
        UnsupportedModel: it is an op graph, which says what ops cost and not what they compute.
    """
    if workload.onnx is None:
        raise UnsupportedModel(
            f"{workload.name!r} is an op graph and cannot be executed; give an ONNX model to measure"
        )
    return workload.onnx


def _at_all_sizes(workload: Workload) -> tuple[OnnxModel, ...]:
    return tuple(executable(each) for each in (workload, *workload.others))


def profiled(workload: Workload, topology: Topology, seed: int) -> CostStore:
    """This machine's costs with those of this model; what is new is measured and kept for the next time.

    Links are probed between every two devices when those are at most six pairs, else once for each two kinds; then pairs of which
    nothing is known by name have the median of their kinds.

    Raises:
        UnsupportedModel: there is no ONNX model.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device.
    """
    store = measurement_store()
    for model in _at_all_sizes(workload):
        _profile_what_is_new(model, topology, seed)
    model, kinds = executable(workload), {device.kind for device in topology.devices}
    known = store.costs(model.key)
    if topology.num_devices > 1 and not store.knows_segments(kinds, model.key):
        _measure_segments(dataclasses.replace(workload, others=()), topology, known, seed)
        known = store.costs(model.key)
    return known


def _profile_what_is_new(model: OnnxModel, topology: Topology, seed: int) -> None:
    """Measures ops and links of which the store knows nothing."""
    store, kinds = measurement_store(), {device.kind for device in topology.devices}
    known = store.costs(model.key)
    new = not kinds <= known.kinds.keys() or any(
        set(model.graph.signatures) - known.kinds[k].op_s.keys() for k in kinds
    )
    pairs = _unknown_pairs(topology, known)
    if new or len(store.kernels(kinds, model.key)) < len(kinds):
        profiled_anew(model, topology, seed, pairs)
    elif pairs:
        with probing_process() as worker:
            _keep_links(probe_links(pairs, worker), topology)


def profiled_anew(
    model: OnnxModel, topology: Topology, seed: int, pairs: Sequence[tuple[str, str]] | None = None
) -> tuple[CostStore, dict[str, FittedRoofline]]:
    """This machine's costs once a model has been measured, whatever was known; and how well a roofline explains the model.

    Links are probed between the devices of `pairs`; None: between every two.

    Raises:
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device.
    """
    fresh, fits, kernels = measured_costs(model, topology, np.random.default_rng(seed), pairs=pairs)
    store, device_of = measurement_store(), {device.kind: device for device in topology.devices}
    for kind, costs in fresh.kinds.items():
        store.add_ops(device_of[kind], model.key, measured_ops(model.graph, costs.op_s))
        store.add_kernels(kind, model.key, kernels[kind])
        if costs.dispatch_overhead_s is not None:
            store.add_dispatch(kind, costs.dispatch_overhead_s)
    _keep_links(fresh.device_links, topology)
    return store.costs(model.key), fits


def _unknown_pairs(topology: Topology, known: CostStore) -> list[tuple[str, str]]:
    """The devices between which links are to be probed; see `profiled`."""
    kind_of = {device.name: device.kind for device in topology.devices}
    pairs = device_pairs(topology)
    new = {pair: kinds for pair in pairs if (kinds := (kind_of[pair[0]], kind_of[pair[1]])) not in known.links}
    if len(pairs) <= _MAX_PAIRS:
        return [pair for pair in pairs if pair in new or pair not in known.device_links]
    return list({frozenset(kinds): pair for pair, kinds in new.items()}.values())


def _keep_links(links: Mapping[tuple[str, str], LinkCosts], topology: Topology) -> None:
    """Stores the costs between devices, by their names."""
    store, device_of = measurement_store(), {device.name: device for device in topology.devices}
    for (source, target), costs in links.items():
        store.add_link(device_of[source], device_of[target], costs)


def _measure_segments(workload: Workload, topology: Topology, costs: CostStore, seed: int) -> None:
    """Runs random placements of a model, of whose segments the store then knows what they cost besides their ops."""
    setting = setting_of(workload, topology, MeasuredCost(costs))
    rng, num_groups = np.random.default_rng(seed), setting.coarsening.graph.num_ops
    if num_groups < 2:
        return
    stretches = [np.arange(num_groups) * max(2, round(share * num_groups)) // num_groups for share in _SHARES_OF_GROUPS]
    placements = [Placement(rng.integers(0, topology.num_devices, s[-1] + 1)[s]) for s in stretches]
    with _evaluator(setting, MEASURE_OPTIONS) as evaluator:
        evaluator.learn_segments(placements, _PATIENT)


def _pipelined(options: MeasureOptions) -> MeasureOptions:
    """The same for many requests at once; a repeat of many needs fewer repeats."""

    def fewer(rule: StoppingRule, repeats: int) -> StoppingRule:
        return dataclasses.replace(rule, warmup=1, min_repeats=min(repeats, rule.min_repeats))

    return dataclasses.replace(
        options, requests=REQUESTS, search=fewer(options.search, 3), final=fewer(options.final, 6)
    )


def _evaluator(setting: ProblemSetup, options: MeasureOptions) -> MeasuredEvaluator:
    """Runs placements of the op groups of a setting, and keeps in the store what that says."""
    model, *others = _at_all_sizes(setting.workload)
    grouped = GroupedModel(model, setting.coarsening.graph, setting.coarsening.group_of_op, tuple(others))
    kept = Kept(measurement_store(), setting.op_time_s)
    options = dataclasses.replace(options, dims_objective=setting.dims_objective)
    return MeasuredEvaluator(grouped, setting.topology, setting.group_evaluator, options, kept)


def measured_evaluation(setting: ProblemSetup, placement: Placement) -> tuple[Evaluation, tuple[Segment, ...]]:
    """One placement of every op, executed, and the segments in which it ran.

    Raises:
        MeasurementFailed: it could not be executed; the message says why.
    """
    graph, (model, *others) = setting.workload.graph, _at_all_sizes(setting.workload)
    grouped = GroupedModel(model, graph, np.arange(graph.num_ops), tuple(others))
    evaluations = []
    whole = dataclasses.replace(MEASURE_OPTIONS, dims_objective=setting.dims_objective)
    for options in (whole, _pipelined(whole)):
        with MeasuredEvaluator(grouped, setting.topology, setting.evaluator, options) as evaluator:
            evaluations.append(evaluator.compare([placement]).evaluations[0])
            found = evaluator.segments_of(placement)
        if evaluations[-1].failure:
            raise MeasurementFailed(f"the placement could not be measured: {evaluations[-1].failure}")
    alone, pipelined = evaluations
    return dataclasses.replace(alone, period_s=pipelined.period_s), found


def place_measured(workload: Workload, topology: Topology, options: PlaceOptions, begin_s: float) -> Plan:
    """The best placement found by running placements; the single device when nothing beats it beyond the noise.

    After Ctrl-C it is the best of the search, as the search measured it.

    Raises:
        UnsupportedModel: there is no ONNX model, or it cannot be cut.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device, no placement runs, or other work keeps a device busy.
        KeyboardInterrupt: nothing was measured yet.
    """
    executable(workload)
    warnings = check_free(topology.device_names, options.force)
    cost = MeasuredCost(profiled(workload, topology, options.seed))
    groups = options.max_groups or MAX_GROUPS  # each is compiled once, so every planner decides on groups
    setting = setting_of(workload, topology, cost, options.objective, groups, options.dims_objective)
    simulated = setting.problem()
    solutions = {
        name: load_planner(name)(simulated, Budget(), options.seed) for name in REHEARSED if name != options.planner
    }
    if any(solution.interrupted for solution in solutions.values()):
        raise KeyboardInterrupt
    rehearsed = {name: solution.placement for name, solution in solutions.items()}
    measuring = _pipelined(MEASURE_OPTIONS) if setting.objective == "throughput" else MEASURE_OPTIONS
    planner = chosen_planner(options.planner, options.policy)
    set_aside: list[str] = []
    with _evaluator(setting, measuring) as evaluator:
        with executed_on_hosts(evaluator, measuring.timeout_s, options, set_aside.append) as at_once:
            solution = planner(setting.problem(evaluator, at_once), options.budget, options.seed)
        warnings += tuple(set_aside)
        finalists = finalists_of(options.planner, [solution.placement, *evaluator.fastest(_FINALISTS)], rehearsed)
        searched: MeasuredSearch = {
            "executed": evaluator.measurements, "recalled": evaluator.recalled, "executing_s": evaluator.executing_s,
            "wall_s": solution.wall_s, "failed": evaluator.failed, "retried": evaluator.retried,
        }  # fmt: skip
        comparison = None if solution.interrupted else _side_by_side(evaluator, finalists)
        interrupted = comparison is None
        with first_interrupt_noted(interrupted):  # it is nearly done
            if comparison is None:
                finalists = finalists_of(options.planner, evaluator.fastest(1) or [solution.placement], {})
                known = tuple(evaluator.evaluate(finalist.placement) for finalist in finalists)  # from the search
                comparison = Comparison(known, evaluator.single, evaluator.single_device)
            plan = side_by_side_plan(setting, solution, finalists, (comparison, searched), begin_s)
            chosen = Placement(setting.coarsening.project(plan.placement.assignment))
            warnings += plan.warnings if not evaluator.not_kept else (*plan.warnings, evaluator.not_kept)
            plan = dataclasses.replace(plan, warnings=warnings, measured_segments=evaluator.segments_of(chosen))
            return plan.cut_short() if interrupted else plan


@dataclass(frozen=True, eq=False)
class Finalist:
    """What is measured side by side."""

    label: str
    planner: str
    placement: Placement


def finalists_of(planner: str, searched: Sequence[Placement], rehearsed: Mapping[str, Placement]) -> list[Finalist]:
    """The best few of the search, best first and each once, and what other planners found.

    The search kept the least of many single measurements, which was lucky more likely than not: the next best ones get a chance.
    """
    different: dict[bytes, Placement] = {}
    for placement in searched:
        different.setdefault(placement.assignment.tobytes(), placement)
    found = [
        Finalist(planner if rank == 1 else f"{planner}, rank {rank}", planner, placement)
        for rank, placement in enumerate(different.values(), start=1)
    ]
    return [*found, *(Finalist(name, name, placement) for name, placement in rehearsed.items())]


def _side_by_side(evaluator: MeasuredEvaluator, finalists: Sequence[Finalist]) -> Comparison | None:
    """The last comparison; None where Ctrl-C ended it."""
    try:
        return evaluator.compare([finalist.placement for finalist in finalists])
    except KeyboardInterrupt:
        return None


def side_by_side_plan(
    setting: ProblemSetup,
    solution: Solution,
    finalists: Sequence[Finalist],
    executed: tuple[Comparison, MeasuredSearch],
    begin_s: float,
) -> Plan:
    """The winner of the side-by-side comparison, with everyone's figures."""
    comparison, searched = executed
    pairs = sorted(zip(finalists, comparison.evaluations, strict=True), key=lambda pair: pair[1].makespan_s)
    winner, taken = pairs[0]
    chosen, kept = winner.placement, winner.planner
    warnings: list[str] = []
    if kept != solution.planner:
        warnings.append(f"the placement of {kept!r} was faster side by side than that of {solution.planner!r}")
    single = comparison.single
    if single is not None and comparison.single_device is not None:
        device = setting.topology.device_index[comparison.single_device]
        beaten = taken.makespan_s + taken.spread_s < single.makespan_s - single.spread_s
        alone = len(set(chosen.assignment.tolist())) == 1
        if not beaten and not alone:
            warnings.append(
                f"no placement beats the single device {comparison.single_device} beyond the noise; "
                "the whole model stays there"
            )
        if not beaten:
            chosen, taken, kept = Placement(np.full_like(chosen.assignment, device)), single, "single"
    if taken.failure:
        raise MeasurementFailed(
            f"no placement could be executed ({taken.failure}); without measuring, the simulator still gives an answer"
        )
    runs = [
        {"label": finalist.label, "median_s": e.makespan_s, "spread_s": e.spread_s, "repeats": e.repeats}
        for finalist, e in zip(finalists, comparison.evaluations, strict=True)
        if not e.failure
    ]
    if single is not None:
        label = f"one session on {comparison.single_device}"
        runs.append(
            {"label": label, "median_s": single.makespan_s, "spread_s": single.spread_s, "repeats": single.repeats}
        )
    measured: MeasuredRecord = {
        "median_s": taken.makespan_s,
        "spread_s": taken.spread_s,
        "repeats": taken.repeats,
        "single_session_s": None if single is None else single.makespan_s,
        "runs": runs,  # type: ignore[typeddict-item]  # rows are built as plain dictionaries
        "search": searched,
    }
    best = {finalist.planner: evaluation for finalist, evaluation in reversed(pairs)}
    rows: tuple[PlannerRow, ...] = tuple(
        {
            "planner": name,
            "makespan_s": finite(evaluation.makespan_s),
            "gap": None,
            "evaluations": solution.evaluations if name == solution.planner else 0,
            "wall_s": solution.wall_s if name == solution.planner else 0.0,
            "feasible": evaluation.feasible,
            "error": evaluation.failure or None,
        }
        for name, evaluation in ((name, best[name]) for name in dict.fromkeys(f.planner for f in finalists))
    )
    _, placement, evaluation = planned(setting, dataclasses.replace(solution, placement=chosen))
    return Plan(
        setting, solution, placement, evaluation, rows, time.perf_counter() - begin_s, measured, tuple(warnings), kept
    )
