"""Placeto on one graph: episodes that revisit every unit once, and REINFORCE after each batch of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.arrays import FloatArray, IntArray
from gnnplace.env.episodes import SweepEpisodes
from gnnplace.env.process import PlacementProcess
from gnnplace.evaluation import Problem
from gnnplace.planners.classical.heft import evaluate_heft
from gnnplace.planners.papers.learning import relative_runtime, single_device_s
from gnnplace.planners.papers.placeto.features import DynamicFeatures, StaticInputs, dynamic_features, static_inputs
from gnnplace.planners.papers.placeto.network import PlacetoNetwork
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.policy.network import one_thread, seeded
from gnnplace.training.search_ppo import returns_to_go

_NODES_AT_ONCE = 1 << 14
"""Most nodes, of all placements and steps, in one pass through the network while it learns; bounds memory."""


@dataclass(frozen=True)
class PlacetoConfig:
    """A smaller network, fewer episodes per update and longer steps than in the paper, for budgets of a few dozen episodes."""

    layers: int = 1
    """Layers of each message function; 2 in the authors' code."""
    rounds: int = 8
    """Rounds of messages in each direction; paper 8."""
    num_envs: int = 2
    """Episodes between two updates, stepped together; the authors' code has 4 to 8 workers."""
    learning_rate: float = 1e-2
    """Initial rate of Adam, falling linearly; paper 1e-3, with which a hundred episodes change little."""
    final_learning_rate: float = 1e-3
    """Rate of Adam at the end; paper 1e-4."""
    gamma: float = 1.0
    """Discount per step; paper 1."""
    baseline_episodes: int = 10
    """Episodes in the baseline; paper 10."""
    ent_coef: float = 0.1
    """Weight of the entropy of a step, falling linearly to 0; the authors' code begins with 1, without a limit of evaluations. With
    0.03 and less one seed in three stops moving its 16 ops and leaves two thirds of 300 evaluations unused."""
    max_grad_norm: float = 1.25
    """Largest norm of the gradient summed over the steps of an episode; 1.25 in the authors' code."""
    steps_per_evaluation: int = 5
    """Most steps per evaluation of the budget. A step that leaves its unit in place costs no evaluation, so without this limit a
    policy that moves nothing would never end; training may leave evaluations unused."""
    unlimited_evaluations_per_unit: int = 1000
    """Evaluations per unit where the budget has no limit."""


PAPER = PlacetoConfig(layers=2, num_envs=8, learning_rate=1e-3, final_learning_rate=1e-4, ent_coef=1.0)
"""The sizes and rates of Addanki et al. 2019 and of their published code; 32,495 weights for five devices."""


def plan(problem: Problem, budget: Budget, seed: int, config: PlacetoConfig = PlacetoConfig()) -> Solution:
    """The best placement seen at any step while a policy learns from scratch, on this graph alone.

    Addanki et al. 2019. Every episode begins at the best single device, or at HEFT's placement where no single device runs; where
    that fails too, the planner does not learn. Departures, besides those of the other files:

    - Runtimes are multiples of the best single device's, compressed above ten of them and bounded where a placement does not fit.
      The authors add a penalty per missing gigabyte and cut the sum off at ten.
    - The mask excludes devices that no route connects with a unit's neighbours.
    - A step that moves nothing is not evaluated again.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, "placeto", seed) as search, one_thread():
        search.evaluate_batch(problem.single_device_assignments)
        search.stage("single")
        if not np.isfinite(search.best_s):
            evaluate_heft(search)
            search.stage("heft")
        if search.best is not None and np.isfinite(search.best_s) and len(problem.movable_units):
            _learn(search, (search.best.assignment, search.best_s), config)
    return search.solution()


def build_network(devices: int, config: PlacetoConfig, seed: int) -> PlacetoNetwork:
    """A fresh network whose weights follow from the seed."""
    with seeded(seed):
        return PlacetoNetwork(devices, config.layers, config.rounds)


def _learn(search: Search, start: tuple[IntArray, float], config: PlacetoConfig) -> None:
    """Runs episodes from `start` (an assignment `[N]` and its penalised seconds) and updates, until the budget ends.

    Rewards are differences of relative runtimes, so they have no unit: 1 is the time of the best single device.
    """
    problem, reference_s, limit = search.problem, single_device_s(search.problem), search.budget.evaluations
    static = static_inputs(problem)
    learner = Learner(build_network(static.num_devices, config, search.seed), static, config)
    batch = SweepEpisodes(problem, runtime=search.evaluate_to_learn, reference_s=reference_s)
    starts, start_s = np.tile(start[0], (config.num_envs, 1)), np.full(config.num_envs, start[1])
    generator = torch.Generator().manual_seed(search.seed)
    max_steps = np.inf if limit is None else max(1, config.steps_per_evaluation * limit)
    num_steps = 0
    while (done := max(search.used_share, num_steps / max_steps)) < 1.0:
        batch.reset(starts, start_s, static.visited)
        episodes = roll_out(batch, learner.network, static, reference_s, generator)
        num_steps += episodes.actions.numel()
        learner.update(episodes, done)


@dataclass(frozen=True, eq=False)
class Episodes:
    """`T` steps of `B` placements."""

    dynamic: list[DynamicFeatures]  # [T]
    masks: Tensor  # [T, B, D]
    actions: Tensor  # [T, B]
    runtimes: FloatArray  # [T + 1, B] relative, before every step and after the last

    @property
    def rewards(self) -> Tensor:
        """`[T, B]` runtime before a step minus runtime after it."""
        return torch.from_numpy(self.runtimes[:-1] - self.runtimes[1:]).float()


@torch.no_grad()
def roll_out(
    batch: SweepEpisodes, network: PlacetoNetwork, static: StaticInputs, reference_s: float, generator: torch.Generator
) -> Episodes:
    """One episode from each placement of `batch`, which has just been reset to visit `static.visited`."""
    dynamic, masks, actions = list[DynamicFeatures](), list[Tensor](), list[Tensor]()
    process, runtimes = batch.process, [_relative(batch.process, reference_s)]
    while not batch.is_done:
        dynamic.append(dynamic_features(process))
        masks.append(torch.from_numpy(batch.action_mask))
        steps = torch.full((process.num_placements,), batch.step_index)
        log_probs = network.log_probs(static, dynamic[-1], steps, masks[-1])
        actions.append(torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1))
        batch.step(actions[-1].numpy())
        runtimes.append(_relative(process, reference_s))
    return Episodes(dynamic, torch.stack(masks), torch.stack(actions), np.stack(runtimes))


def _relative(process: PlacementProcess, reference_s: float) -> FloatArray:
    """`[B]` relative runtimes; those of a failure are infinite."""
    seconds = np.where(process.seconds >= process.failed_s, np.inf, process.seconds)
    return relative_runtime(process.problem, seconds, reference_s)


def action_probabilities(
    network: PlacetoNetwork, static: StaticInputs, episodes: Episodes
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Steps, log probabilities `[S, B]` of their actions and entropies `[S, B]` under the present weights.

    It yields a few steps at a time, which bounds the memory for gradients.
    """
    steps, count, devices = episodes.masks.shape
    length = max(1, _NODES_AT_ONCE // (count * len(static.amounts)))
    for begin in range(0, steps, length):
        some = slice(begin, min(begin + length, steps))
        joined = DynamicFeatures(*(torch.cat(parts, dim=1) for parts in zip(*episodes.dynamic[some], strict=True)))
        at = torch.arange(some.start, some.stop).repeat_interleave(count)
        log_probs = network.log_probs(static, joined, at, episodes.masks[some].flatten(0, 1)).view(-1, count, devices)
        taken = log_probs.gather(2, episodes.actions[some][:, :, None]).squeeze(2)
        yield some, taken, -(log_probs.exp() * log_probs).sum(dim=2)


class Learner:
    """REINFORCE with a baseline per step (Addanki et al. 2019, training details)."""

    def __init__(self, network: PlacetoNetwork, static: StaticInputs, config: PlacetoConfig) -> None:
        self.network = network
        self._static, self._config = static, config
        self._optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
        self._baseline = StepBaseline(config.baseline_episodes)

    def update(self, episodes: Episodes, done: float) -> None:
        """One gradient step; `done` is the share of the budget used before these episodes."""
        config = self._config
        returns = returns_to_go(episodes.rewards, config.gamma)
        advantages = returns - self._baseline.update(returns)[:, None]
        rate = config.learning_rate + done * (config.final_learning_rate - config.learning_rate)
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.zero_grad()
        for steps, log_probs, entropy in action_probabilities(self.network, self._static, episodes):
            objective = advantages[steps] * log_probs + config.ent_coef * (1.0 - done) * entropy
            (-objective.sum() / returns.shape[1]).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), config.max_grad_norm)
        self._optimizer.step()


class StepBaseline:
    """Mean return at each step over the last episodes of one graph, at least those of the last batch.

    Departure: the mean includes the episodes of the present batch.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._returns: list[Tensor] = []

    def update(self, returns: Tensor) -> Tensor:
        """Adds the returns `[T, B]` of `B` episodes; returns the baseline `[T]` of each step."""
        self._returns = [*self._returns, *returns.unbind(dim=1)][-max(self._episodes, returns.shape[1]) :]
        return torch.stack(self._returns).mean(dim=0)
