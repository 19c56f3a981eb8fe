"""The hierarchical planner: embeddings of ops and groups, grouper, placer, learning and the ablations."""

import numpy as np
import pytest
import torch

from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.papers.hierarchical.networks import (
    MAX_NEIGHBOURS,
    MAX_OUTPUTS,
    Chooser,
    Placer,
    group_embeddings,
    unit_embeddings,
    unit_traits,
)
from gnnplace.planners.papers.hierarchical.planner import (
    DirectPolicy,
    GroupedPolicy,
    Grouping,
    HierarchicalConfig,
    build_policy,
    group_mask,
    plan,
)
from gnnplace.planners.solution import Budget
from tests.problems import full_mesh, problem_of, random_layers


def diamond() -> Problem:
    """`a` feeds `b` and `c`, which feed `d`; of types Conv, Relu, Relu and Add."""
    ops = [Op("a", "Conv"), Op("b", "Relu"), Op("c", "Relu"), Op("d", "Add", devices=("d1",))]
    tensors = [Tensor("a", 100, ("b", "c")), Tensor("a", 7), Tensor("b", 10, ("d",)), Tensor("c", 20, ("d",))]
    return problem_of(OpGraph.build("diamond", ops, tensors), full_mesh(2))


def test_an_op_is_described_by_its_type_its_outputs_and_its_neighbours() -> None:
    traits = unit_traits(diamond())
    assert traits.amounts.tolist() == [
        [0, 1, 0, 100, 7, 0, 0, 0, 2],  # Add, Conv, Relu; bytes of five outputs; number of outputs
        [0, 0, 1, 10, 0, 0, 0, 0, 1],
        [0, 0, 1, 20, 0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert traits.edges.tolist() == [[0, 0, 1, 2], [1, 2, 3, 3]]
    assert traits.neighbours[0, :6].tolist() == [2, 1, 3, 1, 0, 0]  # b and c come after a
    assert traits.neighbours[1, :6].tolist() == [4, 1, 1, -1, 0, 0]
    assert unit_embeddings(traits).shape == (4, 3 + MAX_OUTPUTS + 1 + 2 * MAX_NEIGHBOURS)


def test_a_group_is_described_by_counts_of_types_summed_outputs_and_the_groups_it_feeds() -> None:
    found = group_embeddings(unit_traits(diamond()), np.array([[0, 0, 1, 2], [2, 2, 2, 2]]), 3)
    amounts, adjacency = 10.0 ** found[:, :, :-3] - 1.0, found[:, :, -3:]
    expected = [
        [0, 1, 1, 110, 7, 0, 0, 0, 3],  # a and b
        [0, 0, 1, 20, 0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(amounts[0], expected, atol=1e-12)
    assert adjacency[0].tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_allclose(amounts[1, 2], [1, 1, 2, 130, 7, 0, 0, 0, 4], atol=1e-12)
    assert not amounts[1, :2].any()
    assert not adjacency[1].any()  # an edge within a group is no edge of the group


def make_placer(groups: int = 3, devices: int = 2) -> Placer:
    """A placer of width 4 over embeddings of width 5."""
    torch.manual_seed(0)
    return Placer(5, devices, 4, 10.0, 5.0)


def test_the_placers_probabilities_follow_the_formulas() -> None:
    placer, embeddings = make_placer(), torch.rand(1, 3, 5)
    (keys, state), mask = placer.encode(embeddings, 1), torch.ones(1, 3, 2, dtype=torch.bool)
    devices = torch.tensor([[1, 0, 1]])
    with torch.no_grad():
        found = placer.log_probs(keys, state, mask, devices).numpy()[0]
        fed = placer.before(torch.tensor([[2, 1, 0]]))  # the row after the last device comes before all decisions
        decoded = placer.decoder(fed, state)[0].numpy()[0]
        values, query = keys.numpy()[0], placer.query.weight.numpy()
        for step in range(3):
            scores = np.tanh(values + query @ decoded[step]) @ placer.score.weight.numpy()[0]
            attention = np.exp(scores) / np.exp(scores).sum()
            context = attention @ values
            activations = placer.output.weight.numpy() @ np.concatenate([decoded[step], context])
            logits = 5.0 * np.tanh(activations / 10.0)
            np.testing.assert_allclose(found[step], logits - np.log(np.exp(logits).sum()), rtol=1e-5)


def test_the_placer_draws_from_the_probabilities_that_it_learns_from() -> None:
    placer, generator = make_placer(), torch.Generator().manual_seed(1)
    placer.output.weight.data *= 20.0  # far from even
    embeddings, mask = torch.rand(1, 2, 5), torch.ones(1, 2, 2, dtype=torch.bool)
    drawn, log_probs, _ = placer.draw(embeddings, mask, 4000, generator)
    code = drawn[:, 0] * 2 + drawn[:, 1]
    for sequence in code.unique():
        rows = code == sequence
        expected = float(log_probs[rows][0].detach().exp())
        assert float(rows.float().mean()) == pytest.approx(expected, abs=4 * np.sqrt(expected / 4000))


def test_the_entropy_of_equally_likely_devices_is_the_log_of_their_number() -> None:
    placer, mask = make_placer(), torch.ones(1, 3, 2, dtype=torch.bool)
    placer.output.weight.data *= 0.0
    mask[0, 0, 1] = False
    *_, entropy = placer.draw(torch.rand(1, 3, 5), mask, 2, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(entropy.detach(), [2 * np.log(2)] * 2, rtol=1e-5)


def test_a_masked_device_is_never_drawn() -> None:
    mask = torch.tensor([[[True, False], [False, True], [True, True]]])
    drawn, log_probs, _ = make_placer().draw(torch.rand(1, 3, 5), mask, 50, torch.Generator().manual_seed(0))
    assert not drawn[:, 0].any()
    assert drawn[:, 1].all()
    assert torch.isfinite(log_probs).all()


def test_the_log_probability_of_a_grouping_is_the_sum_over_its_ops() -> None:
    torch.manual_seed(0)
    chooser, rows = Chooser(3, 4, 2), torch.rand(5, 3)
    mask = torch.ones(5, 2, dtype=torch.bool)
    mask[0, 1] = False
    drawn, log_prob = chooser.draw(rows, mask, 6, torch.Generator().manual_seed(0))
    single = chooser.layers(rows).masked_fill(~mask, -torch.inf).log_softmax(dim=1)
    for row in range(6):
        expected = sum(float(single[op, drawn[row, op]].detach()) for op in range(5))
        assert float(log_prob[row].detach()) == pytest.approx(expected, rel=1e-5)
    assert not drawn[:, 0].any()


def test_a_unit_that_may_not_follow_its_group_goes_where_it_may() -> None:
    problem = diamond()
    assert group_mask(np.array([[0, 0, 1, 1]]), problem.action_mask, 3).tolist() == [[[True] * 2] * 3]
    assert group_mask(np.array([[0, 0, 0, 1]]), problem.action_mask, 2)[0, 1].tolist() == [False, True]
    devices, *_ = build_policy(problem, HierarchicalConfig(), 0).draw(torch.Generator().manual_seed(0))
    assert devices.shape == (16, 4)
    assert (devices[:, 3] == 1).all()
    assert len(np.unique(devices[:, :3])) == 2


def policy_of(grouping: Grouping) -> GroupedPolicy | DirectPolicy:
    return build_policy(random_layers(), HierarchicalConfig(grouping, num_groups=5), 0)


def test_a_grouper_draws_new_groups_each_time_and_random_groups_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    learned, fixed = policy_of("learned"), policy_of("random")
    assert isinstance(learned, GroupedPolicy)
    assert isinstance(fixed, GroupedPolicy)
    groups, log_prob = learned.draw_groups(generator)
    assert groups.shape == (4, 29)
    assert groups.max() < 5
    assert log_prob.requires_grad
    assert len(np.unique(groups, axis=0)) == 4
    groups, log_prob = fixed.draw_groups(generator)
    assert len(np.unique(groups, axis=0)) == 1
    np.testing.assert_array_equal(groups, fixed.draw_groups(generator)[0])
    assert not log_prob.any()


@pytest.mark.parametrize("grouping", ["learned", "random", "none"])
def test_every_parameter_gets_a_gradient(grouping: Grouping) -> None:
    policy = policy_of(grouping)
    devices, log_probs, _ = policy.draw(torch.Generator().manual_seed(0))
    assert devices.shape == (16, 29)
    log_probs.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in policy.parameters())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("grouping", ["learned", "none"])
def test_it_learns_which_kind_of_op_belongs_on_which_device(grouping: Grouping, seed: int) -> None:
    # Of 32,768 placements one is best: short ops on the first device, long ones on the second, 10 s each. Random groups hold both
    # kinds; with 16 groups to learn, two of these three seeds settle at 14 s, before the grouper has parted the kinds.
    kinds = [("Short", 1.0, 3.0)] * 10 + [("Long", 6.0, 2.0)] * 5
    graph = OpGraph.build("kinds", [Op(f"o{i}", kind) for i, (kind, *_) in enumerate(kinds)])
    problem = problem_of(graph, full_mesh(2), np.array([seconds for _, *seconds in kinds]))
    budget = Budget(1000 if grouping == "learned" else 300)
    learned, blind = (
        plan(problem, budget, seed, HierarchicalConfig(grouping, 2, learning_rate=rate)) for rate in (0.03, 0.0)
    )
    assert learned.objective_s == 10.0
    assert blind.objective_s > 10.0
    assert learned.stages[0] == ("single", 40.0)
