"""Rows of the papers' tables, and one planner on one row; published seconds come from other hardware and software."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gnnplace.api import ProblemSetup
from gnnplace.api.workload import load_workload
from gnnplace.bench.problems import accelerators, bytes_alone, compiled_problem, failure_of, run_planner, with_memory
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.presets import preset
from gnnplace.placement import Placement
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.solution import Budget
from gnnplace.report import device_letters
from gnnplace.run_record import finite

OOM = "OOM"
"""Published in place of seconds where a step ran out of memory."""
MEMORY_SHARE = 2 / 3
Published = Mapping[str, float | str]


@dataclass(frozen=True)
class TableRow:
    """One training step on one testbed."""

    key: str
    task: str
    workload: str
    devices: str
    """Preset; the host is one of its devices."""
    source: str
    """Paper and table; empty where only the workload comes from a paper."""
    published: Published = field(default_factory=dict)
    """Seconds or `OOM` by column: "single-cpu", "single-gpu" or the name of a planner."""
    memory_share: float | None = None
    """Memory of every GPU as a share of the memory that the step needs on one device; None for the preset's memory."""


def _published(
    year: int, gpu: str, learned: str, task: str, workload: str, gpus: int, *seconds: float | str | None
) -> TableRow:
    """A row of a published table; seconds are of one CPU, one GPU, Scotch, MinCut, expert, learned, None where missing."""
    columns = ("single-cpu", "single-gpu", "scotch", "metis", "expert", learned)
    published = {column: value for column, value in zip(columns, seconds, strict=True) if value is not None}
    key, source = f"{year}-{workload}-{gpu}x{gpus}", f"Mirhoseini et al. {year}, table of step times"
    return TableRow(key, task, f"zoo:{workload}:training", f"{gpu}x{gpus}", source, published)


def _too_large(workload: str, task: str, gpus: int) -> TableRow:
    """A translation model on GPUs that are too small for it, as the papers' GPUs were for theirs."""
    devices = f"k40x{gpus}"
    key, name = f"small-{workload}-{devices}", f"zoo:{workload}:training"
    return TableRow(key, f"{task}, small GPUs", name, devices, "", {}, MEMORY_SHARE)


_icml_2017 = partial(_published, 2017, "k80", "coloc-rl")
_iclr_2018 = partial(_published, 2018, "k40", "hierarchical")
SEEDS_ROWS = (
    _icml_2017("RNNLM", "rnnlm_2", 2, 6.89, 1.57, 13.43, 11.94, 3.81, 1.57),
    _icml_2017("RNNLM", "rnnlm_2", 4, 6.89, 1.57, 11.52, 10.44, 4.46, 1.57),
    _icml_2017("NMT", "nmt_2", 2, 10.72, OOM, 14.19, 11.54, 4.99, 4.04),
    _icml_2017("NMT", "nmt_2", 4, 10.72, OOM, 11.23, 11.78, 4.73, 3.92),
    _icml_2017("Inception-V3", "inception_v3", 2, 26.21, 4.60, 25.24, 22.88, 11.22, 4.60),
    _icml_2017("Inception-V3", "inception_v3", 4, 26.21, 4.60, 23.41, 24.52, 10.65, 3.85),
    _iclr_2018("Inception-V3", "inception_v3", 2, 0.61, 0.15, 0.93, 0.82, 0.15, 0.13),
    _iclr_2018("ResNet", "resnet_50", 2, None, 1.18, 6.27, 2.92, 1.18, 1.18),
    _iclr_2018("RNNLM", "rnnlm_2", 2, 6.89, 1.57, 5.62, 5.21, 1.57, 1.57),
    _iclr_2018("NMT 2-layer", "nmt_2", 2, 6.46, OOM, 3.21, 5.34, 2.13, 0.84),
    _iclr_2018("NMT 4-layer", "nmt_4", 4, 10.68, OOM, 11.18, 11.63, 3.64, 1.69),
    _iclr_2018("NMT 8-layer", "nmt_8", 8, 11.52, OOM, 17.85, 19.01, 3.88, 4.07),
    _too_large("nmt_2", "NMT 2-layer", 2),
    _too_large("nmt_4", "NMT 4-layer", 4),
    _too_large("nmt_8", "NMT 8-layer", 8),
)
"""The tables of the papers at ICML 2017 and ICLR 2018, and the translation models on GPUs that are too small for them."""

SPOTLIGHT_ROWS = tuple(
    TableRow(f"cifar-{member:02}-{devices}", f"CIFAR-10 network {member}", f"zoo:cifar_cell_{member:02}:training",
             devices, "Gao et al. 2018")
    for member in range(4)
    for devices in ("k80x2", "k80x4")
)  # fmt: skip
"""Spotlight's CIFAR-10 comparison on members of a random family; the paper gives one ratio and no seconds per network."""


def row_of(key: str) -> TableRow:
    """The row of either bench with this key."""
    return {row.key: row for row in (*SEEDS_ROWS, *SPOTLIGHT_ROWS)}[key]


FACTS = "facts"
"""Name in place of a planner, for the sizes of the row, its single devices and its lower bound."""


@dataclass(frozen=True)
class Case:
    """One run of a planner."""

    row: str
    planner: str
    seed: int
    evaluations: int


Results = Mapping[Case, Mapping[str, Any]]


def case_result(case: Case) -> dict[str, Any]:
    """Seconds on the whole graph and the history on op groups, or the reason for a missing answer; raises as `run_planner`."""
    setup = setup_of_row(case.row)
    if case.planner == FACTS:
        return _facts(setup)
    load = partial(load_planner, case.planner)
    run = run_planner(setup, compiled_problem(setup), load, Budget(case.evaluations), case.seed)
    result = {"makespan_s": run.makespan_s, "error": run.error, "wall_s": run.wall_s, "evaluations": 0}
    if run.solution is None:
        return result
    return result | {
        "evaluations": run.solution.evaluations,
        "history": [[count, best_s] for count, _, best_s in run.solution.history],
        "placement": device_letters(run.solution.placement.assignment.tolist()),
    }


@lru_cache(maxsize=2)
def setup_of_row(key: str) -> ProblemSetup:
    """The row's workload on its testbed, with the roofline costs of published figures."""
    row = row_of(key)
    setup = ProblemSetup.build(load_workload(row.workload), preset(row.devices), RooflineCost())
    if row.memory_share is None:
        return setup
    memory = int(row.memory_share * bytes_alone(setup))
    return with_memory(setup, dict.fromkeys(accelerators(setup.topology), memory))


def _facts(setup: ProblemSetup) -> dict[str, Any]:
    graph, topology, groups = setup.workload.graph, setup.topology, setup.coarsening.graph
    singles: dict[str, dict[str, Any]] = {}
    for index, device in enumerate(topology.devices):
        column = "single-cpu" if device.is_host else "single-gpu"
        if column not in singles:
            alone = setup.simulator.evaluate(Placement(np.full(graph.num_ops, index, dtype=np.int64)))
            singles[column] = {
                "makespan_s": finite(alone.makespan_s) if alone.feasible else None,
                "error": failure_of(alone),
                "peak_memory_bytes": int(alone.peak_memory_bytes[index]),
                "memory_bytes": device.memory_bytes,
            }
    return {
        "ops": graph.num_ops,
        "groups": groups.num_ops,
        "devices": list(topology.device_names),
        "singles": singles,
        "lower_bound": dataclasses.asdict(setup.bound),
        "group_stages": groups.stages.tolist(),
        "group_types": list(groups.op_types),
    }
