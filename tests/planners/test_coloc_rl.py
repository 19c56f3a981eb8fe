"""Placement by REINFORCE on a sequence-to-sequence policy; the policy, its op groups and its rewards."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.papers import coloc_rl
from gnnplace.planners.papers.coloc_rl import ColocRlConfig, plan, reinforce_loss
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.op_groups import OpGroups, group_units, op_groups
from gnnplace.planners.papers.seq2seq.sampling import Rewards, Sampled
from gnnplace.planners.solution import Budget
from gnnplace.policy.network import seeded
from tests.problems import full_mesh, problem_of, random_layers, two_chains

TINY = Seq2SeqConfig(hidden=3, attention_width=2, type_width=2)


def build_policy(groups: OpGroups, seed: int, config: Seq2SeqConfig = TINY) -> Seq2SeqPolicy:
    with seeded(seed):
        return Seq2SeqPolicy(groups, config)


@torch.no_grad()
def step_by_step(policy: Seq2SeqPolicy, groups: OpGroups, decisions: list[int]) -> torch.Tensor:
    """Section 3.2, one group after the other: probabilities `[G, D]` of one placement."""
    types, *others = (torch.from_numpy(a) for a in (groups.type_shares, groups.output_sizes, groups.adjacency))
    states, last = policy.encoder(torch.cat([types @ policy.type_vectors.weight.T, *others], dim=1))
    rows, previous = [], groups.action_mask.shape[1]
    for group, device in enumerate(decisions):
        output, last = policy.decoder(policy.device_vectors.weight[[previous]], last)
        keys = states @ policy.memory_key.weight.T + output @ policy.query_key.weight.T
        context = torch.softmax(torch.tanh(keys) @ policy.score.weight[0], dim=0) @ states
        logits = policy.device_logits.weight @ torch.cat([output[0], context]) + policy.device_logits.bias
        rows.append(torch.softmax(logits.masked_fill(~policy.mask[group], -torch.inf), dim=0))
        previous = device
    return torch.stack(rows)


def host_bound() -> Problem:
    """Four ops; the second may only run on the host, the last not on it."""
    ops = [Op("a"), Op("b", devices=("cpu",)), Op("c"), Op("d", devices=("gpu",))]
    graph = OpGraph.build("bound", ops, [Tensor("a", 8, ("b", "c")), Tensor("b", 4, ("d",)), Tensor("c", 2, ("d",))])
    devices = (Device("g0", "gpu"), Device("g1", "gpu"), Device("c0", "cpu"))
    links = tuple(Link(x.name, y.name, 0.5, 10.0) for x in devices for y in devices if x is not y)
    return problem_of(graph, Topology("host", devices, links))


def test_the_probabilities_are_those_of_the_papers_network_computed_step_by_step() -> None:
    groups = op_groups(host_bound())
    policy = build_policy(groups, 3)
    for decisions in ([0, 2, 1, 1], [2, 2, 0, 0]):
        found = policy.log_probs(torch.tensor(decisions)[:, None])[:, 0].exp().detach()
        torch.testing.assert_close(found, step_by_step(policy, groups, decisions))


def test_forbidden_devices_have_probability_zero_and_are_never_drawn() -> None:
    groups = op_groups(host_bound())
    policy = build_policy(groups, 1)
    decisions = policy.sample(300, torch.Generator().manual_seed(0))
    probabilities = policy.log_probs(decisions).exp()
    assert (probabilities[~policy.mask[:, None].expand_as(probabilities)] == 0.0).all()
    assert groups.action_mask[np.arange(4)[:, None], decisions.numpy()].all()
    assert (decisions[1] == 2).all()


def test_placements_are_drawn_as_often_as_they_are_likely() -> None:
    groups = op_groups(host_bound())
    policy = build_policy(groups, 5)
    decisions = policy.sample(6000, torch.Generator().manual_seed(1))
    log_probs = policy.log_probs(decisions).gather(-1, decisions[..., None]).sum(dim=0)[:, 0]
    placements, first, counts = np.unique(decisions.numpy(), axis=1, return_index=True, return_counts=True)
    assert placements.shape[1] == 3 * 1 * 3 * 2
    likely = log_probs[torch.from_numpy(first)].exp().detach().numpy()
    assert likely.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(counts / 6000, likely, atol=5 * np.sqrt(0.25 / 6000))


def test_an_op_that_feeds_only_one_other_joins_it() -> None:
    #  a -> b -> d, a -> c -> d, d -> e: only a, which feeds two, stays alone
    tensors = [Tensor("a", 1, ("b", "c")), *(Tensor(x, 1, (y,)) for x, y in ("bd", "cd", "de"))]
    problem = problem_of(OpGraph.build("g", [Op(x) for x in "abcde"], tensors), full_mesh(2))
    assert group_units(problem, least_groups_per_device=0).tolist() == [0, 1, 1, 1, 1]
    # Five equal ops on two devices: half of a device's share holds one op, one device's two.
    assert group_units(problem, least_groups_per_device=2).tolist() == [0, 1, 2, 3, 4]
    grouped = group_units(problem, least_groups_per_device=1)
    assert np.bincount(grouped).max() == 2
    assert grouped[3] == grouped[4]


def test_ops_with_different_allowed_devices_stay_in_different_groups() -> None:
    assert group_units(host_bound(), least_groups_per_device=0).tolist() == [0, 1, 2, 3]


@given(st.integers(0, 30), st.sampled_from([0, 1, 2, 16]))
def test_groups_are_in_topological_order_and_may_go_where_all_their_ops_may(seed: int, least: int) -> None:
    problem = random_layers(seed)
    groups = op_groups(problem, least)
    producers, consumers = problem.graph.edges
    loose = (problem.graph.colocation[producers] < 0) & (problem.graph.colocation[consumers] < 0)
    assert (groups.group_of_op[producers] <= groups.group_of_op[consumers])[loose].all()
    assert (groups.action_mask[groups.group_of_op] <= problem.action_mask[problem.unit_of_op]).all()
    decisions = np.arange(2 * len(groups.action_mask)).reshape(-1, 2) % 3
    np.testing.assert_array_equal(groups.assignments(decisions)[1], decisions[groups.group_of_op, 1])


def test_a_group_is_described_by_its_types_its_output_sizes_and_its_neighbours() -> None:
    ops = [Op("a", "Conv"), Op("b", "Relu"), Op("c", "Conv")]
    tensors = [Tensor("a", 7, ("b", "c")), Tensor("a", 1), Tensor("b", 3, ("c",)), Tensor("c", 0)]
    groups = op_groups(problem_of(OpGraph.build("g", ops, tensors), full_mesh(2)), num_outputs=2)
    np.testing.assert_allclose(groups.output_sizes, np.log([[8, 2], [4, 1], [1, 1]]) / np.log(8), atol=1e-6)
    feeds = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(groups.adjacency, np.hstack([feeds, feeds.T]))
    assert (groups.type_shares.max(axis=1) == 1.0).all()
    np.testing.assert_array_equal(groups.type_shares[0], groups.type_shares[2])
    joined = op_groups(problem_of(OpGraph.build("g", ops, [Tensor("b", 3, ("c",))]), full_mesh(2)), 0, 2)
    assert sorted(joined.type_shares[1][joined.type_shares[1] > 0].tolist()) == [0.5, 0.5]
    np.testing.assert_array_equal(joined.output_sizes, 0.0)  # b's tensor stays within its group


def test_the_reward_is_minus_the_root_of_the_runtime_and_constant_for_failures() -> None:
    rewards = Rewards(failing_ratio=9.0)
    assert rewards.of(np.array([np.inf, 150.0]), np.array([False, False])).tolist() == [-3.0, -3.0]
    # The first placements that ran take 4 s on average.
    values = rewards.of(np.array([2.0, 6.0, 400.0]), np.array([True, True, False]))
    np.testing.assert_allclose(values, [-np.sqrt(0.5), -np.sqrt(1.5), -3.0])
    values = rewards.of(np.array([1.0, 50.0]), np.array([True, True]))
    np.testing.assert_allclose(values, [-0.5, -3.0])  # a failing placement has the lowest reward


def test_the_gradient_follows_the_reward_above_the_baseline() -> None:
    groups = op_groups(two_chains(1))  # two groups
    policy = build_policy(groups, 0)
    with torch.no_grad():
        policy.device_logits.weight.zero_()
        policy.device_logits.bias.zero_()  # every placement has probability 1/4
    sampled = Sampled(torch.tensor([[0, 1], [0, 0]]), np.array([-1.0, -2.0]), np.ones(2, dtype=bool))
    loss = reinforce_loss(policy, sampled, sampled.rewards + 1.8)
    assert loss.item() == pytest.approx(-(0.8 + -0.2) / 2 * -np.log(4.0), rel=1e-5)
    loss.backward()
    # d loss / d logit 0 = -1/K sum_i advantage_i * sum_g (chose 0 - 1/2): the first placement chose 0 twice, the second once.
    np.testing.assert_allclose(policy.device_logits.bias.grad.numpy(), [-0.4, 0.4], atol=1e-6)


def test_late_updates_leave_out_failing_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Sampled] = []

    def recorded(policy: Seq2SeqPolicy, sampled: Sampled, advantages: np.ndarray) -> torch.Tensor:
        batches.append(sampled)
        return reinforce_loss(policy, sampled, advantages)

    monkeypatch.setattr(coloc_rl, "reinforce_loss", recorded)
    problem = two_chains(3, memory_bytes=40)  # six ops of 10 bytes and their tensors: some placements do not fit
    plan(problem, Budget(100), 0, ColocRlConfig(failing_share=0.5))
    early, late = batches[:5], batches[5:]
    assert not all(batch.ran.all() for batch in early)
    assert all((batch.rewards[~batch.ran] == -np.sqrt(10.0)).all() for batch in early)
    assert late
    assert all(batch.ran.all() for batch in late)
    assert all(batch.decisions.shape[1] == len(batch.rewards) for batch in late)


def test_without_a_limit_the_number_of_units_bounds_the_search_and_without_a_choice_one_evaluation_suffices() -> None:
    few = ColocRlConfig(replace(TINY, unlimited_evaluations_per_unit=3))
    assert plan(two_chains(2), Budget(None), 0, few).evaluations == 12
    bound = OpGraph.build("bound", [Op("a", devices=("d0",)), Op("b", devices=("d0",))])
    assert plan(problem_of(bound, full_mesh(2)), Budget(None), 0).evaluations == 1
