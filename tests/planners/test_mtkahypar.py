"""Mt-KaHyPar: weights of units, limits of parts, placements that fit, and failures of the library."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.devices.topology import Device
from gnnplace.errors import MissingDependency
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.isolated_process import IsolatedProcess
from gnnplace.placement import check_legal
from gnnplace.planners.classical import mtkahypar
from gnnplace.planners.classical.mtkahypar import MtKahyparConfig, part_limits, plan
from gnnplace.planners.classical.mtkahypar_process import Hypergraph
from gnnplace.planners.classical.partition_graph import parts_of
from gnnplace.planners.solution import Budget
from tests.problems import connected, ladders, problem_of, random_reads


@pytest.fixture(autouse=True)
def _needs_mtkahypar() -> None:
    pytest.importorskip("mtkahypar", reason="the extra 'partition' is not installed")


def on_gpus(graph: OpGraph, memory_bytes: Sequence[int | None]) -> Problem:
    devices = (Device(f"gpu{i}", "gpu", room) for i, room in enumerate(memory_bytes))
    return problem_of(graph, connected(*devices, latency_s=1e-3, bandwidth=1e6), 1.0)


def test_parts_are_limited_by_speed_and_imbalance_and_by_their_memories() -> None:
    speed = np.array([0.5, 0.25, 0.25])
    roomy, tight = np.full(3, 1e18), np.array([20.0, 1e18, 1e18])
    assert part_limits(100.0, roomy, speed, 0.2) == pytest.approx([60, 30, 30])
    assert part_limits(100.0, tight, speed, 0.2) == pytest.approx([20, 45, 45])  # half of the 20 must be used
    assert part_limits(100.0, tight, speed, 0.0) == pytest.approx([20, 40, 40])
    assert part_limits(100.0, np.array([40.0, 50.0, 60.0]), speed, np.inf) == pytest.approx([40, 50, 60])


def test_there_are_no_limits_where_the_devices_hold_too_little_or_one_may_hold_all() -> None:
    assert part_limits(100.0, np.array([60.0, 39.0]), np.array([0.5, 0.5]), 0.1) is None
    assert part_limits(100.0, np.array([60.0, 100.0]), np.array([0.5, 0.5]), np.inf) is None


@given(
    st.lists(st.tuples(st.floats(1.0, 100.0), st.floats(0.1, 1.0)), min_size=2, max_size=6), st.floats(0.0, 1.0)
)  # fmt: skip
def test_limits_suffice_and_never_exceed_a_memory(devices: list[tuple[float, float]], imbalance: float) -> None:
    capacity, speed = (np.array(column) for column in zip(*devices, strict=True))
    limits = part_limits(100.0, capacity, speed, imbalance)
    if limits is None:
        assert capacity.sum() < 100.0 or capacity.max() >= 100.0 or ((1 + imbalance) * speed / speed.sum()).max() >= 1
    else:
        assert (limits <= capacity * (1 + 1e-9)).all()
        assert 100.0 * (1 - 1e-9) <= limits.sum() <= 100.0 * (1 + imbalance) * (1 + 1e-9)


def test_clusters_that_fill_a_device_each_are_found_whole() -> None:
    problem = on_gpus(ladders([8, 8, 8]), [8 * 10 + 4000] * 3)
    solution = plan(problem, Budget(200), 0)
    rows = solution.placement.assignment.reshape(3, 8)
    assert (rows == rows[:, :1]).all()
    assert sorted(rows[:, 0].tolist()) == [0, 1, 2]
    assert solution.objective_s == pytest.approx(8.0)


def test_devices_with_little_memory_get_parts_that_fit() -> None:
    weights = [Op(f"o{i}", memory_bytes=size) for i, size in enumerate((70, 20, 20, 20, 20, 50))]
    problem = on_gpus(OpGraph.build("weights", weights), [60, 80, 80])
    solution = plan(problem, Budget(400), 0)
    assert problem.evaluator.evaluate(solution.placement).feasible


def test_an_op_goes_only_where_it_may_run_even_where_the_whole_graph_fits() -> None:
    allowed = {"c0_0": ("gpu1",), "c0_5": ("gpu1",), "c1_3": ("gpu0", "gpu2")}
    problem = on_gpus(ladders([8, 8], **allowed), [None] * 3)
    solution = plan(problem, Budget(300), 0)
    check_legal(problem.graph, problem.topology, solution.placement)
    assert solution.objective_s == pytest.approx(8.0)  # the first chain on gpu1, the second elsewhere


@pytest.mark.parametrize("memory_bytes", [None, 9000])
def test_it_is_never_worse_than_the_best_single_device(memory_bytes: int | None) -> None:
    problem = on_gpus(random_reads(np.random.default_rng(0), 30, (900, 901)), [memory_bytes] * 3)
    singles = problem.evaluator.evaluate_batch(problem.single_device_assignments)
    assert plan(problem, Budget(100), 0).objective_s <= problem.penalised_batch_s(singles).min()


def test_a_graph_without_bytes_or_tensors_is_spread() -> None:
    problem = on_gpus(OpGraph.build("free", [Op(f"o{i}") for i in range(6)]), [None] * 2)
    assert plan(problem, Budget(100), 0).objective_s == pytest.approx(3.0)


def test_a_library_that_died_between_two_partitions_is_started_again() -> None:
    problem = on_gpus(ladders([4, 4]), [None] * 2)
    cut = (np.ones(8), np.full(2, 5.0), parts_of(problem, hosts=True), np.arange(8), None)
    with IsolatedProcess(mtkahypar.partitioner) as process:
        cutter = mtkahypar._Cutter(problem, process, 30.0)
        first = cutter.cut(*cut)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        while process.pid is not None:
            time.sleep(0.01)
        np.testing.assert_array_equal(cutter.cut(*cut), first)
    assert first is not None


def exits_at_each_partition() -> Callable[[Hypergraph], list[int]]:
    return lambda graph: os._exit(1)


def exits_at_start() -> Callable[[Hypergraph], list[int]]:
    raise ImportError("libhwloc.so.15: no such file")


def hangs_at_start(starts: Path) -> Callable[[Hypergraph], list[int]]:
    with starts.open("a") as log:
        log.write(".")
    time.sleep(600.0)
    return exits_at_start()


def test_a_library_that_crashes_at_every_partition_leaves_the_single_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtkahypar, "partitioner", exits_at_each_partition)
    problem = on_gpus(ladders([4, 4]), [None] * 2)
    config = MtKahyparConfig(orders=1, imbalances=(0.3,), activation_shares=(1.0,))
    assert plan(problem, Budget(100), 0, config).evaluations == len(problem.single_device_assignments)


def test_a_library_that_does_not_work_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtkahypar, "partitioner", exits_at_start)
    with pytest.raises(
        MissingDependency, match=r"exit code 1: ImportError: libhwloc.so.15: no such file .* pip install"
    ):
        plan(on_gpus(ladders([4, 4]), [None, None]), Budget(100), 0)


def test_the_sweep_ends_after_a_few_partitions_that_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setattr(mtkahypar, "partitioner", partial(hangs_at_start, starts))
    problem = on_gpus(ladders([4, 4]), [None] * 4)
    solution = plan(problem, Budget(100), 0, MtKahyparConfig(timeout_s=1.0, max_timeouts=2))
    assert len(starts.read_text() if starts.exists() else "") <= 2
    assert solution.evaluations == len(problem.single_device_assignments)
