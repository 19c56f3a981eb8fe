"""Measured evaluation of tiny models: measured, stored and failed placements."""

import dataclasses
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gnnplace.cost.cost_model import RooflineCost
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.devices.spec import load_topology
from gnnplace.errors import InvalidTopology
from gnnplace.evaluation import Evaluator
from gnnplace.graph.coarsen import coarsen
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.measuring.measured_evaluator import Kept, MeasuredEvaluator
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.measuring.worker_process import Job, ProcessState
from gnnplace.onnx_io.split import Part
from gnnplace.placement import Placement
from gnnplace.running.part_session import PartSession
from gnnplace.sim.simulator import Simulator
from tests.measuring_processes import CORES, GOOD, OUT_OF_BOUNDS, read

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

RULE = StoppingRule(warmup=1, min_repeats=6, max_repeats=6)
OPTIONS = MeasureOptions(search=RULE, final=RULE, timeout_s=60.0)
Evaluators = Callable[..., MeasuredEvaluator]

BRANCHES = """(float[N, 4] x, float[N, 4] z, float[N] unread) => (float[N, 4] y, float[N, 8] both)
    { a = Relu(x)  b = Tanh(z)  c = Add(a, b)  d = Mul(a, z)  y = Sub(c, d)  both = Concat<axis=1>(c, b) }"""


@pytest.fixture
def evaluator(tmp_path: Path) -> Iterator[Evaluators]:
    """Makes evaluators of small models over two cores, and closes them."""
    opened: list[MeasuredEvaluator] = []

    def make(
        text: str, max_groups: int = 512, options: MeasureOptions = OPTIONS, store: MeasurementStore | None = None
    ) -> MeasuredEvaluator:
        model = read(text, tmp_path)
        coarse = coarsen(model.graph, max_groups)
        topology = load_topology(f"cpu:{CORES[0]},cpu:{CORES[1]}")
        seconds = RooflineCost().op_time_s(model.graph, topology)
        group_s = np.stack([coarse.total(seconds[:, device]) for device in range(2)], axis=1)
        simulator = Simulator(coarse.graph, topology, group_s)
        grouped = GroupedModel((model,), coarse.graph, coarse.group_of_op)
        kept = None if store is None else Kept(store, seconds)
        opened.append(MeasuredEvaluator(grouped, topology, simulator, options, kept))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def placement(*devices: int) -> Placement:
    return Placement(np.array(devices))


def test_a_placement_over_two_cores_is_measured_and_the_rest_is_simulated(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    assert isinstance(measured, Evaluator)
    split = placement(0, 1, 0, 1, 0, 1)
    found, simulated = measured.evaluate(split), measured._simulated.evaluate(split)
    assert (measured.kind, found.evaluator, found.failure) == ("measured", "measured", "")
    assert found.feasible
    assert found.period_s == found.makespan_s != simulated.makespan_s
    assert found.repeats == 6
    assert found.peak_memory_bytes.tolist() == simulated.peak_memory_bytes.tolist()
    assert found.transferred_bytes == simulated.transferred_bytes > 0
    assert measured.single is not None
    assert measured.single.makespan_s > 0
    assert measured.single_device == f"cpu:{CORES[0]}"


def test_equal_placements_are_measured_once_and_priorities_make_them_differ(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    first = measured.evaluate(placement(0, 1, 0, 1, 0, 1))
    assert measured.evaluate(placement(0, 1, 0, 1, 0, 1)) is first
    assert measured.measurements == 1
    measured.evaluate(Placement(np.array([0, 1, 0, 1, 0, 1]), np.arange(6.0)))
    assert measured.measurements == 2
    batch = measured.evaluate_batch(np.array([[0, 1, 0, 1, 0, 1], [1, 1, 1, 1, 1, 1]]))
    assert measured.measurements == 3
    assert batch.makespan_s[0] == first.makespan_s
    assert batch.shortfall_bytes.tolist() == [0.0, 0.0]


def test_stored_placements_are_not_executed_again_unless_the_model_or_machine_differs(
    evaluator: Evaluators, tmp_path: Path
) -> None:
    store = MeasurementStore(tmp_path / "measurements.sqlite", {"cpu": "this"})
    split = placement(0, 1, 0, 1, 0, 1)
    first = evaluator(BRANCHES, store=store)
    measured = first.evaluate(split)
    again = evaluator(BRANCHES, store=store)
    recalled = again.evaluate(split)
    assert (first.measurements, first.recalled, again.measurements, again.recalled) == (1, 0, 0, 1)
    assert first.single is not None
    assert again.single is not None
    ratio = measured.makespan_s / first.single.makespan_s
    assert recalled.makespan_s == pytest.approx(ratio * again.single.makespan_s)
    assert (recalled.repeats, recalled.evaluator, recalled.failure) == (6, "measured", "")
    again.evaluate(placement(1, 1, 0, 1, 0, 1))
    assert again.measurements == 1
    elsewhere = evaluator(BRANCHES, store=MeasurementStore(tmp_path / "measurements.sqlite", {"cpu": "other"}))
    other_model = evaluator(BRANCHES.replace("Relu", "Exp"), store=store)
    for other in (elsewhere, other_model):
        other.evaluate(split)
        assert (other.measurements, other.recalled) == (1, 0)


def test_the_fastest_placements_exclude_failed_ones(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    tried = [placement(0, 1, 0, 1, 0, 1), placement(0, 0, 0, 0, 0, 0), placement(1, 0, 1, 0, 1, 0)]
    seconds = [measured.evaluate(one).makespan_s for one in tried]
    assert measured.fastest(2) == [tried[index] for index in np.argsort(seconds)[:2]]
    assert len(measured.fastest(9)) == 3
    failing = evaluator(OUT_OF_BOUNDS)
    failing.evaluate(Placement(np.arange(failing._grouped.graph.num_ops) % 2))
    assert failing.fastest(1) == []


def test_a_failure_is_not_stored(evaluator: Evaluators, tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "measurements.sqlite", {})
    for _ in range(2):
        failing = evaluator(OUT_OF_BOUNDS, store=store)
        found = failing.evaluate(Placement(np.arange(failing._grouped.graph.num_ops) % 2))
        assert found.failure
        assert (failing.measurements, failing.recalled) == (1, 0)


def test_groups_are_expanded_to_the_ops_of_the_model(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES, max_groups=2)
    num_groups = measured._grouped.graph.num_ops
    assert num_groups <= 2
    alternating = placement(*(group % 2 for group in range(num_groups)))
    assert measured.evaluate(alternating).feasible
    found = measured.segments_of(alternating)
    assert sorted(op for segment in found for op in segment.ops) == list(range(6))
    for segment in found:
        assert {int(measured._grouped.group_of_op[op]) % 2 for op in segment.ops} == {segment.device}


def test_a_move_creates_only_the_sessions_of_the_segments_that_it_changes(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    state = ProcessState(measured.setup)
    before = measured._segment_parts(placement(0, 1, 0, 1, 0, 1))
    after = measured._segment_parts(placement(0, 1, 0, 1, 0, 0))
    kept = {part.key for part in before} & {part.key for part in after}
    assert kept

    def session(one: Part) -> PartSession:
        return state.cache.get((one.key, one.device), lambda: pytest.fail("the cache has no such session"))

    assert Job((before,), RULE).execute(state).samples is not None
    loaded = {part.key: session(part) for part in before}
    assert Job((after,), RULE).execute(state).samples is not None
    assert {part.key for part in after if session(part) is loaded.get(part.key)} == kept


def test_the_whole_model_on_one_device_is_the_same_session_as_the_plain_one(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    (part,) = measured._segment_parts(placement(0, 0, 0, 0, 0, 0))
    reference = measured.reference
    assert reference is not None
    assert (part.key, part.device) == (reference.key, reference.device)


def test_the_final_comparison_measures_segments_beside_the_plain_session(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    comparison = measured.compare([placement(0, 0, 0, 0, 0, 0), placement(0, 1, 0, 1, 0, 1)])
    assert [one.repeats for one in comparison.evaluations] == [6, 6]
    assert all(one.feasible and one.evaluator == "measured" for one in comparison.evaluations)
    assert comparison.single is not None
    assert comparison.single.repeats == 6
    assert measured.measurements == 0
    assert measured.compare([]).evaluations == ()


def test_a_model_that_raises_is_a_failure_with_a_reason(evaluator: Evaluators) -> None:
    measured = evaluator(OUT_OF_BOUNDS)
    assert measured.single is None
    found = measured.evaluate(placement(0, 0, 1, 1, 0, 1))
    assert found.makespan_s == np.inf
    assert not found.feasible
    assert "segment" in found.failure
    assert "out of data bounds" in found.failure
    batch = measured.evaluate_batch(np.array([[0, 0, 1, 1, 0, 1]]))
    assert (batch.makespan_s[0], batch.shortfall_bytes[0]) == (np.inf, np.inf)
    comparison = measured.compare([placement(0, 0, 0, 0, 0, 0), placement(1, 1, 1, 1, 1, 0)])
    assert all("out of data bounds" in one.failure for one in comparison.evaluations)
    assert comparison.single is None


def test_a_placement_whose_process_is_killed_is_measured_again(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    pid = measured._worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # the job cannot end before the kill
    killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
    killer.start()
    found = measured.evaluate(placement(0, 1, 0, 1, 0, 1))
    killer.join()
    assert (found.feasible, found.failure, found.repeats) == (True, "", 6)
    assert (measured.measurements, measured.retried, measured.failed) == (1, 1, 0)
    assert measured.evaluate(placement(0, 1, 1, 1, 0, 1)).feasible
    assert (measured.measurements, measured.retried, measured.failed) == (2, 1, 0)


def test_a_process_that_hangs_is_stopped_long_before_the_last_limit_and_fails_one_placement(
    evaluator: Evaluators,
) -> None:
    quick = dataclasses.replace(RULE, max_s=0.5)
    measured = evaluator(BRANCHES, options=MeasureOptions(search=quick, final=quick, timeout_s=1e6, loading_s=0.5))
    pid = measured._worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    hung = measured.evaluate(placement(0, 1, 0, 1, 0, 1))
    assert hung.makespan_s == np.inf
    # The limit allows for loading two placements and for the repeats.
    limit_s = re.fullmatch(r"took longer than (\S+) s; the measuring process was stopped", hung.failure)
    assert limit_s is not None
    assert 1.5 < float(limit_s[1]) < 60
    assert measured.evaluate(placement(0, 1, 1, 1, 0, 1)).feasible
    assert measured.evaluate(placement(0, 1, 0, 1, 0, 1)) is hung
    assert (measured.measurements, measured.retried, measured.failed) == (2, 0, 1)


def test_a_model_without_ops_is_evaluated_without_a_reference(evaluator: Evaluators) -> None:
    measured = evaluator("(float[3] x) => (float[3] x) { }")
    found = measured.evaluate(Placement(np.array([], dtype=np.int64)))
    assert found.failure == ""
    assert found.makespan_s < 1
    assert measured.single is None


def test_devices_that_the_machine_lacks_are_refused(tmp_path: Path) -> None:
    model = read(GOOD, tmp_path)
    topology = load_topology("k40")
    simulator = Simulator(model.graph, topology, np.ones((1, 2)))
    with pytest.raises(InvalidTopology, match="'k40:0' does not exist on this machine"):
        MeasuredEvaluator(GroupedModel((model,), model.graph, np.array([0])), topology, simulator)


def test_closing_ends_the_process_and_removes_the_parts(
    evaluator: Evaluators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measured = evaluator(BRANCHES)
    (folder,) = tmp_path.glob("gnnplace-*.tmp")
    measured.close()
    assert measured._worker.pid is None
    assert not folder.exists()
