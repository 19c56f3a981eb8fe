"""Encoder, head, the compiled head and the whole network."""

import numpy as np
import pytest
import torch

from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.policy.checkpoint import named_policy
from gnnplace.policy.dgl_graph import HAS_DGL, to_dgl
from gnnplace.policy.features import DEVICE_FEATURES, NODE_FEATURES, SCHEDULE_NODE_FEATURES, sweep_features
from gnnplace.policy.linear import PRIOR
from gnnplace.policy.network import (
    CandidateMoves,
    PairHead,
    PolicyConfig,
    PolicyInputs,
    PolicyNetwork,
    _OneThread,
    build_policy,
    policy_inputs,
)
from gnnplace.policy.pair_features import CONTEXT, PAIR, SCHEDULE_CONTEXT, SCHEDULE_PAIR, pair_features
from gnnplace.policy.pair_scores import pair_scores
from tests.problems import random_layers, renamed, two_chains

needs_dgl = pytest.mark.skipif(not HAS_DGL, reason="dgl has no wheel for this Python")


def lively(seed: int = 0, config: PolicyConfig = PolicyConfig()) -> PolicyNetwork:
    """A network whose scores depend on all inputs, as after training."""
    network = build_policy(seed, config)
    with torch.no_grad():
        network.head.score.weight.normal_(generator=torch.Generator().manual_seed(seed))
    return network


def inputs_of(
    problem: Problem, assignments: np.ndarray, with_dgl: bool = HAS_DGL
) -> tuple[PolicyInputs, torch.Tensor, torch.Tensor, CandidateMoves]:
    """Static inputs, node and edge features, and all moves of all placements `[B, N]`."""
    inputs, timing = policy_inputs(problem, with_dgl), empty_timing(problem, len(assignments))
    for row, assignment in enumerate(assignments):
        refresh(problem, inputs.tables, timing, row, assignment)
    nodes, edges = sweep_features(inputs.features, inputs.tables, timing)
    rows = np.repeat(np.arange(len(assignments)), problem.num_units)
    units = np.tile(np.arange(problem.num_units), len(assignments))
    read = pair_features(inputs.features, inputs.tables, timing, rows, units, problem.topology.memory_bytes)
    moves = CandidateMoves(*(torch.from_numpy(array) for array in (rows, units, *read)))
    return inputs, torch.from_numpy(nodes), torch.from_numpy(edges), moves


def answers(
    problem: Problem, assignments: np.ndarray, network: PolicyNetwork, with_dgl: bool = HAS_DGL
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings `[U, B, H]` and logits `[B, U, D]` for all units of all placements."""
    inputs, nodes, edges, moves = inputs_of(problem, assignments, with_dgl)
    embeddings = network.encode(inputs, nodes, edges)
    return embeddings, network.logits(inputs, embeddings, moves).view(len(assignments), problem.num_units, -1)


def random_assignments(problem: Problem, count: int) -> np.ndarray:
    """`[count, N]`."""
    units = np.random.default_rng(0).integers(0, problem.topology.num_devices, (count, problem.num_units))
    return units[:, problem.unit_of_op]


@needs_dgl
@pytest.mark.parametrize("problem", [random_layers(), two_chains(length=1)], ids=["layers", "no edges"])
def test_dgl_and_plain_torch_give_the_same_embeddings_logits_and_gradients(problem: Problem) -> None:
    network, assignments = lively(), random_assignments(problem, 4)
    results = []
    for with_dgl in (True, False):
        network.zero_grad()
        embeddings, logits = answers(problem, assignments, network, with_dgl)
        logits.sum().backward()
        results.append((embeddings, logits, *(p.grad for p in network.parameters() if p.grad is not None)))
    assert len(results[0]) > 20
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def test_another_order_of_the_ops_reorders_the_answers_and_placements_do_not_mix() -> None:
    problem, network = random_layers(), lively()
    order = np.random.default_rng(4).permutation(problem.graph.num_ops)
    other, assignments = renamed(problem, order), random_assignments(problem, 2)
    embeddings, logits = answers(problem, assignments, network)
    other_embeddings, other_logits = answers(other, assignments[:, order], network)
    unit, other_unit = torch.from_numpy(problem.unit_of_op[order]), torch.from_numpy(other.unit_of_op.copy())
    torch.testing.assert_close(other_embeddings[other_unit], embeddings[unit], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other_logits[:, other_unit], logits[:, unit], rtol=1e-4, atol=1e-4)
    alone, _ = answers(problem, assignments[1:], network)
    torch.testing.assert_close(alone[:, 0], embeddings[:, 1], rtol=1e-4, atol=1e-5)


def reached(rounds: int) -> list[bool]:
    """Whether the embedding of the middle of a chain of five ops depends on the features of each of them."""
    problem, network = two_chains(length=5), build_policy(0, PolicyConfig(rounds=rounds))
    inputs, nodes, edges, _ = inputs_of(problem, np.zeros((1, 10), dtype=np.int64))
    network.encode(inputs, nodes.requires_grad_(), edges)[4].square().sum().backward()
    assert nodes.grad is not None
    return [bool(row.abs().sum() > 0) for row in nodes.grad[::2]]


def test_a_round_reaches_one_edge_both_ways_and_two_reach_two() -> None:
    assert reached(1) == [False, True, True, True, False]
    assert reached(2) == [True] * 5


def test_without_message_passing_an_embedding_depends_on_its_own_unit_alone() -> None:
    network = build_policy(0, PolicyConfig(message_passing=False))
    inputs, nodes, edges, _ = inputs_of(random_layers(), np.zeros((1, 30), dtype=np.int64))
    before = network.encode(inputs, nodes, edges)
    nodes[3] += 1.0
    changed = (before != network.encode(inputs, nodes, edges + 1.0)).any(dim=-1).squeeze(-1)
    assert changed.nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize("num_devices", [1, 2, 7])
def test_one_network_serves_any_number_of_devices(num_devices: int) -> None:
    problem = random_layers(num_devices=num_devices)
    _, logits = answers(problem, random_assignments(problem, 1), lively())
    assert logits.shape == (1, problem.num_units, num_devices)
    assert torch.isfinite(logits).all()


def test_the_same_seed_gives_the_same_network_and_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second, third = build_policy(1), build_policy(1), build_policy(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.encoder.inputs.weight, third.encoder.inputs.weight)


def test_the_uniform_policy_scores_all_moves_alike_and_the_prior_by_its_weights() -> None:
    problem = random_layers()
    assignments = random_assignments(problem, 2)
    inputs, nodes, edges, moves = inputs_of(problem, assignments)
    weights = torch.tensor([PRIOR.get(name, 0.0) for name in PAIR._fields])
    pair, context = moves.pair.numpy(), moves.context.numpy()
    uniform, prior = (
        pair_scores(
            named_policy(name).parts(inputs, nodes, edges).moves,
            pair[: problem.num_units],
            context[: problem.num_units],
        )
        for name in ("uniform", "prior")
    )
    assert np.unique(uniform).tolist() == [0.0]
    np.testing.assert_allclose(prior, (moves.pair[: problem.num_units] @ weights).numpy(), rtol=1e-5, atol=1e-5)


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


def test_the_head_equals_its_formula_for_every_pair() -> None:
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
            score = head.linear(pair[row, device]) + head.score(hidden[device])
            expected = score[0] if mask[row, device] else torch.tensor(-torch.inf)
            torch.testing.assert_close(logits[row, device], expected)


@pytest.mark.parametrize(
    "config",
    [PolicyConfig(), PolicyConfig(hidden=16, device_features=False), PolicyConfig(schedule_features=False)],
)
def test_the_compiled_head_gives_the_scores_of_the_network(config: PolicyConfig) -> None:
    network = lively(0, config)
    inputs, nodes, edges, moves = inputs_of(random_layers(1), np.zeros((1, 30), dtype=np.int64))
    with torch.no_grad():
        embeddings = network.encode(inputs, nodes, edges)
        expected = network.logits(inputs, embeddings, moves).numpy()
        parts = network.parts(inputs, nodes, edges)
    scores = pair_scores(parts.moves, moves.pair.numpy(), moves.context.numpy())
    assert np.abs(expected).max() > 1.0
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blind", [True, False])
def test_device_features_that_are_switched_off_change_no_answer_and_stay_in_the_inputs(blind: bool) -> None:
    network = lively(0, PolicyConfig(device_features=not blind))
    inputs, nodes, edges, moves = inputs_of(random_layers(), np.zeros((1, 30), dtype=np.int64))
    embeddings = network.encode(inputs, nodes, edges)
    first = network.logits(inputs, embeddings, moves)
    inputs.devices[0] += 1.0
    before = inputs.devices.clone()
    assert torch.equal(network.logits(inputs, embeddings, moves), first) is blind
    assert torch.equal(inputs.devices, before)


@pytest.mark.parametrize("blind", [True, False])
def test_times_of_a_schedule_that_are_switched_off_change_no_answer(blind: bool) -> None:
    network = lively(0, PolicyConfig(schedule_features=not blind))
    inputs, nodes, edges, moves = inputs_of(random_layers(), np.zeros((1, 30), dtype=np.int64))
    embeddings = network.encode(inputs, nodes, edges)
    first = network.logits(inputs, embeddings, moves)
    later = nodes.clone()
    later[..., [NODE_FEATURES.index(name) for name in SCHEDULE_NODE_FEATURES]] += 1.0
    assert torch.equal(network.encode(inputs, later, edges + torch.tensor([0.0, 0.0, 0.0, 1.0])), embeddings) is blind
    moves.pair[..., [PAIR._fields.index(name) for name in SCHEDULE_PAIR]] += torch.arange(3.0)[:, None]
    moves.context[..., [CONTEXT._fields.index(name) for name in SCHEDULE_CONTEXT]] += 1.0
    assert torch.equal(network.logits(inputs, embeddings, moves), first) is blind


def test_overlapping_blocks_of_one_thread_restore_the_threads_at_the_end_of_the_last() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        block = _OneThread()
        block.__enter__()
        block.__enter__()
        block.__exit__()
        assert torch.get_num_threads() == 1
        block.__exit__()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
