"""What partitioners cut: weights of vertices, edges and nets, and which device is which part."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.devices.topology import Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.classical.partition_graph import nets_of, parts_of, undirected_graph, whole_numbers
from tests.problems import devices_of, problem_of


def diamond(group: str | None = None, **allowed: tuple[str, ...]) -> OpGraph:
    """One tensor of 8 bytes from a to b and c, 5 and 6 bytes from there to d, and 1 byte from a to d."""
    ops = [Op(name, group=group if name in "bc" else None, devices=allowed.get(name)) for name in "abcd"]
    tensors = [Tensor("a", 8, ("b", "c")), Tensor("a", 1, ("d",)), Tensor("b", 5, ("d",)), Tensor("c", 6, ("d",))]
    return OpGraph.build("diamond", ops, tensors)


def dense(problem: Problem) -> list[list[int]]:
    rows: list[list[int]] = undirected_graph(problem).toarray().tolist()
    return rows


def test_an_edge_weighs_the_bytes_of_all_tensors_between_two_ops_in_either_direction() -> None:
    problem = problem_of(diamond(), devices_of(("gpu", "gpu")), 1.0)
    assert dense(problem) == [[0, 8, 8, 1], [8, 0, 0, 5], [8, 0, 0, 6], [1, 5, 6, 0]]


def test_a_colocation_group_is_one_vertex_to_which_a_tensor_is_sent_once() -> None:
    problem = problem_of(diamond(group="g"), devices_of(("gpu", "gpu")), 1.0)
    assert dense(problem) == [[0, 8, 1], [8, 0, 11], [1, 11, 0]]


def test_a_tensor_is_one_net_over_its_producer_and_its_consumers() -> None:
    nets = nets_of(problem_of(diamond(), devices_of(("gpu", "gpu")), 1.0))
    assert [row.tolist() for row in np.split(nets.units, nets.offsets[1:-1])] == [[0, 1, 2], [0, 3], [1, 3], [2, 3]]
    assert nets.tensors.tolist() == [0, 1, 2, 3]


def test_a_tensor_that_stays_within_a_colocation_group_is_no_net_and_no_edge() -> None:
    graph = OpGraph.build("pair", [Op("a", group="g"), Op("b", group="g")], [Tensor("a", 8, ("b",))])
    problem = problem_of(graph, devices_of(("gpu", "gpu")), 1.0)
    assert nets_of(problem).tensors.size == 0
    assert dense(problem) == [[0]]


def test_a_tensor_of_no_bytes_is_an_edge() -> None:
    graph = OpGraph.build("pair", [Op("a"), Op("b")], [Tensor("a", 0, ("b",))])
    graph_of_units = undirected_graph(problem_of(graph, devices_of(("gpu", "gpu")), 1.0))
    assert graph_of_units.indices.tolist() == [1, 0]
    assert graph_of_units.data.tolist() == [0, 0]


def test_parts_are_the_accelerators_by_falling_speed_and_hosts_only_on_request() -> None:
    problem = problem_of(diamond(), devices_of(("gpu", "cpu", "gpu")), [2.0, 4.0, 1.0])
    parts = parts_of(problem, hosts=False)
    assert parts.devices.tolist() == [2, 0]
    np.testing.assert_allclose(parts.speed, [2 / 3, 1 / 3])
    np.testing.assert_allclose(parts.mean_s, [1.5] * 4)
    with_hosts = parts_of(problem, hosts=True)
    assert with_hosts.devices.tolist() == [2, 0, 1]
    np.testing.assert_allclose(with_hosts.speed, [4 / 7, 2 / 7, 1 / 7])


def test_the_speed_of_a_device_is_that_on_the_ops_that_it_may_run() -> None:
    times = np.array([[1.0, np.inf], [1.0, 2.0], [1.0, 2.0], [1.0, np.inf]])
    np.testing.assert_allclose(
        parts_of(problem_of(diamond(), devices_of(("gpu", "gpu")), times), hosts=False).speed, [2 / 3, 1 / 3]
    )


def test_hosts_are_the_parts_where_no_accelerator_may_run_anything() -> None:
    graph = diamond(**dict.fromkeys("abcd", ("cpu",)))
    assert parts_of(problem_of(graph, devices_of(("gpu", "cpu", "cpu")), 1.0), hosts=False).devices.tolist() == [1, 2]


def test_there_are_no_more_parts_than_units_and_none_out_of_reach_of_the_fastest() -> None:
    one = OpGraph.build("one", [Op("a")])
    assert parts_of(problem_of(one, devices_of(("gpu", "gpu")), [2.0, 1.0]), hosts=True).devices.tolist() == [1]
    links = tuple(Link(f"gpu{a}", f"gpu{b}", 1.0, 1e3) for a, b in ((0, 1), (1, 0), (0, 2)))
    apart = Topology("apart", devices_of(("gpu",) * 3), links)
    assert parts_of(problem_of(diamond(), apart, 1.0), hosts=True).devices.tolist() == [0, 1]


def test_an_op_that_may_not_run_on_the_device_of_its_part_goes_to_the_fastest_one_where_it_may() -> None:
    problem = problem_of(diamond(b=("cpu",)), devices_of(("gpu", "gpu", "cpu", "cpu")), [1.0, 1.0, 9.0, 8.0])
    parts = parts_of(problem, hosts=False)
    assert parts.assignment(problem, np.array([0, 0, 1, 1])).tolist() == [0, 3, 1, 1]
    assert parts.mean_s.tolist() == [1.0, 0.0, 1.0, 1.0]


@given(st.lists(st.floats(0.0, 1e300), min_size=1, max_size=9), st.integers(0, 1))
def test_whole_numbers_keep_proportions_and_their_total(values: list[float], least: int) -> None:
    whole = whole_numbers(np.array(values), total=10_000, least=least)
    assert (whole >= least).all()
    assert whole.sum() <= 10_000 + len(values)
    if max(values) > 0:
        assert whole.sum() >= 10_000 - len(values)
        shares = np.array(values) / max(values)
        np.testing.assert_allclose(whole, 10_000 * shares / shares.sum(), atol=1.0)
    else:
        assert (whole == 1).all()
