"""PPO of searches: rewards, advantages, probabilities and learning."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnplace.evaluation import Problem
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.planners.gnn.moves import MovesConfig
from gnnplace.planners.gnn.search import RevisitConfig, trace_searches
from gnnplace.policy.network import PolicyConfig, PolicyNetwork, build_policy, policy_inputs
from gnnplace.training.search_ppo import (
    SearchPpoConfig,
    SearchRuns,
    draw_advantages,
    returns_to_go,
    search_ppo_update,
)
from gnnplace.training.search_trace import SearchTrace
from tests.problems import full_mesh, problem_of, random_layers, two_chains
from tests.training.conftest import on_first_device

CONFIG = SearchPpoConfig()


def searched(
    network: PolicyNetwork,
    problem: Problem,
    evaluations: int = 40,
    seeds: int = 6,
    config: RevisitConfig = RevisitConfig(),
) -> SearchRuns:
    """Searches with seeds from 0, all from the first device."""
    start, inputs = on_first_device(problem), policy_inputs(problem)
    return trace_searches(network, inputs, start, evaluations, list(range(seeds)), config)


def indifferent() -> PolicyNetwork:
    """A network whose first scores are all equal."""
    network = build_policy(0, PolicyConfig(hidden=16, rounds=1))
    with torch.no_grad():
        network.head.linear.weight.zero_()
        network.head.score.weight.zero_()
    return network


def adam(network: PolicyNetwork, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), lr=learning_rate)


def trace_of(seconds: list[float], undrawn: int | None = None) -> SearchTrace:
    """A search that drew the first move before every evaluation, except one that came from elsewhere."""
    trace = SearchTrace()
    for number, value in enumerate(seconds):
        trace.note_draw(0, 0.0)
        if number == undrawn:
            trace.note_proposal(is_new=False)
        trace.note_proposal(is_new=True)
        trace.note_evaluations([value])
    return trace


def test_returns_are_discounted_sums_of_the_rewards_that_follow() -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 2.0]])
    assert returns_to_go(rewards, gamma=1.0).tolist() == [[0.0, 4.0], [-1.0, 4.0], [-1.0, 2.0]]
    assert returns_to_go(torch.tensor([[0.0], [0.0], [8.0]]), gamma=0.5).flatten().tolist() == [2.0, 4.0, 8.0]


def runs_of(evaluations: int, *traces: SearchTrace) -> SearchRuns:
    """Searches that begin at 8 s."""
    return SearchRuns(policy_inputs(two_chains()), 8.0, evaluations, 1.0, traces)


def advantages(runs: SearchRuns, **changes: float) -> list[list[float]]:
    rows = draw_advantages(runs, replace(CONFIG, **changes))
    assert rows is not None
    return [row.tolist() for row in rows]


def test_the_advantage_of_a_draw_is_its_return_less_the_mean_return() -> None:
    runs = runs_of(3, trace_of([9.0, 4.0, 8.0]), trace_of([8.0, 8.0]))
    assert runs.best_s.tolist() == [[8.0, 8.0, 4.0, 4.0], [8.0, 8.0, 8.0, 8.0]]  # the second one ended early
    first, second = advantages(runs, gamma=0.5)
    # The second evaluation halves the seconds: its own draw has the reward log 2, and the draw before it half of that.
    halved = np.array([0.5, 1.0, 0.0]) * np.log(2.0)
    scale = np.stack([np.append(halved, 0.0) / 2, np.append(-halved, 0.0) / 2]).std()
    assert first == pytest.approx((halved / 2 / scale).tolist(), rel=1e-5)
    assert second == pytest.approx((-halved[:2] / 2 / scale).tolist(), rel=1e-5)


def test_evaluations_that_the_policy_did_not_draw_have_no_reward() -> None:
    first, second = advantages(runs_of(2, trace_of([4.0, 2.0], undrawn=0), trace_of([8.0, 8.0])), gamma=0.0)
    assert first == pytest.approx([0.0, np.sqrt(3.0)])  # log 2 / 2 over the deviation of [0, x, 0, 0, -x, 0]
    assert second == pytest.approx([0.0, -np.sqrt(3.0)])


def test_with_a_final_reward_all_draws_of_a_search_have_the_same_advantage() -> None:
    runs = runs_of(2, trace_of([4.0, 4.0]), trace_of([8.0, 8.0]))
    assert advantages(runs, final_reward=True) == [[1.0, 1.0], [-1.0, -1.0]]


def test_a_draw_belongs_to_the_evaluation_of_its_own_candidate() -> None:
    trace = SearchTrace()
    trace.note_draw(0, 0.0)
    trace.note_proposal(is_new=True)
    trace.note_proposal(is_new=True)  # a kind of move that the policy does not draw
    trace.note_draw(1, 0.0)
    trace.note_proposal(is_new=False)
    trace.note_draw(2, 0.0)
    trace.note_proposal(is_new=True)
    trace.note_evaluations([3.0, 2.0, 1.0])
    assert [draw.evaluations for draw in trace.draws] == [0, 2, 2]
    assert trace.drawn(4).tolist() == [True, False, True, False]


def test_an_update_without_different_ends_of_searches_changes_no_weight() -> None:
    same = runs_of(2, trace_of([9.0, 4.0]), trace_of([4.0, 5.0]))
    assert draw_advantages(same, CONFIG) is None
    network = indifferent()
    before = [parameter.clone() for parameter in network.parameters()]
    update = search_ppo_update(network, adam(network, 0.1), [same], CONFIG)
    assert update.learned == 0.0
    assert update.gain == pytest.approx(np.log(2.0))
    assert all(torch.equal(one, other) for one, other in zip(before, network.parameters(), strict=True))


def test_an_update_from_searches_without_draws_of_the_policy_has_finite_statistics() -> None:
    stretches = RevisitConfig(moves=MovesConfig(shares=(0.0, 0.0, 0.0, 1.0, 0.0), least_share=0.0, adaptation=0.0))
    network = indifferent()
    runs = searched(network, random_layers(3), 4, config=stretches)
    update = search_ppo_update(network, adam(network, 0.1), [runs], CONFIG)
    assert update.learned == 1.0
    assert (update.policy_loss, update.entropy, update.approx_kl) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("memory_bytes", [None, 120])
def test_an_update_recomputes_the_probabilities_of_the_draws(memory_bytes: int | None) -> None:
    problem = random_layers(3) if memory_bytes is None else two_chains(length=4, memory_bytes=memory_bytes)
    network = build_policy(0, PolicyConfig(hidden=16, rounds=2))
    runs = searched(network, problem, 60, 3)
    frozen = torch.optim.SGD(network.parameters(), lr=0.0)
    update = search_ppo_update(network, frozen, [runs], replace(CONFIG, least_spread=0.0))
    assert sum(len(trace.draws) for trace in runs.traces) > 20
    assert update.first_ratio == pytest.approx(1.0, abs=1e-4)
    assert update.approx_kl == pytest.approx(0.0, abs=1e-6)
    for trace in runs.traces:
        tried = trace.repeats(problem.num_units * problem.topology.num_devices)
        repeats = [sum(d.state == draw.state for d in trace.draws[:i]) for i, draw in enumerate(trace.draws)]
        assert tried.sum(dim=1).tolist() == repeats


def test_a_trace_changes_nothing() -> None:
    problem = random_layers(5)
    network = build_policy(0, PolicyConfig(hidden=16, rounds=1))
    once, again = searched(network, problem), searched(network, problem)
    assert np.array_equal(once.best_s, again.best_s)
    assert [draw.move for draw in once.traces[0].draws] == [draw.move for draw in again.traces[0].draws]


ONE_BY_ONE = RevisitConfig(moves=MovesConfig(shares=(1.0, 0.0, 0.0, 0.0, 0.0), least_share=0.0))
"""Every move is a draw of one unit and device from the policy."""


def few_long_ops(seed: int) -> tuple[Problem, set[int]]:
    """Forty independent ops, and the units of the four that take a hundred times the seconds of the others."""
    rng = np.random.default_rng(seed)
    times = np.full((40, 2), 0.01)
    times[rng.choice(40, size=4, replace=False)] = 1.0
    problem = problem_of(OpGraph.build("few", [Op(f"o{i}") for i in range(40)], []), full_mesh(2), times)
    return problem, set(problem.unit_of_op[times[:, 0] == 1.0].tolist())


def share_of_long_ops(network: PolicyNetwork) -> float:
    """Share of the draws that move a long op, on graphs that training does not use."""
    counted = []
    for seed in range(100, 104):
        problem, long_ones = few_long_ops(seed)
        for trace in searched(network, problem, 10, config=ONE_BY_ONE).traces:
            counted += [draw.move // 2 in long_ones for draw in trace.draws]
    return float(np.mean(counted))


def test_training_makes_draws_of_long_ops_more_frequent() -> None:
    network = indifferent()
    optimizer = adam(network, 1e-2)
    assert share_of_long_ops(network) < 0.2
    for seed in range(40):
        search_ppo_update(network, optimizer, [searched(network, few_long_ops(seed)[0], 10, config=ONE_BY_ONE)], CONFIG)
    assert share_of_long_ops(network) > 0.3
