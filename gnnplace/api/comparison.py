"""Several planners on one problem, and one given placement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from gnnplace.api.host_placing import topology_on_hosts
from gnnplace.api.hosts import compared_on_hosts
from gnnplace.api.measuring import executable, measured_evaluation, profiled
from gnnplace.api.options import Keywords, PlaceOptions, options_from, with_keyword_signature
from gnnplace.api.problem_setup import setting_of, topology_of
from gnnplace.api.solution import LEARNED, chosen_planner, failed_row, finite, planned, planner_row
from gnnplace.api.workload import ModelSource, load_workload
from gnnplace.cost.measured import MeasuredCost
from gnnplace.devices.topology import Topology
from gnnplace.distributed.host_devices import names_hosts
from gnnplace.errors import GnnplaceError
from gnnplace.measuring.busy import check_free
from gnnplace.placement import Placement, check_legal, load_placement
from gnnplace.run_record import PlannerRow

__all__ = ["compare", "evaluate"]


@with_keyword_signature
def compare(
    model: ModelSource,
    devices: str | Path | Topology,
    planners: Sequence[str],
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> list[PlannerRow]:
    """A row per planner, each with the same budget and seed; a planner that fails has an `error` and no makespan.

    Ctrl-C ends them all; those that were not reached have no row. With `options.ray` they run side by side on the hosts of a
    cluster, to the same makespans; a row then says on which host it was made.

    >>> rows = compare("zoo:layered_200", "k40x2", ["single", "heft"])
    >>> [(row["planner"], row["feasible"]) for row in rows]
    [('single', True), ('heft', True)]

    Raises:
        GnnplaceError: an unknown planner, or a model or device set that cannot be read.
        KeyboardInterrupt: there was no placement yet.
    """
    options = options_from(options, keywords)
    plans = {name: chosen_planner(name, options.policy if name == LEARNED else None) for name in planners}
    if options.ray is not None and isinstance(devices, str) and names_hosts(devices):
        devices = topology_on_hosts(devices, options.ray)
    topology = topology_of(devices)
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops)
    setting = setting_of(workload, topology, None, options.objective, options.max_groups, options.dims_objective)
    if options.ray is not None:
        return compared_on_hosts(setting, list(plans), options)
    rows: list[PlannerRow] = []
    for name, plan in plans.items():
        begin_s = time.perf_counter()
        try:
            chosen = setting.for_planner(name)
            solution = plan(chosen.problem(), options.budget, options.seed)
            rows.append(planner_row(setting, *planned(chosen, solution)))
            if solution.interrupted:
                break
        except KeyboardInterrupt:
            if not rows:
                raise
            break
        except GnnplaceError as error:
            rows.append(failed_row(name, str(error), time.perf_counter() - begin_s))
    return rows


@with_keyword_signature
def evaluate(
    model: ModelSource,
    devices: str | Path | Topology,
    placement: str | Path | Placement,
    options: PlaceOptions | None = None,
    **keywords: Unpack[Keywords],
) -> dict[str, Any]:
    """What a given placement costs: the object that `gnnplace evaluate --json` prints.

    With `options.measure` it is executed: `makespan_s` is then measured, and so is `throughput_s`, the seconds per step of
    pipelined ones; memory, busy time and transferred bytes are simulated.

    >>> from gnnplace.api.place import place
    >>> plan = place("zoo:layered_200", "k40x2", planner="heft")
    >>> evaluate("zoo:layered_200", "k40x2", plan.placement)["makespan_s"] == plan.makespan_s
    True

    Raises:
        InvalidPlacement: it is not for this model and these devices.
        UnsupportedModel: it is to be executed, and the model is an op graph.
        MeasurementFailed: it was executed and failed, or other work keeps a device busy.
    """
    options = options_from(options, keywords)
    topology = topology_of(devices)
    workload = load_workload(model, options.dims, custom_ops=options.custom_ops, to_run=options.measure)
    warnings: tuple[str, ...] = ()
    if options.measure:
        executable(workload)
        warnings = check_free(topology.device_names, options.force)
    cost = MeasuredCost(profiled(workload, topology, options.seed)) if options.measure else None
    setting = setting_of(workload, topology, cost, options.objective, options.max_groups, options.dims_objective)
    given = (
        placement
        if isinstance(placement, Placement)
        else load_placement(Path(placement), workload.graph, topology, workload.sha256)
    )
    check_legal(workload.graph, topology, given)
    evaluation = setting.evaluator.evaluate(given)
    found = workload.segments(given.assignment, setting.simulator.schedule(given).order())
    if options.measure:
        evaluation, found = measured_evaluation(setting, given)
    names = topology.device_names
    return {
        "evaluator": evaluation.evaluator,
        "makespan_s": finite(evaluation.makespan_s),
        "throughput_s": finite(evaluation.period_s),
        "feasible": evaluation.feasible,
        "peak_memory_bytes": dict(zip(names, evaluation.peak_memory_bytes.tolist(), strict=True)),
        "busy_s": dict(zip(names, evaluation.busy_s.tolist(), strict=True)),
        "transferred_bytes": evaluation.transferred_bytes,
        "segments": len(found),
        "spread_s": evaluation.spread_s,
        "repeats": evaluation.repeats,
        "warnings": list(warnings),
    }
