"""Real faults while a search executes placements: each one is a failed evaluation, and the search continues."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import gnnplace
from gnnplace import isolated_process
from gnnplace.api import measuring
from gnnplace.api.plan import Plan
from gnnplace.errors import MeasurementFailed
from gnnplace.measuring import measured_evaluator
from gnnplace.measuring.link_probe import dispatch_overhead_s, probing_process
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.planners.solution import Progress
from gnnplace.run_record import MeasuredSearch
from gnnplace.units import format_bytes
from tests.measuring_processes import killed_calls, measuring_processes
from tests.quick_measuring import QUICK_PAIRS

CORES = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

QUICK = StoppingRule(warmup=1, min_repeats=6, max_repeats=6, max_s=0.5)
OPTIONS = MeasureOptions(search=QUICK, final=QUICK, plain=QUICK, decisive=QUICK_PAIRS)

CHAIN = """(float[8] x) => (float[8] y)
    { a = Relu(x)  b = Exp(a)  c = Neg(b)  d = Abs(c)  e = Sqrt(d)  f = Tanh(e)  y = Sigmoid(f) }"""
FRAGILE = """(float[1, 1, 1, 3] x) => (float[1, 1, 1, 3] y)
    <float zero = {0}, float big = {1e30}, float[1, 1, 1, 1] grown = {1e30}, float[1, 1, 1, 1] shrunk = {1e-30}>
    { a = Mul(x, zero)  b = Add(a, big)  c = Conv(b, grown)  d = Mul(c, shrunk)  e = Mul(d, shrunk)
      at = Cast<to=7>(e)  f = Exp(x)  y = GatherElements<axis=3>(f, at) }"""
"""ONNX Runtime multiplies the kernel of `c` by the factors after it; in a session without them, `c` is infinite and so is `at`."""
LARGE = """(float[1] x) => (float[1] y) <int64[1] n = {10000000}>
    { a = Expand(x, n)  b = Relu(a)  c = Neg(b)  d = Abs(c)  e = Ceil(d)  f = Floor(e)  y = ReduceMax<keepdims=1>(f) }"""
HEAVY = """(float[1, 3000] x) => (float[1, 3000] y)
    { a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  d = Relu(c)  e = MatMul(d, w)  y = Relu(e) }"""
"""Every session that multiplies with `w` packs its 34 MiB anew. The allocator would keep freed blocks below 32 MiB."""
WEIGHT_BYTES = 4 * 3000**2


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure_quickly: Callable[[StoppingRule], None]
) -> Iterator[Callable[..., Plan]]:
    """Places a model on two cores with executed placements, by default of `greedy`."""
    measure_quickly(QUICK)

    def call(
        text: str,
        options: MeasureOptions = OPTIONS,
        on_progress: Callable[[Progress], None] | None = None,
        evaluations: int = 9,
        planner: str = "greedy",
    ) -> Plan:
        monkeypatch.setattr(measuring, "MEASURE_OPTIONS", options)
        path = tmp_path / "model.onnx"
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
        if text == HEAVY:
            weight = np.full((3000, 3000), 1e-4, dtype=np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        onnx.save(model, path)
        return gnnplace.place(
            path, f"cpu:{CORES[0]},cpu:{CORES[1]}", planner=planner, evaluations=evaluations, measure=True,
            on_progress=on_progress,
        )  # fmt: skip

    yield call
    assert not measuring_processes()


def searched(plan: Plan) -> MeasuredSearch:
    assert plan.measured is not None
    return plan.measured["search"]


def test_a_placement_with_a_segment_that_raises_is_a_failure_that_is_not_stored_and_others_are(
    place: Callable[..., Plan], costs_of_first_run: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without fused groups, the multiplications can be placed apart from their kernel.
    monkeypatch.setattr("gnnplace.api.problem_setup._fused", lambda *_: None)
    # The first generation is random and does not depend on measured seconds, so that both searches have the same placements.
    search = searched(place(FRAGILE, planner="genetic"))
    assert (search["executed"] > search["failed"] > 0, search["retried"]) == (True, 0)
    again = searched(place(FRAGILE, planner="genetic"))
    assert (again["executed"], again["failed"]) == (search["failed"], search["failed"])


def test_a_measuring_process_that_is_killed_again_and_again_costs_a_retry_each_and_one_failure(
    place: Callable[..., Plan],
) -> None:
    kills_after = {2: 1, 4: 2, 6: 1}
    with killed_calls() as kills:

        def on_progress(progress: Progress) -> None:
            kills.left += kills_after.pop(progress.evaluations, 0)

        plan = place(CHAIN, on_progress=on_progress)
    assert kills_after == {}
    assert plan.solution.evaluations == 9
    assert (searched(plan)["failed"], searched(plan)["retried"]) == (1, 3)
    assert plan.measured is not None
    assert plan.measured["median_s"] > 0


def idle_bytes() -> int:
    """Resident memory of a measuring process that holds no large model."""
    with probing_process() as worker:
        dispatch_overhead_s(f"cpu:{CORES[0]}", worker, QUICK)
        (process,) = measuring_processes()
        return process.memory_info().rss


def test_placements_beyond_the_memory_limit_fail_and_one_that_fits_is_the_answer(
    place: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One plain session: each of the others would need processes of its own, as they do not fit beside each other.
    monkeypatch.setattr(isolated_process, "_CHECK_INTERVAL_S", 0.005)  # a session loads in a tenth of a second
    monkeypatch.setattr(measured_evaluator, "candidate_sessions", lambda topology, simulated: [f"cpu:{CORES[0]}"])
    # A session takes three times its weights while it loads. A placement on one device has two sessions beside it, the reference's
    # and its own; one on both devices has three.
    limit_bytes = idle_bytes() + 14 * WEIGHT_BYTES // 3
    plan = place(HEAVY, dataclasses.replace(OPTIONS, memory_limit_bytes=limit_bytes), evaluations=5)
    assert plan.solution.evaluations == 5
    assert searched(plan)["failed"] > 0
    assert len(set(plan.placement.assignment.tolist())) == 1
    assert plan.makespan_s > 0


def test_a_model_that_takes_too_much_memory_everywhere_is_an_error_and_no_answer(place: Callable[..., Plan]) -> None:
    limit_bytes = idle_bytes() + 30 * 2**20  # less than one tensor
    message = f"no placement could be executed (out of memory: more than {format_bytes(limit_bytes)}"
    with pytest.raises(MeasurementFailed, match=re.escape(message)):
        place(LARGE, dataclasses.replace(OPTIONS, memory_limit_bytes=limit_bytes), evaluations=1)
