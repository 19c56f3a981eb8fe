"""Jobs in the measuring process, beside the reference and within limits that follow from its seconds."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.stored_model import Parts
from gnnplace.measuring.timing import SLOWEST, MeasureOptions, StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, PairedJob, Task, WorkerProcess
from gnnplace.onnx_io.part import Part

RunJobs = Callable[[Sequence[Job]], Iterator[tuple[int, Answer]]]
"""Executes jobs on machines with the same devices as this one; index and answer of each job, as they arrive."""


class JobRunner:
    """Makes jobs, each with its own random order, and runs them in one process."""

    def __init__(self, worker: WorkerProcess, options: MeasureOptions, num_shapes: int) -> None:
        """A repeat runs all shapes of the inputs."""
        self.worker = worker
        self.reference: Part | None = None
        """The whole model in a plain session, which runs beside every candidate; None: nothing does."""
        self.reference_s: float | None = None
        """Seconds of the reference; None: unknown."""
        self.loading_s = 0.0
        """Seconds in which the session of the reference was created."""
        self.retried = 0
        """Number of jobs that were repeated because the process was lost."""
        self._options, self._num_shapes = options, num_shapes
        self._rng = np.random.default_rng(options.seed)

    def run(self, job: Task) -> Answer:
        """Runs a job now."""
        answer = self.worker.run(job)
        self.retried += answer.retries
        return answer

    def run_all(self, jobs: Sequence[Job], elsewhere: RunJobs | None) -> Iterator[tuple[int, Answer]]:
        """Index and answer of each job as they arrive; `elsewhere` runs them on other machines."""
        for index, answer in enumerate(map(self.worker.run, jobs)) if elsewhere is None else elsewhere(jobs):
            self.retried += answer.retries
            yield index, answer

    def job(self, candidates: Sequence[Parts], rule: StoppingRule) -> Job:
        """Candidates beside the reference, within the time that `MeasureOptions.timeout_s` describes."""
        together = (*candidates, *(() if self.reference is None else ((self.reference,),)))
        limit_s = self._limit_s(len(together), lambda repeat_s: rule.longest_s(len(together), repeat_s))
        return Job(together, rule, limit_s, self._options.requests, self._new_seed())

    def pair(self, first: Parts, second: Parts, rule: PairRule) -> PairedJob:
        """Two candidates in turns, without the reference; each may be loaded twice."""
        limit_s = self._limit_s(4, lambda run_s: rule.max_s + rule.patience_s + 8 * (rule.first_look + 2) * run_s)
        return PairedJob((first, second), rule, self._new_seed(), limit_s, self._options.requests)

    def beside(self, models: Sequence[Parts | Answer], rule: StoppingRule) -> list[Answer]:
        """Measures models that are not failures beside each other and the reference.

        Each answer has `[2, R]` seconds, those of the model and those of the reference, or a failure. A model that fails is
        removed and the others start again. When the process ends for an unknown cause, or a GPU has no memory for all models, each
        is measured alone.
        """
        answers = [model if isinstance(model, Answer) else Answer(None) for model in models]
        candidates = {index: model for index, model in enumerate(models) if not isinstance(model, Answer)}
        waiting = [list(candidates)]
        while waiting:
            together = waiting.pop()
            if not together:
                continue
            answer = self.run(self.job([candidates[index] for index in together], rule))
            if answer.samples is not None:
                for position, index in enumerate(together):
                    rows = answer.samples[[position, -1]]
                    rows = rows[:, np.isfinite(rows[0])]  # not the rounds after it was abandoned
                    answers[index] = Answer(rows, part_s=answer.part_s[position : position + 1])
            elif (
                answer.culprit is not None
                and answer.culprit < len(together)
                and not (answer.exhausted and len(together) > 1)
            ):
                answers[together.pop(answer.culprit)] = answer
                waiting.append(together)
            elif len(together) == 1:
                answers[together[0]] = answer
            else:
                waiting += [[index] for index in together]
        return answers

    def _limit_s(self, count: int, running_s: Callable[[float], float]) -> float:
        """Limit for loading `count` models and for the `running_s` that follow from the limit of a run."""
        if self.reference_s is None:
            return self._options.timeout_s
        loading_s = self._options.loading_s + SLOWEST * self.loading_s
        return count * loading_s + running_s(SLOWEST * self._options.requests * self.reference_s * self._num_shapes)

    def _new_seed(self) -> int:
        return int(self._rng.integers(2**32))
