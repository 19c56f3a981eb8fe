"""One policy for many problems, in one process and in two."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnplace.errors import ProcessLost
from gnnplace.planners.gnn.search import trace_searches
from gnnplace.planners.gnn.teaching import lessons_of
from gnnplace.policy.network import PolicyConfig, build_policy
from gnnplace.training.data_parallel import (
    DataParallelConfig,
    RunControl,
    TrainingTask,
    follow_updates,
    train_data_parallel,
)
from gnnplace.training.process_group import ProcessGroup, process_group
from gnnplace.training.run_state import InvalidRun, RunState, fresh_state, read_state, write_state
from gnnplace.training.search_ppo import SearchPpoConfig, TrainingProblem
from tests.problems import random_layers
from tests.training.conftest import on_first_device


def toys(number: int) -> TrainingProblem:
    return on_first_device(random_layers(number), f"toy {number}")


TASK = TrainingTask(toys, trace_searches, toys, lessons_of)
QUICK = DataParallelConfig(
    searches=3, evaluations=(20, 40), lesson_steps=2, lesson_problems=1, imitation_share=0.0,
    ppo=SearchPpoConfig(num_updates=3), save_every=2,
)  # fmt: skip


def begun(path: Path) -> Path:
    write_state(path, fresh_state(build_policy(0, PolicyConfig(hidden=16, rounds=1, decision_width=8)), "{}"))
    return path


def trained(path: Path, config: DataParallelConfig, stop_after: int = 10**6) -> tuple[RunState, list[Any]]:
    rows: list[Any] = []
    state = train_data_parallel(
        path, TASK, config, rows.append, lambda _: None, RunControl(lambda: len(rows) >= stop_after)
    )
    return state, rows


def weights(state: RunState) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in state.network.parameters()])


def test_a_run_that_was_stopped_and_continued_equals_one_that_was_not(tmp_path: Path) -> None:
    config = replace(QUICK, ppo=replace(QUICK.ppo, num_updates=5, learning_rate=1e-2))
    whole, rows = trained(begun(tmp_path / "whole"), config)
    begun(tmp_path / "parts")
    again: list[Any] = []
    for stop_after in (1, 3, 9):
        parts, more = trained(tmp_path / "parts", config, stop_after)
        again += more
    assert torch.equal(weights(whole), weights(parts))
    clocks = {"problem_s", "search_s", "learning_s", "lesson_s", "wall_s"}
    plain = lambda row: {key: value for key, value in row.items() if key not in clocks}  # noqa: E731
    assert [plain(row) for row in rows] == [plain(row) for row in again]
    assert read_state(tmp_path / "parts").update == 5
    assert parts.wall_s == pytest.approx(again[-1]["wall_s"])
    assert [row["learning_rate"] for row in rows] == pytest.approx([1e-2, 8.2e-3, 6.4e-3, 4.6e-3, 2.8e-3])


def test_a_row_describes_the_problems_and_the_gain_of_their_searches(tmp_path: Path) -> None:
    _, rows = trained(begun(tmp_path / "state"), replace(QUICK, problems_per_process=2))
    assert [fact["name"] for row in rows for fact in row["problems"]] == [f"toy {i}" for i in range(6)]
    first = rows[0]["problems"][0]
    assert (first["units"], first["devices"]) == (29, 3)
    for row in rows:
        assert row["first_ratio"] == pytest.approx(1.0, abs=1e-5)
        assert 0.0 < row["learned"] <= 1.0
        assert all(20 <= fact["evaluations"] <= 40 for fact in row["problems"])
        assert all(0.0 < fact["final_ratio"] < 1.0 for fact in row["problems"])
        assert row["gain"] > 0.0


def follow_and_write(group: ProcessGroup, path: Path, config: DataParallelConfig, folder: Path) -> None:
    """Learns in one process of a group and writes its last state."""
    write_state(folder / str(group.rank), follow_updates(group, path, TASK, config))


def test_two_processes_learn_from_different_problems_and_end_with_the_same_weights(tmp_path: Path) -> None:
    config = replace(QUICK, num_processes=2)
    path = begun(tmp_path / "state")
    with process_group(2, follow_and_write, (path, config, tmp_path)) as group:
        follow_and_write(group, path, config, tmp_path)
    first, second = read_state(tmp_path / "0"), read_state(tmp_path / "1")
    assert torch.equal(weights(first), weights(second))
    alone, rows = trained(begun(tmp_path / "alone"), QUICK)
    assert not torch.equal(weights(first), weights(alone))
    assert [fact["name"] for fact in rows[1]["problems"]] == ["toy 1"]


def fail(group: ProcessGroup) -> None:
    """A process that ends at once."""
    raise ValueError(f"rank {group.rank} does not want to")


def test_a_process_that_ends_early_ends_the_run_with_a_clear_line() -> None:
    with pytest.raises(ProcessLost, match="continue with --resume"), process_group(2, fail, ()) as group:
        group.mean(torch.zeros(3))


class EndsWhenRead:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_a_process_that_cannot_start_ends_the_training_at_once() -> None:
    with pytest.raises(ProcessLost, match="could not start"), process_group(2, fail, (EndsWhenRead(),)):
        pass


def test_a_file_that_is_no_state_is_refused(tmp_path: Path) -> None:
    whole = begun(tmp_path / "whole").read_bytes()
    (tmp_path / "text").write_text("not a state")
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    torch.save({"format": "something else"}, tmp_path / "other")
    for name, message in (
        ("absent", "cannot be read"), ("text", "is no state of a training run"),
        ("cut", "of a training run"), ("other", "'something else'"),
    ):  # fmt: skip
        with pytest.raises(InvalidRun, match=message):
            read_state(tmp_path / name)
