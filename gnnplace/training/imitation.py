"""Imitation of exhaustive lookahead: the policy learns which single moves would help, so that a search need not ask.

The simulator tells what every move from a placement would change; that costs an evaluation per move while training, and nothing
when the policy acts. A supervised step sees all moves of a placement at once, a step of policy gradient only those that it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gnnplace.arrays import BoolArray, FloatArray, IntArray
from gnnplace.env.timing import empty_timing, refresh
from gnnplace.env.units import UnitTables
from gnnplace.evaluation import Problem
from gnnplace.policy.features import sweep_features
from gnnplace.policy.network import PolicyInputs, PolicyNetwork, Questions, policy_inputs
from gnnplace.policy.pair_features import pair_features
from gnnplace.training.ppo import average_gradients
from gnnplace.training.problems import TrainingProblem

__all__ = ["Demonstration", "ImitationConfig", "ImitationUpdate", "demonstrate", "imitation_update", "move_gains"]

_MOVES_AT_ONCE = 4096


@dataclass(frozen=True)
class ImitationConfig:
    """How moves are learned from."""

    num_updates: int = 0
    """Batches of demonstrations before the first episode; 0: reinforcement alone."""
    learning_rate: float = 1e-3
    """Placeto's (Addanki et al. 2019); falls linearly to a tenth."""
    update_epochs: int = 2
    """Steps on each batch; drawing fresh problems takes about as long as two of them."""
    least_gain: float = 1e-4
    """A move helps if it saves more than this fraction of the makespan."""
    list_coef: float = 0.2
    """Weight of the listwise loss, which prefers moves that save more, against that of each move on its own."""
    max_pairs: int = 24_000
    """(placement, unit, device) of a problem; of more, some placements are left out."""


@dataclass(frozen=True, eq=False)
class Demonstration:
    """`B` placements of one problem, and what every move from each of them gains."""

    inputs: PolicyInputs
    nodes: Tensor  # [U, B, F]
    edges: Tensor  # [E, B, F]
    questions: Questions  # of all units in all placements, placements outermost
    devices: Tensor  # [B, U] where the units are
    gains: Tensor  # [B, U, D] saved fraction of the seconds, at most 1 either way; NaN for what is no move


@dataclass(frozen=True)
class ImitationUpdate:
    """What one update saw."""

    move_loss: float
    """Mean binary cross entropy of "this move helps"."""
    list_loss: float
    """Mean cross entropy between the gains of the moves that help, made shares, and the policy's odds."""
    helping: float
    """Share of all moves that help."""
    drawn_helping: float
    """Share of the moves that the policy would draw that help."""


def demonstrate(exercise: TrainingProblem, config: ImitationConfig, rng: np.random.Generator) -> Demonstration:
    """Features of an exercise's starts, as many as `max_pairs` allows, and the gains of all their moves."""
    problem = exercise.problem
    inputs = policy_inputs(problem)
    units, num_devices = problem.num_units, problem.topology.num_devices
    most = max(1, config.max_pairs // (units * num_devices))
    _, distinct = np.unique(exercise.starts, axis=0, return_index=True)
    rows = np.sort(rng.permutation(distinct)[:most])
    starts, seconds = exercise.starts[rows], exercise.start_s[rows]
    timing = empty_timing(problem, len(rows))
    for row, start in enumerate(starts):
        refresh(problem, inputs.tables, timing, row, start)
    nodes, edges = sweep_features(inputs.features, inputs.tables, timing)
    row_of, unit_of = np.repeat(np.arange(len(rows)), units), np.tile(np.arange(units), len(rows))
    seen = pair_features(inputs.features, inputs.tables, timing, row_of, unit_of, problem.topology.memory_bytes)
    questions = Questions(*(torch.from_numpy(array) for array in (row_of, unit_of, *seen)))
    mask = seen[2].reshape(len(rows), units, num_devices)
    gains = [
        move_gains(problem, inputs.tables, start, second, allowed)
        for start, second, allowed in zip(starts, seconds.tolist(), mask, strict=True)
    ]
    first_op = inputs.tables.unit_ops[inputs.tables.unit_offsets[:-1]]
    return Demonstration(
        inputs,
        torch.from_numpy(nodes),
        torch.from_numpy(edges),
        questions,
        torch.from_numpy(starts[:, first_op]),
        torch.from_numpy(np.stack(gains).astype(np.float32)),
    )


def move_gains(
    problem: Problem, tables: UnitTables, assignment: IntArray, seconds: float, allowed: BoolArray
) -> FloatArray:
    """`[U, D]` what each move of one unit from `assignment` `[N]` saves, as a fraction of its penalised `seconds`.

    Between -1 and 1; NaN where `allowed` `[U, D]` is false and where the unit is now.
    """
    devices = assignment[tables.unit_ops[tables.unit_offsets[:-1]]]
    moves = allowed & problem.action_mask & (np.arange(allowed.shape[1]) != devices[:, None])
    gains = np.full(moves.shape, np.nan)
    units, targets = np.nonzero(moves)
    for begin in range(0, len(units), _MOVES_AT_ONCE):
        some = slice(begin, begin + _MOVES_AT_ONCE)
        ops = problem.unit_of_op[None, :] == units[some, None]
        batch = problem.estimator.evaluate_moves(assignment, ops, targets[some])
        after = np.minimum(problem.penalised_batch_s(batch), 2.0 * seconds)
        gains[units[some], targets[some]] = 1.0 - after / seconds
    return gains


def imitation_update(
    network: PolicyNetwork,
    optimizer: torch.optim.Optimizer,
    demonstrations: Sequence[Demonstration],
    config: ImitationConfig,
    average: Callable[[Tensor], Tensor] | None = None,
) -> ImitationUpdate:
    """All epochs over a batch of demonstrations, each problem counting the same; gives what the last one saw.

    `average` is as in `ppo_update`.
    """
    rows = torch.zeros(4)
    for _ in range(config.update_epochs):
        optimizer.zero_grad()
        losses = [_losses(network, demonstration, config) for demonstration in demonstrations]
        rows = torch.stack(losses).mean(dim=0)
        (rows[0] + config.list_coef * rows[1]).backward()  # type: ignore[no-untyped-call]
        if average is not None:
            average_gradients(network, average)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return ImitationUpdate(*rows.detach().tolist())


def move_log_odds(network: PolicyNetwork, demonstration: Demonstration) -> Tensor:
    """`[B, U, D]` how much likelier each move is than to stay; 0 where the unit is now, minus infinity where it may not go."""
    embeddings = network.encode(demonstration.inputs, demonstration.nodes, demonstration.edges)
    logits = network.logits(demonstration.inputs, embeddings, demonstration.questions)
    logits = logits.view(demonstration.gains.shape)
    return logits - logits.gather(2, demonstration.devices[:, :, None])


def _losses(network: PolicyNetwork, demonstration: Demonstration, config: ImitationConfig) -> Tensor:
    """Move loss, list loss, share of moves that help, share of drawn moves that help `[4]`."""
    log_odds, gains = move_log_odds(network, demonstration), demonstration.gains
    is_move = torch.isfinite(gains) & torch.isfinite(log_odds)
    helps = is_move & (gains > config.least_gain)
    if not is_move.any():
        return torch.zeros(4) * log_odds[torch.isfinite(log_odds)].sum()
    move_loss = binary_cross_entropy_with_logits(log_odds[is_move], helps[is_move].float())
    can_help = helps.flatten(1).any(dim=1)
    list_loss, drawn = torch.zeros(()), torch.zeros(())
    if can_help.any():
        log_shares = torch.log_softmax(log_odds.masked_fill(~is_move, -torch.inf)[can_help].flatten(1), dim=1)
        chosen = helps[can_help].flatten(1)
        saved = torch.where(chosen, gains[can_help].flatten(1), 0.0)
        saved = saved / saved.sum(dim=1, keepdim=True)
        list_loss = -(saved * log_shares.masked_fill(~chosen, 0.0)).sum(dim=1).mean()
        drawn = (log_shares.exp() * chosen).sum(dim=1).mean()
    return torch.stack([move_loss, list_loss, helps.sum() / is_move.sum(), drawn])
