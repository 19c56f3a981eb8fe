"""Rounds of messages, on DGL and on plain torch."""

import numpy as np
import torch

from gnnplace.env.timing import empty_timing, refresh
from gnnplace.evaluation import Problem
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import PolicyConfig, PolicyInputs, build_policy, policy_inputs
from tests.toy_problems import random_layers, renamed, two_chains


def seen(problem: Problem, inputs: PolicyInputs, assignments: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Node and edge features of placements `[B, N]`."""
    timing = empty_timing(problem, len(assignments))
    for row, assignment in enumerate(assignments):
        refresh(problem, inputs.tables, timing, row, assignment)
    nodes, edges = sweep_features(inputs.features, inputs.tables, timing)
    return torch.from_numpy(nodes), torch.from_numpy(edges)


def test_embeddings_are_reordered_with_the_ops_and_placements_kept_apart() -> None:
    problem, network = random_layers(), build_policy(0)
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


def heard_by(rounds: int, of_unit: int) -> list[bool]:
    """Whose features the embedding of a unit of the first of two chains of five ops depends on."""
    problem = two_chains(length=5)
    network = build_policy(0, PolicyConfig(rounds=rounds))
    inputs = policy_inputs(problem)
    nodes, edges = seen(problem, inputs, np.zeros((1, 10), dtype=np.int64))
    nodes.requires_grad_()
    network.encode(inputs, nodes, edges)[of_unit].square().sum().backward()
    assert nodes.grad is not None
    return [bool(row.abs().sum() > 0) for row in nodes.grad[::2]]


def test_a_round_reaches_one_edge_both_ways_and_two_reach_two() -> None:
    assert heard_by(1, of_unit=4) == [False, True, True, True, False]
    assert heard_by(2, of_unit=4) == [True] * 5


def test_without_message_passing_a_unit_knows_only_itself() -> None:
    problem = random_layers()
    network = build_policy(0, PolicyConfig(message_passing=False))
    inputs = policy_inputs(problem)
    nodes, edges = seen(problem, inputs, np.zeros((1, 30), dtype=np.int64))
    before = network.encode(inputs, nodes, edges)
    nodes[3] += 1.0
    after = network.encode(inputs, nodes, edges + 1.0)
    changed = (before != after).any(dim=-1).squeeze(-1)
    assert changed.nonzero().flatten().tolist() == [3]
