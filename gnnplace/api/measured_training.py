"""Training on one model by execution: every evaluation of a training search executes a placement on this machine."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gnnplace.api import measuring
from gnnplace.api.pipeline import set_up
from gnnplace.arrays import IntArray
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.evaluation import Evaluator, Problem
from gnnplace.files import read_json, write_text
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.placement import Placement
from gnnplace.planners.classical.heft import best_start
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget
from gnnplace.report import device_letters, devices_of_letters
from gnnplace.training.data_parallel import DataParallelConfig
from gnnplace.training.run_state import InvalidRun
from gnnplace.training.search_ppo import TrainingProblem

Row = Mapping[str, Any]
UPDATES = 50
"""Default number of updates, with about 2,400 executions."""
EXECUTING = DataParallelConfig(searches=4, evaluations=(12, 12), save_every=1)
"""Four searches of twelve executions per update; a checkpoint after each, since executions take most of the time."""


@dataclass(frozen=True)
class MeasuredModel:
    """The model of a run and the devices that execute it."""

    model: str
    """File or name in the zoo."""
    devices: str


class ForgetfulEvaluator(Evaluator, Protocol):
    """An evaluator that executes placements and can forget what it has measured."""

    measurements: int
    """Number of placements that were executed."""

    def forget(self) -> None:
        """Drops all measured costs of placements, so that the next evaluation of each executes it."""


@dataclass(frozen=True, eq=False)
class ExecutedProblem:
    """The one training problem of a run."""

    name: str
    sha256: str | None
    """Hash of the model."""
    problem: Problem
    evaluator: ForgetfulEvaluator

    def problems(self, folder: Path) -> Callable[[int], TrainingProblem]:
        """The problem of every update: its start is executed anew, and earlier updates are forgotten.

        The start is the better of HEFT and the best single device in the simulator. The run's first start is kept in `folder`,
        so that all updates have the same.

        Raises:
            InvalidRun: the run in `folder` began with another model or other groups of its ops.
        """
        start = self._kept_start(folder / "start.json")

        def anew(number: int) -> TrainingProblem:
            self.evaluator.forget()
            evaluation = self.evaluator.evaluate(Placement(start))
            start_s = self.problem.penalised_s(evaluation)
            if not math.isfinite(start_s):
                raise MeasurementFailed(f"the start of update {number} could not be executed: {evaluation.failure}")
            return TrainingProblem(self.name, self.problem, start, start_s)

        return anew

    def _kept_start(self, file: Path) -> IntArray:
        if not file.exists():
            start = self._simulated_start()
            write_text(file, json.dumps({"sha256": self.sha256, "start": device_letters(start.tolist())}) + "\n")
            return start
        kept = read_json(file, InvalidRun)
        groups = self.problem.graph.num_ops
        if kept["sha256"] != self.sha256 or len(kept["start"]) != groups:
            raise InvalidRun(
                f"{file}: the run began with another model, or with {len(kept['start'])} op groups and not {groups}; start anew"
            )
        return np.array(devices_of_letters(kept["start"]), dtype=np.int64)

    def _simulated_start(self) -> IntArray:
        with Search(self.problem.simulated, Budget(None), "start", 0) as search:
            best_start(search)
        return search.solution().placement.assignment

    def with_executions(self, last: Row | None) -> Callable[[Row], Row]:
        """Adds to a row the seconds of the start and of the best placement so far, and the number of executions.

        `last` is the last row of the run before it was resumed.
        """
        earlier, best_s = (last["executions"], last["best_s"]) if last else (0, math.inf)
        before = self.evaluator.measurements

        def added(row: Row) -> Row:
            nonlocal best_s
            (facts,) = row["problems"]
            best_s = min(best_s, facts["best_s"])
            executions = earlier + self.evaluator.measurements - before
            return {**row, "start_s": facts["start_s"], "best_s": best_s, "executions": executions}

        return added


@contextmanager
def executed_problem(
    measured: MeasuredModel, force: bool, on_warning: Callable[[str], None]
) -> Iterator[ExecutedProblem]:
    """Profiles the model where it is unknown, and executes its placements; no stored measurement of a placement counts.

    Raises:
        UnsupportedModel: the model cannot be read, or is an op graph.
        InvalidTopology: a device is not on this machine.
        MeasurementFailed: the model does not run on a device, or other work keeps a device busy and `force` is false.
    """
    setup = set_up(measured.model, measured.devices, measure=True, force=force)
    for warning in setup.warnings:
        on_warning(warning)
    with MeasuredEvaluator(
        setup.grouped_model, setup.topology, setup.group_evaluator, measuring.MEASURE_OPTIONS
    ) as evaluator:
        problem = setup.problem(evaluator)
        if not problem.num_moves:
            raise GnnplaceError(f"{measured.model}: no op group may run on a second device; there is nothing to learn")
        yield ExecutedProblem(
            f"{setup.workload.name} on {setup.topology.name}", setup.workload.sha256, problem, evaluator
        )
