"""One policy for many problems: PPO of its searches, synchronous and data-parallel, one process per core.

In an update every process learns from problems of its own; gradients are averaged over the processes before each
step, so all of them hold the same weights at any time (as in DD-PPO, Wijmans et al. 2020, without its early end of slow
rollouts). An update's problems and chance follow from seed, update and rank alone: the same seed on the same number
of processes gives the same weights, however often the run was stopped and continued.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.policy.network import PolicyNetwork, policy_inputs
from gnnplace.training.problems import Searches, TrainingProblem, TrainingTask
from gnnplace.training.process_group import GroupOf, ProcessGroup, process_group
from gnnplace.training.run_state import RunState, read_state, write_state
from gnnplace.training.search_ppo import SearchPpoConfig, SearchRuns, search_ppo_update

__all__ = ["DataParallelConfig", "RunControl", "train_data_parallel"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class DataParallelConfig:
    """How one policy is trained on many problems."""

    seed: int = 0
    num_processes: int = 1
    problems_per_process: int = 1
    """Per update."""
    searches: int = 6
    """Of each problem, which are compared with each other."""
    evaluations: tuple[int, int] = (150, 1000)
    """Of each search, uniform in the logarithm."""
    ppo: SearchPpoConfig = SearchPpoConfig()
    save_every: int = 10
    """Updates between two saved states."""


@dataclass(frozen=True)
class RunControl:
    """How a run begins and when it ends before its time."""

    should_stop: Callable[[], bool] = lambda: False
    """Asked before each update."""
    group_of: GroupOf = process_group
    """What starts the processes."""


def train_data_parallel(
    path: Path,
    task: TrainingTask,
    config: DataParallelConfig,
    on_update: Callable[[Row], None],
    on_save: Callable[[RunState], None],
    control: RunControl = RunControl(),
) -> RunState:
    """Goes on from the state in file `path` until all updates are done or it should stop; gives the last state.

    The file is written anew every `save_every` updates and at the end, each time followed by `on_save`. `on_update` gets
    one row per update: means over all problems and processes, and what each problem was.

    Raises:
        InvalidRun: there is no state to go on from.
        ProcessLost: another process has ended early; the file holds the last saved state.
    """
    with control.group_of(config.num_processes, _follow, (path, task, config)) as group:
        state = read_state(path)
        saved_update = -1
        begin_s, before_s = time.perf_counter(), state.wall_s
        while state.update < config.ppo.num_updates and not group.any(control.should_stop()):
            row = _update(group, state, task, config)
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


def _follow(group: ProcessGroup, path: Path, task: TrainingTask, config: DataParallelConfig) -> RunState:
    """What the processes of rank 1 and more do: the same updates, and no files. Gives the last state, which is that of rank 0."""
    state = read_state(path)
    while state.update < config.ppo.num_updates and not group.any(False):
        _update(group, state, task, config)
    return state


def _update(group: ProcessGroup, state: RunState, task: TrainingTask, config: DataParallelConfig) -> Row:
    """One update in this process; gives the row of all of them at rank 0."""
    rng = np.random.default_rng([config.seed, state.update, group.rank])
    first = (state.update * group.size + group.rank) * config.problems_per_process
    rate = config.ppo.learning_rate * (1.0 - 0.9 * state.update / config.ppo.num_updates)
    state.optimizer.param_groups[0]["lr"] = rate
    clock = _Clock()
    exercises = [task.problems(first + number) for number in range(config.problems_per_process)]
    problem_s = clock.lap()
    batch = [_searched(state.network, exercise, task.searches, config, rng) for exercise in exercises]
    search_s = clock.lap()
    result = search_ppo_update(state.network, state.optimizer, batch, config.ppo, group.mean)
    numbers = {
        **dataclasses.asdict(result), "problem_s": problem_s, "search_s": search_s, "learning_s": clock.lap(),
    }  # fmt: skip
    facts = [_facts(exercise, runs) for exercise, runs in zip(exercises, batch, strict=True)]
    parts = group.gather((numbers, facts))
    row = {"update": state.update, "learning_rate": rate, **_merged(parts)}
    state.update += 1
    return row


def _searched(
    network: PolicyNetwork,
    exercise: TrainingProblem,
    searches: Searches,
    config: DataParallelConfig,
    rng: np.random.Generator,
) -> SearchRuns:
    """The searches of one problem."""
    evaluations = round(float(np.exp(rng.uniform(*np.log(config.evaluations)))))
    seeds = rng.integers(2**31, size=config.searches).tolist()
    return searches(network, policy_inputs(exercise.problem), exercise, evaluations, seeds)


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self._last_s = time.perf_counter()

    def lap(self) -> float:
        before_s, self._last_s = self._last_s, time.perf_counter()
        return self._last_s - before_s


def _facts(exercise: TrainingProblem, runs: SearchRuns) -> Row:
    """What a problem was, and how far its searches came."""
    problem = exercise.problem
    return {
        "name": exercise.name, "units": problem.num_units, "devices": problem.topology.num_devices,
        "evaluations": runs.evaluations, "final_ratio": float(runs.best_s[:, -1].mean()) / exercise.start_s,
    }  # fmt: skip


def _merged(parts: list[tuple[dict[str, float], list[Row]]]) -> Row:
    """Means over processes, and the problems of all of them."""
    problems = [facts for _, rows in parts for facts in rows]
    means = {name: float(np.mean([numbers[name] for numbers, _ in parts])) for name in (parts[0][0] if parts else ())}
    return {**means, "problems": problems}
