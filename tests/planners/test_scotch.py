"""Scotch: its files by hand, and its mappings."""

import doctest
import inspect
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_array

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import GnnplaceError, InfeasiblePlacement
from gnnplace.planners.classical import scotch
from gnnplace.planners.classical.scotch import link_distances, plan, source_text, target_text
from gnnplace.planners.solution import Budget
from tests.problems import ladders, problem_of

needs_scotch = pytest.mark.skipif(shutil.which("scotch_gmap") is None, reason="Debian's scotch is not installed")


def pairs_of_devices(slow_latency_s: float, speeds: tuple[float, ...] = (1, 1, 1, 1)) -> Topology:
    """Four accelerators: 0 with 2 and 1 with 3 over quick links, all other pairs over slow ones."""
    devices = tuple(Device(f"gpu{i}", "gpu") for i in range(len(speeds)))
    links = tuple(
        Link(f"gpu{a}", f"gpu{b}", 1.0 if (a + b) % 2 == 0 else slow_latency_s, 1e9)
        for a in range(len(speeds)) for b in range(len(speeds)) if a != b
    )  # fmt: skip
    return Topology("pairs", devices, links)


def test_a_source_graph_has_vertices_from_0_without_labels_and_each_edge_twice() -> None:
    graph = csr_array([[0, 3, 0], [3, 0, 1], [0, 1, 0]])
    text = source_text(graph, np.array([1.0, 2.0, 1.0]))
    quarter, eighth = 1 << 22, (1 << 22) // 8  # vertices sum to 2^24, both directions of edges to 2^22
    assert text.splitlines() == [
        "0", "3 4", "0 011",
        f"{quarter} 1 {3 * eighth} 1",
        f"{2 * quarter} 2 {3 * eighth} 0 {eighth} 2",
        f"{quarter} 1 {eighth} 1",
    ]  # fmt: skip


def test_a_target_keeps_near_devices_together_when_it_is_halved() -> None:
    distances = link_distances(pairs_of_devices(4.0), np.arange(4), 0.0)
    assert distances.tolist() == [[0, 32, 8, 32], [32, 0, 32, 8], [8, 32, 0, 32], [32, 8, 32, 0]]
    lines = target_text(np.array([0.4, 0.2, 0.2, 0.2]), distances).splitlines()
    assert lines[:2] == ["deco 0", "4 7"]
    rows = [tuple(map(int, line.split())) for line in lines[2:6]]
    assert [(device, weight) for device, weight, _ in rows] == [(0, 1000), (1, 500), (2, 500), (3, 500)]
    halves = [place // 2 for _, _, place in rows]
    assert halves[0] == halves[2] != halves[1] == halves[3]
    assert {place for _, _, place in rows} == {4, 5, 6, 7}
    assert lines[6:] == ["32", "8 32", "32 8 32"]


def test_a_pair_without_a_route_has_the_largest_distance() -> None:
    devices = tuple(Device(f"gpu{i}", "gpu") for i in range(3))
    ways = ((0, 1, 1.0), (1, 0, 1.0), (0, 2, 1000.0), (2, 0, 1000.0), (1, 2, 1.0))
    topology = Topology("some", devices, tuple(Link(f"gpu{a}", f"gpu{b}", s, 1e9) for a, b, s in ways))
    assert link_distances(topology, np.arange(3), 0.0).tolist() == [[0, 8, 128], [8, 0, 128], [128, 128, 0]]


@needs_scotch
def test_two_clusters_are_cut_at_the_thin_edge_between_them() -> None:
    topology = pairs_of_devices(1.0, (1, 1))
    problem = problem_of(ladders((10, 10), {(0, 1): 1}), topology, 1.0)
    assignment = plan(problem, Budget(1), 0).placement.assignment
    assert {*assignment[:10]} != {*assignment[10:]}
    assert len({*assignment[:10]}) == len({*assignment[10:]}) == 1


@needs_scotch
def test_clusters_that_exchange_many_bytes_go_to_near_devices() -> None:
    graph = ladders((16, 16, 16, 16), {(0, 1): 500, (2, 3): 500, (0, 2): 5, (1, 3): 5})
    problem = problem_of(graph, pairs_of_devices(12.0), 1.0)
    assignment = plan(problem, Budget(1), 0).placement.assignment.reshape(4, 16)
    homes = [int(np.bincount(row).argmax()) for row in assignment]
    assert sorted(homes) == [0, 1, 2, 3]
    assert (homes[0] + homes[1]) % 2 == (homes[2] + homes[3]) % 2 == 0


@needs_scotch
def test_the_load_of_a_device_is_in_proportion_to_its_speed() -> None:
    speeds = (3.0, 1.0)
    problem = problem_of(ladders((80,)), pairs_of_devices(1.0, speeds), 1.0 / np.array(speeds))
    assert np.bincount(plan(problem, Budget(1), 0).placement.assignment)[1] == pytest.approx(20, abs=2)


@needs_scotch
def test_the_answer_does_not_depend_on_the_seed() -> None:
    problem = problem_of(ladders((20, 20, 20), {(0, 1): 5, (1, 2): 5}), pairs_of_devices(2.0), 1.0)
    first, second = (plan(problem, Budget(1), seed).placement.assignment for seed in (0, 1))
    np.testing.assert_array_equal(first, second)


@needs_scotch
def test_a_time_budget_of_zero_ends_the_mapping() -> None:
    with pytest.raises(InfeasiblePlacement, match="budget ended"):
        plan(problem_of(ladders((8, 8), {(0, 1): 1}), pairs_of_devices(1.0), 1.0), Budget(seconds=0.0), 0)


@needs_scotch
def test_the_error_of_scotch_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scotch, "target_text", lambda speed, distances: "deco 0\nnonsense\n")
    with pytest.raises(GnnplaceError, match=r"scotch_gmap ended with status -?[0-9]+: .*bad input"):
        plan(problem_of(ladders((8, 8), {(0, 1): 1}), pairs_of_devices(1.0), 1.0), Budget(1), 0)


@needs_scotch
def test_the_example_that_is_skipped_without_the_program_holds() -> None:
    text = (inspect.getdoc(plan) or "").replace("# doctest: +SKIP", "")
    examples = doctest.DocTestParser().get_doctest(text, vars(scotch), scotch.__name__, None, None)
    assert doctest.DocTestRunner().run(examples) == doctest.TestResults(failed=0, attempted=2)
