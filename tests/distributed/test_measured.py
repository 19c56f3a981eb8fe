"""Each placement is executed once, on one of several hosts beside its own plain session, even if processes are killed."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest

from gnnplace.cost.cost_model import RooflineCost
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.devices.spec import load_topology
from gnnplace.distributed.evaluators import answers_of_hosts, measuring
from gnnplace.distributed.pool import Pool
from gnnplace.evaluation import EvaluationBatch
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.stored_model import Kept
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.onnx_io.read import read_onnx
from gnnplace.sim.simulator import Simulator
from tests.patience import PATIENCE_S

CORES = sorted(os.sched_getaffinity(0))
pytestmark = [pytest.mark.skipif(len(CORES) < 2, reason="needs two cores"), pytest.mark.usefixtures("cluster")]

RULE = StoppingRule(warmup=1, min_repeats=6, max_repeats=6)
OPTIONS = MeasureOptions(search=RULE, final=RULE, plain=RULE, timeout_s=30.0)
MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y, float[N, 8] both)
    { a = Relu(x)  b = Tanh(z)  c = Add(a, b)  d = Mul(a, z)  y = Sub(c, d)  both = Concat<axis=1>(c, b) }"""


@dataclass
class Opened:
    """An evaluator of six ops on two cores, and the pool that executes for it."""

    evaluator: MeasuredEvaluator
    pool: Pool[Any, Any]


@pytest.fixture
def evaluator(tmp_path: Path) -> Iterator[Callable[..., MeasuredEvaluator]]:
    """Makes evaluators that share a store."""
    ends = []

    def make(weights: bool = False) -> MeasuredEvaluator:
        path = tmp_path / "model.onnx"
        proto = onnx.parser.parse_model(MODEL)
        if weights:  # too many to travel in the parts
            heavy = onnx.numpy_helper.from_array(np.ones((400_000, 4), dtype=np.float32)[:, :4], "heavy")
            proto.graph.initializer.append(heavy)
            proto.graph.node[0].op_type, proto.graph.node[0].input[:] = "Add", ["x", "top"]
            proto.graph.node.insert(0, onnx.helper.make_node("ReduceMax", ["heavy"], ["top"], keepdims=0))
        onnx.save(proto, path)
        model = read_onnx(path)
        topology = load_topology(f"cpu:{CORES[0]},cpu:{CORES[1]}")
        seconds = RooflineCost().op_time_s(model.graph, topology)
        simulator = Simulator(model.graph, topology, seconds)
        grouped = GroupedModel((model,), model.graph, np.arange(model.graph.num_ops))
        store = MeasurementStore(tmp_path / "measurements.sqlite", {"cpu": "this"})
        found = MeasuredEvaluator(grouped, topology, simulator, OPTIONS, Kept(store, seconds))
        ends.append(found.close)
        return found

    yield make
    for end in ends:
        end()


@pytest.fixture
def opened(evaluator: Callable[..., MeasuredEvaluator]) -> Iterator[Callable[..., Opened]]:
    """Makes an evaluator with a pool of its own."""
    ends = []

    def make(weights: bool = False, **options: float) -> Opened:
        found = evaluator(weights)
        role, usual = measuring(found, OPTIONS.timeout_s, force=True)
        pool: Pool[Any, Any] = Pool(role, replace(usual, **options))
        ends.append(pool.close)
        pool.wait_ready()
        found.elsewhere = partial(answers_of_hosts, pool)
        return Opened(found, pool)

    yield make
    for end in ends:
        end()


def different(count: int, num_ops: int = 6) -> np.ndarray[Any, Any]:
    """The first placements, `[B, N]`."""
    return np.array([[row >> op & 1 for op in range(num_ops)] for row in range(1, count + 1)])


def working_process() -> psutil.Process:
    """The process of a worker that runs an item now."""
    for _ in range(600):
        for process in psutil.Process().children(recursive=True):
            if process.status() != psutil.STATUS_ZOMBIE and "_Actor.work" in " ".join(process.cmdline()):
                return process
        time.sleep(0.02)
    raise AssertionError("no worker runs an item")


def during(stop: Callable[[psutil.Process], object], evaluate: Callable[[], EvaluationBatch]) -> psutil.Process:
    """The process of a worker for which `stop` is called during an evaluation, which still has all results."""
    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(working_process)
        stopping = threads.submit(lambda: stop(worker.result()))
        batch = evaluate()
        stopping.result()
    assert np.isfinite(batch.makespan_s).all()
    return worker.result()


def test_each_placement_is_executed_once_on_one_of_the_hosts_and_stored_and_a_killed_worker_costs_none(
    evaluator: Callable[..., MeasuredEvaluator], opened: Callable[..., Opened]
) -> None:
    there = opened(copy_after=1e9)  # a copy could answer before a loss is known
    assert there.pool.hosts == ("host1", "host2")
    rows = different(10)
    batch = there.evaluator.evaluate_batch(np.concatenate([rows, rows[:3]]))
    assert batch.makespan_s.shape == (13,)
    assert np.array_equal(batch.makespan_s[:3], batch.makespan_s[10:])
    assert there.evaluator.measurements == there.pool.tally["counted"] == 10
    assert np.isfinite(batch.makespan_s).all()
    again = evaluator()
    again.elsewhere = there.evaluator.elsewhere
    repeated = again.evaluate_batch(rows)
    assert (again.measurements, again.recalled, there.pool.tally["dispatched"]) == (0, 10, 10)
    # The driver multiplies the measured ratios by the time of its own plain session.
    before, now = (each.plain.seconds_of[there.evaluator.plain.best_session] for each in (there.evaluator, again))
    assert repeated.makespan_s / now == pytest.approx(batch.makespan_s[:10] / before)
    during(psutil.Process.kill, lambda: there.evaluator.evaluate_batch(different(30)[10:]))
    assert (there.evaluator.measurements, there.evaluator.failed) == (30, 0)
    lost = there.pool.tally["lost"]
    assert lost in (0, 1)  # none where the answer was on its way already
    assert there.pool.tally == Counter(counted=30, dispatched=30 + lost, lost=lost)


def test_weights_that_lie_outside_the_parts_are_sent_to_each_host(opened: Callable[..., Opened]) -> None:
    there = opened(weights=True)
    assert [path.stat().st_size > 2**20 for path in there.evaluator.maker.data_files.values()] == [True]
    batch = there.evaluator.evaluate_batch(different(4, num_ops=7))
    assert np.isfinite(batch.makespan_s).all()
    assert there.evaluator.failed == 0


def test_another_host_repeats_the_measurement_of_a_host_that_stops_answering(opened: Callable[..., Opened]) -> None:
    there = opened(timeout_s=3.0, copy_after=1e9)
    stopped = during(psutil.Process.suspend, lambda: there.evaluator.evaluate_batch(different(12)))
    assert (there.pool.tally["counted"], there.evaluator.failed) == (12, 0)
    assert there.pool.tally["hung"] >= 1  # hosts that other work delays may take too long as well
    stopped.wait(PATIENCE_S)  # killed
