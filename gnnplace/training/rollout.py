"""A batch of episodes under the current policy, and the same decisions judged again by a changed one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnplace.arrays import FloatArray
from gnnplace.env.batch import PlacementBatch
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import PolicyInputs, PolicyNetwork, Questions
from gnnplace.policy.pair_features import pair_features

__all__ = ["Episodes", "Judgement", "Rollout", "Sweep", "judge", "roll_out"]

Episodes = Callable[[int], tuple[PlacementBatch, PolicyInputs]]
"""Update index -> placements that have just been reset, and their problem's static inputs."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """What the encoder saw before a sweep."""

    nodes: Tensor  # [U, B, F]
    edges: Tensor  # [E, B, F]


@dataclass(frozen=True, eq=False)
class Rollout:
    """`T` steps of `B` episodes on one problem."""

    inputs: PolicyInputs
    sweeps: tuple[Sweep, ...]
    units: Tensor  # [T]
    pair: Tensor  # [T, B, D, F]
    context: Tensor  # [T, B, F]
    mask: Tensor  # [T, B, D]
    actions: Tensor  # [T, B]
    log_probs: Tensor  # [T, B]
    values: Tensor  # [T, B]
    rewards: Tensor  # [T, B]
    start_s: FloatArray  # [B] seconds before the first step
    best_s: FloatArray  # [B] least seconds after any step


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a policy says of the decisions of a rollout."""

    log_probs: Tensor  # [T, M]
    entropy: Tensor  # [T, M]
    values: Tensor  # [T, M]


def roll_out(
    batch: PlacementBatch, inputs: PolicyInputs, network: PolicyNetwork, generator: torch.Generator
) -> Rollout:
    """One episode per placement of `batch`, which has just been reset; actions are sampled with `generator`."""
    start_s = batch.seconds.copy()
    sweeps: list[Sweep] = []
    units: list[int] = []
    steps: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        while not batch.is_done:
            if batch.begins_sweep:
                nodes, edges = sweep_features(inputs.features, inputs.tables, batch.timing)
                sweeps.append(Sweep(torch.from_numpy(nodes), torch.from_numpy(edges)))
                embeddings = network.encode(inputs, sweeps[-1].nodes, sweeps[-1].edges)
            units.append(batch.unit)
            steps.append(_step(batch, inputs, network, embeddings, generator))
    pair, context, mask, actions, log_probs, values, rewards = (
        torch.stack(column) for column in zip(*steps, strict=True)
    )
    return Rollout(
        inputs, tuple(sweeps), torch.tensor(units), pair, context, mask, actions, log_probs, values, rewards,
        start_s, batch.best_seconds.copy(),
    )  # fmt: skip


def judge(network: PolicyNetwork, rollout: Rollout, members: Tensor) -> Judgement:
    """Log probabilities, entropies and values, by the network as it is now, of the decisions of episodes `members` `[M]`."""
    steps, devices = len(rollout.units), rollout.mask.shape[2]
    rows = torch.arange(len(members)).repeat(steps // len(rollout.sweeps))
    logits, values = [], []
    for sweep, chosen in zip(rollout.sweeps, torch.arange(steps).chunk(len(rollout.sweeps)), strict=True):
        embeddings = network.encode(rollout.inputs, sweep.nodes[:, members], sweep.edges[:, members])
        sweep_logits, sweep_values = network.answer(
            rollout.inputs,
            embeddings,
            Questions(
                rows,
                rollout.units[chosen].repeat_interleave(len(members)),
                rollout.pair[chosen][:, members].flatten(0, 1),
                rollout.context[chosen][:, members].flatten(0, 1),
                rollout.mask[chosen][:, members].flatten(0, 1),
            ),
        )
        logits.append(sweep_logits.view(-1, len(members), devices))
        values.append(sweep_values.view(-1, len(members)))
    log_probs = torch.log_softmax(torch.cat(logits), dim=-1)
    taken = log_probs.gather(-1, rollout.actions[:, members, None]).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(~rollout.mask[:, members], 0.0)).sum(dim=-1)
    return Judgement(taken, entropy, torch.cat(values))


def _step(
    batch: PlacementBatch,
    inputs: PolicyInputs,
    network: PolicyNetwork,
    embeddings: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """Pair features, context, mask, actions, log probabilities, values and rewards of one step, `[B, ...]` each."""
    rows = np.arange(batch.num_placements)
    units = np.full(batch.num_placements, batch.unit)
    change = None
    if batch.candidate_s is not None:
        change = (batch.candidate_s - batch.seconds[:, None]) / batch.reference_s
    capacity = batch.problem.topology.memory_bytes
    pair, context, _ = pair_features(inputs.features, inputs.tables, batch.timing, rows, units, capacity, change)
    seen = torch.from_numpy(pair), torch.from_numpy(context), torch.from_numpy(batch.action_mask)
    questions = Questions(torch.from_numpy(rows), torch.from_numpy(units), *seen)
    logits, values = network.answer(inputs, embeddings, questions)
    log_probs = torch.log_softmax(logits, dim=-1)
    actions = torch.multinomial(log_probs.exp(), 1, generator=generator)
    rewards = torch.from_numpy(batch.step(actions.squeeze(-1).numpy()).astype(np.float32))
    return *seen, actions.squeeze(-1), log_probs.gather(-1, actions).squeeze(-1), values, rewards
