"""Placement -> runtime, measured by executing it on this machine's devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.cost.measurement_store import MeasurementStore, StoredPlacement
from gnnplace.devices.topology import Topology
from gnnplace.errors import MeasurementFailed, UnsupportedModel
from gnnplace.evaluation import Evaluation, EvaluationBatch, SimulatedEvaluator
from gnnplace.files import temporary_folder
from gnnplace.measuring.grouped_parts import GroupedModel, PartMaker, measured_segments
from gnnplace.measuring.paired import Difference, PairRule, difference_of
from gnnplace.measuring.timing import SLOWEST, MeasureOptions, StoppingRule, median_interval, quiet_s, without_drift
from gnnplace.measuring.worker_process import Answer, Job, PairedJob, Task, WorkerProcess, model_setup
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.split import Part
from gnnplace.placement import Placement
from gnnplace.running.devices import parse_device

_Key = tuple[bytes, bytes]
_Parts = tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Kept:
    """Store of earlier measurements, and the profiled seconds to which it relates those of segments."""

    store: MeasurementStore
    op_time_s: FloatArray  # [N, D] of the model's ops


@dataclass(frozen=True, eq=False)
class Comparison:
    """Placements measured side by side, each in the segments of a saved placement."""

    evaluations: tuple[Evaluation, ...]
    """Measured costs, in the order of the placements."""
    single: Evaluation | None
    """Measured cost of a plain session of the whole model on the best single device; None when no device runs it."""
    single_device: str | None
    confirmed: bool = True
    """False: the costs are those of the search, with few repeats and not side by side."""


RunJobs = Callable[[Sequence[Job]], Iterator[tuple[int, Answer]]]
"""Executes jobs on machines with the same devices as this one; index and answer of each job, as they arrive."""


class MeasuredEvaluator:
    """Executes placements of a model's op groups in an isolated process; close it, or use it as a context.

    The process keeps sessions, so that a placement that moves one group creates only those that change. Repeats alternate with
    a plain session of the whole model, which cancels drift. No placement is measured twice. Peak memory, shortfall, busy time
    and transferred bytes are simulated. The period is the makespan; `MeasureOptions.requests` is the number of requests
    behind both.
    """

    def __init__(
        self,
        grouped: GroupedModel,
        topology: Topology,
        simulated: SimulatedEvaluator,
        options: MeasureOptions = MeasureOptions(),
        kept: Kept | None = None,
    ) -> None:
        """Measures the plain session. Placements in the store of `kept` are not executed; new measurements are added to it.

        Raises:
            InvalidTopology: a device of the set is not on this machine.
            UnsupportedModel: the model is too new to run, or its inputs cannot be made up.
        """
        for name in topology.device_names:
            parse_device(name)
        self.measurements = 0
        """Number of placements that were executed during the search."""
        self.recalled = 0
        """Number of placements that the store knew."""
        self.elsewhere: RunJobs | None = None
        """Runs the jobs of the search; None: this machine. All machines share the plain session measured here."""
        self.executing_s = 0.0
        """Seconds spent executing models during the search."""
        self.retried = 0
        """Number of jobs that were repeated because the measuring process was lost; these are no failures."""
        self.not_kept = ""
        """First write error of the store; later writes are skipped."""
        self.topology = topology
        self._grouped, self._simulated, self._options, self._kept = grouped, simulated, options, kept
        self._best_ratio = np.inf
        self._known: dict[_Key, tuple[Placement, Evaluation]] = {}
        feeds = [sample_inputs(model, np.random.default_rng(options.seed)) for model in grouped.models]
        self.reference: Part | None = None
        """The whole model on the best single device, which alternates with every placement; None when no device runs it."""
        self.single: Evaluation | None = None
        """Measured cost of the reference."""
        with ExitStack() as opened:
            self.maker = PartMaker(grouped.model, opened.enter_context(temporary_folder()))
            self.setup = model_setup(grouped, self.maker, feeds, topology.num_devices, options.dims_objective)
            worker = WorkerProcess(self.setup, options.timeout_s, options.memory_limit_bytes)
            self._worker = opened.enter_context(worker)
            self._measure_reference()
            self._open = opened.pop_all()

    kind: Literal["measured"] = "measured"

    @property
    def single_device(self) -> str | None:
        """Device of the plain session of the whole model; None when no device runs it."""
        return None if self.reference is None else self.reference.device

    @property
    def failed(self) -> int:
        """Number of evaluated placements that have a `failure`."""
        return sum(bool(evaluation.failure) for _, evaluation in self._known.values())

    def evaluate(self, placement: Placement) -> Evaluation:
        """Measured cost of a placement of the groups; one that fails or hangs has a `failure` and takes forever."""
        return self._evaluate_all([placement])[0]

    def evaluate_batch(self, assignments: IntArray) -> EvaluationBatch:
        """Measured costs of `[B, G]` assignments, one after the other, or side by side on other machines."""
        evaluations = self._evaluate_all([Placement(row) for row in assignments])
        shortfall = [np.inf if one.failure else float(one.shortfall_bytes.sum()) for one in evaluations]
        return EvaluationBatch(
            makespan_s=np.array([one.makespan_s for one in evaluations], dtype=np.float64),
            period_s=np.array([one.period_s for one in evaluations], dtype=np.float64),
            shortfall_bytes=np.array(shortfall, dtype=np.float64),
        )

    def fastest(self, count: int) -> list[Placement]:
        """The feasible placements with the least measured seconds, fastest first."""
        feasible = [pair for pair in self._known.values() if pair[1].feasible]
        return [placement for placement, _ in sorted(feasible, key=lambda pair: pair[1].makespan_s)[:count]]

    def segments_of(self, placement: Placement) -> tuple[Segment, ...]:
        """Segments of the model's ops for a placement of the groups, in a global run order by simulated start."""
        order = self._simulated.schedule(placement).order()
        return self._grouped.segments(placement.assignment, order)

    def compare(self, placements: Sequence[Placement]) -> Comparison:
        """Measures placements in their segments, side by side with the plain session of the whole model."""
        evaluations, single = [], self.single
        answers = self.side_by_side(placements, self._options.final)
        for placement, answer in zip(placements, answers, strict=True):
            rows = answer.samples
            row = None if rows is None else rows[0] if single is None else without_drift(rows)[0]
            evaluations.append(executed(self._simulated.evaluate(placement), row, answer.failure))
            if single is not None and rows is not None:
                single = executed(single, rows[-1])
        return Comparison(tuple(evaluations), single, self.single_device)

    def difference(self, first: Placement, second: Placement, rule: PairRule = PairRule()) -> Difference:
        """The relative difference of two placements, measured in one job in sessions of their own.

        Raises:
            MeasurementFailed: one of them failed.
        """
        pair = self._segment_parts(first), self._segment_parts(second)
        limit_s = self._options.timeout_s + rule.max_s
        answer = self._run(PairedJob(pair, rule, self._options.seed, limit_s, self._options.requests))
        if answer.samples is None:
            raise MeasurementFailed(f"{('A', 'B')[answer.culprit or 0]} could not be measured: {answer.failure}")
        return difference_of(answer.samples, rule.confidence)

    def learn_segments(self, placements: Sequence[Placement], rule: StoppingRule) -> None:
        """Measures placements side by side and adds the seconds of their segments to the store."""
        for placement, answer in zip(placements, self.side_by_side(placements, rule), strict=True):
            if answer.samples is not None:
                self._keep_segments(self._segment_parts(placement), answer)

    def side_by_side(self, placements: Sequence[Placement], rule: StoppingRule) -> list[Answer]:
        """Seconds of placements that alternate with each other and the plain session.

        Each answer has `[2, R]` seconds, those of the placement and those of the plain session, or a failure. A placement
        that fails is removed and the others start again; when the process ends for an unknown cause, each placement is
        measured alone.
        """
        answers = [Answer(None)] * len(placements)
        candidates: dict[int, _Parts] = {}
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
            answer = self._run(self._job([candidates[index] for index in together], rule))
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

    def close(self) -> None:
        """Ends the measuring process and removes the written parts."""
        self._open.close()

    def __enter__(self) -> MeasuredEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _evaluate_all(self, placements: Sequence[Placement]) -> list[Evaluation]:
        """Cost of each placement; executes the unknown ones."""
        # Each result tightens the rule for the next placement here; other machines take all placements at once.
        for batch in [placements] if self.elsewhere is not None else [[placement] for placement in placements]:
            waiting = []
            for key, placement in {_key(placement): placement for placement in batch}.items():
                if key not in self._known:
                    simulated = self._simulated.evaluate(placement)
                    result = self._without_executing(placement, simulated)
                    if isinstance(result, Evaluation):
                        self._known[key] = placement, result
                    else:
                        waiting.append((placement, simulated, result))
            self._execute(waiting)
        return [self._known[_key(placement)][1] for placement in placements]

    def _without_executing(self, placement: Placement, simulated: Evaluation) -> Evaluation | _Parts:
        """The cost where the store knows it or the placement cannot run, else the parts to execute."""
        if not np.isfinite(simulated.makespan_s):
            return executed(simulated, None, simulated.failure or "an op has no device or a tensor no route")
        try:
            parts = self._segment_parts(placement)
        except UnsupportedModel as error:
            return executed(simulated, None, str(error))
        if self._kept is not None and self.single is not None:
            stored = self._kept.store.placement(self._model_key, _pieces(parts))
            if stored is not None:
                self.recalled += 1
                self._best_ratio = min(self._best_ratio, stored.ratio)
                single_s = self.single.makespan_s
                return _measured(simulated, stored.ratio * single_s, stored.spread * single_s, stored.repeats)
        return parts

    def _execute(self, waiting: Sequence[tuple[Placement, Evaluation, _Parts]]) -> None:
        """Executes placements and records each cost as soon as it is known."""
        self.measurements += len(waiting)
        abandon_at = min(self._options.search.abandon_at, self._options.clearly_slower * self._best_ratio)
        rule = replace(self._options.search, abandon_at=abandon_at)
        jobs = [self._job([parts], rule) for _, _, parts in waiting]
        answers = enumerate(map(self._worker.run, jobs)) if self.elsewhere is None else self.elsewhere(jobs)
        for index, answer in answers:
            placement, simulated, parts = waiting[index]
            self.retried += answer.retries
            self._known[_key(placement)] = placement, self._recorded(simulated, parts, answer)

    def _recorded(self, simulated: Evaluation, parts: _Parts, answer: Answer) -> Evaluation:
        """The cost that an execution shows; the store keeps it."""
        self.executing_s += answer.executing_s
        if answer.samples is None or self.single is None:
            return executed(simulated, None if answer.samples is None else answer.samples[0], answer.failure)
        # Ratios to the plain session of the same moment, in units of its first measurement.
        ratios = answer.samples[0] / answer.samples[1]
        self._best_ratio = min(self._best_ratio, float(np.median(ratios)))
        if self._kept is not None:
            interval = median_interval(ratios)
            seconds = float(np.median(answer.samples[0]))
            measured = StoredPlacement(interval.median, interval.spread, len(ratios), seconds)
            self._keep(lambda store: store.add_placement(self._model_key, _pieces(parts), measured))
            self._keep_segments(parts, answer)
        return executed(simulated, ratios * self.single.makespan_s)

    def _keep_segments(self, parts: Sequence[Part], answer: Answer) -> None:
        """Stores the seconds of a placement's parts, scaled to the moment when the ops were profiled."""
        if self._kept is None or self.single is None or answer.samples is None or len(self._grouped.models) > 1:
            return  # seconds of several shapes together describe none of them
        model, op_time_s = self._grouped.model, self._kept.op_time_s
        for part_s in answer.part_s[:1]:
            in_profile_s = part_s * (self._simulated_single_s / quiet_s(answer.samples[1]))
            segments = measured_segments(model.graph, self.topology, op_time_s, parts, in_profile_s, model.constant_ops)
            self._keep(partial(MeasurementStore.add_segments, model=model.key, segments=segments))

    def _keep(self, write: Callable[[MeasurementStore], None]) -> None:
        """Writes to the store; a write error does not end the search."""
        if self._kept is not None and not self.not_kept:
            try:
                write(self._kept.store)
            except MeasurementFailed as error:
                self.not_kept = str(error)

    @property
    def _model_key(self) -> str:
        """Everything that a measured ratio depends on, besides the machine and the pieces."""
        grouped, options = self._grouped, self._options
        first, *others = (model.key for model in grouped.models)
        shapes = [options.dims_objective, *others] if others else []
        return json.dumps([first, options.seed, self.single_device, options.requests, *shapes])

    def _run(self, job: Task) -> Answer:
        answer = self._worker.run(job)
        self.retried += answer.retries
        return answer

    def _job(self, candidates: Sequence[_Parts], rule: StoppingRule) -> Job:
        """Candidates beside the reference, within the time that `MeasureOptions.timeout_s` describes."""
        together = (*candidates, *(() if self.reference is None else ((self.reference,),)))
        limit_s = self._options.timeout_s
        if self.single is not None:
            loading_s = self._options.loading_s + SLOWEST * self._loading_s
            repeat_s = SLOWEST * self._options.requests * self.single.makespan_s * len(self._grouped.models)
            limit_s = len(together) * loading_s + rule.longest_s(len(together), repeat_s)
        return Job(together, rule, limit_s, self._options.requests)

    def _measure_reference(self) -> None:
        """Measures the whole model on the device where it is simulated to be fastest; no reference where it does not run."""
        num_groups = self._grouped.graph.num_ops
        alone = [self._simulated.evaluate(Placement(np.full(num_groups, d))) for d in range(self.topology.num_devices)]
        able = [device for device, evaluation in enumerate(alone) if evaluation.feasible]
        if not able or not num_groups:
            return
        best = min(able, key=lambda device: alone[device].makespan_s)
        every_op = range(self._grouped.model.graph.num_ops)
        part = self.maker.part(every_op, self.topology.device_names[best], "the whole model")
        answer = self._run(Job(((part,),), self._options.search, requests=self._options.requests))
        self._simulated_single_s, self._loading_s = alone[best].makespan_s, answer.loading_s
        if answer.samples is not None:
            self.reference, self.single = part, executed(alone[best], answer.samples[0])

    def _segment_parts(self, placement: Placement) -> _Parts:
        """The parts of a placement: one per segment."""
        names = self.topology.device_names
        return tuple(
            self.maker.part(segment.ops, names[segment.device], f"segment {number}")
            for number, segment in enumerate(self.segments_of(placement))
        )


def _pieces(parts: _Parts) -> list[object]:
    """Device and ops of each part: the key of a placement in the store."""
    return [[part.device, part.key] for part in parts]


def executed(simulated: Evaluation, row_s: FloatArray | None, failure: str = "") -> Evaluation:
    """A simulated evaluation with the median of the measured seconds `[R]`; a failure without them."""
    if row_s is None:
        return replace(_measured(simulated, np.inf, 0.0, simulated.repeats), failure=failure)
    interval = median_interval(row_s)
    return _measured(simulated, interval.median, interval.spread, len(row_s))


def _measured(simulated: Evaluation, seconds: float, spread_s: float, repeats: int) -> Evaluation:
    return replace(
        simulated,
        evaluator="measured",
        makespan_s=seconds,
        period_s=seconds,
        spread_s=spread_s,
        repeats=repeats,
        failure="",
    )


def _key(placement: Placement) -> _Key:
    """Equal for equal placements."""
    priorities = b"" if placement.priorities is None else placement.priorities.tobytes()
    return placement.assignment.tobytes(), priorities
