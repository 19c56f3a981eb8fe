"""Device placement by REINFORCE on a sequence-to-sequence policy (Mirhoseini et al., ICML 2017).

Read beside section 3.1: the policy draws `K` placements, which are measured; their rewards are `-sqrt(runtime)`, and

    gradient = 1/K * sum_i (reward_i - B) * grad log p(placement_i)

with a moving average `B` of the rewards; Adam. Placements that fail have a large constant runtime at first, and late in training
updates leave them out. The policy is `seq2seq/network.py`, the colocation rule `seq2seq/op_groups.py`.

Departure: one process draws, measures and learns in turn; the paper has asynchronous controllers, whose workers measure.
"""

from dataclasses import dataclass
from functools import partial

import torch

from gnnplace.arrays import FloatArray
from gnnplace.evaluation import Problem
from gnnplace.planners.papers.learning import MovingAverage
from gnnplace.planners.papers.seq2seq.network import PUBLISHED, Seq2SeqConfig, Seq2SeqPolicy
from gnnplace.planners.papers.seq2seq.sampling import Sampled, Sampler, search_with
from gnnplace.planners.solution import Budget, Solution


@dataclass(frozen=True)
class ColocRlConfig:
    """A small preset; `PAPER` has the sizes of the published controller."""

    policy: Seq2SeqConfig = Seq2SeqConfig()
    baseline_starts_failing: bool = False
    """True: the first baseline is the failing reward, as in the published controller, which explores for long. False: it is the first
    batch's mean, since a search of a few hundred placements would end before the other baseline has fallen."""
    failing_share: float = 0.5
    """Share of the budget after which updates leave out failing placements; the paper counts updates."""


PAPER = ColocRlConfig(PUBLISHED, baseline_starts_failing=True)


def plan(problem: Problem, budget: Budget, seed: int, config: ColocRlConfig = ColocRlConfig()) -> Solution:
    """The best of all placements that were drawn while the policy learned.

    >>> from gnnplace.sim.example import diamond
    >>> round(plan(diamond(), Budget(50), seed=0).objective_s, 3)
    4.001
    """
    return search_with(partial(_learn, config=config), "coloc-rl", problem, budget, seed, config.policy)


def _learn(sampler: Sampler, config: ColocRlConfig) -> None:
    failing = sampler.rewards.failing if config.baseline_starts_failing else None
    baseline = MovingAverage(config.policy.baseline_decay, failing)
    while True:
        sampled = sampler.draw()
        if sampler.search.used_share > config.failing_share:
            ran = sampled.ran
            sampled = Sampled(sampled.decisions[:, torch.from_numpy(ran)], sampled.rewards[ran], ran[ran])
        if len(sampled.rewards):
            sampler.step(reinforce_loss(sampler.policy, sampled, baseline.advantages(sampled.rewards)))


def reinforce_loss(policy: Seq2SeqPolicy, sampled: Sampled, advantages: FloatArray) -> torch.Tensor:
    """Loss of REINFORCE: `-1/K sum advantage * log p`, with advantages `[K]`."""
    log_probs = policy.log_probs(sampled.decisions).gather(-1, sampled.decisions[..., None]).squeeze(-1)
    return -(torch.from_numpy(advantages).float() * log_probs.sum(dim=0)).mean()
