"""Readers of each kind of file, followed by the use of what was read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnplace.api import place
from gnnplace.api.options import PlaceOptions
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload, load_workload
from gnnplace.cost.measured import CostStore, MeasuredCost, read_costs
from gnnplace.devices.json_format import read_topology
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidInput
from gnnplace.graph.json_format import graph_from_json, graph_to_json, read_graph
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.placement import Placement, check_legal, load_placement
from gnnplace.running.feed import read_arrays
from gnnplace.running.session import Session
from tests.robustness.hostile import seeds
from tests.robustness.hostile.room import Files


@dataclass(frozen=True)
class Target:
    seeds: Callable[[], Sequence[Files]]
    read: Callable[[Path, Path], object]
    """Reads a folder and may write to a second one; refuses with a `GnnplaceError`."""
    inputs: int
    """Number of random inputs in the suite."""


def _model(folder: Path, out: Path) -> None:
    """Reads and costs a model, and cuts it between every two ops."""
    model = read_onnx(folder / "model.onnx")
    workload = Workload.of(model)
    _costed(workload, seeds.TOPOLOGY)
    order = model.graph.topological_order
    assignment = np.arange(model.graph.num_ops) % 2
    write_parts(model, workload.segments(assignment, order), ["cpu:0", "cpu:1"], out / "parts")


def _graph(folder: Path, _: Path) -> None:
    graph = read_graph(_only(folder))
    _costed(Workload.of(graph), seeds.TOPOLOGY)
    graph_from_json(graph_to_json(graph))


def _costed(workload: Workload, topology: Topology, costs: CostStore = CostStore()) -> None:
    """Computes op seconds, op groups, a lower bound and the makespan of a placement."""
    setup = ProblemSetup.build(workload, topology, MeasuredCost(costs))
    allowed = [np.flatnonzero(row) for row in np.isfinite(setup.op_time_s)]
    spread = np.array([row[op % len(row)] for op, row in enumerate(allowed)], dtype=np.int64)
    setup.simulator.evaluate(Placement(spread))
    assert setup.group_simulator.graph.num_ops == setup.coarsening.graph.num_ops
    assert setup.bound.value_s >= 0


def _placement(folder: Path, _: Path) -> None:
    placement = load_placement(_only(folder), seeds.GRAPH, seeds.TOPOLOGY)
    check_legal(seeds.GRAPH, seeds.TOPOLOGY, placement)
    setup = ProblemSetup.build(Workload.of(seeds.GRAPH), seeds.TOPOLOGY, MeasuredCost(CostStore()))
    setup.simulator.evaluate(placement)


def _load(path: Path) -> None:
    """Loads a placed or annotated model onto its devices without running it."""
    with Session(path) as session:
        session.get_inputs()
        session.get_outputs()


def _policy(folder: Path, _: Path) -> None:
    from gnnplace.policy.checkpoint import load_policy  # torch and plotly are slow to import, so only where needed

    load_policy(folder / "policy.safetensors")


def _state(folder: Path, _: Path) -> None:
    from gnnplace.training.run_state import read_state

    read_state(_only(folder))


def _run(folder: Path, out: Path) -> None:
    from gnnplace.report.page import write_report
    from gnnplace.run_record import read_run

    write_report(read_run(folder / "run.json"), out)


def _bench(folder: Path, out: Path) -> None:
    from gnnplace.report.bench_page import read_bench, write_bench_page

    write_bench_page(read_bench(_only(folder)), out / "result.html")


def _spec(folder: Path, _: Path) -> None:
    try:
        text = _only(folder).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidInput("arguments of commands are text") from None
    load_topology(text)


def _place(folder: Path, out: Path) -> None:
    workload = load_workload(folder / "model.onnx" if (folder / "model.onnx").exists() else _only(folder))
    place(workload.onnx or workload.graph, seeds.TOPOLOGY, PlaceOptions(planner="heft")).save(out / "placed")


def _only(folder: Path) -> Path:
    return next((path for path in folder.iterdir() if path.is_file()), folder / "absent")


TARGETS: Mapping[str, Target] = {
    "model": Target(seeds.models, _model, 40_000),
    "graph": Target(seeds.graphs, _graph, 40_000),
    "topology": Target(
        seeds.topologies, lambda folder, _: _costed(Workload.of(seeds.GRAPH), read_topology(_only(folder))), 30_000
    ),
    "placement": Target(seeds.placements, _placement, 30_000),
    "costs": Target(
        seeds.costs,
        lambda folder, _: _costed(Workload.of(seeds.GRAPH), seeds.TOPOLOGY, read_costs(_only(folder))),
        20_000,
    ),
    "placed": Target(seeds.placed, lambda folder, _: _load(folder), 10_000),
    "annotated": Target(seeds.annotated, lambda folder, _: _load(folder / "placed.onnx"), 5_000),
    "policy": Target(seeds.policies, _policy, 10_000),
    "state": Target(seeds.states, _state, 5_000),
    "inputs": Target(seeds.arrays, lambda folder, _: read_arrays(_only(folder)), 10_000),
    "run": Target(seeds.runs, _run, 3_000),
    "bench": Target(seeds.benches, _bench, 3_000),
    "devices": Target(seeds.specs, _spec, 20_000),
    "place": Target(lambda: [*seeds.models(), *seeds.graphs()], _place, 2_000),
}
