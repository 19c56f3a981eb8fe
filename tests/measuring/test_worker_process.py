"""The measuring process: failures, hangs and crashes there are answers here."""

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from gnnplace import isolated_process
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring import worker_process
from gnnplace.measuring.job_runner import JobRunner
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, PairedJob, ProcessState, Setup, WorkerProcess
from gnnplace.objectives import DimsObjective
from gnnplace.onnx_io.part import Part
from gnnplace.running.runner import PlacedRunner
from gnnplace.units import GIB
from tests.measuring_processes import CORE, QUICK, killed_calls, parsed
from tests.measuring_processes import ENDLESS as ENDLESS_TEXT

FEED = {"x": np.arange(3, dtype=np.float32), "at": np.array([7], dtype=np.int64)}


def part(text: str) -> Part:
    proto = parsed(text)
    names = tuple(value.name for value in proto.graph.input)
    return Part("piece", CORE, proto.SerializeToString(), names, ("y",))


GOOD = (part("(float[3] x, int64[1] at) => (float[3] y) { y = Exp(x) }"),)
ENDLESS = (part(ENDLESS_TEXT),)
RAISING = (part("(float[3] x, int64[1] at) => (float[1] y) { y = Gather(x, at) }"),)
BROKEN = (Part("broken", CORE, b"no model", ("x",), ("y",)),)
BIG = (
    part("""(float[3] x, int64[1] at) => (float[3] y) <int64[1] far = {100000000}>
    { n = Mul(at, far)  a = ConstantOfShape(n)  s = ReduceSum<keepdims=0>(a)  y = Add(x, s) }"""),
)


SETUP = Setup(("x", "at"), ("y",), (FEED,), kept_jobs=2)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(SETUP, timeout_s=60.0) as process:
        yield process


@pytest.mark.parametrize("loadings", [1, 2, 4])
def test_a_pair_names_the_placement_that_fails_however_often_each_is_loaded(loadings: Literal[1, 2, 4]) -> None:
    state, rule = ProcessState(dataclasses.replace(SETUP, loadings=loadings)), PairRule(max_blocks=10)
    culprits = [PairedJob(pair, rule, 0).execute(state).culprit for pair in ((GOOD, BROKEN), (BROKEN, GOOD))]
    assert culprits == [1, 0]
    answer = PairedJob((GOOD, GOOD), rule, 0).execute(state)
    assert answer.samples is not None
    assert answer.samples.shape == (2, 20)


@pytest.mark.parametrize(("max_s", "loaded"), [(60.0, 8), (0.0, 4)])
def test_a_pair_is_loaded_four_times_where_that_takes_little_of_the_time(
    max_s: float, loaded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def runner(*arguments: Any) -> PlacedRunner:
        made.append(0)
        return PlacedRunner(*arguments)

    monkeypatch.setattr(worker_process, "PlacedRunner", runner)
    state = ProcessState(dataclasses.replace(SETUP, loadings=4))
    assert PairedJob((GOOD, GOOD), PairRule(max_blocks=10, max_s=max_s), 0).execute(state).samples is not None
    assert len(made) == loaded


def test_seconds_of_parts_are_means_over_the_fastest_quarter_of_the_runs() -> None:
    rows = [[9.0, 9.0], [1.0, 4.0], [3.0, 2.0], [50.0, 60.0], [40.0, 60.0], [50.0, 60.0], [50.0, 90.0]]
    assert worker_process.quiet_part_s(rows).tolist() == [2.0, 3.0]


def test_seconds_of_pipelined_requests_are_per_request(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    class Runner(nullcontext):
        part_s: ClassVar[dict[int, float]] = {}

        def __enter__(self) -> "Runner":
            return self

        def run_many(self, names: None, feeds: Iterable[object]) -> list[object]:
            runs.append(len(list(feeds)))
            return []

    monkeypatch.setattr(worker_process, "PlacedRunner", lambda *_: Runner())
    monkeypatch.setattr(
        worker_process, "interleaved", lambda calls, *_: np.array([[8.0] for call in calls if call() >= 0.0])
    )
    answer = Job((GOOD, GOOD), QUICK, requests=4).execute(ProcessState(SETUP))
    assert (runs, answer.part_s) == ([4, 4], ())
    assert answer.samples is not None
    assert answer.samples.tolist() == [[2.0], [2.0]]
    executed = worker.run(Job((GOOD, GOOD), QUICK, requests=4))
    assert executed.samples is not None
    assert executed.samples.shape == (2, 3)
    assert (executed.samples > 0).all()


@pytest.mark.parametrize(("objective", "seconds"), [("worst", 3.0), ("mean", 2.0)])
def test_a_repeat_takes_the_worst_or_the_mean_seconds_over_all_shapes(
    objective: DimsObjective, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    class Runner(nullcontext):
        def __enter__(self) -> "Runner":
            return self

        def run(self, names: None, feed: Mapping[str, float]) -> None:
            nonlocal now_s
            now_s += feed["x"]

    monkeypatch.setattr(worker_process, "PlacedRunner", lambda *_: Runner())
    monkeypatch.setattr(worker_process.time, "perf_counter", lambda: now_s)
    setup = Setup(("x",), ("y",), ({"x": 1.0}, {"x": 2.0}, {"x": 3.0}), 2, objective)
    answer = Job((GOOD, GOOD), QUICK).execute(ProcessState(setup))
    assert answer.samples is not None
    assert answer.samples.tolist() == [[seconds] * 3] * 2
    assert answer.part_s == ()


def test_a_candidate_that_raises_is_named_and_the_process_stays(worker: WorkerProcess) -> None:
    answer = worker.run(Job((GOOD, RAISING, GOOD), QUICK))
    assert (answer.samples, answer.culprit) == (None, 1)
    assert f"failed on '{CORE}'" in answer.failure
    assert "out of data bounds" in answer.failure
    assert "\n" not in answer.failure
    pid = worker.pid
    assert worker.run(Job((GOOD,), QUICK)).samples is not None
    assert worker.pid == pid


def test_a_candidate_that_cannot_be_loaded_is_named(worker: WorkerProcess) -> None:
    answer = worker.run(Job((GOOD, BROKEN), QUICK))
    assert answer.culprit == 1
    assert "cannot be loaded" in answer.failure


def test_a_job_whose_process_is_killed_is_tried_again_and_succeeds(worker: WorkerProcess) -> None:
    first = worker.run(Job((GOOD,), QUICK))
    pid = worker.pid
    with killed_calls(1):
        answer = worker.run(Job((GOOD,), QUICK))
    assert answer.samples is not None
    assert (first.retries, answer.retries, answer.failure) == (0, 1, "")
    assert worker.pid not in (None, pid)


def test_a_job_whose_process_is_killed_twice_fails_and_the_next_one_has_a_new_process(worker: WorkerProcess) -> None:
    worker.run(Job((GOOD,), QUICK))
    with killed_calls(2):
        answer = worker.run(Job((GOOD,), QUICK))
    assert (answer.samples, answer.culprit, answer.retries) == (None, None, 1)
    assert answer.failure.startswith("tried twice: the measuring process ended with signal SIGKILL (from outside")
    assert answer.failure.count("SIGKILL") == 2
    assert worker.run(Job((GOOD,), QUICK)).retries == 0


def test_a_job_beyond_the_memory_limit_is_stopped_and_not_tried_again() -> None:
    with WorkerProcess(SETUP, timeout_s=60.0, memory_limit_bytes=GIB) as worker:
        answer = worker.run(Job((BIG,), QUICK))
        assert answer.failure == "out of memory: more than 1.0 GiB; the measuring process was stopped"
        assert (answer.samples, answer.culprit, answer.retries, worker.pid) == (None, None, 0, None)
        assert worker.run(Job((GOOD,), QUICK)).samples is not None


def test_memory_of_sessions_of_earlier_jobs_fails_no_later_job() -> None:
    text = "(float[3] x, int64[1] at) => (float[1] y) <int64[1] n = {100000000}> { big = ConstantOfShape(n)  y = Gather(big, at) }"
    holding = part(text)  # a session computes the constant and keeps it
    jobs = [Job(((dataclasses.replace(holding, key=key),),), QUICK) for key in "abcd"]
    setup = dataclasses.replace(SETUP, kept_jobs=4)
    with WorkerProcess(setup, timeout_s=60.0, memory_limit_bytes=3 * GIB // 4) as worker:
        answers = [worker.run(job) for job in jobs]  # 400 MB each, of which the system may swap some out
    assert {answer.failure for answer in answers} == {""}
    assert (answers[0].retries, max(answer.retries for answer in answers)) == (0, 1)


def test_a_candidate_without_enough_memory_fails_and_the_process_stays() -> None:
    huge = Setup(("x", "at"), ("y",), ({**FEED, "at": np.array([10**6], dtype=np.int64)},), kept_jobs=2)
    with WorkerProcess(huge, timeout_s=60.0) as worker:
        worker.run(Job((GOOD,), QUICK))
        pid = worker.pid
        answer = worker.run(Job((GOOD, BIG), QUICK))
        assert (answer.culprit, answer.retries, worker.pid) == (1, 0, pid)
        assert "ConstantOfShape" in answer.failure


class OnGpu(PlacedRunner):
    """Stands in for parts on a GPU with room for the sessions of two jobs, in a process that keeps the sessions of all."""

    loaded = 0

    def __init__(self, parts: tuple[Part, ...], *arguments: Any) -> None:
        OnGpu.loaded += 1
        if OnGpu.loaded > 2 or parts[0].name == "never":
            raise MeasurementFailed("part 'piece' cannot be loaded on 'cuda:0': CUDA failure 2: out of memory")
        super().__init__([dataclasses.replace(part, device=CORE) for part in parts], *arguments)


def _with_a_small_gpu(setup: Setup) -> Any:
    worker_process.PlacedRunner = OnGpu  # type: ignore[misc]
    return worker_process._prepare(setup)


def test_a_gpu_without_memory_left_is_freed_of_earlier_sessions_before_the_placement_is_judged() -> None:
    on_gpu = (dataclasses.replace(GOOD[0], device="cuda:0"),)
    with WorkerProcess(SETUP, timeout_s=60.0) as worker:
        worker._prepare = partial(_with_a_small_gpu, SETUP)
        answers = [worker.run(Job((on_gpu,), QUICK)) for _ in range(2)]
        pid = worker.pid
        answers.append(worker.run(Job((on_gpu,), QUICK)))
        assert [(answer.samples is None, answer.retries) for answer in answers] == [(False, 0), (False, 0), (False, 1)]
        assert worker.pid != pid
        never = (dataclasses.replace(on_gpu[0], name="never"),)
        answer = worker.run(Job((never,), QUICK))
        assert (answer.samples, answer.retries, answer.culprit) == (None, 1, 0)
        assert "out of memory" in answer.failure


def test_a_pair_loads_each_placement_once_where_a_gpu_has_no_room_for_more() -> None:
    on_gpu, rule = (dataclasses.replace(GOOD[0], device="cuda:0"),), PairRule(max_s=0.5)
    setup = dataclasses.replace(SETUP, loadings=4)
    with WorkerProcess(setup, timeout_s=60.0) as worker:
        worker._prepare = partial(_with_a_small_gpu, setup)
        answer = worker.run(PairedJob((on_gpu, on_gpu), rule, seed=0))
        assert (answer.failure, answer.retries) == ("", 1)
        assert answer.samples is not None


class Beside(JobRunner):
    """A GPU with room for two models beside each other, and never for the model named `never`."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []

    def job(self, candidates: Sequence[Any], rule: StoppingRule) -> Any:
        return [name for (name,) in candidates]

    def run(self, job: Any) -> Answer:
        self.together.append(job)
        for culprit, name in enumerate(job):
            if culprit == 2 or name == "never":
                return Answer(None, "out of memory", culprit, exhausted=True)
        return Answer(np.ones((len(job) + 1, 3)), part_s=(np.zeros(0),) * len(job))


def test_models_that_lack_memory_beside_each_other_are_measured_alone() -> None:
    runner = Beside()
    answers = runner.beside([(name,) for name in ("a", "b", "c", "never")], QUICK)
    assert [answer.failure for answer in answers] == ["", "", "", "out of memory"]
    assert sorted(map(len, runner.together)) == [1, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("text", "is_memory"),
    [
        ("CUDA failure 2: out of memory", True),
        ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        ("CUBLAS_STATUS_ALLOC_FAILED", True),
        ("CUDA's cuMemHostAlloc answers error 2", True),
        ("CUDA's cuMemHostAlloc answers error 201", False),
        ("Non-zero status code: Gather: index out of range", False),
    ],
)
def test_messages_of_memory_that_ran_out_are_known(text: str, is_memory: bool) -> None:
    on_gpu = dataclasses.replace(GOOD[0], device="cuda:0")
    assert worker_process._on_gpu_without_memory([on_gpu], MeasurementFailed(text)) is is_memory
    assert not worker_process._on_gpu_without_memory(GOOD, MeasurementFailed(text))


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(1.0, math.inf), (60.0, 1.0)])
def test_a_job_beyond_the_time_limit_is_stopped_and_not_tried_again(timeout_s: float, limit_s: float) -> None:
    with WorkerProcess(SETUP, timeout_s) as worker:
        answer = worker.run(Job((ENDLESS,), QUICK, limit_s))
        assert (answer.samples, answer.retries, worker.pid) == (None, 0, None)
        assert answer.failure == "took longer than 1 s; the measuring process was stopped"


def test_a_process_that_never_starts_is_an_error(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_process, "_PROGRAM", "raise SystemExit('no room {} {}')")
    with pytest.raises(MeasurementFailed, match=r"cannot begin .* ended with exit code 1: no room"):
        worker.run(Job((GOOD,), QUICK))


def test_a_process_that_cannot_start_again_is_a_failure(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.run(Job((GOOD,), QUICK))
    monkeypatch.setattr(isolated_process, "_PROGRAM", "raise SystemExit('no room {} {}')")
    with killed_calls(1):
        answer = worker.run(Job((GOOD,), QUICK))
    assert "ended with signal SIGKILL" in answer.failure
    assert "cannot begin to measure: the measuring process ended with exit code 1: no room" in answer.failure
    monkeypatch.undo()
    assert worker.run(Job((GOOD,), QUICK)).samples is not None


def test_the_process_needs_neither_torch_nor_dgl_nor_ray() -> None:
    program = "import sys; import gnnplace.measuring.worker_process; print([m for m in ('torch', 'dgl', 'ray') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert shown.stdout.strip() == "[]"
