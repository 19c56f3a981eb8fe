"""Placeto: pooling sets, features, messages, an episode by hand, and learning."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.env.episodes import SweepEpisodes
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.planners.papers.placeto import planner as planner_module
from gnnplace.planners.papers.placeto.features import (
    adjacency,
    dynamic_features,
    node_features,
    pooling_sets,
    reachability,
    static_inputs,
)
from gnnplace.planners.papers.placeto.network import PlacetoNetwork
from gnnplace.planners.papers.placeto.planner import (
    PAPER,
    PlacetoConfig,
    StepBaseline,
    action_probabilities,
    build_network,
    plan,
    roll_out,
)
from gnnplace.planners.solution import Budget
from gnnplace.training.search_ppo import returns_to_go
from tests.problems import MeasuredLike, full_mesh, problem_of, random_layers, two_chains


class Scripted(PlacetoNetwork):
    """Moves each unit to the device in a script."""

    def __init__(self, script: list[int], devices: int = 2) -> None:
        super().__init__(devices, 1, 1)
        self.script = torch.tensor(script)

    def forward(self, neighbours, features, current, sets):  # type: ignore[no-untyped-def]
        """Logits that make the device in the script almost certain."""
        return 1e4 * torch.nn.functional.one_hot(self.script[current], 2) + 0.0 * self.head[0].weight.sum()


def free_ops(count: int):  # type: ignore[no-untyped-def]
    """Ops of one second without data between them, on two devices."""
    return problem_of(OpGraph.build("free", [Op(f"o{i}") for i in range(count)]), full_mesh(2))


def graph_of(edges: list[tuple[int, int]], num_ops: int, groups: dict[int, str] | None = None) -> OpGraph:
    """Ops `0` to `num_ops - 1` and a tensor for each edge."""
    ops = [Op(str(i), group=(groups or {}).get(i)) for i in range(num_ops)]
    return OpGraph.build("edges", ops, [Tensor(str(a), 1 + a, (str(b),)) for a, b in edges])


def test_pools_are_ancestors_descendants_and_parallel_units() -> None:
    problem = problem_of(graph_of([(0, 1), (0, 2), (1, 3), (2, 3)], 5), full_mesh(2))
    # Units are numbered in topological order, in which the lonely op 4 follows op 0.
    unit = {op: int(problem.unit_of_op[op]) for op in range(5)}
    sets = pooling_sets(reachability(problem))
    named = [{op for op in range(5) if sets[unit[1], kind, unit[op]]} for kind in range(3)]
    assert named == [{0}, {3}, {2, 4}]
    assert not sets[unit[4], :2].any()
    assert {op for op in range(5) if sets[unit[4], 2, unit[op]]} == {0, 1, 2, 3}
    assert not sets[np.arange(5), :, np.arange(5)].any()


def test_colocation_groups_may_depend_on_each_other() -> None:
    problem = problem_of(graph_of([(0, 1), (2, 3)], 4, {0: "x", 3: "x", 1: "y", 2: "y"}), full_mesh(2))
    assert reachability(problem).tolist() == [[False, True], [True, False]]
    assert sorted(problem.unit_edges.T.tolist()) == [[0, 1], [1, 0]]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40))
def test_reachability_is_that_of_networkx(num_ops: int, pairs: list[tuple[int, int]]) -> None:
    edges = sorted({(min(p) % num_ops, max(p) % num_ops) for p in pairs})
    edges = [(a, b) for a, b in edges if a < b]
    problem = problem_of(graph_of(edges, num_ops), full_mesh(2))
    found = reachability(problem)
    view = nx.DiGraph(edges)
    view.add_nodes_from(range(num_ops))
    unit = problem.unit_of_op
    for op in range(num_ops):
        below = {int(unit[v]) for v in nx.descendants(view, op)}
        assert set(np.flatnonzero(found[unit[op]]).tolist()) == below


def test_features_are_cost_output_visits_current_relative_start_and_device() -> None:
    graph = graph_of([(0, 1), (1, 2)], 3)  # tensors of 1 and 2 bytes
    problem = problem_of(graph, full_mesh(2), np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 4.0]]))
    static = static_inputs(problem)
    batch = SweepEpisodes(problem, reference_s=1.0).reset(np.array([[0, 0, 0], [0, 0, 1]]))
    dynamic = dynamic_features(batch.process)
    found = node_features(static, dynamic, torch.tensor([1, 1]), torch.tensor([1, 1])).numpy()
    first = [[0.5, 0.5, 1, 0, -1 / 7, 1, 0], [0.5, 1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 2 / 7, 1, 0]]
    np.testing.assert_allclose(found[:, 0], first, rtol=1e-6)
    # The second placement sends 2 bytes, which takes 0.7 s, so the last op starts at 3.7 s of 7.7 s.
    np.testing.assert_allclose(found[:, 1, 4], np.array([-1.0, 0.0, 2.7]) / 7.7, rtol=1e-6)
    assert found[2, 1, 5:].tolist() == [0, 1]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_rounds_of_messages_equal_those_of_a_dense_oracle(layers: int) -> None:
    edges = np.array([[0, 0, 1, 2], [1, 2, 3, 3]])
    network = build_network(2, PlacetoConfig(layers=layers, rounds=3), 0)
    features = torch.rand(5, 2, 7)
    found = network.embed(adjacency(edges, 5), features).detach().numpy()

    def perceptron(module: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
        linear = [m for m in module.modules() if isinstance(m, torch.nn.Linear)]
        for index, layer in enumerate(linear):
            rows = rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
            rows = np.maximum(rows, 0.0) if index < len(linear) - 1 else rows
        return rows

    dense = np.zeros((5, 5))
    dense[edges[1], edges[0]] = 1.0  # row: consumer
    for copy in range(2):
        own = perceptron(network.own, features[:, copy].numpy())
        swept = []
        for aggregator, sums in zip((network.along, network.against), (dense, dense.T), strict=True):
            nodes = own
            for _ in range(3):
                total = sums @ np.maximum(perceptron(aggregator.before, nodes), 0.0)
                message = np.maximum(perceptron(aggregator.after, total), 0.0)
                nodes = own + np.where(sums.any(axis=1)[:, None], message, 0.0)
            swept.append(nodes)
        np.testing.assert_allclose(found[:, copy], np.concatenate(swept, axis=1), rtol=1e-4, atol=1e-5)


def test_the_head_reads_the_means_over_the_pools_and_the_current_unit() -> None:
    network = build_network(2, PlacetoConfig(rounds=1), 3)
    read: list[torch.Tensor] = []
    network.head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    edges, features, current = np.array([[0, 1], [1, 2]]), torch.rand(4, 1, 7), torch.tensor([1])
    sets = torch.tensor([[[1.0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]])
    neighbours = adjacency(edges, 4)
    logits = network(neighbours, features, current, sets)
    nodes = network.embed(neighbours, features)[:, 0]
    parts = read[0][0].split(14)
    torch.testing.assert_close(parts[0], network.ancestors.receive(network.ancestors.send(nodes[0])))
    torch.testing.assert_close(parts[1], network.descendants.receive(network.descendants.send(nodes[2])))
    torch.testing.assert_close(parts[2], network.parallel.receive(torch.zeros(14)))
    torch.testing.assert_close(parts[3], nodes[1])
    assert logits.shape == (1, 2)


def test_the_published_network_has_the_papers_number_of_weights() -> None:
    sizes = [sum(p.numel() for p in build_network(d, PAPER, 0).parameters()) for d in (3, 5, 6)]
    assert sizes[1] == 32495
    assert 16_000 < sizes[0] < sizes[2] < 55_000


def test_rewards_of_an_episode_by_hand_sum_to_start_less_end() -> None:
    problem = free_ops(3)
    batch = SweepEpisodes(problem, reference_s=3.0).reset(np.array([[0, 0, 0], [1, 1, 1]]))
    episodes = roll_out(batch, Scripted([1, 1, 1]), static_inputs(problem), 3.0, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(episodes.runtimes[:, 0], [1, 2 / 3, 2 / 3, 1])
    np.testing.assert_allclose(episodes.runtimes[:, 1], 1.0)
    np.testing.assert_allclose(episodes.rewards[:, 0], [1 / 3, 0, -1 / 3], atol=1e-6)
    np.testing.assert_allclose(returns_to_go(episodes.rewards, 1.0)[:, 0], [0, -1 / 3, -1 / 3], atol=1e-6)
    np.testing.assert_allclose(episodes.rewards.sum(dim=0), episodes.runtimes[0] - episodes.runtimes[-1], atol=1e-6)
    assert batch.process.best_seconds.tolist() == [2.0, 3.0]
    assert [step.device[:, 0].tolist() for step in episodes.dynamic] == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_the_baseline_is_the_mean_return_at_the_same_step_of_the_last_episodes() -> None:
    baseline = StepBaseline(3)
    assert baseline.update(torch.tensor([[1.0, 3.0], [0.0, 2.0]])).tolist() == [2.0, 1.0]
    assert baseline.update(torch.tensor([[5.0], [1.0]])).tolist() == [3.0, 1.0]
    assert baseline.update(torch.tensor([[7.0], [0.0]])).tolist() == [5.0, 1.0]  # the first episode is forgotten
    assert StepBaseline(1).update(torch.tensor([[1.0, 3.0]])).tolist() == [2.0]  # a whole batch always counts


def test_probabilities_of_many_steps_at_once_are_those_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_layers(2, num_ops=12)
    network, static = build_network(3, PlacetoConfig(rounds=2), 0), static_inputs(problem)
    batch = SweepEpisodes(problem, reference_s=1.0).reset(np.zeros((2, 12), dtype=np.int64), visited=static.visited)
    episodes = roll_out(batch, network, static, 1.0, torch.Generator().manual_seed(0))
    steps, log_probs, entropy = next(action_probabilities(network, static, episodes))
    assert steps == slice(0, len(static.visited))
    for step in range(len(static.visited)):
        alone = network.log_probs(static, episodes.dynamic[step], torch.full((2,), step), episodes.masks[step])
        torch.testing.assert_close(log_probs[step], alone.gather(1, episodes.actions[step][:, None])[:, 0])
        torch.testing.assert_close(entropy[step], -(alone.exp() * alone).sum(dim=1))
    monkeypatch.setattr(planner_module, "_NODES_AT_ONCE", 100)
    parts = [part for _, part, _ in action_probabilities(network, static, episodes)]
    assert len(parts) > 1
    torch.testing.assert_close(torch.cat(parts), log_probs)


def test_it_learns_which_half_of_a_chain_belongs_on_which_device() -> None:
    # Of 65,536 placements one is best: eight ops of 1 s, half a second for the data, eight ops of 2 s. Within these few episodes
    # not every seed finds it; this seed does, and the same walk without learning does not.
    seconds = [[1.0, 5.0]] * 8 + [[10.0, 2.0]] * 8
    tensors = [Tensor(f"o{i}", 0, (f"o{i + 1}",)) for i in range(15)]
    graph = OpGraph.build("chain", [Op(f"o{i}") for i in range(16)], tensors)
    problem = problem_of(graph, full_mesh(2), np.array(seconds))
    learned, blind = (
        plan(problem, Budget(300), 1, PlacetoConfig(rounds=2, learning_rate=rate, final_learning_rate=rate / 10))
        for rate in (0.03, 0.0)
    )
    assert learned.objective_s == 24.5
    assert blind.objective_s > 26.0
    assert learned.stages == (("single", 56.0),)


def test_steps_that_move_nothing_cost_no_evaluation_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "build_network", lambda *_: Scripted([0] * 6))
    problem = two_chains()
    measured = MeasuredLike(problem)
    solution = plan(replace(problem, evaluator=measured), Budget(20), 0)
    assert solution.evaluations == len(measured.executed) == 1
    assert solution.objective_s == 6.0


class Choosy(MeasuredLike):
    """A measured evaluator on which placements on one device fail."""

    def evaluate(self, placement):  # type: ignore[no-untyped-def]
        """One placement."""
        found = super().evaluate(placement)
        return replace(found, makespan_s=np.inf) if len(set(placement.assignment.tolist())) == 1 else found

    def evaluate_batch(self, assignments):  # type: ignore[no-untyped-def]
        """Several."""
        found = super().evaluate_batch(assignments)
        alone = (assignments == assignments[:, :1]).all(axis=1)
        return replace(found, makespan_s=np.where(alone, np.inf, found.makespan_s))


def test_where_no_single_device_runs_it_learns_from_hefts_placement() -> None:
    problem = two_chains()
    measured = Choosy(problem)
    solution = plan(replace(problem, evaluator=measured), Budget(30), 0)
    assert [name for name, _ in solution.stages] == ["single", "heft"]
    assert solution.stages[0][1] == np.inf
    assert solution.stages[1][1] == 3.0
    assert solution.evaluations == len(measured.executed) == 30


def test_a_move_that_fails_when_measured_costs_more_than_any_runtime() -> None:
    problem = free_ops(2)
    measured = replace(problem, evaluator=Choosy(problem))
    batch = SweepEpisodes(measured, reference_s=2.0).reset(np.array([[0, 1]]))
    episodes = roll_out(batch, Scripted([1, 1]), static_inputs(measured), 2.0, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(episodes.runtimes[:, 0], [0.5, 40.0, 40.0])


def test_only_units_that_have_a_choice_are_visited() -> None:
    graph = OpGraph.build("bound", [Op("a", devices=("d0",)), Op("b"), Op("c", devices=("d1",))])
    problem = problem_of(graph, full_mesh(2))
    assert static_inputs(problem).visited.tolist() == [1]
    assert plan(problem, Budget(20), 0).objective_s == 2.0
