"""Features are relative and finite, and have the values computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.policy.features import NODE_FEATURES, graph_features, sweep_features, type_bucket
from gnnplace.policy.network import policy_inputs
from gnnplace.policy.pair_features import PAIR, pair_features
from tests.problems import full_mesh, problem_of, random_layers, two_chains


def features_of(problem: Problem, assignment: np.ndarray) -> list[np.ndarray]:
    """Node, edge, device, pair and context features of all units, and the mask."""
    inputs, units, timing = policy_inputs(problem), np.arange(problem.num_units), empty_timing(problem, 1)
    refresh(problem, inputs.tables, timing, 0, assignment)
    pairs = pair_features(inputs.features, inputs.tables, timing, 0 * units, units, problem.topology.memory_bytes)
    return [*sweep_features(inputs.features, inputs.tables, timing), inputs.features.devices, *pairs]


def pairs(problem: Problem, assignment: np.ndarray) -> dict[str, np.ndarray]:
    """Pair features of every unit by name, `[U, D]` each."""
    pair = features_of(problem, assignment)[3]
    return {name: pair[:, :, column] for column, name in enumerate(PAIR._fields)}


def scaled(problem: Problem, factor: float) -> Problem:
    """The same problem with all times of ops and links multiplied by `factor`."""
    links = tuple(
        replace(link, latency_s=link.latency_s * factor, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor)
        for link in problem.topology.links
    )
    return problem_of(problem.graph, replace(problem.topology, links=links), problem.op_time_s * factor)


def test_features_do_not_change_when_all_times_are_scaled() -> None:
    problem, slow = random_layers(), scaled(random_layers(), 1000.0)
    assignment = np.random.default_rng(0).integers(0, 3, problem.num_units)[problem.unit_of_op]
    for first, second in zip(features_of(problem, assignment), features_of(slow, assignment), strict=True):
        np.testing.assert_allclose(first, second, atol=2e-3)


def test_an_unseen_op_type_has_a_bucket_other_than_that_of_unknown_types() -> None:
    assert type_bucket("Unknown") == 0
    assert type_bucket("Conv") == 59
    assert all(1 <= type_bucket(f"Custom{i}") <= 63 for i in range(500))


@pytest.mark.parametrize("num_ops", [1, 2])
def test_ops_without_time_bytes_or_edges_give_finite_features(num_ops: int) -> None:
    graph = OpGraph.build("idle", [Op(f"o{i}") for i in range(num_ops)])
    problem = problem_of(graph, full_mesh(1), np.zeros((num_ops, 1)))
    assert all(np.isfinite(values).all() for values in features_of(problem, np.zeros(num_ops, dtype=np.int64)))


def test_devices_that_may_not_run_an_op_are_masked_and_stay_finite() -> None:
    graph = OpGraph.build("partly", [Op("a", devices=("d0",)), Op("b")], [Tensor("a", 0, ("b",))])
    problem = problem_of(graph, full_mesh(2), np.array([[1.0, np.inf], [1.0, 2.0]]))
    *features, mask = features_of(problem, np.zeros(2, dtype=np.int64))
    assert mask.tolist() == [[True, False], [True, True]]
    assert all(np.isfinite(values).all() for values in features)


def test_pair_features_of_a_cut_chain_are_those_computed_by_hand() -> None:
    # a0 -> a1 -> a2 with a1 on d1: both its inputs and its outputs are elsewhere. A transfer takes 1 s, an op too.
    values = pairs(two_chains(), np.array([0, 0, 1, 0, 0, 0]))
    assert values["inputs_there"][2].tolist() == [1.0, 0.0]
    assert values["outputs_there"][2].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(values["input_transfer"][2], [0.0, np.log(2.0)], rtol=1e-6)
    np.testing.assert_allclose(values["transfer_change"][2], [-np.log(3.0), 0.0], rtol=1e-6)
    np.testing.assert_allclose(values["is_current"][2], [0.0, 1.0])
    # a0 runs 0..1, a1 2..3 on d1, a2 after 4; home again its input is there one second earlier.
    np.testing.assert_allclose(values["ready_change"][2], [-np.log(2.0), 0.0], rtol=1e-6)


def test_a_device_fits_a_unit_where_its_memory_suffices() -> None:
    values = pairs(two_chains(memory_bytes=60), np.zeros(6, dtype=np.int64))
    # 60 bytes of weights and some activations are more than the 60 of d0; one op of 10 on d1 fits.
    assert values["fits"].tolist() == [[0.0, 1.0]] * 6
    np.testing.assert_allclose(values["memory_after"][:, 1], 10 / 60, rtol=1e-6)


def test_the_levels_of_a_chain_run_from_its_start_to_its_end() -> None:
    problem = two_chains(length=4)
    nodes = graph_features(problem, policy_inputs(problem).tables).nodes
    top, bottom = (nodes[::2, NODE_FEATURES.index(name)] for name in ("top_level", "bottom_level"))
    # Four ops of 1 s and three transfers of 1 s: seven seconds in all.
    np.testing.assert_allclose(top, np.array([0, 2, 4, 6]) / 7, rtol=1e-6)
    np.testing.assert_allclose(bottom, np.array([7, 5, 3, 1]) / 7, rtol=1e-6)
