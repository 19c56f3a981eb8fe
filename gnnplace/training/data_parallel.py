"""One policy for many problems: imitation and then PPO, synchronous and data-parallel, one process per core.

In an update every process learns from problems of its own; gradients are averaged over the processes before each
step, so all of them hold the same weights at any time (as in DD-PPO, Wijmans et al. 2020, without its early end of slow
rollouts). An update's problems and chance follow from seed, update and rank alone: the same seed on the same number
of processes gives the same weights, however often the run was stopped and continued.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnplace.arrays import IntArray
from gnnplace.env.batch import EnvConfig, PlacementBatch
from gnnplace.policy.network import PolicyNetwork, policy_inputs
from gnnplace.training.imitation import ImitationConfig, demonstrate, imitation_update
from gnnplace.training.ppo import PpoConfig, ppo_update, set_learning_rate
from gnnplace.training.problems import ProblemSource, TrainingProblem
from gnnplace.training.process_group import ProcessGroup, process_group
from gnnplace.training.rollout import Rollout, roll_out
from gnnplace.training.run_state import RunState, read_state, write_state

__all__ = ["DataParallelConfig", "train_data_parallel"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class DataParallelConfig:
    """How one policy is trained on many problems."""

    seed: int = 0
    num_processes: int = 1
    problems_per_process: int = 2
    """Per update; gradients of one problem alone are noisy."""
    visited_units: int = 128
    """An episode revisits that many units of a larger problem, drawn anew for each."""
    env: EnvConfig = EnvConfig(undo_losses=True)
    """As the planner that uses the policy: bad moves teach, and are taken back."""
    lookahead_share: float = 0.25
    """Of the problems, those whose moves' effects are known before one is chosen: the policy is to act with and without."""
    imitation: ImitationConfig = ImitationConfig(num_updates=2000)
    """The first updates, which teach the policy what single moves do."""
    ppo: PpoConfig = PpoConfig(num_updates=2000, learning_rate=3e-4, anneal_lr=True)
    """The updates after those; about CleanRL's learning rate, falling to 0 over them."""
    save_every: int = 10
    """Updates between two saved states."""

    @property
    def num_updates(self) -> int:
        """Of both kinds."""
        return self.imitation.num_updates + self.ppo.num_updates


def train_data_parallel(
    path: Path,
    source: ProblemSource,
    config: DataParallelConfig,
    on_update: Callable[[Row], None],
    on_save: Callable[[RunState], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> RunState:
    """Goes on from the state in file `path` until all updates are done or `should_stop`, asked before each; gives the last state.

    The file is written anew every `save_every` updates and at the end, each time followed by `on_save`. `on_update` gets
    one row per update: means over all problems and processes, and what each problem was.

    Raises:
        InvalidRun: there is no state to go on from.
        ProcessLost: another process has ended early; the file holds the last saved state.
    """
    with process_group(config.num_processes, _follow, (path, source, config)) as group:
        state = read_state(path)
        saved_update = -1
        begin_s, before_s = time.perf_counter(), state.wall_s
        while state.update < config.num_updates and not group.any(should_stop()):
            row = _update(group, state, source, config)
            state.wall_s = before_s + time.perf_counter() - begin_s
            on_update({**row, "wall_s": state.wall_s})
            if state.update % config.save_every == 0:
                write_state(path, state)
                on_save(state)
                saved_update = state.update
        if state.update != saved_update:
            write_state(path, state)
            on_save(state)
    return state


def _follow(group: ProcessGroup, path: Path, source: ProblemSource, config: DataParallelConfig) -> RunState:
    """What the processes of rank 1 and more do: the same updates, and no files. Gives the last state, which is that of rank 0."""
    state = read_state(path)
    while state.update < config.num_updates and not group.any(False):
        _update(group, state, source, config)
    return state


def _update(group: ProcessGroup, state: RunState, source: ProblemSource, config: DataParallelConfig) -> Row:
    """One update in this process; gives the row of all of them at rank 0."""
    rng = np.random.default_rng([config.seed, state.update, group.rank])
    first = (state.update * group.size + group.rank) * config.problems_per_process
    clock = _Clock()
    exercises = [source(first + number) for number in range(config.problems_per_process)]
    problem_s = clock.lap()
    if state.update < config.imitation.num_updates:
        numbers, facts = _imitate(group, state, exercises, config, rng)
    else:
        numbers, facts = _reinforce(group, state, exercises, config, rng)
    parts = group.gather(({**numbers, "problem_s": problem_s, "learning_s": clock.lap()}, facts))
    phase = "imitation" if state.update < config.imitation.num_updates else "ppo"
    rate = state.optimizer.param_groups[0]["lr"]
    row = {"update": state.update, "phase": phase, "learning_rate": rate, **_merged(parts)}
    state.update += 1
    return row


def _imitate(
    group: ProcessGroup,
    state: RunState,
    exercises: Sequence[TrainingProblem],
    config: DataParallelConfig,
    rng: np.random.Generator,
) -> tuple[dict[str, float], list[Row]]:
    """An update by imitation; gives its numbers and what the problems were."""
    fraction_done = state.update / config.imitation.num_updates
    state.optimizer.param_groups[0]["lr"] = config.imitation.learning_rate * (1.0 - 0.9 * fraction_done)
    demonstrations = [demonstrate(exercise, config.imitation, rng) for exercise in exercises]
    result = imitation_update(state.network, state.optimizer, demonstrations, config.imitation, group.mean)
    return dataclasses.asdict(result), [_facts(exercise) for exercise in exercises]


def _reinforce(
    group: ProcessGroup,
    state: RunState,
    exercises: Sequence[TrainingProblem],
    config: DataParallelConfig,
    rng: np.random.Generator,
) -> tuple[dict[str, float], list[Row]]:
    """An update by PPO."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    set_learning_rate(state.optimizer, config.ppo, state.update - config.imitation.num_updates)
    pairs = [_episodes(state.network, exercise, config, rng, generator) for exercise in exercises]
    rollouts = [rollout for rollout, _ in pairs]
    result = ppo_update(state.network, state.optimizer, rollouts, config.ppo, generator, group.mean)
    names = ("policy_loss", "value_loss", "entropy", "approx_kl", "first_ratio")
    return {name: getattr(result, name) for name in names}, [facts for _, facts in pairs]


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self._last_s = time.perf_counter()

    def lap(self) -> float:
        before_s, self._last_s = self._last_s, time.perf_counter()
        return self._last_s - before_s


def _episodes(
    network: PolicyNetwork,
    exercise: TrainingProblem,
    config: DataParallelConfig,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> tuple[Rollout, Row]:
    """A rollout of one problem, and what it was."""
    problem = exercise.problem
    inputs = policy_inputs(problem)
    lookahead = config.env.lookahead or bool(rng.random() < config.lookahead_share)
    env = replace(config.env, lookahead=lookahead)
    batch = PlacementBatch(problem, env, tables=inputs.tables, reference=exercise.reference_s)
    batch.reset(exercise.starts, exercise.start_s, _visited(exercise, config, rng))
    rollout = roll_out(batch, inputs, network, generator)
    # The median, since one start that does not fit would count for more than all others.
    return rollout, {
        **_facts(exercise),
        "lookahead": lookahead,
        "start_ratio": float(np.median(rollout.start_s)) / exercise.reference_s,
        "final_ratio": float(np.median(batch.seconds)) / exercise.reference_s,
        "best_ratio": float(rollout.best_s.min()) / exercise.reference_s,
    }


def _facts(exercise: TrainingProblem) -> Row:
    """What a problem was."""
    problem = exercise.problem
    return {"name": exercise.name, "units": problem.num_units, "devices": problem.topology.num_devices}


def _visited(exercise: TrainingProblem, config: DataParallelConfig, rng: np.random.Generator) -> IntArray:
    """The units of an episode, in topological order."""
    movable = np.flatnonzero(exercise.problem.action_mask.sum(axis=1) > 1)
    units = movable if len(movable) else np.arange(exercise.problem.num_units)
    return np.sort(rng.choice(units, size=min(config.visited_units, len(units)), replace=False))


def _merged(parts: list[tuple[dict[str, float], list[Row]]]) -> Row:
    """Means over processes and over problems, and the problems themselves."""
    problems = [facts for _, rows in parts for facts in rows]
    means = {name: float(np.mean([numbers[name] for numbers, _ in parts])) for name in (parts[0][0] if parts else ())}
    ratios = {
        name: float(np.mean([facts[name] for facts in problems]))
        for name in ("start_ratio", "final_ratio", "best_ratio")
        if problems and name in problems[0]
    }
    return {**ratios, **means, "problems": problems}
