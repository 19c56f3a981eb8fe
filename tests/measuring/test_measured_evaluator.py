"""Measured evaluation of tiny models: measured, stored and failed placements."""

import dataclasses
import math
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gnnplace.cost.cost_model import RooflineCost
from gnnplace.cost.measurement_store import MeasurementStore
from gnnplace.cost.stored_runs import JOB_SPREAD
from gnnplace.devices.spec import load_topology
from gnnplace.errors import InvalidTopology
from gnnplace.evaluation import Evaluator, PairedEvaluator
from gnnplace.graph.coarsen import coarsen
from gnnplace.measuring.grouped_parts import GroupedModel
from gnnplace.measuring.measured_evaluator import MeasuredEvaluator
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.stored_model import Kept, pieces
from gnnplace.measuring.timing import MeasureOptions, StoppingRule
from gnnplace.measuring.worker_process import Answer, Job, PairedJob, ProcessState, WorkerProcess
from gnnplace.onnx_io.part import Part
from gnnplace.placement import Placement
from gnnplace.running.compiled.c_api import CSession
from gnnplace.sim.simulator import Simulator
from tests.measuring_processes import CORES, GOOD, OUT_OF_BOUNDS, killed_calls, read

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

RULE = StoppingRule(warmup=1, min_repeats=6, max_repeats=6)
OPTIONS = MeasureOptions(search=RULE, final=RULE, plain=RULE, timeout_s=60.0)
QUICK = dataclasses.replace(OPTIONS, decisive=PairRule(max_blocks=10))
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
    assert measured.plain.single_s is not None
    assert 0 < measured.plain.best_s <= measured.plain.single_s  # type: ignore[operator]
    assert measured.plain.single_device == f"cpu:{CORES[0]}"


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


def test_a_difference_to_a_known_placement_gives_the_seconds_of_the_other(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    before, after = placement(0, 0, 0, 0, 0, 0), placement(0, 1, 0, 1, 0, 1)
    before_s = measured.evaluate(before).makespan_s
    found = measured.difference(after, before)
    assert measured.evaluate(after).makespan_s == before_s * (1 + found.difference)
    assert measured.measurements == 2


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
    (runs,) = store.placement_runs(first.stored.key, pieces(first.parts_of(split)))
    assert (len(runs.candidate_s), len(runs.reference_s), runs.reference) == (6, 6, first.plain.best_session)
    assert {"load_average", "cpu_mhz", "timer", "gnnplace"} <= runs.conditions.keys()
    assert first.plain.best_s is not None
    assert measured.makespan_s == pytest.approx(
        np.median(np.divide(runs.candidate_s, runs.reference_s)) * first.plain.best_s
    )
    ratio = np.median(np.divide(runs.candidate_s, runs.reference_s))
    assert recalled.makespan_s == pytest.approx(ratio * again.plain.seconds_of[runs.reference])
    assert recalled.spread_s > 1.9 * JOB_SPREAD * recalled.makespan_s
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
    before = measured.parts_of(placement(0, 1, 0, 1, 0, 1))
    after = measured.parts_of(placement(0, 1, 0, 1, 0, 0))
    kept = {part.key for part in before} & {part.key for part in after}
    assert kept

    def sessions(parts: tuple[Part, ...]) -> dict[object, CSession]:
        missing = partial(pytest.fail, "the cache has no such session")
        return {part.key: state.cache.get(CSession, ((part.key, 0), part.device), missing) for part in parts}

    assert Job((before,), RULE).execute(state).samples is not None
    loaded = sessions(before)
    assert Job((after,), RULE).execute(state).samples is not None
    assert {key for key, session in sessions(after).items() if session is loaded.get(key)} == kept


def test_candidates_and_the_reference_have_sessions_of_their_own_which_later_jobs_reuse(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    state, reference = ProcessState(measured.setup), measured.reference
    whole, split = (measured.parts_of(placement(*row)) for row in ((0,) * 6, (0, 1, 0, 1, 0, 1)))
    assert reference is not None
    first = state.own_sessions([split, whole, split, (reference,)])
    keys = [(part.key, part.device) for parts in first for part in parts]
    assert len(set(keys)) == len(keys) == 2 * len(split) + 2
    assert state.own_sessions([whole, (reference,)]) == [first[1], first[3]]


def test_pairs_of_a_search_keep_the_sessions_of_the_incumbent_and_teach_the_costs_of_segments(
    evaluator: Evaluators, tmp_path: Path
) -> None:
    store = MeasurementStore(tmp_path / "measurements.sqlite", {"cpu": "this"})
    measured = evaluator(BRANCHES, options=QUICK, store=store)
    incumbent, candidate, next_one = (
        placement(0, 1, 0, 1, 0, 1),
        placement(0, 1, 0, 1, 0, 0),
        placement(0, 0, 0, 1, 0, 1),
    )
    assert isinstance(measured, PairedEvaluator)
    kinds = {device.kind for device in measured.topology.devices}
    assert not store.knows_segments(kinds, measured._grouped.model.key)
    found = measured.difference(candidate, incumbent)
    assert found.low < found.difference < found.high
    assert not store.knows_segments(kinds, measured._grouped.model.key), "nothing relates them to the reference"
    assert measured.difference_to_reference(candidate) is not None
    assert store.knows_segments(kinds, measured._grouped.model.key)

    # Without a limit of time, slow loading loads each side as often as fast loading does.
    rule, state = dataclasses.replace(OPTIONS.step, max_blocks=7, max_s=math.inf), ProcessState(measured.setup)
    parts = [measured.parts_of(one) for one in (incumbent, candidate, next_one)]
    loaded = []
    for first in parts[1:]:
        answer = PairedJob((first, parts[0]), rule, 0).execute(state)
        assert answer.samples is not None
        assert [len(row) for row in answer.part_s] == [len(first), len(parts[0])]
        missing = partial(pytest.fail, "the cache has no such session")
        loaded.append([state.cache.get(CSession, ((part.key, 0), part.device), missing) for part in parts[0]])
    assert all(before is after for before, after in zip(*loaded, strict=True))


def test_a_placement_is_paired_with_the_reference_unless_it_is_the_reference(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES, options=QUICK)
    found = measured.difference_to_reference(placement(0, 1, 0, 1, 0, 1))
    assert found is not None
    assert (found.pairs, found.low < found.difference < found.high) == (20, True)
    measured._jobs.reference = measured._single
    assert measured.difference_to_reference(placement(0, 0, 0, 0, 0, 0)) is None
    assert evaluator(OUT_OF_BOUNDS).difference_to_reference(placement(0, 0, 0, 0, 0, 0)) is None


@pytest.mark.parametrize(
    ("seconds", "best", "single"),
    [
        ({"": 0.5, "[spinning=1]": 0.4, "[parallel=1]": 0.6, "[spinning=1,parallel=1]": 0.7}, "[spinning=1]", 1.0),
        ({"": 1.1, "[spinning=1]": 1.2, "[parallel=1]": math.inf, "[spinning=1,parallel=1]": 1.3}, None, 1.0),
    ],
)
def test_the_reference_is_the_best_plain_session_that_the_devices_allow(
    seconds: dict[str, float], best: str | None, single: float, evaluator: Evaluators, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = f"cpu:{CORES[0]}-{CORES[1]}"
    of_device = {f"{both}{options}": value for options, value in seconds.items()}

    def answered(worker: WorkerProcess, job: Job) -> Answer:
        row_s = [of_device.get(parts[0].device, single) if len(parts) == 1 else 0.3 for parts in job.candidates]
        if math.inf in row_s:
            return Answer(None, "refused", row_s.index(math.inf))
        return Answer(np.repeat(np.array(row_s)[:, None], 6, axis=1))

    monkeypatch.setattr(WorkerProcess, "run", answered)
    measured = evaluator(BRANCHES)
    session = f"cpu:{CORES[0]}" if best is None else f"{both}{best}"
    plain, best_s = measured.plain, 1.0 if best is None else 0.4
    assert measured.reference is not None
    assert measured.reference.device == plain.best_session == session
    assert (plain.best_s, plain.single_s, plain.single_device) == (pytest.approx(best_s), single, f"cpu:{CORES[0]}")
    assert measured.evaluate(placement(0, 1, 0, 1, 0, 1)).makespan_s == pytest.approx(0.3)
    assert measured.simulated_reference_s == pytest.approx(
        best_s * measured._simulated.evaluate(placement(*(0,) * 6)).makespan_s
    )
    compared = measured.compare([placement(0, 1, 0, 1, 0, 1)])
    assert (compared.plain.best_s, compared.plain.single_s) == (pytest.approx(best_s), pytest.approx(single))


def test_the_final_comparison_measures_segments_beside_the_plain_session(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    comparison = measured.compare([placement(0, 0, 0, 0, 0, 0), placement(0, 1, 0, 1, 0, 1)])
    assert [one.repeats for one in comparison.evaluations] == [6, 6]
    assert all(one.feasible and one.evaluator == "measured" for one in comparison.evaluations)
    assert comparison.plain.best is not None
    assert comparison.plain.single is not None
    assert (comparison.plain.best.repeats, comparison.plain.single.repeats) == (6, 6)
    assert measured.measurements == 0
    assert measured.compare([]).evaluations == ()


def test_a_model_that_raises_is_a_failure_with_a_reason(evaluator: Evaluators) -> None:
    measured = evaluator(OUT_OF_BOUNDS)
    assert measured.plain.single is None
    found = measured.evaluate(placement(0, 0, 1, 1, 0, 1))
    assert found.makespan_s == np.inf
    assert not found.feasible
    assert "segment" in found.failure
    assert "out of data bounds" in found.failure
    batch = measured.evaluate_batch(np.array([[0, 0, 1, 1, 0, 1]]))
    assert (batch.makespan_s[0], batch.shortfall_bytes[0]) == (np.inf, np.inf)
    comparison = measured.compare([placement(0, 0, 0, 0, 0, 0), placement(1, 1, 1, 1, 1, 0)])
    assert all("out of data bounds" in one.failure for one in comparison.evaluations)
    assert comparison.plain.best is None


def test_a_placement_whose_process_is_killed_is_measured_again(evaluator: Evaluators) -> None:
    measured = evaluator(BRANCHES)
    with killed_calls(1):
        found = measured.evaluate(placement(0, 1, 0, 1, 0, 1))
    assert (found.feasible, found.failure, found.repeats) == (True, "", 6)
    assert (measured.measurements, measured.retried, measured.failed) == (1, 1, 0)
    assert measured.evaluate(placement(0, 1, 1, 1, 0, 1)).feasible
    assert (measured.measurements, measured.retried, measured.failed) == (2, 1, 0)


def test_a_whole_model_on_one_device_that_is_faster_than_the_reference_becomes_the_reference(
    evaluator: Evaluators,
) -> None:
    measured = evaluator(BRANCHES)
    whole = [placement(*[device] * 6) for device in (0, 1)]
    for _ in range(3):  # by chance either may be the faster one
        found = measured.compare([*whole, placement(0, 1, 0, 1, 0, 1)])
        least_s, best_s = min(one.makespan_s for one in found.evaluations[:2]), found.plain.best_s
        assert best_s is not None
        assert best_s <= least_s
        if best_s == least_s:
            device = measured.topology.device_names.index(found.plain.best_session)
            assert measured.difference_to_reference(whole[device]) is None


def test_a_process_that_hangs_is_stopped_long_before_the_last_limit_and_fails_one_placement(
    evaluator: Evaluators,
) -> None:
    quick = dataclasses.replace(RULE, max_s=0.5)
    measured = evaluator(
        BRANCHES, options=MeasureOptions(search=quick, final=quick, plain=quick, timeout_s=1e6, loading_s=3.0)
    )
    pid = measured._jobs.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    hung = measured.evaluate(placement(0, 1, 0, 1, 0, 1))
    assert hung.makespan_s == np.inf
    # The limit allows for loading two placements and for the repeats.
    limit_s = re.fullmatch(r"took longer than (\S+) s; the measuring process was stopped", hung.failure)
    assert limit_s is not None
    assert 3.0 < float(limit_s[1]) < 60
    assert measured.evaluate(placement(0, 1, 1, 1, 0, 1)).feasible
    assert measured.evaluate(placement(0, 1, 0, 1, 0, 1)) is hung
    assert (measured.measurements, measured.retried, measured.failed) == (2, 0, 1)


def test_a_model_without_ops_is_evaluated_without_a_reference(evaluator: Evaluators) -> None:
    measured = evaluator("(float[3] x) => (float[3] x) { }")
    found = measured.evaluate(Placement(np.array([], dtype=np.int64)))
    assert found.failure == ""
    assert found.makespan_s < 1
    assert measured.plain.single is None


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
    assert measured._jobs.worker.pid is None
    assert not folder.exists()
