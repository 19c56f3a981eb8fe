"""Placement -> runtime, from executing it on this machine's devices."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.cost.measurement_store import MeasurementStore, StoredPlacement
from gnnplace.devices.topology import Topology
from gnnplace.errors import MeasurementFailed, UnsupportedModel
from gnnplace.evaluation import Evaluation, EvaluationBatch, SimulatedEvaluator
from gnnplace.files import temporary_folder
from gnnplace.measuring.execution import (
    Comparison,
    Execution,
    JobRunner,
    Kept,
    PlacementKey,
    executed,
    placement_key,
    worker_setup,
)
from gnnplace.measuring.grouped_parts import GroupedModel, PartMaker, group_order, measured_segments, model_segments
from gnnplace.measuring.timing import SLOWEST, MeasureOptions, StoppingRule, median_interval, quiet_s, without_drift
from gnnplace.measuring.worker_process import Answer, Job, WorkerProcess
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.split import Part
from gnnplace.placement import Placement
from gnnplace.running.devices import parse_device

__all__ = ["MeasuredEvaluator"]


class MeasuredEvaluator:
    """Executes placements of a model's op groups in a process of its own; close it, or use it as a context.

    Sessions are kept, so a placement that moves one group builds only what changes by that; see `MeasureOptions.pieces`.
    Repeats alternate with a plain session of the whole model, which cancels drift. No placement is measured twice.
    Peak memory, shortfall, busy time and transferred bytes are simulated. The period is the makespan; `MeasureOptions.requests`
    says of how many steps at once.
    """

    def __init__(
        self,
        grouped: GroupedModel,
        topology: Topology,
        simulated: SimulatedEvaluator,
        options: MeasureOptions = MeasureOptions(),
        kept: Kept | None = None,
    ) -> None:
        """Measures the plain session. What the store of `kept` knows is not executed again, and it is told of everything else.

        Raises:
            InvalidTopology: a device of the set is not on this machine.
            UnsupportedModel: the model is too new to run, or its inputs cannot be made up.
        """
        for name in topology.device_names:
            parse_device(name)
        self.measurements = 0
        """Placements that were executed during the search."""
        self.recalled = 0
        """Placements that were known from before."""
        self.elsewhere: JobRunner | None = None
        """What executes placements in the search; None: this machine. Its plain session stands for those of others."""
        self._best_ratio = np.inf
        self.executing_s = 0.0
        """In which models ran, of all that measuring placements during the search took."""
        self.retried = 0
        """How often the measuring process was lost and what it measured was tried again: no failures."""
        self.not_kept = ""
        """Why the store could not be told of something; it is told nothing from then on."""
        self._grouped, self._topology, self._simulated, self._options = grouped, topology, simulated, options
        self._kept = kept
        self._known: dict[PlacementKey, tuple[Placement, Evaluation]] = {}
        feeds = [
            sample_inputs(model, np.random.default_rng(options.seed)) for model in (grouped.model, *grouped.others)
        ]
        self._open = ExitStack()
        try:
            self._maker = PartMaker(grouped.model, self._open.enter_context(temporary_folder()))
            self.setup = worker_setup(grouped, self._maker, feeds, topology.num_devices, options.dims_objective)
            worker = WorkerProcess(self.setup, options.timeout_s, options.memory_limit_bytes)
            self._worker = self._open.enter_context(worker)
            self._reference, self.single = self._measured_single()
        except BaseException:
            self.close()
            raise

    @property
    def kind(self) -> Literal["measured"]:
        """Measured."""
        return "measured"

    @property
    def single_device(self) -> str | None:
        """Where the plain session of the whole model runs; None when no device runs it."""
        return None if self._reference is None else self._reference.device

    @property
    def worker_pid(self) -> int | None:
        """Of the measuring process; None while there is none."""
        return self._worker.pid

    @property
    def failed(self) -> int:
        """Placements that were evaluated and have a `failure`."""
        return sum(bool(evaluation.failure) for _, evaluation in self._known.values())

    @property
    def device_names(self) -> tuple[str, ...]:
        """Of the devices that placements run on."""
        return self._topology.device_names

    @property
    def reference(self) -> Part | None:
        """The whole model on the best single device, which runs in turns with every placement; None when no device runs it."""
        return self._reference

    @property
    def data_files(self) -> Mapping[str, Path]:
        """Where the weights lie that no part holds, by the names that parts have for them."""
        return self._maker.data_files

    def evaluate(self, placement: Placement) -> Evaluation:
        """The measured cost of a placement of the groups; what fails or hangs has a `failure` and takes forever."""
        return self._evaluated([placement])[0]

    def fastest(self, count: int) -> list[Placement]:
        """The placements that took least, of those that were evaluated, ran and fit; fastest first."""
        found = [pair for pair in self._known.values() if pair[1].feasible]
        return [placement for placement, _ in sorted(found, key=lambda pair: pair[1].makespan_s)[:count]]

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """The measured costs of `[B, G]` assignments, one after the other or, elsewhere, side by side."""
        found = self._evaluated([Placement(row) for row in assignments])
        missing = [np.inf if evaluation.failure else float(evaluation.shortfall_bytes.sum()) for evaluation in found]
        return EvaluationBatch(
            makespan_s=np.array([evaluation.makespan_s for evaluation in found], dtype=np.float64),
            period_s=np.array([evaluation.period_s for evaluation in found], dtype=np.float64),
            shortfall_bytes=np.array(missing, dtype=np.float64),
        )

    def segments_of(self, placement: Placement) -> tuple[Segment, ...]:
        """The segments of the model's ops in which a placement of the groups runs, in a global run order."""
        return model_segments(self._grouped, placement.assignment, self._group_order(placement))

    def compare(self, placements: Sequence[Placement]) -> Comparison:
        """Placements as they will run, each in its segments, side by side with the plain session of the whole model."""
        answers = self.side_by_side(placements, self._options.final)
        evaluations, single = [], self.single
        for placement, answer in zip(placements, answers, strict=True):
            rows = answer.samples
            row = None if rows is None else without_drift(rows)[0] if self._references else rows[0]
            evaluations.append(self._evaluation(self._simulated.evaluate(placement), row, answer.failure))
            if single is not None and rows is not None:
                single = self._evaluation(single, rows[-1], "")
        return Comparison(tuple(evaluations), single, self.single_device)

    def close(self) -> None:
        """Ends the measuring process and removes the written parts."""
        self._open.close()

    def __enter__(self) -> MeasuredEvaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _evaluated(self, placements: Sequence[Placement]) -> list[Evaluation]:
        """What each costs; those that are not known are executed."""
        for new in [placements] if self.elsewhere is not None else [[placement] for placement in placements]:
            waiting: dict[PlacementKey, Execution] = {}
            for placement in new:
                key = placement_key(placement)
                if key not in self._known and key not in waiting:
                    found = self._without_executing(placement)
                    if isinstance(found, Evaluation):
                        self._known[key] = placement, found
                    else:
                        waiting[key] = found
            self._execute(waiting)
        return [self._known[placement_key(placement)][1] for placement in placements]

    def _without_executing(self, placement: Placement) -> Evaluation | Execution:
        """What it costs where that is known or cannot be measured, else what is to be executed."""
        simulated = self._simulated.evaluate(placement)
        if not np.isfinite(simulated.makespan_s):
            return self._evaluation(simulated, None, simulated.failure or "an op has no device or a tensor no route")
        try:
            execution = Execution(placement, simulated, self._pieces(placement))
        except UnsupportedModel as error:
            return self._evaluation(simulated, None, str(error))
        if self._kept is not None and self.single is not None:
            stored = self._kept.store.placement(self._model_key, execution.pieces)
            if stored is not None:
                self.recalled += 1
                self._best_ratio = min(self._best_ratio, stored.ratio)
                single_s = self.single.makespan_s
                return executed(simulated, stored.ratio * single_s, stored.spread * single_s, stored.repeats)
        return execution

    def _execute(self, waiting: Mapping[PlacementKey, Execution]) -> None:
        """Executes placements, and learns what each costs as soon as that is known."""
        self.measurements += len(waiting)
        hopeless_at = min(self._options.search.abandon_at, self._options.clearly_slower * self._best_ratio)
        rule = dataclasses.replace(self._options.search, abandon_at=hopeless_at)
        jobs = [self._job([execution.parts], rule) for execution in waiting.values()]
        answers = enumerate(map(self._worker.run, jobs)) if self.elsewhere is None else self.elsewhere.answers(jobs)
        executions = list(waiting.items())
        for index, answer in answers:
            key, execution = executions[index]
            self.retried += answer.retries
            self._known[key] = execution.placement, self._learned(execution, answer)

    def _learned(self, execution: Execution, answer: Answer) -> Evaluation:
        """What an execution says, of which the store is told."""
        simulated, parts = execution.simulated, execution.parts
        self.executing_s += answer.executing_s
        if answer.samples is None or self.single is None:
            return self._evaluation(simulated, None if answer.samples is None else answer.samples[0], answer.failure)
        # Relative to the plain session of this very moment, in the seconds that it took at first.
        ratios = answer.samples[0] / answer.samples[1]
        self._best_ratio = min(self._best_ratio, float(np.median(ratios)))
        if self._kept is not None:
            interval = median_interval(ratios)
            seconds = float(np.median(answer.samples[0]))
            measured = StoredPlacement(interval.median, interval.spread, len(ratios), seconds)
            self._keep(lambda store: store.add_placement(self._model_key, execution.pieces, measured))
            self._keep_segments(parts, answer)
        return self._evaluation(simulated, ratios * self.single.makespan_s, "")

    def learn_segments(self, placements: Sequence[Placement], rule: StoppingRule) -> None:
        """Runs placements in turns, so that the store of `Kept` knows what their segments cost."""
        for placement, answer in zip(placements, self.side_by_side(placements, rule), strict=True):
            if answer.samples is not None:
                self._keep_segments(self._segment_parts(placement), answer)

    def _keep_segments(self, parts: Sequence[Part], answer: Answer) -> None:
        """Keeps the seconds of the parts of a placement, as they would be when the ops were profiled."""
        if self._kept is None or self.single is None or answer.samples is None or self._grouped.others:
            return  # seconds of several sizes together say nothing of one
        model, costs = self._grouped.model, (self._topology, self._kept.op_time_s)
        for part_s in answer.part_s[:1]:
            in_profile_s = part_s * (self._simulated_single_s / quiet_s(answer.samples[1]))
            found = measured_segments(model.graph, *costs, parts, in_profile_s, model.constant_ops)
            self._keep(partial(MeasurementStore.add_segments, model=model.key, found=found))

    def _keep(self, tell: Callable[[MeasurementStore], None]) -> None:
        """Tells the store; a search that it cannot be told of goes on."""
        if self._kept is not None and not self.not_kept:
            try:
                tell(self._kept.store)
            except MeasurementFailed as error:
                self.not_kept = str(error)

    @property
    def _model_key(self) -> str:
        """All that a measured ratio depends on, besides the machine and what runs where."""
        grouped, options = self._grouped, self._options
        sizes = [options.dims_objective, *(model.key for model in grouped.others)] if grouped.others else []
        return json.dumps([grouped.model.key, options.seed, self.single_device, options.requests, *sizes])

    def _evaluation(self, simulated: Evaluation, row_s: FloatArray | None, failure: str) -> Evaluation:
        """What was simulated, with the measured seconds, `[R]`, in place of the simulated ones."""
        if row_s is None:
            return dataclasses.replace(
                simulated, evaluator="measured", makespan_s=np.inf, period_s=np.inf, spread_s=0.0, failure=failure
            )
        interval = median_interval(row_s)
        return executed(simulated, interval.median, interval.spread, len(row_s))

    def side_by_side(self, placements: Sequence[Placement], rule: StoppingRule) -> list[Answer]:
        """For each placement `[2, R]` seconds, its own and those of the plain session, all of which took turns; or why there are none.

        One that fails is taken out; when the process ends and nobody can tell why, each is measured alone.
        """
        answers = [Answer(None)] * len(placements)
        candidates: dict[int, tuple[Part, ...]] = {}
        for index, placement in enumerate(placements):
            try:
                candidates[index] = self._segment_parts(placement)
            except UnsupportedModel as error:
                answers[index] = Answer(None, str(error))
        waiting = [list(candidates)]
        while waiting:
            together = waiting.pop()
            if not together:
                continue
            answer = self._ask([candidates[index] for index in together], rule)
            if answer.samples is not None:
                for position, index in enumerate(together):
                    rows = answer.samples[[position, -1]]
                    answers[index] = Answer(rows, part_s=answer.part_s[position : position + 1])
            elif answer.culprit is not None and answer.culprit < len(together):
                answers[together.pop(answer.culprit)] = answer
                waiting.append(together)
            elif len(together) == 1:
                answers[together[0]] = answer
            else:
                waiting += [[index] for index in together]
        return answers

    def _ask(self, candidates: Sequence[tuple[Part, ...]], rule: StoppingRule) -> Answer:
        """What became of candidates beside the reference."""
        answer = self._worker.run(self._job(candidates, rule))
        self.retried += answer.retries
        return answer

    def _job(self, candidates: Sequence[tuple[Part, ...]], rule: StoppingRule) -> Job:
        """Candidates beside the reference, within the time that `MeasureOptions.timeout_s` describes."""
        together = (*candidates, *self._references)
        limit_s = self._options.timeout_s
        if self.single is not None:
            loading_s = self._options.loading_s + SLOWEST * self._loading_s
            repeat_s = SLOWEST * self._options.requests * self.single.makespan_s * (1 + len(self._grouped.others))
            limit_s = len(together) * loading_s + rule.longest_s(len(together), repeat_s)
        return Job(together, rule, limit_s, self._options.requests)

    @property
    def _references(self) -> tuple[tuple[Part, ...], ...]:
        return () if self._reference is None else ((self._reference,),)

    def _measured_single(self) -> tuple[Part | None, Evaluation | None]:
        """The whole model on the device where it is simulated to be fastest, and its cost; None where it cannot run."""
        num_groups = self._grouped.graph.num_ops
        alone = [self._simulated.evaluate(Placement(np.full(num_groups, d))) for d in range(self._topology.num_devices)]
        able = [device for device, evaluation in enumerate(alone) if evaluation.feasible]
        if not able or not num_groups:
            return None, None
        best = min(able, key=lambda device: alone[device].makespan_s)
        every_op = range(self._grouped.model.graph.num_ops)
        part = self._maker.part(every_op, self._topology.device_names[best], "the whole model")
        self._simulated_single_s = alone[best].makespan_s
        answer = self._worker.run(Job(((part,),), self._options.search, requests=self._options.requests))
        self.retried += answer.retries
        self._loading_s = answer.loading_s
        if answer.samples is None:
            return None, None
        return part, self._evaluation(alone[best], answer.samples[0], "")

    def _pieces(self, placement: Placement) -> tuple[Part, ...]:
        """The parts in which a placement runs during the search."""
        if self._options.pieces == "segments":
            return self._segment_parts(placement)
        names, ops_of_group = self._topology.device_names, self._grouped.ops_of_group
        return tuple(
            self._maker.part(ops_of_group[group], names[placement.assignment[group]], f"group {group}")
            for group in self._group_order(placement)
        )

    def _segment_parts(self, placement: Placement) -> tuple[Part, ...]:
        names = self._topology.device_names
        return tuple(
            self._maker.part(segment.ops, names[segment.device], f"segment {number}")
            for number, segment in enumerate(self.segments_of(placement))
        )

    def _group_order(self, placement: Placement) -> list[int]:
        """The groups in a global run order, by simulated start."""
        return group_order(self._grouped, placement.assignment, self._simulated.schedule(placement).order())
