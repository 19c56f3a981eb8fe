"""Placement -> runtime, measured by executing it on this machine's devices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Literal

import numpy as np

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.devices.topology import Topology
from gnnplace.difference import Difference
from gnnplace.errors import MeasurementFailed, UnsupportedModel
from gnnplace.evaluation import Evaluation, EvaluationBatch, SimulatedEvaluator
from gnnplace.files import temporary_folder
from gnnplace.measuring.comparison import (
    Comparison,
    PlainSessions,
    candidate_sessions,
    chosen_sessions,
    executed,
    measured,
    with_whole_models,
)
from gnnplace.measuring.grouped_parts import GroupedModel, PartMaker, model_setup
from gnnplace.measuring.job_runner import JobRunner, RunJobs
from gnnplace.measuring.paired import PairRule, difference_of
from gnnplace.measuring.stored_model import Kept, Parts, StoredModel, pieces
from gnnplace.measuring.timing import MeasureOptions, StoppingRule, quiet_s, without_drift
from gnnplace.measuring.worker_process import Answer, WorkerProcess
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.onnx_io.segments import Segment
from gnnplace.placement import Placement
from gnnplace.running.devices import parse_device

_Key = tuple[bytes, bytes]


class MeasuredEvaluator:
    """Executes placements of a model's op groups in an isolated process; close it, or use it as a context.

    The process keeps sessions, so that a placement that moves one group creates only those that change. Every repeat also runs
    the reference, the best plain session of the whole model, which cancels drift; a difference runs the other placement instead.
    `evaluate` measures no placement twice. Peak memory, shortfall, busy time and transferred bytes are simulated. The period is
    the makespan; `MeasureOptions.requests` is the number of requests behind both.
    """

    def __init__(
        self,
        grouped: GroupedModel,
        topology: Topology,
        simulated: SimulatedEvaluator,
        options: MeasureOptions = MeasureOptions(),
        kept: Kept | None = None,
    ) -> None:
        """Measures the plain sessions. Placements in the store of `kept` are not executed; new measurements are added to it.

        Raises:
            InvalidTopology: a device of the set is not on this machine.
            UnsupportedModel: the model is too new to run, or its inputs cannot be made up.
        """
        for name in topology.device_names:
            parse_device(name)
        self.measurements = 0
        """Number of placements that were executed during the search."""
        self.recalled = 0
        """Number of placements whose seconds the store could estimate; they are prior knowledge, as `compare` executes them again."""
        self.elsewhere: RunJobs | None = None
        """Runs the jobs of the search; None: this machine. All machines share the reference measured here."""
        self.executing_s = 0.0
        """Seconds spent executing models during the search."""
        self.topology = topology
        self._grouped, self._simulated, self._options = grouped, simulated, options
        self.stored = StoredModel(grouped, topology, options, kept)
        self._best_ratio = np.inf
        self._single: Part | None = None
        self._known: dict[_Key, tuple[Placement, Evaluation]] = {}
        feeds = [sample_inputs(model, np.random.default_rng(options.seed)) for model in grouped.models]
        self.plain = PlainSessions()
        """Measured costs of plain sessions."""
        self.simulated_reference_s = np.nan
        """Simulated seconds of the best single device, multiplied by the measured ratio of the reference to it."""
        with ExitStack() as opened:
            self.maker = PartMaker(grouped.model, opened.enter_context(temporary_folder()))
            self._kernel_maker = self.maker
            if grouped.kernels is not None:
                folder = opened.enter_context(temporary_folder())
                self._kernel_maker = PartMaker(grouped.kernels, folder)
            self.setup = model_setup(grouped, self.maker, feeds, topology, options.dims_objective)
            worker = WorkerProcess(self.setup, options.timeout_s, options.memory_limit_bytes)
            self._jobs = JobRunner(opened.enter_context(worker), options, len(grouped.models))
            self._measure_plain_sessions()
            self._open = opened.pop_all()

    kind: Literal["measured"] = "measured"

    @property
    def reference(self) -> Part | None:
        """The whole model in the best plain session, which runs beside every placement; None when no device runs it."""
        return self._jobs.reference

    @property
    def retried(self) -> int:
        """Number of jobs that were repeated because the measuring process was lost; these are no failures."""
        return self._jobs.retried

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

    def forget(self) -> None:
        """Drops the measured costs of all placements, so that the next evaluation of each executes it or asks the store."""
        self._known.clear()
        self._best_ratio = np.inf

    def segments_of(self, placement: Placement) -> tuple[Segment, ...]:
        """Segments of the model's ops for a placement of the groups, in a global run order by simulated start."""
        order = self._simulated.schedule(placement).order()
        return self._grouped.segments(placement.assignment, order, self.topology.excludes)

    def compare(self, placements: Sequence[Placement]) -> Comparison:
        """Measures placements in their segments, side by side with plain sessions of the whole model."""
        evaluations, plain = [], self.plain
        alone = [] if self._single is None or self._single is self.reference else [(self._single,)]
        answers = self._jobs.beside([*map(self._parts_or_failure, placements), *alone], self._options.final)
        for placement, answer in zip(placements, answers, strict=False):
            rows = answer.samples
            row = None if rows is None else rows[0] if plain.best is None else without_drift(rows)[0]
            evaluations.append(executed(self._simulated.evaluate(placement), row, answer.failure))
        for answer in answers:
            if plain.best is not None and answer.samples is not None:
                plain = replace(plain, best=executed(plain.best, answer.samples[-1]))
        if plain.single is not None and plain.best is not None:
            row = answers[-1].samples if alone else None
            single = executed(plain.single, without_drift(row)[0]) if row is not None else plain.single
            plain = replace(plain, single=single if alone else plain.best)
        pairs = zip(placements, evaluations, strict=True)
        in_one_piece = {
            parts[0].device: (parts[0], found)
            for placement, found in pairs if found.feasible and len(parts := self.parts_of(placement)) == 1
        }  # fmt: skip
        better = with_whole_models(plain, {device: found for device, (_, found) in in_one_piece.items()})
        if better is not plain:
            self.plain, self._jobs.reference = better, in_one_piece[better.best_session][0]
            self._jobs.reference_s = better.best_s
        return Comparison(tuple(evaluations), better)

    def difference(self, first: Placement, second: Placement, rule: PairRule | None = None) -> Difference:
        """The relative difference of two placements, measured in one job in sessions of their own.

        `rule` is by default `MeasureOptions.step`, for a search. Sessions stay loaded, so that a search that compares every
        candidate with the incumbent, as `second`, creates few. Where the seconds of `second` are known, those of `first` and of
        all segments follow from them.

        Raises:
            MeasurementFailed: one of them failed.
        """
        self.measurements += 1
        parts = self.parts_of(first), self.parts_of(second)
        known = self._known.get(_key(second))
        second_s = None if known is None else known[1].makespan_s
        found = self.difference_of_parts(*parts, rule or self._options.step, second_s)
        if second_s is not None:
            seconds, half_s = second_s * (1.0 + found.difference), second_s * (found.high - found.low) / 2
            self._note(first, measured(self._simulated.evaluate(first), seconds, half_s, found.pairs))
        return found

    def difference_to_reference(self, placement: Placement) -> Difference | None:
        """The relative difference of a placement and the reference, by `MeasureOptions.decisive`.

        None where there is no reference, where the placement is the reference itself, or where one of them failed.
        """
        parts = self.parts_of(placement)
        is_reference = self.reference is not None and pieces(parts) == pieces((self.reference,))
        if self.reference is None or is_reference:
            return None
        with suppress(MeasurementFailed):
            return self.difference_of_parts(parts, (self.reference,), self._options.decisive, self.plain.best_s)
        return None

    def difference_of_parts(
        self, first: Parts, second: Parts, rule: PairRule, second_s: float | None = None
    ) -> Difference:
        """The relative difference of two models in parts, each in sessions of its own.

        `second_s` are the seconds of the second beside the first measurement of the reference; None: the store learns nothing.

        Raises:
            MeasurementFailed: one of them failed.
        """
        answer = self._jobs.run(self._jobs.pair(first, second, rule))
        self.executing_s += answer.executing_s
        if answer.samples is None:
            which = (
                "the two placements"
                if answer.culprit is None
                else f"the {('first', 'second')[answer.culprit]} placement"
            )
            raise MeasurementFailed(f"{which} could not be compared: {answer.failure}")
        if second_s and self.plain.best_s is not None:
            reference_s = self.plain.best_s * float(quiet_s(answer.samples[1])) / second_s
            for parts, part_s in zip((first, second), answer.part_s, strict=False):
                self._keep_segments(parts, part_s, reference_s)
        return difference_of(answer.samples, rule.confidence)

    def learn_segments(self, placements: Sequence[Placement], rule: StoppingRule) -> None:
        """Measures placements side by side and adds the seconds of their segments to the store."""
        for placement, answer in zip(placements, self.side_by_side(placements, rule), strict=True):
            for part_s in answer.part_s:
                self._keep_segments(self.parts_of(placement), part_s, _quiet_reference_s(answer))

    def side_by_side(self, placements: Sequence[Placement], rule: StoppingRule) -> list[Answer]:
        """Seconds of placements in rounds with each other and the reference; see `JobRunner.beside`."""
        return self._jobs.beside(list(map(self._parts_or_failure, placements)), rule)

    def _parts_or_failure(self, placement: Placement) -> Parts | Answer:
        """The parts of a placement, or the failure to cut it."""
        try:
            return self.parts_of(placement)
        except UnsupportedModel as error:
            return Answer(None, str(error))

    def _note(self, placement: Placement, evaluation: Evaluation) -> None:
        self._known[_key(placement)] = placement, evaluation
        self._note_ratio(evaluation.makespan_s)

    def _note_ratio(self, seconds: float) -> None:
        if self.plain.best_s is not None:
            self._best_ratio = min(self._best_ratio, seconds / self.plain.best_s)

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

    def _without_executing(self, placement: Placement, simulated: Evaluation) -> Evaluation | Parts:
        """The cost where the store knows it or the placement cannot run, else the parts to execute."""
        if not np.isfinite(simulated.makespan_s):
            return executed(simulated, None, simulated.failure or "an op has no device or a tensor no route")
        try:
            parts = self.parts_of(placement)
        except UnsupportedModel as error:
            return executed(simulated, None, str(error))
        known = None if self.plain.best_s is None else self.stored.estimate(parts, self.plain.seconds_of)
        if known is None:
            return parts
        self.recalled += 1
        self._note_ratio(known[0])
        return measured(simulated, *known)

    def _execute(self, waiting: Sequence[tuple[Placement, Evaluation, Parts]]) -> None:
        """Executes placements and records each cost as soon as it is known."""
        self.measurements += len(waiting)
        abandon_at = min(self._options.search.abandon_at, self._options.clearly_slower * self._best_ratio)
        rule = replace(self._options.search, abandon_at=abandon_at)
        jobs = [self._jobs.job([parts], rule) for _, _, parts in waiting]
        for index, answer in self._jobs.run_all(jobs, self.elsewhere):
            placement, simulated, parts = waiting[index]
            self._known[_key(placement)] = placement, self._recorded(simulated, parts, answer)

    def _recorded(self, simulated: Evaluation, parts: Parts, answer: Answer) -> Evaluation:
        """The cost that an execution shows; the store keeps it."""
        self.executing_s += answer.executing_s
        if answer.samples is None or self.plain.best is None:
            return executed(simulated, None if answer.samples is None else answer.samples[0], answer.failure)
        # Ratios to the reference of the same round, in units of its first measurement.
        ratios = answer.samples[0] / answer.samples[1]
        self._best_ratio = min(self._best_ratio, float(np.median(ratios)))
        self.stored.add_runs(parts, answer.samples, self.plain.best_session)
        for part_s in answer.part_s[:1]:
            self._keep_segments(parts, part_s, _quiet_reference_s(answer))
        return executed(simulated, ratios * self.plain.best.makespan_s)

    def _keep_segments(self, parts: Parts, part_s: FloatArray, reference_s: float | None) -> None:
        """Stores the seconds `[P]` of a placement's parts, measured when the reference took `reference_s`."""
        if self.reference is not None and reference_s:
            self.stored.add_segments(parts, part_s * (self.simulated_reference_s / reference_s))

    def _measure_plain_sessions(self) -> None:
        """Measures every plain session that may be the best; no reference where none runs.

        The first that runs is the reference while the others are measured beside it.
        """
        num_groups, names = self._grouped.graph.num_ops, self.topology.device_names
        whole = [Placement(np.full(num_groups, device)) for device in range(len(names) if num_groups else 0)]
        simulated = dict(zip(names, map(self._simulated.evaluate, whole), strict=False))
        simulated = {name: evaluation for name, evaluation in simulated.items() if evaluation.feasible}
        every_op, waiting = range(self._grouped.model.graph.num_ops), candidate_sessions(self.topology, simulated)
        parts = {name: self.maker.part(every_op, name, "the whole model") for name in waiting}
        for first in filter(simulated.__contains__, list(waiting)):
            waiting.remove(first)
            answer = self._jobs.run(self._jobs.job([(parts[first],)], self._options.search))
            if answer.samples is not None:
                self.plain = PlainSessions(executed(simulated[first], answer.samples[0]), first)
                self._jobs.reference, self._jobs.reference_s = parts[first], self.plain.best_s
                self._jobs.loading_s = answer.loading_s
                rule = self._options.plain
                answers = [] if rule is None else self._jobs.beside([(parts[name],) for name in waiting], rule)
                ratios = {
                    name: one.samples[0] / one.samples[1]
                    for name, one in zip(waiting, answers, strict=False)
                    if one.samples is not None
                }
                self.plain = chosen_sessions(simulated, self.plain, ratios)
                self._single = parts[self.plain.single_device]
                self._jobs.reference, self._jobs.reference_s = parts[self.plain.best_session], self.plain.best_s
                self.simulated_reference_s = simulated[self.plain.single_device].makespan_s * self.plain.ratio
                return

    def parts_of(self, placement: Placement) -> Parts:
        """The parts of a placement: one per segment."""
        names = self.topology.device_names
        return tuple(
            self.maker.part(segment.ops, names[segment.device], f"segment {number}")
            if segment.kernels is None
            else self._kernel_maker.part(segment.kernels, names[segment.device], f"segment {number}")
            for number, segment in enumerate(self.segments_of(placement))
        )


def _quiet_reference_s(answer: Answer) -> float | None:
    return None if answer.samples is None or len(answer.samples) < 2 else float(quiet_s(answer.samples[-1]))


def _key(placement: Placement) -> _Key:
    """Equal for equal placements."""
    priorities = b"" if placement.priorities is None else placement.priorities.tobytes()
    return placement.assignment.tobytes(), priorities
