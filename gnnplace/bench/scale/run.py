"""One case, from its file to a saved plan, in a process of its own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gnnplace.api.comparison import compare
from gnnplace.api.options import PlaceOptions
from gnnplace.api.place import place
from gnnplace.api.problem_setup import LARGE, setting_of, topology_of
from gnnplace.api.workload import load_workload
from gnnplace.bench.scale.cases import Case, OnnxCase, graph_of
from gnnplace.bench.scale.stages import Stages
from gnnplace.child_processes import spawned_pool
from gnnplace.files import temporary_folder
from gnnplace.graph.json_format import write_graph
from gnnplace.onnx_io.read import read_onnx

__all__ = ["run_case"]


def run_case(case: Case | OnnxCase) -> dict[str, Any]:
    """Figures of one case; what it used before does not count, as nothing was."""
    with spawned_pool(1) as pool:
        running = pool.submit(_placed, case) if isinstance(case, Case) else pool.submit(_read_only, case)
        return running.result()


def _placed(case: Case) -> dict[str, Any]:
    warm_up = graph_of(Case("layered", 2 * LARGE))
    place(warm_up, "v100x2", PlaceOptions(evaluations=20))
    stages = Stages()
    with temporary_folder() as folder:
        file = folder / "graph.json"
        write_graph(graph_of(case), file)
        with stages.stage("import"):
            graph = load_workload(file).graph
        topology = topology_of(case.devices)
        with stages.stage("prepare"):
            setting = setting_of(load_workload(graph), topology)
        assignment = np.zeros((1, graph.num_ops), dtype=np.int64)
        with stages.stage("evaluate"):
            setting.simulator.evaluate_batch(assignment)
        with stages.stage("place"):
            plan = place(graph, topology, PlaceOptions(evaluations=case.evaluations, seed=case.seed))
        with stages.stage("save"):
            plan.save(folder / "plan")
    row: dict[str, Any] = {
        "case": case.name, "family": case.family, "devices": case.devices, "ops": graph.num_ops, "edges": len(graph.consumers),
        **stages.row(), "evaluations": plan.solution.evaluations, "gnn_s": plan.solution.wall_s, "makespan_s": plan.makespan_s,
        "lower_bound_s": plan.bound.value_s, "gap": plan.gap, "stages": dict(plan.solution.stages),
        **{f"{row['planner']}_makespan_s": row["makespan_s"] for row in plan.rows if row["planner"] != "gnn"},
    }  # fmt: skip
    row["total_s"] = row["import_s"] + row["place_s"]
    if case.annealing:
        row |= _annealed(case, graph, plan.solution.wall_s)
    return row


def _annealed(case: Case, graph: Any, seconds: float) -> dict[str, Any]:
    """Annealing of groups and of ops, each from HEFT with another seed and for as long as `gnn` took."""
    found = {}
    for seed, (kind, groups) in enumerate((("groups", None), ("ops", graph.num_ops))):
        options = PlaceOptions(evaluations=None, seconds=seconds, seed=case.seed + seed, max_groups=groups)
        begin_s = time.perf_counter()
        [row] = compare(graph, case.devices, ["annealing"], options)
        found[f"annealing_{kind}_makespan_s"] = row["makespan_s"]
        found[f"annealing_{kind}_s"] = time.perf_counter() - begin_s
    return found


def _read_only(case: OnnxCase) -> dict[str, Any]:
    from models_zoo.networks.generated.towers import write_towers

    stages = Stages()
    with temporary_folder() as folder:
        write_towers(100, folder / "small.onnx")
        read_onnx(folder / "small.onnx", {"batch": 4})
        write_towers(case.nodes, folder / "large.onnx")
        with stages.stage("import"):
            model = read_onnx(folder / "large.onnx", {"batch": 4})
    return {
        "case": case.name,
        "family": "onnx",
        "ops": model.graph.num_ops,
        "edges": len(model.graph.consumers),
        **stages.row(),
    }
