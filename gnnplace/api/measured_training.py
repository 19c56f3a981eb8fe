"""Training on one model by execution: every evaluation of a training search executes a placement on this machine.

A search's seconds are medians of few repeats, and the least of many is too low. The placement that a run keeps is therefore
replaced only by one that a paired measurement shows to be faster, and is compared with the start at the end.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gnnplace.api import measuring
from gnnplace.api.pipeline import set_up
from gnnplace.arrays import IntArray
from gnnplace.difference import Difference
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.evaluation import Evaluator, Problem
from gnnplace.files import read_json, write_text
from gnnplace.json_fields import JsonObject, json_object
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.paired import PairRule
from gnnplace.placement import Placement, save_placement
from gnnplace.planners.classical.constructions import best_start
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from gnnplace.report import device_letters, devices_of_letters
from gnnplace.training.data_parallel import DataParallelConfig
from gnnplace.training.run_state import InvalidRun
from gnnplace.training.search_ppo import TrainingProblem

Row = Mapping[str, Any]
UPDATES = 50
"""Default number of updates, with about 2,400 executions."""
EXECUTING = DataParallelConfig(searches=4, evaluations=(12, 12), lesson_problems=0, save_every=1)
"""Four searches of twelve executions per update; a checkpoint after each, since executions take most of the time."""


@dataclass(frozen=True)
class MeasuredModel:
    """The model of a run and the devices that execute it."""

    model: str
    """File or name in the zoo."""
    devices: str
    input: str | None = None
    """The `.npz` file of the inputs that it runs with; None: random ones."""


class ForgetfulEvaluator(Evaluator, Protocol):
    """An evaluator that executes placements, compares them in pairs, and can forget what it has measured."""

    measurements: int
    """Number of placements that were executed."""

    def forget(self) -> None:
        """Drops all measured costs of placements, so that the next evaluation of each executes it."""

    def fastest(self, count: int) -> list[Placement]:
        """The feasible placements with the least measured seconds, fastest first."""

    def difference(self, first: Placement, second: Placement, rule: PairRule | None = None) -> Difference:
        """The relative difference of two placements, measured in turns.

        Raises:
            MeasurementFailed: one of them failed.
        """


@dataclass(frozen=True, eq=False)
class ExecutedProblem:
    """The one training problem of a run."""

    name: str
    sha256: str | None
    """Hash of the model."""
    problem: Problem
    evaluator: ForgetfulEvaluator
    save: Callable[[Path, IntArray], None]
    """Writes an assignment `[N]` as a placement file."""

    def simulated_start(self) -> IntArray:
        """`[N]` the better of HEFT and the best single device in the simulator."""
        with Search(self.problem.simulated, Budget(None), "start", 0) as search:
            best_start(search)
        return search.solution().placement.assignment


class Incumbent:
    """The start of a run and the fastest placement that it has executed, in files that a resumed run reads again."""

    def __init__(self, executed: ExecutedProblem, folder: Path) -> None:
        """The placements of the run in `folder`; a new run begins with `ExecutedProblem.simulated_start`.

        Raises:
            InvalidRun: the run began with another model or other groups of its ops.
        """
        self._executed, self._folder = executed, folder
        self._file = folder / "start.json"
        if self._file.exists():
            kept = json_object(read_json(self._file, InvalidRun), str(self._file), InvalidRun)
            self.ratio = kept.cost("ratio")
            self.start, self.fastest = (self._assignment(kept, key) for key in ("start", "fastest"))
        else:
            self.start = self.fastest = executed.simulated_start()
            self.ratio = 1.0
            self._write()

    def problem(self, number: int) -> TrainingProblem:
        """The problem of an update: its start is executed anew, and earlier updates are forgotten."""
        executed = self._executed
        executed.evaluator.forget()
        evaluation = executed.evaluator.evaluate(Placement(self.start))
        start_s = executed.problem.penalised_s(evaluation)
        if not math.isfinite(start_s):
            raise MeasurementFailed(f"the start of update {number} could not be executed: {evaluation.failure}")
        return TrainingProblem(executed.name, executed.problem, self.start, start_s)

    def with_executions(self, earlier: int) -> Callable[[Row], Row]:
        """Ends an update: challenges the fastest placement so far, and completes the update's row.

        The row gains the seconds of the start and of the fastest placement, and the number of executions. `earlier` is that number
        before the run was resumed.
        """
        evaluator = self._executed.evaluator
        before = evaluator.measurements

        def completed(row: Row) -> Row:
            (facts,) = row["problems"]
            self._challenge()
            executions = earlier + evaluator.measurements - before
            start_s = facts["start_s"]
            return {**row, "start_s": start_s, "best_s": start_s * self.ratio, "executions": executions}

        return completed

    def judged(self) -> dict[str, Any]:
        """The difference of the fastest placement to the start, measured until it is decisive; null where it could not be measured."""
        nothing: dict[str, Any] = {"difference": None, "difference_interval": None, "pairs": 0}
        if (self.fastest == self.start).all():
            return {**nothing, "difference": 0.0, "difference_interval": [0.0, 0.0]}
        with suppress(MeasurementFailed):
            rule = measuring.MEASURE_OPTIONS.decisive
            found = self._executed.evaluator.difference(Placement(self.fastest), Placement(self.start), rule)
            interval = [found.low, found.high]
            return {"difference": found.difference, "difference_interval": interval, "pairs": found.pairs}
        return nothing

    def _challenge(self) -> None:
        """The update's fastest placement replaces the incumbent if a paired measurement shows that it is faster."""
        evaluator = self._executed.evaluator
        challenger = next(iter(evaluator.fastest(1)), None)
        if challenger is None or (challenger.assignment == self.fastest).all():
            return
        with suppress(MeasurementFailed):
            found = evaluator.difference(challenger, Placement(self.fastest))
            if found.sign < 0:
                self.fastest, self.ratio = challenger.assignment, self.ratio * (1.0 + found.difference)
                self._write()

    def _write(self) -> None:
        start, fastest = (device_letters(row.tolist()) for row in (self.start, self.fastest))
        kept = {"sha256": self._executed.sha256, "start": start, "fastest": fastest, "ratio": self.ratio}
        self._executed.save(self._folder / "placement.json", self.fastest)
        write_text(self._file, json.dumps(kept) + "\n")

    def _assignment(self, kept: JsonObject, key: str) -> IntArray:
        letters, groups = kept.text(key), self._executed.problem.graph.num_ops
        if kept.text("sha256") != self._executed.sha256 or len(letters) != groups:
            raise InvalidRun(
                f"{self._file}: the run began with another model, or with {len(letters)} op groups and not {groups}; start anew"
            )
        with suppress(ValueError):
            devices = np.array(devices_of_letters(letters), dtype=np.int64)
            if devices.max(initial=0) < self._executed.problem.topology.num_devices:
                return devices
        raise InvalidRun(f"{self._file}: {key!r} names devices that the run does not have; start anew")


@contextmanager
def executed_problem(
    measured: MeasuredModel, force: bool, on_warning: Callable[[str], None]
) -> Iterator[ExecutedProblem]:
    """Profiles the model where it is unknown, and executes its placements; no stored measurement of a placement counts.

    Raises:
        UnsupportedModel: the model cannot be read, or is an op graph.
        InvalidInput: the model does not take the inputs.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device, or other work keeps a device busy and `force` is false.
    """
    setup = set_up(measured.model, measured.devices, measure=True, force=force, inputs=measured.input)
    for warning in setup.warnings:
        on_warning(warning)
    with MeasuredEvaluator(
        setup.grouped_model, setup.topology, setup.group_evaluator, measuring.MEASURE_OPTIONS
    ) as evaluator:
        problem = setup.problem(evaluator)
        if not problem.num_moves:
            raise GnnplaceError(f"{measured.model}: no op group may run on a second device; there is nothing to learn")

        def save(path: Path, assignment: IntArray) -> None:
            placement = Placement(setup.coarsening.expand(assignment))
            model = {"name": setup.workload.name, "sha256": setup.workload.sha256}
            save_placement(path, setup.workload.graph, setup.topology, placement, {"model": model, "planner": "train"})

        name = f"{setup.workload.name} on {setup.topology.name}"
        yield ExecutedProblem(name, setup.workload.sha256, problem, evaluator, save)
