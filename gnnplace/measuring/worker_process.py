"""Jobs that execute placed models in an isolated process, and their answers."""

from __future__ import annotations

import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, Self

import numpy as np

from gnnplace.arrays import FloatArray
from gnnplace.devices.real_names import parse_real
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.isolated_process import IsolatedProcess, ProcessEnded
from gnnplace.measuring.paired import PairRule, paired_samples
from gnnplace.measuring.timing import StoppingRule, interleaved, run_pipelined
from gnnplace.objectives import DimsObjective
from gnnplace.onnx_io.part import Part
from gnnplace.running.part_session import SessionCache
from gnnplace.running.runner import PlacedRunner

_TRIES = 2
_LOADED = (0, 1, 1, 0, 1, 0, 0, 1)  # sides of a pair in the order of loading
_PAIRS = ((0, 1), (3, 2), (5, 4), (6, 7))  # which of these are measured together: A and B
_NO_MEMORY = re.compile(
    r"out of memory|failed to allocate|available memory of \d+ is smaller|ALLOC(?:ATION)?_FAILED|cudaErrorMemoryAllocation|answers error 2\b",
    re.IGNORECASE,
)
"""How ONNX Runtime, CUDA, its libraries and `cuda_driver` say that no memory is left on a GPU."""
_REFUSAL = "[ONNXRuntimeError]"
"""Where ONNX Runtime's own errors begin."""
_LOADING_SHARE = 0.1  # of the seconds of a paired measurement: if two loadings of each take longer, there are no more


@dataclass(frozen=True, eq=False)
class Setup:
    """Inputs and outputs of the model, which all jobs of a process share."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    feeds: tuple[Mapping[str, Any], ...]
    """An array for every required input, at each shape; a repeat runs all shapes."""
    kept_jobs: int
    """Number of last jobs whose sessions stay loaded; the process drops older sessions."""
    dims_objective: DimsObjective = "worst"
    """How the seconds at several shapes become one figure."""
    loadings: Literal[1, 2, 4] = 1
    """How often a paired measurement may load each placement, by memory."""


class ProcessState:
    """The setup and the sessions that the process keeps between jobs."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.cache = setup, SessionCache()
        self.recent: deque[set[Hashable]] = deque(maxlen=setup.kept_jobs)
        """Session keys of the last jobs."""

    def own_sessions(self, candidates: Sequence[tuple[Part, ...]]) -> list[tuple[Part, ...]]:
        """The candidates of a new job with keys by which no two of them share a session, but each may reuse one of a recent job.

        A session shared by two candidates would run with warm caches more often than others. The last candidate, the reference,
        keeps its session from job to job.
        """
        seen: Counter[Hashable] = Counter()
        own: list[tuple[Part, ...]] = []
        for parts in reversed(candidates):
            names = [(part.key, part.device) for part in parts]
            keys = [None if part.key is None else (part.key, seen[part.key, part.device]) for part in parts]
            own.append(tuple(replace(part, key=key) for part, key in zip(parts, keys, strict=True)))
            seen.update(names)
        self.recent.append({(part.key, part.device) for parts in own for part in parts})
        self.cache.retain(set().union(*self.recent))
        return own[::-1]


@dataclass(frozen=True, eq=False)
class Answer:
    """Seconds of the candidates of a job, or the reason why there are none."""

    samples: FloatArray | None
    """`[C, R]` seconds of each candidate in each repeat; None after a failure."""
    failure: str = ""
    culprit: int | None = None
    """Index of the candidate that failed; None when the process ended and the cause is unknown."""
    executing_s: float = 0.0
    """Seconds in which models ran."""
    loading_s: float = 0.0
    """Seconds in which sessions were created."""
    part_s: tuple[FloatArray, ...] = ()
    """For each candidate `[P]` seconds of its parts on a quiet machine; none for a model in one piece. They contain hand-overs in one
    memory; copies between memories belong to the links, whose probe measures them.
    No entries for pipelined requests, whose parts run between each other."""
    retries: int = 0
    """Number of times that the job ran again, because the process was lost without its fault or had no memory left for it."""
    exhausted: bool = False
    """Whether the failure is a lack of memory on a GPU, which sessions of earlier jobs may hold."""


class Task(Protocol):
    """A picklable piece of work for the process."""

    @property
    def limit_s(self) -> float:
        """Seconds after which the process is stopped, where the limit of the process is longer."""

    @property
    def lighter(self) -> Task:
        """The same work with fewer sessions at a time, for a GPU without memory for all; itself where there is none."""

    def execute(self, state: ProcessState) -> Answer:
        """Runs in the process."""


@dataclass(frozen=True)
class Job:
    """Placed models to be measured side by side, the reference last."""

    candidates: tuple[tuple[Part, ...], ...]
    rule: StoppingRule
    limit_s: float = math.inf
    """Seconds for loading and running all candidates, where the limit of the process is longer."""
    requests: int = 1
    """Requests per repeat, pipelined when there are several; seconds are per request."""
    seed: int = 0
    """Seed of the order of the runs in each round."""

    @property
    def lighter(self) -> Self:
        """Itself: candidates beside each other need all their sessions."""
        return self

    def execute(self, state: ProcessState) -> Answer:
        """Loads all candidates and measures them; a failure names the candidate."""
        rng = np.random.default_rng(self.seed)
        return _measured(state, self.candidates, self.requests, lambda calls: interleaved(calls, self.rule, rng))


@dataclass(frozen=True)
class PairedJob:
    """Two placed models to be measured until their difference is known."""

    pair: tuple[tuple[Part, ...], tuple[Part, ...]]
    rule: PairRule
    seed: int
    limit_s: float = math.inf
    """Seconds for loading and running both, where the limit of the process is longer."""
    requests: int = 1
    """Requests per run, pipelined when there are several; seconds are per request."""
    most_loadings: int = 4
    """How often each may be loaded, where `Setup.loadings` allows it."""

    @property
    def lighter(self) -> Self:
        """The measurement with each placement loaded once."""
        return self if self.most_loadings == 1 else replace(self, most_loadings=1)

    def execute(self, state: ProcessState) -> Answer:
        """The samples that `difference_of` takes; a failure names the model."""
        rng, loadings = np.random.default_rng(self.seed), min(self.most_loadings, state.setup.loadings)

        def measure(calls: Sequence[Callable[[], float]]) -> FloatArray:
            pairs = [(calls[a], calls[b]) for a, b in _PAIRS[: len(calls) // 2]]
            return paired_samples(pairs, self.rule, rng)

        sides = [self.pair[side] for side in _LOADED[: 2 * loadings]]
        answer = _measured(state, sides, self.requests, measure, self._enough)
        culprit = None if answer.culprit is None else _LOADED[answer.culprit]
        return replace(answer, culprit=culprit, part_s=answer.part_s[:2])

    def _enough(self, loaded: int, loading_s: float) -> bool:
        return loaded == 4 and loading_s > _LOADING_SHARE * self.rule.max_s


def _measured(
    state: ProcessState,
    candidates: Sequence[tuple[Part, ...]],
    requests: int,
    measure: Callable[[Sequence[Callable[[], float]]], FloatArray],
    enough: Callable[[int, float], bool] = lambda loaded, loading_s: False,
) -> Answer:
    """Loads candidates into sessions of their own and measures calls of them; `enough` may end the loading early."""
    setup, own = state.setup, state.own_sessions(candidates)
    runners: list[PlacedRunner] = []
    part_s: list[list[list[float]]] = [[] for _ in own]
    current = 0

    def call(index: int) -> float:
        nonlocal current
        current = index
        seconds = _run_s(runners[index], setup, requests)
        if requests == len(setup.feeds) == 1 and (by_position := runners[index].part_s):
            part_s[index].append([by_position[position] for position in sorted(by_position)])
        return seconds

    start_s = time.perf_counter()
    with ExitStack() as stack:
        try:
            for current, parts in enumerate(own):  # read when creating one fails
                if enough(current, time.perf_counter() - start_s):
                    break
                runners.append(stack.enter_context(PlacedRunner(parts, setup.inputs, setup.outputs, state.cache)))
            begin_s = time.perf_counter()
            samples = measure([partial(call, index) for index in range(len(runners))]) / requests
            executing_s = time.perf_counter() - begin_s
        except Exception as error:  # any failure of a model is an answer
            return replace(failed(error, current), exhausted=_on_gpu_without_memory(own[current], error))
    quiet = tuple(map(quiet_part_s, part_s)) if any(part_s) else ()
    return Answer(samples, executing_s=executing_s, loading_s=begin_s - start_s, part_s=quiet)


def _run_s(runner: PlacedRunner, setup: Setup, requests: int) -> float:
    """Seconds of one run at the worst shape, or their mean over the shapes."""
    taken_s = []
    for feed in setup.feeds:
        begin_s = time.perf_counter()
        if requests > 1:
            run_pipelined(runner, feed, requests)
        else:
            runner.run(None, feed)
        taken_s.append(time.perf_counter() - begin_s)
    return float((np.mean if setup.dims_objective == "mean" else np.max)(taken_s))


def failed(error: Exception, culprit: int) -> Answer:
    """The first line of an error as the answer to a job."""
    text = str(error) if isinstance(error, GnnplaceError) else f"{type(error).__name__}: {error}"
    return Answer(None, text.split("\n")[0], culprit)


def _on_gpu_without_memory(parts: Sequence[Part], error: Exception) -> bool:
    """A part is on a GPU, and the error is a lack of memory, which sessions of earlier jobs may hold there.

    The memory of the host is watched from outside; see `IsolatedProcess`.
    """
    on_gpu = any(parse_real(part.device).nvidia_gpu is not None for part in parts)
    return on_gpu and _NO_MEMORY.search(f"{error} {error.__cause__}") is not None


def quiet_part_s(rows: Sequence[Sequence[float]]) -> FloatArray:
    """`[P]` mean seconds of the parts in the fastest quarter of the runs `[R]`, which found their data in the caches.

    Quantiles of each part would sum up to less than any run takes.
    """
    if not rows:
        return np.zeros(0)
    runs = np.array(rows)
    total_s = runs.sum(axis=1)
    return np.asarray(runs[total_s <= np.quantile(total_s, 0.25)].mean(axis=0))


class WorkerProcess(IsolatedProcess[Task, Answer]):
    """The measuring process, which starts with the first job and again after it ended; close it in the end."""

    def __init__(self, setup: Setup, timeout_s: float, memory_limit_bytes: int | None = None) -> None:
        """`timeout_s` limits each try of a job; a memory limit of None means 90 % of the available memory at each start."""
        super().__init__(partial(_prepare, setup), "measuring process", memory_limit_bytes)
        self._timeout_s = timeout_s
        self._has_worked = False

    def run(self, job: Task) -> Answer:
        """The answer to a job; a job that fails, crashes or hangs is no exception.

        When the process is lost, or its memory or that of a GPU runs out while it holds sessions of earlier jobs, a fresh
        process tries the job once more. Where the memory of a GPU ran out, it tries the job's `lighter` form, if there is one.

        Raises:
            MeasurementFailed: the process never started.
        """
        lost: list[str] = []
        while len(lost) < _TRIES:
            fresh = self.pid is None
            try:
                self.start()
                self._has_worked = True
                answer = self.call(job, min(job.limit_s, self._timeout_s))
                if answer.exhausted and not lost and not (fresh and job.lighter is job):
                    self.close()
                    lost.append(answer.failure)
                    job = job.lighter
                    continue
                return replace(answer, retries=len(lost))
            except ProcessEnded as end:
                if not end.starting and (end.cause == "time" or (end.cause == "memory" and fresh)):
                    return Answer(None, str(end), retries=len(lost))
                lost.append(f"cannot begin to measure: {end}" if end.starting else str(end))
        if not self._has_worked:
            raise MeasurementFailed(lost[-1])
        return Answer(None, f"tried twice: {lost[0]}; {lost[1]}", retries=1)

    def samples(self, job: Task, what: str, remedy: str = "") -> FloatArray:
        """`[C, R]` seconds of a job that has to succeed; `what` begins the error message, and `remedy` ends one of ONNX Runtime.

        Raises:
            MeasurementFailed: the job failed.
        """
        answer = self.run(job)
        if answer.samples is None:
            is_refused = _REFUSAL in str(answer.failure)
            raise MeasurementFailed(f"{what}: {answer.failure}{remedy if is_refused else ''}")
        return answer.samples


def _prepare(setup: Setup) -> Callable[[Task], Answer]:
    """Runs once in every new process; what compiled threads need is loaded here, as it takes no time of a job then."""
    with suppress(ImportError, GnnplaceError):
        from gnnplace.running.compiled.c_api import c_interface
        from gnnplace.running.compiled.devices import CompiledDevices  # noqa: F401

        c_interface()
    state = ProcessState(setup)
    return lambda job: job.execute(state)
