"""`gnnplace bench cores`: zoo graphs on simulated cores and sets of them, which share the cores and exclude each other.

Parallel branches and parallel kernels are one decision there (IOS, Ding et al. 2021): an op takes one core, a set, or all cores.
Op costs are those of the roofline with the law of `Scaling`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnplace.api import load_workload
from gnnplace.api.problem_setup import ProblemSetup, topology_of
from gnnplace.bench.harness import BenchOptions, BenchResult, Result, matching, run_cases
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.units import format_s

MODELS = (
    "nasnet_mobile", "inception_v3", "cifar_cell_00", "ptb_cell_00", "nmt_2:hidden=512:steps=6:vocabulary=4000",
    "bert_base:layers=4", "vit_base:layers=4", "dlrm_towers",
)  # fmt: skip
"""Branches, recurrent cells, transformers and embeddings; the batch is added."""
BATCHES, CORES = (1, 32), (16, 64)
PLANNERS = ("heft", "annealing", "gnn")
_EVALUATIONS = 2000


@dataclass(frozen=True)
class CoresCase:
    """One graph on one number of cores."""

    model: str
    batch: int
    cores: int
    seed: int
    evaluations: int


def bench_cores(options: BenchOptions) -> BenchResult:
    """A row per graph, batch and number of cores: the step on one core, on all together, on the best set, and as planners place it."""
    models = matching({model: model for model in MODELS}, options.only, "model")
    evaluations = options.evaluations or _EVALUATIONS
    cases = [
        CoresCase(model, batch, cores, options.seed, evaluations)
        for cores in CORES for batch in BATCHES for model in models
    ]  # fmt: skip
    found = run_cases(cases, case_result, options, _progress)
    rows = [{"model": case.model, "batch": case.batch, "cores": case.cores, **result} for case, result in found.items()]
    return BenchResult("cores", options, rows, cores_summary(rows))


def _progress(case: CoresCase, result: Result) -> str:
    steps = ", ".join(f"{name} {format_s(result[f'{name}_s'])}" for name in ("all_cores", "best_set", *PLANNERS))
    return f"{case.model}, batch {case.batch}, {case.cores} cores: {steps}"


def case_result(case: CoresCase) -> dict[str, Any]:
    """Simulated seconds of one step in every way, and how many ops `gnn` gives to sets of each size."""
    name, *options = case.model.split(":")
    workload = load_workload(":".join(["zoo", name, f"batch={case.batch}", *options]))
    setup = ProblemSetup.build(workload, topology_of(f"epyc-corex{case.cores}"), RooflineCost())
    sizes, graph = setup.topology.uses_resource.sum(axis=1), setup.workload.graph
    alone_s = {
        int(sizes[device]): setup.simulator.evaluate(Placement(np.full(graph.num_ops, device))).makespan_s
        for device in np.unique(sizes, return_index=True)[1].tolist()
    }
    best_size = min(alone_s, key=alone_s.__getitem__)
    solutions = {
        planner: load_planner(planner)(setup.problem(), Budget(case.evaluations), case.seed) for planner in PLANNERS
    }
    groups = solutions["gnn"].placement.assignment
    count = np.bincount(sizes[setup.coarsening.expand(groups)], minlength=case.cores + 1)
    return {
        "ops": graph.num_ops,
        "devices": setup.topology.num_devices,
        "one_core_s": alone_s[1],
        "all_cores_s": alone_s[case.cores],
        "best_set_s": alone_s[best_size],
        "best_set_cores": best_size,
        **{f"{planner}_s": solution.objective_s for planner, solution in solutions.items()},
        "lower_bound_s": setup.bound.value_s,
        "ops_by_cores": {str(size): int(count[size]) for size in np.flatnonzero(count)},
    }


def cores_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much faster `gnn` is than all cores together and than the other planners, and where the most."""
    gains = {(row["model"], row["batch"], row["cores"]): row["all_cores_s"] / row["gnn_s"] for row in rows}
    most: tuple[Any, ...] = max(gains, key=gains.__getitem__, default=())
    against: Mapping[str, list[float]] = {
        other: [row[f"{other}_s"] / row["gnn_s"] for row in rows] for other in ("best_set", "heft", "annealing")
    }
    return {
        "cases": len(rows),
        "gnn_slower_than_all_cores": sum(gain < 1 - 1e-9 for gain in gains.values()),
        "gnn_slower_than_the_best_set": sum(row["gnn_s"] > row["best_set_s"] * (1 + 1e-9) for row in rows),
        "gnn_faster_than_all_cores_by_5_percent": sum(gain > 1.05 for gain in gains.values()),
        "speed_up_over_all_cores_median": float(np.median(list(gains.values()))) if gains else None,
        "speed_up_over_all_cores_most": f"{gains[most]:.2f} ({most[0]}, batch {most[1]}, {most[2]} cores)"
        if most
        else None,
        **{
            f"speed_up_over_{other}_median": float(np.median(ratios)) if ratios else None
            for other, ratios in against.items()
        },
        **{f"{other}_faster_than_gnn": sum(ratio < 1 - 1e-9 for ratio in ratios) for other, ratios in against.items()},
    }
