"""The main path for devices of several hosts: each host profiles, the simulator searches, and the finalists are executed over the hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.api.measuring import (
    MEASURE_OPTIONS,
    REHEARSED,
    REQUESTS,
    executable,
    finalists_of,
    profiled,
    side_by_side_plan,
)
from gnnplace.api.options import Dims, PlaceOptions
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import MAX_GROUPS, ProblemSetup, measurement_store, setting_of, topology_of
from gnnplace.api.solution import chosen_planner, planned
from gnnplace.api.workload import Workload, load_workload
from gnnplace.cost.measured import CostStore, LinkCosts, MeasuredCost, median_links
from gnnplace.devices.topology import Device, Topology
from gnnplace.distributed.cluster import Host, connected, nodes
from gnnplace.distributed.execution import HostPipeline
from gnnplace.distributed.host_devices import (
    HostsTopology,
    called_on_all,
    devices_on_hosts,
    names_hosts,
    probe_host_links,
    sent_file,
    written_files,
)
from gnnplace.errors import UnsupportedModel
from gnnplace.evaluation import Evaluation
from gnnplace.files import temporary_folder
from gnnplace.measuring.busy import check_free
from gnnplace.measuring.measured_evaluator import Comparison, executed
from gnnplace.measuring.timing import interleaved, median_interval, run_pipelined
from gnnplace.onnx_io.external_data import external_beside
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.placement import Placement
from gnnplace.planners.budget import Budget
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.search import Solution
from gnnplace.running.runner import PlacedRunner

__all__ = ["means_hosts", "measured_on_hosts", "setting_on_hosts", "topology_on_hosts"]

_MAX_PAIRS = 6
"""Of hosts, between which every link is probed; of more, so many neighbours, and the others have the median."""


def means_hosts(devices: object, address: str | None) -> bool:
    """Whether the devices of several hosts are to be taken together: they are named so, or `auto` in a cluster of several.

    Raises:
        GnnplaceError: there is no cluster at the address.
    """
    if address is None or not isinstance(devices, str):
        return False
    if devices.strip() != "auto":
        return names_hosts(devices)
    with connected(address):
        return len(nodes()) > 1


def topology_on_hosts(devices: str, address: str) -> Topology:
    """The devices of a cluster's hosts; links between hosts that were never probed are.

    Raises:
        InvalidTopology: a host or a device is not there.
        GnnplaceError: there is no cluster at the address.
    """
    with connected(address):
        found = devices_on_hosts(devices)
        return found.topology(_link_costs(found))


def setting_on_hosts(workload: Workload, devices: str, options: PlaceOptions) -> tuple[ProblemSetup, tuple[str, ...]]:
    """The workload on these devices with costs that are measured where they are not known, and warnings; a cluster is connected.

    Of hosts that are alike, with the same devices, one profiles the model; it keeps what it finds in its own store.

    Raises:
        InvalidTopology: a host or a device is not there.
        MeasurementFailed: the model does not run on a device, or other work keeps it busy.
        ProcessLost: a host was lost meanwhile.
    """
    if options.measure and workload.others:
        raise UnsupportedModel("over several hosts one size of the inputs can be measured; leave --measure out")
    found = devices_on_hosts(devices)
    topology = found.topology(_link_costs(found))
    store, warnings = CostStore(), tuple[str, ...]()
    if workload.onnx is not None:
        store, warnings = _profiled_on_hosts(workload, found, options)
    setting = setting_of(
        workload,
        topology,
        MeasuredCost(store),
        options.objective,
        options.max_groups or (MAX_GROUPS if options.measure else None),
        options.dims_objective,
    )
    return setting, warnings


def measured_on_hosts(setting: ProblemSetup, options: PlaceOptions, begin_s: float) -> Plan:
    """What planners find in the simulator, executed over the hosts side by side with a session on the best single device.

    Raises:
        UnsupportedModel: there is no ONNX model, or several sizes of the inputs.
        MeasurementFailed: a placement does not run.
        ProcessLost: a host was lost.
    """
    executable(setting.workload)
    problem = setting.problem()
    planner = chosen_planner(options.planner, options.policy)
    rehearsed = {
        name: load_planner(name)(problem, Budget(), options.seed).placement
        for name in REHEARSED
        if name != options.planner
    }
    solution = planner(problem, options.budget, options.seed)
    finalists = finalists_of(options.planner, [solution.placement], rehearsed)
    groups = setting.coarsening.graph.num_ops
    alone = [Placement(np.full(groups, device)) for device in range(setting.topology.num_devices)]
    best = min(range(len(alone)), key=lambda device: setting.group_simulator.evaluate(alone[device]).makespan_s)
    placements = [*(finalist.placement for finalist in finalists), alone[best]]
    evaluations = _executed_side_by_side(setting, solution, placements, options)
    comparison = Comparison(tuple(evaluations[:-1]), evaluations[-1], setting.topology.device_names[best])
    searched: Any = {
        "executed": 0, "recalled": 0, "executing_s": 0.0, "wall_s": solution.wall_s, "failed": 0, "retried": 0,
    }  # fmt: skip
    return side_by_side_plan(setting, solution, finalists, (comparison, searched), begin_s)


def _executed_side_by_side(
    setting: ProblemSetup, solution: Solution, placements: Sequence[Placement], options: PlaceOptions
) -> list[Evaluation]:
    """The measured cost of each placement of the op groups; equal ones run once."""
    model, topology = executable(setting.workload), setting.topology
    feed = sample_inputs(model, np.random.default_rng(options.seed))
    requests = REQUESTS if setting.objective == "throughput" else 1
    different = {placement.assignment.tobytes(): placement for placement in placements}
    simulated: dict[bytes, Evaluation] = {}
    runners: dict[bytes, PlacedRunner] = {}
    assert options.ray is not None
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        for number, (key, placement) in enumerate(different.items()):
            _, whole, simulated[key] = planned(setting, replace(solution, placement=placement))
            found = setting.workload.segments(whole.assignment, setting.simulator.schedule(whole).order())
            parts = folder / f"placement-{number}"
            manifest = write_parts(model, found, topology.device_names, parts)
            runner = PlacedRunner(
                [replace(part, custom_ops=tuple(map(Path, options.custom_ops))) for part in manifest.parts],
                [info.name for info in manifest.inputs],
                [info.name for info in manifest.outputs],
                devices_of=partial(HostPipeline, options.ray),
            )
            runners[key] = stack.enter_context(runner)

        def call(runner: PlacedRunner) -> None:
            if requests > 1:
                run_pipelined(runner, feed, requests)
            else:
                runner.run(None, feed)

        calls = [partial(call, runner) for runner in runners.values()]
        samples = interleaved(calls, MEASURE_OPTIONS.final) / requests
    intervals = {key: median_interval(row) for key, row in zip(runners, samples, strict=True)}
    keys = [placement.assignment.tobytes() for placement in placements]
    return [executed(simulated[key], intervals[key].median, intervals[key].spread, samples.shape[1]) for key in keys]


def _link_costs(found: HostsTopology) -> dict[tuple[str, str], LinkCosts]:
    """Between hosts by their names; what was never probed is, and is kept by what both hosts are."""
    known: dict[tuple[str, str], LinkCosts] = {}
    unknown: list[tuple[Host, Host]] = []
    for one, other in found.pairs:
        costs = _pair_store(one, other).costs().device_links.get((one.name, other.name))
        if costs is None:
            unknown.append((one, other))
        else:
            known[one.name, other.name] = known[other.name, one.name] = costs
    if unknown:
        chosen = (
            unknown if len(unknown) <= _MAX_PAIRS else list(pairwise(part.host for part in found.parts))[:_MAX_PAIRS]
        )
        probed = probe_host_links(chosen)
        for one, other in chosen:
            _pair_store(one, other).add_link(
                Device(one.name, "host"), Device(other.name, "host"), probed[one.name, other.name]
            )
        middle = median_links((None, costs) for costs in probed.values())[None]
        for one, other in unknown:
            costs = probed.get((one.name, other.name), middle)
            known[one.name, other.name] = known[other.name, one.name] = costs
    return known


def _pair_store(one: Host, other: Host) -> Any:
    return measurement_store({"hosts": {host.name: dict(host.fingerprint) for host in (one, other)}})


def _profiled_on_hosts(
    workload: Workload, found: HostsTopology, options: PlaceOptions
) -> tuple[CostStore, tuple[str, ...]]:
    """What the hosts say that the model costs on their devices, and their warnings."""
    model = executable(workload)
    sent = _SentModel(
        name=model.path.name,
        files={
            name: sent_file(path)
            for name, path in ({model.path.name: model.path} | external_beside(model.path)).items()
        },
        libraries={
            f"{number}-{path.name}": sent_file(path) for number, path in enumerate(map(Path, options.custom_ops))
        },
        dims=dict(options.dims) or dict(model.dims),
    )
    alike = [json.dumps([part.spec, dict(part.host.fingerprint)], sort_keys=True, default=str) for part in found.parts]
    first = dict(reversed(list(zip(alike, found.parts, strict=True))))
    shared = (sent, options.seed, options.force)
    answers = called_on_all([(part.host, _profiled_here, ((part.spec, *shared),)) for part in first.values()])
    by_key = {key: answer for key, (answer,) in zip(first, answers, strict=True)}
    warnings = dict.fromkeys(
        f"host {part.host.name}: {warning}" for key, part in first.items() for warning in by_key[key][1]
    )
    return found.costs(by_key[key][0] for key in alike), tuple(warnings)


@dataclass(frozen=True)
class _SentModel:
    """A model on its way to a host; files are references to the object store."""

    name: str
    files: Mapping[str, Sequence[Any]]
    libraries: Mapping[str, Sequence[Any]]
    """With operators that ONNX Runtime does not have."""
    dims: Dims


def _profiled_here(spec: str, model: _SentModel, seed: int, force: bool) -> tuple[CostStore, tuple[str, ...]]:
    """On a host: what is known there of a model that was sent, once what is new has been measured."""
    topology = topology_of(spec)
    with temporary_folder() as folder:
        written_files({**model.files, **model.libraries}, folder)
        custom_ops = tuple(folder / library for library in model.libraries)
        workload = load_workload(folder / model.name, model.dims, custom_ops=custom_ops, to_run=True)
        warnings = check_free(topology.device_names, force)
        return profiled(workload, topology, seed), warnings
