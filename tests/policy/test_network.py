"""Encoder, head and the whole network."""

import numpy as np
import pytest
import torch

from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.policy.dgl_graph import HAS_DGL, to_dgl
from gnnplace.policy.features import DEVICE_FEATURES, sweep_features
from gnnplace.policy.network import (
    CandidateMoves,
    PairHead,
    PolicyConfig,
    PolicyInputs,
    PolicyNetwork,
    build_policy,
    masked_logits,
    policy_inputs,
)
from gnnplace.policy.pair_features import CONTEXT, PAIR, pair_features
from tests.toy_problems import random_layers, renamed, two_chains

needs_dgl = pytest.mark.skipif(not HAS_DGL, reason="dgl has no wheel for this Python")


def lively(seed: int = 0, config: PolicyConfig = PolicyConfig()) -> PolicyNetwork:
    """A network whose scores depend on everything, as after training."""
    network = build_policy(seed, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        network.head.score.weight.copy_(torch.randn(network.head.score.weight.shape, generator=generator))
    return network


def answers(
    problem: Problem, assignments: np.ndarray, network: PolicyNetwork, with_dgl: bool = HAS_DGL
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings `[U, B, H]` and logits `[B, U, D]` for all units of all placements."""
    inputs = policy_inputs(problem, with_dgl)
    timing = empty_timing(problem, len(assignments))
    for row, assignment in enumerate(assignments):
        refresh(problem, inputs.tables, timing, row, assignment)
    nodes, edges = sweep_features(inputs.features, inputs.tables, timing)
    rows = np.repeat(np.arange(len(assignments)), problem.num_units)
    units = np.tile(np.arange(problem.num_units), len(assignments))
    seen = pair_features(inputs.features, inputs.tables, timing, rows, units, problem.topology.memory_bytes)
    embeddings = network.encode(inputs, torch.from_numpy(nodes), torch.from_numpy(edges))
    moves = CandidateMoves(*(torch.from_numpy(array) for array in (rows, units, *seen)))
    logits = network.logits(inputs, embeddings, moves)
    return embeddings, logits.view(len(assignments), problem.num_units, -1)


def random_assignments(problem: Problem, count: int) -> np.ndarray:
    """`[count, N]`."""
    devices = problem.topology.num_devices
    units = np.random.default_rng(0).integers(0, devices, (count, problem.num_units))
    return units[:, problem.unit_of_op]


@needs_dgl
@pytest.mark.parametrize("problem", [random_layers(), two_chains(length=1)], ids=["layers", "no edges"])
def test_dgl_and_plain_torch_give_the_same_embeddings_logits_and_gradients(problem: Problem) -> None:
    network, assignments = lively(), random_assignments(problem, 4)
    gradients = []
    for with_dgl in (True, False):
        network.zero_grad()
        embeddings, logits = answers(problem, assignments, network, with_dgl)
        logits.sum().backward()
        gradients.append((embeddings, logits, *(p.grad for p in network.parameters() if p.grad is not None)))
    assert len(gradients[0]) > 20
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def test_listing_the_ops_in_another_order_reorders_the_answers_and_changes_nothing_else() -> None:
    problem = random_layers()
    order = np.random.default_rng(4).permutation(problem.graph.num_ops)
    other = renamed(problem, order)
    assignments = random_assignments(problem, 2)
    network = lively()
    embeddings, logits = answers(problem, assignments, network)
    other_embeddings, other_logits = answers(other, assignments[:, order], network)
    unit = torch.from_numpy(problem.unit_of_op[order])
    other_unit = torch.from_numpy(other.unit_of_op.copy())
    torch.testing.assert_close(other_embeddings[other_unit], embeddings[unit], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other_logits[:, other_unit], logits[:, unit], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_devices", [1, 2, 7])
def test_one_network_serves_any_number_of_devices(num_devices: int) -> None:
    problem = random_layers(num_devices=num_devices)
    _, logits = answers(problem, random_assignments(problem, 1), lively())
    assert logits.shape == (1, problem.num_units, num_devices)
    assert torch.isfinite(logits).all()


def test_a_masked_device_has_probability_exactly_0() -> None:
    logits = masked_logits(torch.tensor([[50.0, 1.0, 1.0]]), torch.tensor([[False, True, True]]))
    assert torch.softmax(logits, dim=-1).tolist() == [[0.0, 0.5, 0.5]]


def test_the_same_seed_gives_the_same_network_and_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second, third = build_policy(1), build_policy(1), build_policy(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.encoder.inputs.weight, third.encoder.inputs.weight)


@needs_dgl
def test_the_dgl_graph_holds_units_edges_and_their_features() -> None:
    problem = random_layers()
    inputs = policy_inputs(problem)
    graph = to_dgl(problem, inputs.features)
    assert graph.num_nodes() == problem.num_units == 29
    source, target = (ends.numpy() for ends in graph.edges())
    between = {(problem.unit_of_op[a], problem.unit_of_op[b]) for a, b in zip(*problem.graph.edges, strict=True)}
    assert set(zip(source.tolist(), target.tolist(), strict=True)) == {(a, b) for a, b in between if a != b}
    assert torch.equal(graph.ndata["features"], torch.from_numpy(inputs.features.nodes))


def test_the_head_equals_its_formula_with_every_pair_written_out() -> None:
    torch.manual_seed(0)
    head = PairHead(6)
    torch.nn.init.normal_(head.score.weight)
    unit, graph, devices = torch.randn(5, 6), torch.randn(5, 6), torch.randn(4, len(DEVICE_FEATURES))
    pair, context, mask = torch.randn(5, 4, len(PAIR)), torch.randn(5, len(CONTEXT)), torch.rand(5, 4) < 0.7
    mask[0], mask[1] = True, False
    logits = head(unit, graph, devices, pair, context, mask)
    for row in range(5):
        of_unit = head.unit(torch.cat([unit[row], context[row]])) + head.graph(graph[row])
        hidden = [torch.relu(of_unit + head.pair(torch.cat([pair[row, d], devices[d]]))) for d in range(4)]
        for device in range(4):
            score = head.prior(pair[row, device]) + head.score(hidden[device])
            expected = score[0] if mask[row, device] else torch.tensor(-torch.inf)
            torch.testing.assert_close(logits[row, device], expected)


def inputs_and_moves(devices: float = 0.0) -> tuple[PolicyInputs, CandidateMoves]:
    """All moves of one placement, with something added to the device features."""
    problem = random_layers()
    inputs, units = policy_inputs(problem), np.arange(problem.num_units)
    timing = empty_timing(problem, 1)
    refresh(problem, inputs.tables, timing, 0, np.zeros(30, dtype=np.int64))
    seen = pair_features(inputs.features, inputs.tables, timing, 0 * units, units, problem.topology.memory_bytes)
    inputs.devices[0] += devices
    return inputs, CandidateMoves(*(torch.from_numpy(array) for array in (0 * units, units, *seen)))


def test_device_features_that_are_switched_off_change_no_answer() -> None:
    blind = PolicyConfig(device_features=False)
    embeddings = torch.randn(29, 1, blind.hidden, generator=torch.Generator().manual_seed(0))
    for network, is_blind in ((lively(0, blind), True), (lively(0), False)):
        first, second = (
            network.logits(inputs, embeddings, moves) for inputs, moves in (inputs_and_moves(), inputs_and_moves(1.0))
        )
        assert torch.equal(first, second) is is_blind


def test_switching_features_off_leaves_the_inputs_as_they_are() -> None:
    inputs, moves = inputs_and_moves()
    before = inputs.devices.clone()
    config = PolicyConfig(device_features=False)
    lively(0, config).logits(inputs, torch.zeros(29, 1, config.hidden), moves)
    assert torch.equal(inputs.devices, before)
