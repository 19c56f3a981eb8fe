"""The answer of `place`: a placement, its cost, a comparison, and the files of a saved plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from gnnplace.api import record
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.errors import InfeasiblePlacement
from gnnplace.evaluation import Evaluation
from gnnplace.files import new_folder, write_text
from gnnplace.objectives import COMBINED
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts, written_files
from gnnplace.onnx_io.segments import Segment, segment_numbers
from gnnplace.placement import Placement, save_placement
from gnnplace.planners.solution import Solution
from gnnplace.run_record import (
    MeasuredRecord,
    MeasuredSummary,
    PlannerRow,
    RunRecord,
    ShapeRecord,
    Summary,
    finite,
    is_below_bound,
)
from gnnplace.schedule import Schedule
from gnnplace.sim.bounds import LowerBound
from gnnplace.units import format_bytes, format_s
from gnnplace.versions import installed_versions

_VERSIONED = ("gnnplace", "numpy", "onnx", "onnx-ir", "onnxruntime", "torch", "dgl", "numba")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A placement of a model with its cost, its schedule, and a comparison with other planners.

    >>> from gnnplace import place
    >>> plan = place("zoo:layered_200", "k40x2", planner="heft")
    >>> sorted(plan.summary()["compared"]), plan.gap >= 0
    (['heft', 'single'], True)
    >>> plan
    <Plan of 'layered_200' by heft: 100 ms per step (simulated), 7.2% above the lower bound>
    """

    setup: ProblemSetup
    solution: Solution
    """Answer of the chosen planner, on op groups."""
    placement: Placement
    """Device of every op."""
    evaluation: Evaluation
    """Simulated cost of `placement`."""
    rows: tuple[PlannerRow, ...]
    """One row per planner that was compared."""
    wall_s: float = 0.0
    """Seconds that `place` took."""
    measured: MeasuredRecord | None = None
    warnings: tuple[str, ...] = ()
    kept: str | None = None
    """Planner of `placement`, if it is not the chosen planner."""
    measured_segments: tuple[Segment, ...] | None = None
    """Segments in which the placement was executed."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search."""

    def __repr__(self) -> str:
        return f"<Plan of {self.setup.workload.name!r} by {self.kept or self.solution.planner}: {self.headline()}>"

    def cut_short(self) -> Plan:
        """The plan with a warning that Ctrl-C ended the search."""
        count, planner = self.solution.evaluations, self.solution.planner
        warning = f"interrupted after {count} evaluations of {planner!r}: this is the best so far"
        return replace(self, interrupted=True, warnings=(*self.warnings, warning))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of a saved plan: those that were executed, else those of the simulated schedule."""
        if self.measured_segments is not None:
            return self.measured_segments
        return self.setup.segments(self.placement, self.schedule.order())

    @cached_property
    def schedule(self) -> Schedule:
        """Simulated start and end of every op and transfer."""
        return self.setup.simulator.schedule(self.placement)

    @property
    def makespan_s(self) -> float:
        """Seconds of one step, measured or simulated."""
        return self.evaluation.makespan_s if self.measured is None else self.measured["median_s"]

    @cached_property
    def bound(self) -> LowerBound:
        """Lower bound of the seconds of all placements, by the cost model."""
        return self.setup.bound_with(self.solution)

    @property
    def objective_s(self) -> float:
        """Seconds of one step, or, simulated for the throughput, of the busiest device or channel in each step."""
        return self.evaluation.period_s if self._simulates_period else self.makespan_s

    @property
    def _simulates_period(self) -> bool:
        return self.measured is None and self.setup.objective == "throughput"

    @property
    def gap(self) -> float:
        """The objective above the lower bound, as a fraction of the bound.

        The bound comes from the cost model, so the gap of a measured plan includes the errors of that model.
        """
        bound_s = self.bound.value_s
        return self.objective_s / bound_s - 1.0 if bound_s > 0 else 0.0

    def summary(self, out: Path | None = None) -> Summary:
        """The object that `gnnplace place --json` prints; `out` is the folder of the saved plan."""
        row = self.measured
        measured: MeasuredSummary | None = row and {
            "median_s": row["median_s"], "spread_s": row["spread_s"], "repeats": row["repeats"],
            "single_session_s": row["single_session_s"],
            "best_session_s": row["best_session_s"], "best_session": row["best_session"],
        }  # fmt: skip
        summary: Summary = {
            "model": self.setup.workload.name,
            "ops": self.setup.workload.graph.num_ops,
            "groups": self.setup.for_planner(self.solution.planner).coarsening.graph.num_ops,
            "planner": self.solution.planner,
            "objective": self.setup.objective,
            "makespan_s": finite(self.makespan_s),
            "measured": measured,
            "feasible": self.evaluation.feasible,
            "lower_bound_s": self.bound.value_s,
            "gap": finite(self.gap),
            "compared": {row["planner"]: row["makespan_s"] for row in self.rows},
            "evaluations": self.solution.evaluations,
            "wall_s": self.wall_s,
            "seed": self.solution.seed,
            "out": None if out is None else str(out),
        }
        return {**summary, "throughput_s": finite(self.objective_s)} if self._simulates_period else summary

    def headline(self) -> str:
        """The answer in one sentence."""
        evaluator = "simulated" if self.measured is None else "measured"
        step = "step" if self.setup.objective == "latency" else "pipelined step"
        models = len(self.setup.workload.models)
        sizes = f", {COMBINED[self.setup.dims_objective]} of {models} sizes" if models > 1 else ""
        text = f"{format_s(self.objective_s)} per {step} ({evaluator}{sizes}), "
        if is_below_bound(self.gap):
            return f"{text}less than the bound of {format_s(self.bound.value_s)}: the machine was slower when it was profiled"
        return f"{text}{max(self.gap, 0.0):.1%} above the lower bound"

    def save(self, folder: str | Path) -> Path:
        """Writes `placement.json`, `run.json`, `report.html` and, for ONNX models, `placed.onnx` and `parts/`.

        Raises:
            InfeasiblePlacement: the placement does not fit; nothing is written.
        """
        if not self.evaluation.feasible:
            raise InfeasiblePlacement(self.why_infeasible())
        from gnnplace.report.page import write_report  # loads plotly, which only saving needs

        out, workload, topology = Path(folder), self.setup.workload, self.setup.topology
        with new_folder(out, last="run.json", removes=written_files(out / "parts")) as fresh:
            save_placement(fresh / "placement.json", workload.graph, topology, self.placement, self.facts())
            if workload.onnx is not None:
                of_ops = self.segments
                if any(segment.kernels is not None for segment in of_ops):  # their borders differ from those of ops
                    assignment, order = self.placement.assignment, self.schedule.order()
                    of_ops = workload.segments(assignment, order, topology.excludes)
                numbers, parts = segment_numbers(of_ops, workload.graph.num_ops), fresh / "parts"
                manifest = write_parts(workload.onnx, self.segments, topology.device_names, parts, self.setup.kernels)
                copied_in = None if manifest.optimised_for else parts.name
                write_placed(
                    workload.onnx, topology, self.placement.assignment, numbers, fresh / "placed.onnx", copied_in
                )
            run = self.record(out)
            write_report(run, fresh)
            write_text(fresh / "run.json", json.dumps(run) + "\n")
        return out

    def why_infeasible(self) -> str:
        """One line that names the devices without enough memory, and the missing bytes."""
        if self.evaluation.failure:
            return self.evaluation.failure
        lacking = "; ".join(
            f"{device.name} lacks {format_bytes(float(short))} of {format_bytes(float(device.memory_bytes or 0))}"
            for device, short in zip(self.setup.topology.devices, self.evaluation.shortfall_bytes, strict=True)
            if short > 0
        )
        found = f"no placement of {self.setup.workload.name!r} that was found fits"
        return f"{found}: {lacking}; add devices or memory, or allow more evaluations"

    def record(self, out: Path | None = None, command: Sequence[str] | None = None) -> RunRecord:
        """The content of `run.json`; `out` is the folder of the saved plan, and `command` replaces this program's arguments."""
        setup, solution, schedule = self.setup, self.solution, self.schedule
        graph, topology = setup.workload.graph, setup.topology
        own = setup.for_planner(solution.planner)
        return {
            "format": "gnnplace.run/1",
            "summary": self.summary(out),
            "devices": [
                {
                    "name": device.name,
                    "kind": device.kind,
                    "memory_bytes": device.memory_bytes,
                    "resources": list(device.resources or (device.name,)),
                    "memory_pool": device.memory_pool,
                }
                for device in topology.devices
            ],
            "ops": record.ops_record(setup, own, self.placement, schedule),
            "edges": record.edges_record(graph),
            "transfers": record.transfers_record(graph, topology, schedule),
            "critical_path": record.critical_path(graph, topology, schedule),
            "memory_over_time": record.memory_over_time(graph, topology, schedule),
            "peak_memory_bytes": self.peak_memory_bytes,
            "planners": list(self.rows),
            "kept": self.kept or solution.planner,
            "history": [(count, seconds, finite(best)) for count, seconds, best in solution.history],
            "stages": [(name, finite(best)) for name, best in solution.stages],
            "steps": record.steps_record(own.problem(), solution),
            "executed_steps": record.executed_steps_record(own.problem(), solution),
            "lower_bound": {"value_s": self.bound.value_s, "name": self.bound.name},
            "measured": self.measured,
            "shapes": self.shapes,
            "dims_objective": setup.dims_objective,
            "warnings": [*setup.workload.warnings, *self.warnings],
            "command": " ".join(["gnnplace", *(sys.argv[1:] if command is None else command)]),
            "versions": installed_versions(*_VERSIONED),
        }

    @property
    def shapes(self) -> list[ShapeRecord]:
        """The dimensions of every shape, and the simulated seconds of one step; empty for an op graph."""
        return [
            {"dims": dict(model.dims), "makespan_s": finite(simulator.evaluate(self.placement).makespan_s)}
            for model, simulator in zip(self.setup.workload.models, self.setup.simulators, strict=False)
        ]

    @property
    def peak_memory_bytes(self) -> dict[str, int]:
        """Simulated peak memory of each device, by name."""
        peaks = self.evaluation.peak_memory_bytes.tolist()
        return dict(zip(self.setup.topology.device_names, peaks, strict=True))

    def facts(self) -> dict[str, Any]:
        """The entries of `placement.json` besides the assignment."""
        workload = self.setup.workload
        return {
            "model": {"name": workload.name, "sha256": workload.sha256, "ops": workload.graph.num_ops},
            "evaluation": {
                "evaluator": "simulated" if self.measured is None else "measured",
                "makespan_s": self.makespan_s,
                "feasible": self.evaluation.feasible,
                "peak_memory_bytes": self.peak_memory_bytes,
            },
            "planner": self.kept or self.solution.planner,
            "seed": self.solution.seed,
            "version": metadata.version("gnnplace"),
        }
