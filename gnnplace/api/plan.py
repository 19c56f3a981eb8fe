"""The answer of `place`: a placement with everything that led to it, and its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from gnnplace.api.artefacts import write_artefacts
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.record import run_record
from gnnplace.api.solution import bound_of, finite
from gnnplace.errors import InfeasiblePlacement
from gnnplace.evaluation import Evaluation
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.planners.search import Solution
from gnnplace.run_record import MeasuredRecord, PlannerRow, RunRecord, ShapeRecord, Summary
from gnnplace.schedule import Schedule
from gnnplace.sim.bounds import LowerBound
from gnnplace.units import format_bytes, format_s

__all__ = ["Plan"]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which device runs which op, what that costs, and how it compares.

    >>> from gnnplace.api import PlaceOptions, place
    >>> plan = place("zoo:layered_200", "k40x2", PlaceOptions(planner="heft"))
    >>> sorted(plan.summary()["compared"]), plan.gap >= 0
    (['heft', 'single'], True)
    """

    setup: ProblemSetup
    solution: Solution
    """Of the chosen planner, on op groups."""
    placement: Placement
    """Of every op."""
    evaluation: Evaluation
    """Simulated, of `placement`."""
    rows: tuple[PlannerRow, ...]
    """Every planner that was compared."""
    wall_s: float
    measured: MeasuredRecord | None = None
    warnings: tuple[str, ...] = ()
    kept: str | None = None
    """The planner whose placement this is, where another one's was better than the chosen planner's."""
    measured_segments: tuple[Segment, ...] | None = None
    """Those that were executed side by side, where rewards were measured."""
    interrupted: bool = False
    """Ctrl-C ended the search."""

    def cut_short(self) -> Plan:
        """The same as the best that there was at a Ctrl-C."""
        warning = f"interrupted after {self.solution.evaluations} evaluations of {self.solution.planner!r}: this is the best so far"
        return replace(self, interrupted=True, warnings=(*self.warnings, warning))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """What runs: the measured segments, else those of the simulated schedule."""
        if self.measured_segments is not None:
            return self.measured_segments
        return self.setup.workload.segments(self.placement.assignment, self.schedule.order())

    @cached_property
    def schedule(self) -> Schedule:
        """When everything runs, simulated."""
        return self.setup.simulator.schedule(self.placement)

    @property
    def makespan_s(self) -> float:
        """Seconds of one step: measured where it was measured, else simulated."""
        return self.evaluation.makespan_s if self.measured is None else self.measured["median_s"]

    @cached_property
    def bound(self) -> LowerBound:
        """Seconds that no placement can beat, by the cost model."""
        return bound_of(self.setup, self.solution)

    @property
    def gap(self) -> float:
        """The objective above the lower bound, as a fraction of the bound; measured seconds where there are some.

        The bound comes from the cost model, so a measured gap also holds what the model does not know.
        """
        bound = self.bound.value_s
        return self._objective_s / bound - 1.0 if bound > 0 else 0.0

    @property
    def _objective_s(self) -> float:
        if self.measured is not None or self.setup.objective == "latency":
            return self.makespan_s
        return self.evaluation.period_s

    def summary(self, out: Path | None = None) -> Summary:
        """What `gnnplace place --json` prints."""
        measured = self.measured
        return {
            "model": self.setup.workload.name,
            "ops": self.setup.workload.graph.num_ops,
            "groups": self.setup.for_planner(self.solution.planner).coarsening.graph.num_ops,
            "planner": self.solution.planner,
            "objective": self.setup.objective,
            "makespan_s": finite(self.makespan_s),
            "measured": None
            if measured is None
            else {
                "median_s": measured["median_s"],
                "spread_s": measured["spread_s"],
                "repeats": measured["repeats"],
                "single_session_s": measured["single_session_s"],
            },
            "feasible": self.evaluation.feasible,
            "lower_bound_s": self.bound.value_s,
            "gap": finite(self.gap),
            "compared": {row["planner"]: row["makespan_s"] for row in self.rows},
            "evaluations": self.solution.evaluations,
            "wall_s": self.wall_s,
            "seed": self.solution.seed,
            "out": None if out is None else str(out),
        }

    def headline(self) -> str:
        """The answer in one sentence."""
        evaluator = "simulated" if self.measured is None else "measured"
        text = f"{format_s(self.makespan_s)} per step ({evaluator}), "
        if self.gap < 0:
            return f"{text}less than the bound of {format_s(self.bound.value_s)}: the machine was slower when it was profiled"
        return f"{text}{self.gap:.1%} above the lower bound"

    def save(self, folder: str | Path) -> Path:
        """Writes `placement.json`, `run.json`, `report.html` and, for ONNX models, `placed.onnx` and `parts/`.

        Raises:
            InfeasiblePlacement: the placement does not fit; nothing is written.
        """
        if not self.evaluation.feasible:
            raise InfeasiblePlacement(self.why_infeasible())
        out = Path(folder)
        write_artefacts(self, out)
        return out

    def why_infeasible(self) -> str:
        """One line: which devices lack how much memory."""
        if self.evaluation.failure:
            return self.evaluation.failure
        lacking = [
            f"{device.name} lacks {format_bytes(float(short))} of {format_bytes(float(device.memory_bytes or 0))}"
            for device, short in zip(self.setup.topology.devices, self.evaluation.shortfall_bytes, strict=True)
            if short > 0
        ]
        return (
            f"no placement of {self.setup.workload.name!r} that was found fits: {'; '.join(lacking)}; "
            "add devices or memory, or allow more evaluations"
        )

    def record(self, out: Path | None = None, command: Sequence[str] | None = None) -> RunRecord:
        """All of `run.json`."""
        return run_record(self, out, command)

    @property
    def shapes(self) -> list[ShapeRecord]:
        """The sizes that the placement was made for, with simulated seconds of one step; none for an op graph."""
        return [
            {
                "dims": dict(setting.workload.onnx.dims),
                "makespan_s": finite(setting.simulator.evaluate(self.placement).makespan_s),
            }
            for setting in (self.setup, *self.setup.others)
            if setting.workload.onnx is not None
        ]

    @property
    def peak_memory_bytes(self) -> dict[str, int]:
        """By device name."""
        peaks = self.evaluation.peak_memory_bytes.tolist()
        return dict(zip(self.setup.topology.device_names, peaks, strict=True))

    def facts(self) -> dict[str, Any]:
        """What `placement.json` says besides the assignment."""
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
