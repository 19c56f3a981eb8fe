"""One policy for many problems: PPO of its searches, synchronous and data-parallel, one process per core.

In an update every process learns from problems of its own. Gradients are averaged over the processes before each step, so all of them
always hold the same weights (as in DD-PPO, Wijmans et al. 2020, without its preemption of slow rollouts). Problems and random numbers
of an update follow from seed, update and rank alone: the same seed on the same number of processes leads to the same weights, even
if the run stops and resumes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnplace.policy.network import PolicyInputs, PolicyNetwork, policy_inputs
from gnnplace.random_numbers import log_uniform
from gnnplace.training.lessons import Lesson, LessonUpdate, lesson_update
from gnnplace.training.process_group import ProcessGroup, StartGroup, process_group
from gnnplace.training.run_state import RunState, read_state, write_state
from gnnplace.training.search_ppo import (
    SearchPpoConfig,
    SearchPpoUpdate,
    SearchRuns,
    TrainingProblem,
    search_ppo_update,
)

Row = Mapping[str, Any]
_NO_SEARCH = {
    **asdict(SearchPpoUpdate(0.0, 0.0, 0.0, 1.0, 0.0, 0.0)),
    "problem_s": 0.0,
    "search_s": 0.0,
    "learning_s": 0.0,
}
"""Numbers of an update without searches."""


@dataclass(frozen=True)
class DataParallelConfig:
    """Amount of searching and learning of a training run."""

    seed: int = 0
    num_processes: int = 1
    problems_per_process: int = 1
    """Problems per update in each process."""
    searches: int = 6
    """Searches per problem; advantages compare them with each other."""
    evaluations: tuple[int, int] = (150, 1000)
    """Least and most evaluations of a search; uniform in the logarithm."""
    lesson_steps: int = 8
    """Steps over lessons per update, each on problems of its own."""
    lesson_problems: int = 2
    """Problems per step in each process whose schedules the policy builds and revises."""
    imitation_share: float = 0.08
    """Share of the updates, at first, that only imitate."""
    ppo: SearchPpoConfig = SearchPpoConfig()
    save_every: int = 10
    """Updates between two checkpoints."""


@dataclass(frozen=True)
class TrainingTask:
    """The problems and the search of a training run; both functions can be pickled, to be sent to other processes."""

    problems: Callable[[int], TrainingProblem]
    """A problem by its number, the same in every process."""
    searches: Callable[[PolicyNetwork, PolicyInputs, TrainingProblem, int, list[int]], SearchRuns]
    """Searches of `evaluations` evaluations, one per seed: `(network, inputs, problem, evaluations, seeds)`."""
    lesson_problems: Callable[[int], TrainingProblem] | None = None
    """A problem for lessons by its number; None: there are no lessons."""
    lessons: (
        Callable[[PolicyNetwork, PolicyInputs, TrainingProblem, np.random.Generator, bool], list[Lesson]] | None
    ) = None
    """Lessons from one problem: `(network, inputs, problem, rng, imitates)`; needed with `lesson_problems`."""


@dataclass(frozen=True)
class RunControl:
    """Start of the processes and early end of a run."""

    should_stop: Callable[[], bool] = lambda: False
    """Called before each update; true ends the run."""
    start_group: StartGroup = process_group
    """Starts the processes."""


def train_data_parallel(
    path: Path,
    task: TrainingTask,
    config: DataParallelConfig,
    on_update: Callable[[Row], None],
    on_save: Callable[[RunState], None],
    control: RunControl = RunControl(),
) -> RunState:
    """Resumes from the checkpoint `path` until all updates are done or the run should stop; returns the last state.

    It writes the checkpoint every `save_every` updates and at the end, and calls `on_save` after each. `on_update` receives
    one row per update: means over all problems and processes, and a row for each problem.

    Raises:
        InvalidRun: there is no checkpoint to resume from.
        ProcessLost: another process has ended early; the file holds the last checkpoint.
    """
    state = read_state(path)

    def save() -> None:
        write_state(path, state)
        on_save(state)

    if control.should_stop():  # before other processes start for nothing
        save()
        return state
    is_first = True  # should_stop has just been called for it
    with control.start_group(config.num_processes, follow_updates, (path, task, config)) as group:
        saved_update = -1
        begin_s, before_s = time.perf_counter(), state.wall_s
        while state.update < config.ppo.num_updates and not group.any(not is_first and control.should_stop()):
            is_first = False
            row = _update(group, state, task, config)
            state.wall_s = before_s + time.perf_counter() - begin_s
            on_update({**row, "wall_s": state.wall_s})
            if state.update % config.save_every == 0:
                save()
                saved_update = state.update
        if state.update != saved_update:
            save()
    return state


def follow_updates(group: ProcessGroup, path: Path, task: TrainingTask, config: DataParallelConfig) -> RunState:
    """Makes the same updates in a process of rank 1 or more, without files; returns the last state, which equals that of rank 0."""
    state = read_state(path)
    while state.update < config.ppo.num_updates and not group.any(False):
        _update(group, state, task, config)
    return state


def _update(group: ProcessGroup, state: RunState, task: TrainingTask, config: DataParallelConfig) -> Row:
    """One update in this process; returns the row of all processes at rank 0, with means over them and the problems of all.

    It learns from lessons, then from searches; at first it only imitates.
    """
    rng = np.random.default_rng([config.seed, state.update, group.rank])
    has_lessons = task.lesson_problems is not None
    imitates = has_lessons and state.update < config.imitation_share * config.ppo.num_updates
    rate = config.ppo.learning_rate * (1.0 - 0.9 * state.update / config.ppo.num_updates)
    state.optimizer.param_groups[0]["lr"] = rate
    begin_s = time.perf_counter()
    taught = _teach(group, state, task, config, imitates, rng)
    lesson_s = time.perf_counter() - begin_s
    numbers, facts = _search(group, state, task, config, rng) if not imitates else (_NO_SEARCH, [])
    parts = group.gather(({**numbers, **asdict(taught), "lesson_s": lesson_s}, facts))
    means = {name: float(np.mean([of_rank[name] for of_rank, _ in parts])) for name in parts[0][0]} if parts else {}
    all_facts = [fact for _, rows in parts for fact in rows]
    row = {"update": state.update, "learning_rate": rate, **means, "problems": all_facts}
    state.update += 1
    return row


def _teach(
    group: ProcessGroup,
    state: RunState,
    task: TrainingTask,
    config: DataParallelConfig,
    imitates: bool,
    rng: np.random.Generator,
) -> LessonUpdate:
    """The steps over lessons of this update; gives the means of their statistics."""
    if task.lesson_problems is None:
        return LessonUpdate(0.0, 0.0)
    assert task.lessons is not None
    found = []
    for step in range(config.lesson_steps):
        first = ((state.update * config.lesson_steps + step) * group.size + group.rank) * config.lesson_problems
        lessons: list[Lesson] = []
        for number in range(first, first + config.lesson_problems):
            problem = task.lesson_problems(number)
            lessons += task.lessons(state.network, policy_inputs(problem.problem), problem, rng, imitates)
        found.append(lesson_update(state.network, state.optimizer, lessons, config.ppo.max_grad_norm, group.mean))
    losses, entropies = zip(*((each.lesson_loss, each.lesson_entropy) for each in found), strict=True)
    return LessonUpdate(float(np.mean(losses)), float(np.mean(entropies)))


def _search(
    group: ProcessGroup, state: RunState, task: TrainingTask, config: DataParallelConfig, rng: np.random.Generator
) -> tuple[dict[str, float], list[Row]]:
    """PPO of searches from this update's problems; gives numbers, and facts of each problem."""
    first = (state.update * group.size + group.rank) * config.problems_per_process
    times_s = [time.perf_counter()]
    problems = [task.problems(first + number) for number in range(config.problems_per_process)]
    times_s.append(time.perf_counter())
    batch = []
    for problem in problems:
        evaluations = round(log_uniform(rng, *config.evaluations))
        seeds = rng.integers(2**31, size=config.searches).tolist()
        batch.append(task.searches(state.network, policy_inputs(problem.problem), problem, evaluations, seeds))
    times_s.append(time.perf_counter())
    result = search_ppo_update(state.network, state.optimizer, batch, config.ppo, group.mean)
    times_s.append(time.perf_counter())
    seconds = dict(zip(("problem_s", "search_s", "learning_s"), np.diff(times_s).tolist(), strict=True))
    facts: list[Row] = [
        {
            "name": one.name, "units": one.problem.num_units, "devices": one.problem.topology.num_devices,
            "evaluations": runs.evaluations, "final_ratio": float(runs.best_s[:, -1].mean()) / one.start_s,
            "start_s": one.start_s, "best_s": float(runs.best_s.min()),
        }
        for one, runs in zip(problems, batch, strict=True)
    ]  # fmt: skip
    return {**asdict(result), **seconds}, facts
