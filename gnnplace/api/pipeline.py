"""The main path: load the workload, set up the problem, search, choose the answer, and make the plan."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from gnnplace.api.auto_devices import AUTO, auto_for
from gnnplace.api.judging import executed_plan, fastest_of, finalists_of, simulated_plan
from gnnplace.api.measuring import executed_difference, executed_here, executed_placement, profiled
from gnnplace.api.options import Keywords, PlaceOptions, with_keyword_signature, with_keywords
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.api.recorded import setup_of_record
from gnnplace.api.search import LEARNED, Executor, Hosts, Run, attempts, chosen_planner, hosts_at, until_interrupted
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.cost.cost_model import CostModel
from gnnplace.cost.measured import MeasuredCost
from gnnplace.devices.real_names import all_core_sessions
from gnnplace.devices.spec import with_session_device
from gnnplace.devices.topology import Topology
from gnnplace.errors import GnnplaceError
from gnnplace.evaluation import Problem
from gnnplace.interruption import stop_requests
from gnnplace.measuring.busy import check_free
from gnnplace.placement import Placement, check_legal, listed_devices, load_placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget, Solution
from gnnplace.run_record import PlannerRow, finite
from gnnplace.running.devices import is_real

Devices = str | Path | Topology
BASELINES = ("single", "heft")
"""Planners that run before every simulated search, with one or a few evaluations each."""
REHEARSED = ("single", "heft", "annealing")
"""Planners whose simulated answers are executed side by side with the best placements of an executed search."""


@with_keyword_signature
def place(
    model: ModelSource,
    devices: Devices | None = None,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """The best placement of a model on devices that the chosen planner finds, compared with simple ones.

    The answer is never worse than the best single device: if the planner does not beat that, the single device is the answer.
    With `measure`, planners execute placements, and the best ones are executed side by side with a plain session. Ctrl-C ends
    the search; the best placement so far is the answer.

    >>> plan = place("zoo:layered_200", "k40x2", planner="annealing", evaluations=200)
    >>> plan.evaluation.feasible, plan.makespan_s <= plan.rows[0]["makespan_s"]  # never worse than the best single device
    (True, True)

    Args:
        model: an `.onnx` file, an op-graph `.json`, `zoo:NAME`, `record:NAME`, or what `read_onnx` returns.
        devices: a topology, its file, a preset such as `k40x4`, real devices such as `cpu:0,cpu:1`, or `auto`;
            with `ray` those of its hosts, such as `host1/cpu:0,host2/cpu:0`, or `auto` for all of them. None for a
            record, which has devices of its own.
        options: an object with the options of the search.
        keywords: fields of `PlaceOptions`, which replace those of `options`.

    Raises:
        UnsupportedModel: the model cannot be read, or is to be executed and is an op graph.
        InvalidGraph: the op graph breaks a rule.
        InvalidTopology: the devices cannot be understood, or are to be measured and are not on this machine.
        InvalidPlacement: an op that no device may run.
        MeasurementFailed: the model does not run on a device, no placement runs, or other work keeps a device busy.
        KeyboardInterrupt: there was no placement yet.
    """
    begin_s, options = time.perf_counter(), with_keywords(options, keywords)
    chosen_planner(options.planner, options.policy)  # a wrong name is an error before the model is read
    hosts = hosts_at(options.ray)
    over_hosts = hosts if hosts is not None and devices is not None and hosts.own(devices) else None
    with nullcontext() if over_hosts is None else over_hosts.connection():
        setup = _set_up(model, devices, options, over_hosts, to_run=True)
        if not options.measure:
            plan = _search_simulated(setup, options, hosts)
        elif over_hosts is None:
            plan = _search_executed(setup, options, executed_here(setup, options, hosts))
        else:
            plan = _search_executed(setup, options, over_hosts.executor(setup, options))
    return replace(plan, wall_s=time.perf_counter() - begin_s, warnings=(*setup.warnings, *plan.warnings))


@with_keyword_signature
def compare(
    model: ModelSource,
    devices: Devices | None,
    planners: Sequence[str],
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> list[PlannerRow]:
    """A row per planner with the same budget and seed, by simulated seconds; the row of a planner that fails has an `error`.

    After Ctrl-C, planners that have not run have no row. With `ray`, planners run side by side on the hosts of a cluster and
    find the same placements; each row names its host.

    >>> rows = compare("zoo:layered_200", "k40x2", ["single", "heft"])
    >>> [(row["planner"], row["feasible"]) for row in rows]
    [('single', True), ('heft', True)]

    Raises:
        GnnplaceError: an unknown planner, or a model or device set that cannot be read.
        KeyboardInterrupt: there was no placement yet.
    """
    options = replace(with_keywords(options, keywords), measure=False)
    if isinstance(planners, str):
        raise GnnplaceError(f"the planners are the text {planners!r}; expected a list of names")
    chosen = {name: chosen_planner(name, options.policy if name == LEARNED else None) for name in planners}
    hosts = hosts_at(options.ray)
    if hosts is not None and devices is not None and hosts.own(devices):
        devices = hosts.topology(str(devices))
    setup = _set_up(model, devices, options)
    for warning in setup.warnings:
        options.on_warning(warning)
    if hosts is not None:
        by_index, _ = until_interrupted(hosts.rows(setup, list(chosen), options))
        return [row for _, row in sorted(by_index, key=lambda found: found[0])]
    runs = (Run(name, planner, options.budget) for name, planner in chosen.items())
    rows, _ = until_interrupted(found.row(setup) for found in attempts(setup, runs, options.seed))
    return rows


@with_keyword_signature
def evaluate(
    model: ModelSource,
    devices: Devices | None,
    placement: str | Path | Placement,
    options: PlaceOptions | None = None,
    *,
    against: str | Path | Placement | None = None,
    **keywords: Unpack[Keywords],
) -> dict[str, Any]:
    """The cost of a placement: the object that `gnnplace evaluate --json` prints.

    With `measure`, the placement is executed: `makespan_s` is measured, and so are the seconds per pipelined step
    (`throughput_s`), and plain sessions of the whole model beside it (`single_session_s`, `best_session_s`, `best_session`).
    Memory, busy time and transferred bytes are always simulated. With `against`, both placements also run in pairs until it is
    known which is faster: `difference` is the placement's seconds over those of the other, minus 1, with its 95 %
    `difference_interval`, the number of `pairs` and the `seconds` that they took.

    >>> plan = place("zoo:layered_200", "k40x2", planner="heft")
    >>> evaluate("zoo:layered_200", "k40x2", plan.placement)["makespan_s"] == plan.makespan_s
    True

    Raises:
        InvalidPlacement: the placement is not for this model and these devices.
        UnsupportedModel: the placement is to be executed, and the model is an op graph.
        MeasurementFailed: a placement failed when it was executed, or other work keeps a device busy.
    """
    options = with_keywords(options, keywords)
    if against is not None and not options.measure:
        raise GnnplaceError("a comparison against another placement executes both; measure is needed (--measure)")
    plan = _plan_of(model, devices, placement, options, against)
    paired: dict[str, Any] = {}
    sessions: dict[str, Any] = {}
    if against is not None:
        other = _placement_of(plan.setup, against)
        found, seconds = executed_difference(plan.setup, plan.placement, other)
        interval = [found.low, found.high]
        paired = {
            "difference": found.difference,
            "difference_interval": interval,
            "pairs": found.pairs,
            "seconds": seconds,
        }
    if options.measure:
        evaluation, segments, plain = executed_placement(plan.setup, plan.placement)
        sessions = {
            "single_session_s": plain.single_s,
            "best_session_s": plain.best_s,
            "best_session": plain.best_session or None,
        }
    else:
        evaluation, segments = plan.evaluation, plan.segments
    names = plan.setup.topology.device_names
    return {
        "evaluator": evaluation.evaluator,
        "makespan_s": finite(evaluation.makespan_s),
        "throughput_s": finite(evaluation.period_s),
        "feasible": evaluation.feasible,
        "peak_memory_bytes": dict(zip(names, evaluation.peak_memory_bytes.tolist(), strict=True)),
        "busy_s": dict(zip(names, evaluation.busy_s.tolist(), strict=True)),
        "transferred_bytes": evaluation.transferred_bytes,
        "segments": len(segments),
        "spread_s": evaluation.spread_s,
        "repeats": evaluation.repeats,
        **sessions,
        **paired,
        "warnings": list(plan.warnings),
    }


@with_keyword_signature
def plan_of(
    model: ModelSource,
    devices: Devices | None,
    placement: str | Path | Placement,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> Plan:
    """The plan of the caller's placement of every op: its simulated seconds, schedule, memory, and files.

    It neither searches nor measures. The plan of a placement that does not fit has an infeasible evaluation.

    >>> from gnnplace import Op, OpGraph, Tensor
    >>> pair = OpGraph.build("pair", [Op("a", flops=1e9), Op("b", flops=1e9)], [Tensor("a", 4, ("b",))])
    >>> apart, together = (plan_of(pair, "k40x2", Placement(row)) for row in ([0, 1], [0, 0]))
    >>> apart.makespan_s > together.makespan_s  # the transfer takes time
    True

    Raises:
        InvalidPlacement: the placement is not for this model and these devices.
        UnsupportedModel: the model cannot be read.
    """
    options = replace(with_keywords(options, keywords), measure=False)
    return _plan_of(model, devices, placement, options)


@with_keyword_signature
def set_up(
    model: ModelSource,
    devices: Devices | None = None,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> ProblemSetup:
    """A model on devices: its op graph, the seconds of every op on every device, op groups, and simulators.

    Of the options, `dims`, `dims_objective`, `inputs`, `custom_ops`, `objective`, `max_groups`, `measure` and `force` count. With
    `measure`, unknown costs are measured first.

    >>> setup = set_up("zoo:layered_200", "k40x2", max_groups=20)
    >>> setup.topology.num_devices, setup.op_time_s.shape[1], setup.problem().num_units <= 20, setup.bound.value_s > 0
    (3, 3, True, True)

    Raises:
        GnnplaceError: as `place`.
    """
    return _set_up(model, devices, with_keywords(options, keywords))


@with_keyword_signature
def problem(
    model: ModelSource,
    devices: Devices | None = None,
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
    options = with_keywords(options, keywords)
    setup = _set_up(model, devices, options)
    for warning in setup.warnings:
        options.on_warning(warning)
    return setup.problem()


def _set_up(
    model: ModelSource,
    devices: Devices | None,
    options: PlaceOptions,
    over_hosts: Hosts | None = None,
    to_run: bool = False,
    given: Sequence[object] = (),
) -> ProblemSetup:
    """The workload on the devices; with `to_run`, zoo models for real devices are built.

    Where a file of a placement among `given` names a session over all cores of the devices, that is one more device.
    """
    recorded = setup_of_record(model, devices, options)
    if recorded is not None:
        return recorded
    assert devices is not None
    if over_hosts is None:
        topology = topology_of(devices)
        to_run = options.measure or (to_run and is_real(topology))
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops, inputs=options.inputs, to_run=to_run)
    cost: CostModel | None = None
    warnings: list[str] = []
    if over_hosts is None and devices == AUTO:
        topology = auto_for(workload, topology, warnings.append)
    if over_hosts is not None:
        topology, cost, of_hosts = over_hosts.profiled(workload, str(devices), options)
        warnings += of_hosts
    elif options.measure:
        workload.check_executable()  # before anything is measured
        warnings += check_free(topology.device_names, options.force)
        cost = MeasuredCost(profiled(workload, topology, options.seed, warnings.append))
    listed = {name for file in given if isinstance(file, str | Path) for name in listed_devices(Path(file))}
    for name in all_core_sessions(topology.device_names) if listed and is_real(topology) else []:
        if name in listed - set(topology.device_names):
            topology = with_session_device(topology, name)
    return replace(ProblemSetup.build(workload, topology, cost, options), warnings=tuple(warnings))


def _plan_of(
    model: ModelSource,
    devices: Devices | None,
    placement: str | Path | Placement,
    options: PlaceOptions,
    against: object = None,
) -> Plan:
    setup = _set_up(model, devices, options, given=(placement, against))
    placement = _placement_of(setup, placement)
    evaluation = setup.evaluator.evaluate(placement)
    seconds = setup.problem(setup.evaluator).penalised_s(evaluation)
    solution = Solution("given", options.seed, placement, seconds, 1, 0.0, ((1, 0.0, seconds),))
    return Plan(setup, solution, placement, evaluation, (), warnings=setup.warnings)


def _placement_of(setup: ProblemSetup, placement: str | Path | Placement) -> Placement:
    graph, topology = setup.workload.graph, setup.topology
    if not isinstance(placement, Placement):
        placement = load_placement(Path(placement), graph, topology, setup.workload.sha256)
    check_legal(graph, topology, placement)
    return placement


def _search_simulated(setup: ProblemSetup, options: PlaceOptions, hosts: Hosts | None) -> Plan:
    """The baselines and the chosen planner by simulated seconds; a cluster simulates large batches of the chosen planner."""
    excluded: list[str] = []
    own, alone = setup.for_planner(options.planner), nullcontext(None)
    with alone if hosts is None else hosts.simulating(own, excluded.append) as evaluator:
        runs = {name: Run(name, load_planner(name), Budget()) for name in BASELINES}
        planner = chosen_planner(options.planner, options.policy)
        runs[options.planner] = Run(options.planner, planner, options.budget, evaluator)
        found, interrupted = until_interrupted(attempts(setup, runs.values(), options.seed))
    solution, _, _ = found[-1].answer()
    interrupted = interrupted or solution.interrupted
    with stop_requests(interrupted):  # a first Ctrl-C here changes nothing: the search is over
        plan = simulated_plan(setup, found, options.planner)
        plan = replace(plan, warnings=(*excluded, *plan.warnings))
        return plan.cut_short() if interrupted else plan


def _search_executed(setup: ProblemSetup, options: PlaceOptions, execution: AbstractContextManager[Executor]) -> Plan:
    """The chosen planner, then its best placements side by side with those of simulated planners."""
    runs = [Run(name, load_planner(name), Budget()) for name in REHEARSED if name != options.planner]
    rehearsed: dict[str, Placement] = {}
    for found in attempts(setup, runs, options.seed):
        solution, _, _ = found.answer()
        if solution.interrupted:
            raise KeyboardInterrupt  # nothing is measured yet
        rehearsed[found.planner] = solution.placement
    with execution as executor:
        search = executor.search(chosen_planner(options.planner, options.policy))
        solution = search.solution
        finalists = finalists_of(options.planner, [solution.placement, *search.fastest], rehearsed)
        comparison, difference, interrupted = None, None, True
        if not solution.interrupted:
            with suppress(KeyboardInterrupt):
                comparison = executor.compare([finalist.placement for finalist in finalists])
                difference = executor.difference(fastest_of(finalists, comparison)[0].placement)
                interrupted = False
        with stop_requests(interrupted):  # a first Ctrl-C here changes nothing: the search is over
            if comparison is None:
                finalists = finalists_of(options.planner, [solution.placement], {})
                comparison = executor.remembered([finalist.placement for finalist in finalists])
            plan = executed_plan(setup, solution, finalists, replace(comparison, difference=difference), search.counts)
            if plan.setup is setup:  # else it is one session on a device of its own
                segments = executor.segments_of(Placement(setup.coarsening.project(plan.placement.assignment)))
                plan = replace(plan, measured_segments=segments)
            plan = replace(plan, warnings=(*search.warnings, *plan.warnings))
            return plan.cut_short() if interrupted else plan
