"""`gnnplace bench scale`: time, memory and quality from a file to a placement, at 1,000 to 200,000 ops."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gnnplace.api import PlaceOptions, compare, load_workload, place, set_up
from gnnplace.api.problem_setup import topology_of
from gnnplace.bench.harness import BenchOptions, BenchResult, matching, run_cases
from gnnplace.files import temporary_folder
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import OpGraph
from gnnplace.isolated_process import spawned_pool
from gnnplace.onnx_io.read import read_onnx
from gnnplace.units import format_s

_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
_LARGEST_COMPARED = 100_000
_WARM_UP_OPS = 4_000  # enough for every stage of a search of large graphs
COLUMNS = (
    "case", "ops", "import_s", "prepare_s", "evaluate_s", "place_s", "save_s", "place_peak_bytes", "makespan_s", "gap", "heft_makespan_s",
    "annealing_groups_makespan_s", "annealing_ops_makespan_s",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A graph of about `ops` ops on a device set."""

    family: str
    """`layered`, or the name of a training step of the zoo that is put side by side until it has the size."""
    ops: int
    devices: str = "v100x8"
    seed: int = 0
    evaluations: int = 2000
    annealing: bool = True
    """Whether annealing runs for the same time."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        place = "" if self.family == ONNX else f" on {self.devices}"
        return f"{self.family} {self.ops:,}{place}"


ONNX = "onnx"
"""In place of a family: an ONNX file, which is only read."""
CASES = (
    *(
        Case(family, size, annealing=size <= _LARGEST_COMPARED)
        for size in _SIZES
        for family in ("layered", "ptb_cell_00:training")
    ),
    *(Case("inception_v3:training", size) for size in (30_000, 100_000)),
    *(Case("layered", 100_000, devices, annealing=False) for devices in ("v100x2", "v100x16")),
    *(Case(ONNX, nodes) for nodes in (5_000, 15_000, 50_000)),
)


def bench_scale(options: BenchOptions) -> BenchResult:
    """A row per graph and device set, then one per ONNX file; cases run one at a time, as seconds are compared."""
    cases = matching({case.name: case for case in CASES}, options.only, "case")
    rows = list(run_cases(cases, run_case, options, _progress).values())
    return BenchResult("scale", options, rows, _summary(rows), columns=COLUMNS)


def _progress(case: Case, row: Mapping[str, Any]) -> str:
    placed = "" if "gap" not in row else f", placed in {format_s(row['place_s'])}, {row['gap']:.1%} above the bound"
    return f"{case.name}: read in {format_s(row['import_s'])}{placed}"


def graph_of(case: Case) -> OpGraph:
    """The graph of a case."""
    from models_zoo.networks.generated.widened import widened
    from models_zoo.networks.zoo_name import parse_zoo_name

    if case.family == "layered":  # ops of 50 microseconds, as in the published graph of 100,000 ops
        found = parse_zoo_name(f"layered_100000:num_ops={case.ops}:seed={case.seed}").structure()
        assert found is not None
        return found
    base = parse_zoo_name(case.family).structure()
    assert base is not None
    return replace(widened(base, max(1, round(case.ops / base.num_ops))), name=f"{base.name}_{case.ops}")


def run_case(case: Case) -> dict[str, Any]:
    """Figures of one case, taken in a new process so that earlier memory does not count."""
    with spawned_pool(1) as pool:
        return pool.submit(_read if case.family == ONNX else _placed, case).result()


def _placed(case: Case) -> dict[str, Any]:
    warm_up = graph_of(Case("layered", _WARM_UP_OPS))
    place(warm_up, "v100x2", evaluations=20)
    stages: dict[str, Any] = {}
    with temporary_folder() as folder:
        file = folder / "graph.json"
        write_graph(graph_of(case), file)
        with stage(stages, "import"):
            graph = load_workload(file).graph
        topology = topology_of(case.devices)
        with stage(stages, "prepare"):
            setup = set_up(graph, topology)
        assignment = np.zeros((1, graph.num_ops), dtype=np.int64)
        with stage(stages, "evaluate"):
            setup.simulator.evaluate_batch(assignment)
        with stage(stages, "place"):
            plan = place(graph, topology, evaluations=case.evaluations, seed=case.seed)
        with stage(stages, "save"):
            plan.save(folder / "plan")
    row: dict[str, Any] = {
        "case": case.name, "family": case.family, "devices": case.devices, "ops": graph.num_ops, "edges": len(graph.consumers),
        **stages, "evaluations": plan.solution.evaluations, "gnn_s": plan.solution.wall_s, "makespan_s": plan.makespan_s,
        "lower_bound_s": plan.bound.value_s, "gap": plan.gap, "stages": dict(plan.solution.stages),
        **{f"{row['planner']}_makespan_s": row["makespan_s"] for row in plan.rows if row["planner"] != "gnn"},
    }  # fmt: skip
    row["total_s"] = row["import_s"] + row["place_s"]
    return row | (_annealed(case, graph, plan.solution.wall_s) if case.annealing else {})


def _annealed(case: Case, graph: OpGraph, seconds: float) -> dict[str, Any]:
    """Annealing of groups and of ops, each from HEFT, with another seed and for as long as `gnn` took."""
    found = {}
    for seed, (kind, groups) in enumerate((("groups", None), ("ops", graph.num_ops))):
        options = PlaceOptions(evaluations=None, seconds=seconds, seed=case.seed + seed, max_groups=groups)
        begin_s = time.perf_counter()
        [row] = compare(graph, case.devices, ["annealing"], options)
        found[f"annealing_{kind}_makespan_s"] = row["makespan_s"]
        found[f"annealing_{kind}_s"] = time.perf_counter() - begin_s
    return found


def _read(case: Case) -> dict[str, Any]:
    from models_zoo.networks.generated.towers import write_towers

    stages: dict[str, Any] = {}
    with temporary_folder() as folder:
        write_towers(100, folder / "small.onnx")
        read_onnx(folder / "small.onnx", {"batch": 4})
        write_towers(case.ops, folder / "large.onnx")
        with stage(stages, "import"):
            graph = read_onnx(folder / "large.onnx", {"batch": 4}).graph
    return {"case": case.name, "family": ONNX, "ops": graph.num_ops, "edges": len(graph.consumers), **stages}


@contextmanager
def stage(row: dict[str, Any], name: str) -> Iterator[None]:
    """Adds `NAME_s` and `NAME_peak_bytes` of the block; without Linux's counters the memory at its end."""
    with suppress(OSError):  # without it the peak is the one since the process began
        Path("/proc/self/clear_refs").write_text("5")
    begin_s = time.perf_counter()
    yield
    row[f"{name}_s"] = time.perf_counter() - begin_s
    row[f"{name}_peak_bytes"] = _peak_bytes()


def _peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return int(psutil.Process().memory_info().rss)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Slopes of each family on eight devices, and ratios of `gnn` to the best of the other planners.

    A slope is that of the least-squares line through the logarithms of ops and seconds. Placements of other planners that do
    not fit have no seconds.
    """
    summary: dict[str, Any] = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        same = [row for row in rows if row["family"] == family and row.get("devices", "v100x8") == "v100x8"]
        for column in ("import_s", "prepare_s", "evaluate_s", "gnn_s", "save_s", "total_s"):
            points = [(row["ops"], row[column]) for row in same if column in row]
            if len({ops for ops, _ in points}) > 1:
                ops, seconds = np.log(points).T
                summary[f"slope {column} {family}"] = round(float(np.polyfit(ops, seconds, 1)[0]), 6)
    others = [f"{name}_makespan_s" for name in ("heft", "annealing_groups", "annealing_ops")]
    ratios = [
        row["makespan_s"] / min(row[name] for name in others if row[name] is not None)
        for row in rows
        if row.get("annealing_ops_makespan_s")
    ]
    if ratios:
        summary |= {"worst_ratio_to_others": max(ratios), "median_ratio_to_others": float(np.median(ratios))}
    return summary
