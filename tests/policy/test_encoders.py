"""The kinds of rounds, on DGL and on plain torch."""

import numpy as np
import pytest
import torch

from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.policy.encoder.neighbours import ScatterNeighbours
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import ENCODERS, PolicyConfig, PolicyInputs, PolicyNetwork, build_policy, policy_inputs
from tests.env.toy_problems import random_layers, renamed, two_chains


def seen(problem: Problem, inputs: PolicyInputs, assignments: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Node and edge features of placements `[B, N]`."""
    timing = empty_timing(problem, len(assignments))
    for row, assignment in enumerate(assignments):
        refresh(problem, inputs.tables, timing, row, assignment)
    nodes, edges = sweep_features(inputs.features, inputs.tables, timing)
    return torch.from_numpy(nodes), torch.from_numpy(edges)


def embeddings_of(problem: Problem, network: PolicyNetwork, with_dgl: bool = True, rows: int = 3) -> torch.Tensor:
    """`[U, B, H]` of the same random placements each time."""
    inputs = policy_inputs(problem, with_dgl)
    devices = np.random.default_rng(0).integers(0, problem.topology.num_devices, (rows, problem.num_units))
    return network.encode(inputs, *seen(problem, inputs, devices[:, problem.unit_of_op]))


def test_attention_is_the_softmax_over_a_receivers_own_edges() -> None:
    # Receiver 0 hears 1 and 3 with odds 3 to 1, receiver 1 hears only 5, however low its score is.
    neighbours = ScatterNeighbours(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]), 3)
    scores = torch.tensor([np.log(3.0), 0.0, -500.0], dtype=torch.float32).view(3, 1, 1, 1)
    heard = neighbours.attend(scores, torch.tensor([1.0, 3.0, 5.0]).view(3, 1, 1, 1))
    torch.testing.assert_close(heard.flatten(), torch.tensor([0.75 * 1 + 0.25 * 3, 5.0, 0.0]))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("problem", [random_layers(), two_chains(length=1)], ids=["layers", "no edges"])
def test_each_encoder_gives_the_same_embeddings_and_gradients_on_dgl_and_plain_torch(
    problem: Problem, encoder: str
) -> None:
    network = build_policy(0, PolicyConfig(hidden=16, encoder=encoder))
    results = []
    for with_dgl in (True, False):
        network.zero_grad()
        embeddings = embeddings_of(problem, network, with_dgl)
        embeddings.square().sum().backward()
        results.append((embeddings, *(p.grad for p in network.encoder.parameters() if p.grad is not None)))
    assert len(results[0]) > 20
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_each_encoder_reorders_its_embeddings_with_the_ops_and_keeps_placements_apart(encoder: str) -> None:
    problem, network = random_layers(), build_policy(0, PolicyConfig(encoder=encoder))
    order = np.random.default_rng(4).permutation(problem.graph.num_ops)
    other = renamed(problem, order)
    assignments = np.random.default_rng(0).integers(0, 3, (2, problem.num_units))[:, problem.unit_of_op]
    inputs, other_inputs = policy_inputs(problem), policy_inputs(other)
    first = network.encode(inputs, *seen(problem, inputs, assignments))
    second = network.encode(other_inputs, *seen(other, other_inputs, assignments[:, order]))
    unit, other_unit = torch.from_numpy(problem.unit_of_op[order]), torch.from_numpy(other.unit_of_op.copy())
    torch.testing.assert_close(second[other_unit], first[unit], rtol=1e-4, atol=1e-5)
    alone = network.encode(inputs, *seen(problem, inputs, assignments[1:]))
    torch.testing.assert_close(alone[:, 0], first[:, 1], rtol=1e-4, atol=1e-5)


def heard_by(encoder: str, rounds: int, of_unit: int) -> list[bool]:
    """Whose features the embedding of a unit of the first of two chains of five ops depends on."""
    problem = two_chains(length=5)
    network = build_policy(0, PolicyConfig(encoder=encoder, rounds=rounds))
    inputs = policy_inputs(problem)
    nodes, edges = seen(problem, inputs, np.zeros((1, 10), dtype=np.int64))
    nodes.requires_grad_()
    network.encode(inputs, nodes, edges)[of_unit].square().sum().backward()
    assert nodes.grad is not None
    return [bool(row.abs().sum() > 0) for row in nodes.grad[::2]]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_round_reaches_one_edge_both_ways_and_two_reach_two(encoder: str) -> None:
    assert heard_by(encoder, 1, of_unit=4) == [False, True, True, True, False]
    assert heard_by(encoder, 2, of_unit=4) == [True] * 5


@pytest.mark.parametrize("encoder", ENCODERS)
def test_without_message_passing_a_unit_knows_only_itself(encoder: str) -> None:
    problem = random_layers()
    network = build_policy(0, PolicyConfig(encoder=encoder, message_passing=False))
    inputs = policy_inputs(problem)
    nodes, edges = seen(problem, inputs, np.zeros((1, 30), dtype=np.int64))
    before = network.encode(inputs, nodes, edges)
    nodes[3] += 1.0
    after = network.encode(inputs, nodes, edges + 1.0)
    changed = (before != after).any(dim=-1).squeeze(-1)
    assert changed.nonzero().flatten().tolist() == [3]


def test_the_encoders_are_about_equally_large() -> None:
    sizes = [
        sum(p.numel() for p in build_policy(0, PolicyConfig(encoder=encoder)).encoder.parameters())
        for encoder in ENCODERS
    ]
    assert max(sizes) < 1.25 * min(sizes)
