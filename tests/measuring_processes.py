"""Small models, fast rules and the measuring processes that tests of measuring share."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
import psutil
import pytest

from gnnplace.measuring.timing import StoppingRule
from gnnplace.measuring.worker_process import Answer, Task, WorkerProcess
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx

CORES = sorted(os.sched_getaffinity(0))
CORE = f"cpu:{CORES[0]}"
QUICK = StoppingRule(warmup=1, min_repeats=3, max_repeats=3)

GOOD = "(float[3] x) => (float[3] y) { y = Exp(x) }"
ENDLESS = """(float[3] x) => (float[3] y) <int64 trips = {1000000000}, bool go = {1}>
    { y = Loop (trips, go, x) <body = l (int64 i, bool on, float[3] s) => (bool still, float[3] t)
      { still = Identity(on)  t = Cos(s) }> }"""
OUT_OF_BOUNDS = """(float[3] x) => (float[1] y) <float[1] far = {7}>
    { a = Relu(x)  s = ReduceSum<keepdims=0>(a)  t = Mul(s, far)  i = Add(t, far)  at = Cast<to=7>(i)  y = Gather(x, at) }"""


def parsed(text: str) -> onnx.ModelProto:
    """The model of a graph's text."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')


def read(text: str, folder: Path) -> OnnxModel:
    """The model of a graph's text, read from a file."""
    onnx.save(parsed(text), folder / "m.onnx")
    return read_onnx(folder / "m.onnx")


def measuring_processes() -> list[psutil.Process]:
    """The measuring processes of this one, and all of its zombies that ran Python; those of a Ray cluster may outlive a test."""
    children = psutil.Process().children()
    return [
        child
        for child in children
        if (child.name().startswith("python") if is_zombie(child) else "isolated_process" in " ".join(child.cmdline()))
    ]


def is_zombie(process: psutil.Process) -> bool:
    """Whether a process has ended and still waits to be reaped."""
    return bool(process.status() == psutil.STATUS_ZOMBIE)


@dataclass
class KilledCalls:
    """How many of the next calls of measuring processes lose their process."""

    left: int


@contextmanager
def killed_calls(left: int = 0) -> Iterator[KilledCalls]:
    """Kills the process of each of the next calls, which cannot answer before that, however busy the machine is."""
    kills, call = KilledCalls(left), WorkerProcess.call

    def killed(worker: WorkerProcess, task: Task, limit_s: float) -> Answer:
        if kills.left == 0:
            return call(worker, task, limit_s)
        kills.left -= 1
        worker.start()
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
        killer.start()
        try:
            return call(worker, task, limit_s)
        finally:
            killer.join()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerProcess, "call", killed)
        yield kills
    assert kills.left == 0
