"""Measurements on this machine: profiles of models, links, and segments, and placements that are executed."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup, measurement_store
from gnnplace.api.search import ExecutedSearch, Executor, Hosts
from gnnplace.api.workload import Workload
from gnnplace.cost.calibrate import FittedRoofline
from gnnplace.cost.measured import CostStore, LinkCosts, MeasuredCost
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.errors import MeasurementFailed
from gnnplace.evaluation import Evaluation
from gnnplace.measuring.comparison import Comparison, PlainSessions
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.measuring.link_probe import device_pairs, dispatch_overhead_s, probe_links, probing_process
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.near_cores import PATIENCE_S
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.profile import measured_costs, session_s
from gnnplace.measuring.stored_model import Kept
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.solution import Planner
from gnnplace.run_record import MeasuredSearch
from gnnplace.units import format_s

MEASURE_OPTIONS = MeasureOptions()
"""Limits and stopping rules of measurements."""
REQUESTS = 8
"""Consecutive requests in a measurement of throughput; filling and draining the pipeline then count for little."""
_FINALISTS = 3
"""Number of placements of an executed search that are executed side by side in the end."""
_MAX_PAIRS = 6
"""Maximum number of device pairs of which every link is probed before a search; a probe takes some seconds."""
_SHARES_OF_GROUPS = (1.0, 1.0, 0.5, 0.25, 0.1, 0.05)
"""Segments of the random placements that profile a new model, as fractions of its number of op groups."""
_CHANGED = 1.5
"""Factor between the stored and the present seconds of a model beyond which it is profiled again."""
_QUICK = StoppingRule(warmup=2, min_repeats=5, max_repeats=20, max_s=0.5, patience_s=PATIENCE_S)
"""Stopping rule of the runs that show whether a stored profile still holds."""
_PATIENT = StoppingRule(min_repeats=10, max_repeats=60, max_s=6.0, relative_spread=0.01, patience_s=PATIENCE_S)
"""Stopping rule of the random placements that profile segments, which run in turns."""


def profiled(
    workload: Workload, topology: Topology, seed: int, on_warning: Callable[[str], None] = lambda text: None
) -> CostStore:
    """The costs of this machine and of this model; measures and stores unknown costs.

    A stored profile that is far from what the model takes now is replaced, and `on_warning` hears of it: a machine with other work
    is several times as slow. Up to six pairs of devices, it probes every link. With more pairs, it probes one link per pair of
    device kinds, and the other links get the median of their kinds.

    Raises:
        UnsupportedModel: there is no ONNX model.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device.
    """
    workload.check_executable()
    store = measurement_store()
    for model in workload.models:
        _profile_unknown(model, topology, seed, on_warning)
    model, kinds = workload.models[0], {device.kind for device in topology.devices}
    known = store.costs(model.key)
    if topology.num_devices > 1 and not store.knows_segments(kinds, model.key):
        _measure_segments(model, topology, known, seed)
        known = store.costs(model.key)
    return known


def _profile_unknown(model: OnnxModel, topology: Topology, seed: int, on_warning: Callable[[str], None]) -> None:
    """Measures the ops and links that the store does not know, and ops whose stored seconds no longer hold."""
    store, kinds, signatures = measurement_store(), {device.kind for device in topology.devices}, model.graph.signatures
    known = store.costs(model.key)
    has_ops = kinds <= known.kinds.keys() and all(known.kinds[kind].op_s.keys() >= {*signatures} for kind in kinds)
    is_known = has_ops and len(store.kernels(kinds, model.key)) >= len(kinds)
    pairs, change = _unknown_pairs(topology, known), _change(model, topology, known, seed) if is_known else ""
    if change:
        on_warning(change)
        store.forget_model(kinds, model.key)
    if change or not is_known:
        profiled_anew(model, topology, seed, pairs)
        # Its session calls may show that links were probed on a busy machine.
        pairs = _unknown_pairs(topology, store.costs(model.key))
    if pairs:
        _probe(pairs, topology)


def _probe(pairs: Sequence[tuple[str, str]], topology: Topology) -> None:
    """Probes links, and the calls that tell whether the machine has other work meanwhile."""
    store, named = measurement_store(), {name for pair in pairs for name in pair}
    first = {device.kind: device.name for device in reversed(topology.devices) if device.name in named}
    with probing_process() as worker:
        call_s = {kind: dispatch_overhead_s(name, worker) for kind, name in first.items()}
        links = probe_links(pairs, worker)
    for kind, seconds in call_s.items():
        store.add_dispatch(kind, seconds)
    _store_links(links, topology)


def _change(model: OnnxModel, topology: Topology, known: CostStore, seed: int) -> str:
    """How far the stored ops of a model are from its seconds on the first device of a kind now; empty where all are near."""
    inputs = sample_inputs(model, np.random.default_rng(seed))
    for kind, device in {device.kind: device for device in reversed(topology.devices)}.items():
        stored_s = sum(known.kinds[kind].op_s[signature] for signature in model.graph.signatures)
        now_s = session_s(model, device.name, inputs, _QUICK)
        if max(now_s, stored_s) > _CHANGED * min(now_s, stored_s):
            took = f"takes {format_s(now_s)} on {device.name}, but {format_s(stored_s)} in its stored profile"
            return f"{model.path.name} {took}; it is profiled again"
    return ""


def profiled_anew(
    model: OnnxModel, topology: Topology, seed: int, pairs: Sequence[tuple[str, str]] | None = None
) -> tuple[CostStore, dict[str, FittedRoofline]]:
    """Measures a model even if it is known; gives the costs of this machine and the roofline fitted to each device kind.

    It probes the links between the devices of `pairs`; None: between every two devices.

    Raises:
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device.
    """
    fresh, fits, kernels = measured_costs(model, topology, np.random.default_rng(seed), pairs=pairs)
    store, device_of = measurement_store(), {device.kind: device for device in topology.devices}
    for kind, costs in fresh.kinds.items():
        store.add_ops(device_of[kind], model.key, model.graph, costs.op_s)
        store.add_kernels(kind, model.key, kernels[kind])
        if costs.dispatch_overhead_s is not None:
            store.add_dispatch(kind, costs.dispatch_overhead_s)
    _store_links(fresh.device_links, topology)
    return store.costs(model.key), fits


def _unknown_pairs(topology: Topology, known: CostStore) -> list[tuple[str, str]]:
    """The pairs of devices with a link to probe; see `profiled`."""
    kind_of = {device.name: device.kind for device in topology.devices}
    pairs = device_pairs(topology)
    new = {pair: kinds for pair in pairs if (kinds := (kind_of[pair[0]], kind_of[pair[1]])) not in known.links}
    if len(pairs) <= _MAX_PAIRS:
        return [pair for pair in pairs if pair in new or pair not in known.device_links]
    return list({frozenset(kinds): pair for pair, kinds in new.items()}.values())


def _store_links(links: Mapping[tuple[str, str], LinkCosts], topology: Topology) -> None:
    store, device_of = measurement_store(), {device.name: device for device in topology.devices}
    for (source, target), costs in links.items():
        store.add_link(device_of[source], device_of[target], costs)


def _measure_segments(model: OnnxModel, topology: Topology, costs: CostStore, seed: int) -> None:
    """Executes random placements of a model; the store learns the costs of segments beyond those of their ops."""
    setup = ProblemSetup.build(Workload.of(model), topology, MeasuredCost(costs))
    rng, num_groups = np.random.default_rng(seed), setup.coarsening.graph.num_ops
    if num_groups < 2:
        return
    stretches = [np.arange(num_groups) * max(2, round(share * num_groups)) // num_groups for share in _SHARES_OF_GROUPS]
    placements = [Placement(rng.integers(0, topology.num_devices, s[-1] + 1)[s]) for s in stretches]
    with _measured_evaluator(setup, dataclasses.replace(MEASURE_OPTIONS, plain=None)) as evaluator:
        evaluator.learn_segments(placements, _PATIENT)


def _measured_evaluator(setup: ProblemSetup, options: MeasureOptions | None = None) -> MeasuredEvaluator:
    """Executes placements of the op groups and stores the measurements; None: `MEASURE_OPTIONS`."""
    options = dataclasses.replace(options or MEASURE_OPTIONS, dims_objective=setup.dims_objective)
    kept = Kept(measurement_store(), setup.op_time_s)
    return MeasuredEvaluator(setup.grouped_model, setup.topology, setup.group_evaluator, options, kept)


def _pipelined(options: MeasureOptions) -> MeasureOptions:
    """The options for consecutive requests, with fewer repeats."""
    search, final = (
        dataclasses.replace(rule, warmup=1, min_repeats=min(repeats, rule.min_repeats))
        for rule, repeats in ((options.search, 3), (options.final, 6))
    )
    return dataclasses.replace(options, requests=REQUESTS, search=search, final=final)


def executed_placement(
    setup: ProblemSetup, placement: Placement
) -> tuple[Evaluation, tuple[Segment, ...], PlainSessions]:
    """The measured cost of a placement of every op, alone and pipelined, its segments, and plain sessions measured beside it.

    Raises:
        MeasurementFailed: the placement could not be executed.
    """
    compared = []
    # The best plain session is known before the pipelined requests are.
    for options in (MEASURE_OPTIONS, dataclasses.replace(_pipelined(MEASURE_OPTIONS), plain=None)):
        with _evaluator_of_ops(setup, options) as evaluator:
            compared.append(evaluator.compare([placement]))
            found = evaluator.segments_of(placement)
        if failure := compared[-1].evaluations[0].failure:
            raise MeasurementFailed(f"the placement could not be measured: {failure}")
    alone, pipelined = (each.evaluations[0] for each in compared)
    return dataclasses.replace(alone, period_s=pipelined.period_s), found, compared[0].plain


def executed_difference(setup: ProblemSetup, first: Placement, second: Placement) -> tuple[Difference, float]:
    """The measured difference of two placements of every op, and the seconds that measuring took.

    Raises:
        MeasurementFailed: one of them could not be executed.
    """
    begin_s = time.perf_counter()
    with _evaluator_of_ops(setup, MEASURE_OPTIONS) as evaluator:
        return evaluator.difference(first, second, PairRule(patience_s=PATIENCE_S)), time.perf_counter() - begin_s


def _evaluator_of_ops(setup: ProblemSetup, options: MeasureOptions) -> MeasuredEvaluator:
    """Executes placements of every op, and stores nothing."""
    graph = setup.workload.graph
    grouped = GroupedModel(setup.workload.models, graph, np.arange(graph.num_ops), setup.kernels, setup.runs_kernels)
    options = dataclasses.replace(options, dims_objective=setup.dims_objective)
    return MeasuredEvaluator(grouped, setup.topology, setup.evaluator, options)


@contextmanager
def executed_here(setup: ProblemSetup, options: PlaceOptions, hosts: Hosts | None) -> Iterator[Executor]:
    """Executes placements on this machine; `hosts` with the same devices share the executions of the search."""
    biased = measurement_store().drop_biased_ratios()
    dropped = f"{biased} stored measurements of placements had a biased reference and were dropped; they run again"
    limits = _pipelined(MEASURE_OPTIONS) if setup.objective == "throughput" else MEASURE_OPTIONS
    with _measured_evaluator(setup, limits) as evaluator:

        def search(planner: Planner) -> ExecutedSearch:
            excluded: list[str] = []  # warnings about hosts that take no part
            here = nullcontext(1)
            with here if hosts is None else hosts.executing(evaluator, options, excluded.append) as at_once:
                solution = planner(setup.problem(evaluator, at_once), options.budget, options.seed)
            counts: MeasuredSearch = {
                "executed": evaluator.measurements, "recalled": evaluator.recalled, "executing_s": evaluator.executing_s,
                "wall_s": solution.wall_s, "failed": evaluator.failed, "retried": evaluator.retried,
            }  # fmt: skip
            warnings = (*excluded, *filter(None, [dropped if biased else "", evaluator.stored.not_kept]))
            return ExecutedSearch(solution, counts, evaluator.fastest(_FINALISTS), warnings)

        def remembered(placements: Sequence[Placement]) -> Comparison:
            known = tuple(map(evaluator.evaluate, placements))
            return Comparison(known, evaluator.plain, confirmed=False)

        yield Executor(search, evaluator.compare, remembered, evaluator.segments_of, evaluator.difference_to_reference)
