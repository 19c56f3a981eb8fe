"""A search that draws placements from a sequence-to-sequence policy and evaluates them, with their rewards."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import BoolArray, FloatArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.learning import gradient_step, which_ran
from gnnplace.planners.papers.seq2seq.network import Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.op_groups import OpGroups, op_groups
from gnnplace.planners.search import Search
from gnnplace.planners.solution import Budget, Solution
from gnnplace.policy.network import one_thread, seeded


@dataclass(frozen=True, eq=False)
class Sampled:
    """`K` placements and their rewards."""

    decisions: Tensor  # [G, K]
    rewards: FloatArray  # [K]
    ran: BoolArray  # [K] false for placements that do not fit or cannot run


@dataclass(eq=False)
class Rewards:
    """Minus the square root of the runtime (Mirhoseini et al. 2017, section 3.1), in units of the first runtimes.

    A placement that fails has a large constant runtime. Departure: the unit is the mean runtime of the first batch in
    which a placement ran, so that neither the constant nor the learning rate depends on how long a graph takes.
    """

    failing_ratio: float
    """Runtime of a failing placement in that unit."""
    unit_s: float | None = None
    """Seconds of the unit; None until a placement has run."""

    @property
    def failing(self) -> float:
        """Reward of a placement that fails."""
        return -float(np.sqrt(self.failing_ratio))

    def of(self, seconds: FloatArray, ran: BoolArray) -> FloatArray:
        """Rewards `[K]` of penalised seconds `[K]`, where `ran` `[K]` is false for placements that failed."""
        if self.unit_s is None and ran.any():
            self.unit_s = max(float(seconds[ran].mean()), 1e-300)
        rewards = np.full(len(seconds), self.failing)
        if self.unit_s is not None:
            rewards[ran] = -np.sqrt(np.minimum(seconds[ran] / self.unit_s, self.failing_ratio))
        return rewards


class Sampler:
    """A fresh policy for the problem of a search, which evaluates its draws; weights and draws follow from the search's seed."""

    def __init__(self, search: Search, groups: OpGroups, config: Seq2SeqConfig) -> None:
        weights_seed, drawing_seed = np.random.default_rng(search.seed).integers(2**62, size=2).tolist()
        with seeded(weights_seed):
            self.policy = Seq2SeqPolicy(groups, config)
        self.search, self.rewards = search, Rewards(config.failing_ratio)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.learning_rate)
        self._groups, self._config = groups, config
        self._generator = torch.Generator().manual_seed(drawing_seed)

    def draw(self) -> Sampled:
        """Draws and evaluates the placements of one update together, or as many as the budget still allows.

        Raises:
            BudgetExhausted: no evaluation is left.
        """
        count = max(1, min(self._config.num_placements, self.search.remaining))
        decisions = self.policy.sample(count, self._generator)
        seconds = self.search.evaluate_batch(self._groups.assignments(decisions.numpy()))
        ran = which_ran(self.search.problem, seconds)
        return Sampled(decisions, self.rewards.of(seconds, ran), ran)

    def step(self, loss: Tensor) -> None:
        """One gradient step of the policy."""
        gradient_step(self.policy, self.optimizer, loss, self._config.max_grad_norm)


def search_with(
    learn: Callable[[Sampler], None], name: str, problem: Problem, budget: Budget, seed: int, config: Seq2SeqConfig
) -> Solution:
    """The best of all placements that the sampler draws while `learn` trains its policy until the budget ends.

    Where the groups allow only one placement, the search evaluates that one.
    """
    budget = budget.bounded(config.unlimited_evaluations_per_unit * problem.num_units)
    with Search(problem, budget, name, seed) as search, one_thread():
        groups = op_groups(problem, config.least_groups_per_device)
        if (groups.action_mask.sum(axis=1) > 1).any():
            learn(Sampler(search, groups, config))
        else:
            search.evaluate_batch(groups.assignments(groups.action_mask.argmax(axis=1)[:, None]))
    return search.solution()
