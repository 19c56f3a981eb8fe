"""MinCut over accelerators, and with hosts."""

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.devices.topology import Device
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import OpGraph
from gnnplace.planners.catalog import load_planner
from gnnplace.planners.classical.metis import metis_assignment
from gnnplace.planners.solution import Budget
from tests.problems import connected, ladders, problem_of, random_reads


def at_speeds(graph: OpGraph, speeds: dict[str, float]) -> Problem:
    """Devices by name with their speeds, all linked; every op takes a second at speed 1."""
    devices = (Device(name, name.rstrip("0123456789")) for name in speeds)
    return problem_of(graph, connected(*devices, latency_s=1e-3, bandwidth=1e6), 1.0 / np.array(list(speeds.values())))


TWO_CLUSTERS = ladders((10, 10), {(0, 1): 1})


@pytest.fixture(autouse=True)
def _needs_pymetis() -> None:
    pytest.importorskip("pymetis", reason="the extra 'partition' is not installed")


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_two_clusters_are_cut_at_the_thin_edge_between_them(seed: int) -> None:
    solution = load_planner("metis")(at_speeds(TWO_CLUSTERS, {"gpu0": 1, "gpu1": 1}), Budget(1), seed)
    first, second = solution.placement.assignment[:10], solution.placement.assignment[10:]
    assert {*first} != {*second}
    assert len({*first}) == len({*second}) == 1


@given(st.integers(0, 99), st.integers(2, 10))
@settings(max_examples=20, deadline=None)
def test_equal_accelerators_get_equal_work_within_the_imbalance_of_the_method(seed: int, count: int) -> None:
    graph = random_reads(np.random.default_rng(seed), 60 * count, (100, 101))
    problem = at_speeds(graph, {f"gpu{i}": 1 for i in range(count)})
    assignment = metis_assignment(problem, seed, hosts=False)
    bisections = np.ceil(np.log2(count))
    # Up to eight parts, every bisection may add its imbalance and miss by an op.
    tolerance = 1.001**bisections if count <= 8 else 1.03
    assert np.bincount(assignment, minlength=count).max() <= 60 * tolerance + bisections


@pytest.mark.parametrize(("count", "recursive", "ufactor"), [(8, True, 1), (9, False, 30)])
def test_the_imbalance_is_the_default_of_the_library_for_the_method_in_use(
    count: int, recursive: bool, ufactor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_graph = Mock(return_value=(0, [0] * 20))
    monkeypatch.setattr("pymetis.part_graph", part_graph)
    metis_assignment(at_speeds(TWO_CLUSTERS, {f"gpu{i}": 1 for i in range(count)}), 0, hosts=False)
    options = part_graph.call_args.kwargs
    assert (options["recursive"], options["options"].ufactor) == (recursive, ufactor)


def test_metis_cpu_gives_hosts_work_by_their_speed_and_metis_gives_them_none() -> None:
    problem = at_speeds(ladders((40, 40), {(0, 1): 1}), {"gpu0": 3, "cpu0": 1})
    without, with_hosts = (load_planner(name)(problem, Budget(1), 0) for name in ("metis", "metis-cpu"))
    assert np.bincount(without.placement.assignment, minlength=2).tolist() == [80, 0]
    assert np.bincount(with_hosts.placement.assignment, minlength=2)[1] == pytest.approx(20, abs=2)
