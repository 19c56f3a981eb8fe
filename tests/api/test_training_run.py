"""A training run as a whole: started, killed, resumed."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from gnnplace.api.train_settings import TrainSettings
from gnnplace.api.training_problems import ProblemRanges
from gnnplace.api.training_run import RunFiles, stored_settings, train
from gnnplace.devices.sampled import DeviceRanges
from gnnplace.errors import GnnplaceError
from gnnplace.files import read_json_lines
from gnnplace.policy import SHIPPED_POLICY
from gnnplace.policy.checkpoint import InvalidPolicy, load_policy
from gnnplace.policy.network import PolicyConfig
from gnnplace.training import Ablation
from gnnplace.training.data_parallel import DataParallelConfig
from gnnplace.training.run_state import InvalidRun, read_state
from gnnplace.training.search_ppo import SearchPpoConfig
from tests.patience import until

UPDATES = 12
TINY = TrainSettings(
    training=DataParallelConfig(
        seed=7, num_processes=2, searches=2, evaluations=(10, 20), save_every=3, lesson_steps=2, lesson_problems=1,
        ppo=SearchPpoConfig(num_updates=UPDATES, update_epochs=1),
    ),
    problems=ProblemRanges(
        min_units=10, max_units=16, growth=8, zoo_share=0.0, headroom_evaluations=(5, 50), max_draws=3,
        devices=DeviceRanges(binding_share=0.0),  # starts take many times as long to find in tight memory
    ),
    lessons=ProblemRanges(min_units=10, max_units=16, growth=8, zoo_share=0.0, constructions=0, least_headroom=0.0),
    policy=PolicyConfig(hidden=8, rounds=1, type_width=2, decision_width=8),
)  # fmt: skip
_BEGIN = """
import pickle, sys, gnnplace
if __name__ == "__main__":
    with open(sys.argv[2], "rb") as settings:
        gnnplace.train(sys.argv[1], pickle.load(settings))
"""
CLOCKS = {"problem_s", "search_s", "learning_s", "lesson_s", "wall_s"}


def weights(out: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in read_state(RunFiles(out).state).network.state_dict().values()])


def test_a_run_that_is_killed_and_resumed_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed.safetensors"
    rows: list[Mapping[str, Any]] = []
    card = train(whole, TINY, on_update=rows.append)
    assert {row["of_updates"] for row in rows} == {UPDATES}

    (tmp_path / "begin.py").write_text(_BEGIN)
    (tmp_path / "settings").write_bytes(pickle.dumps(TINY))
    begin = [sys.executable, str(tmp_path / "begin.py"), str(killed), str(tmp_path / "settings")]
    running = subprocess.Popen(begin, start_new_session=True)
    try:
        while len(read_json_lines(RunFiles(killed).metrics, GnnplaceError)) < 5 and running.poll() is None:
            time.sleep(0.005)
    finally:
        running.send_signal(signal.SIGKILL)  # the one process: the other has to notice
        running.wait()
    assert 3 <= read_state(RunFiles(killed).state).update < UPDATES
    until(lambda: _ended(running.pid))
    train(killed, resume=True)

    assert torch.equal(weights(whole), weights(killed))
    one, other = (read_json_lines(RunFiles(out).metrics, GnnplaceError) for out in (whole, killed))
    assert [row["update"] for row in other] == list(range(UPDATES))
    plain = [[{key: row[key] for key in row.keys() - CLOCKS} for row in rows] for rows in (one, other)]
    assert plain[0] == plain[1]

    network, stored = load_policy(killed)
    assert stored["updates"] == card["updates"] == UPDATES
    assert stored["command"].startswith("gnnplace train --out killed.safetensors --updates 12 --processes 2 --seed 7")
    assert set(stored["versions"]) >= {"gnnplace", "torch"}
    assert "nasnet" not in stored["data"]["families"]
    assert network.config == TINY.policy
    assert RunFiles(killed).folder == tmp_path / "killed.training"


def _ended(group: int) -> bool:
    """Whether all processes of a group are gone."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_run_may_start_from_a_policy_of_any_size(tmp_path: Path) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second"
    alone = replace(TINY.training, num_processes=1, ppo=replace(TINY.training.ppo, num_updates=1))
    settings = replace(TINY, training=alone, problems=replace(TINY.problems, headroom_evaluations=(6, 60)))
    train(first, settings)
    assert stored_settings(first) == settings
    card = train(second, policy=first, processes=1, should_stop=lambda: True)
    assert stored_settings(second).policy == TINY.policy
    assert card["start"]["name"] == "first.safetensors"
    assert torch.equal(weights(first), weights(second))


def test_a_run_may_start_from_the_shipped_policy_by_its_name(tmp_path: Path) -> None:
    card = train(tmp_path, policy="shipped", processes=1, should_stop=lambda: True)
    assert card["start"]["name"] == SHIPPED_POLICY.name
    shipped = load_policy(SHIPPED_POLICY)[0].state_dict()
    assert torch.equal(weights(tmp_path), torch.cat([tensor.flatten() for tensor in shipped.values()]))
    with pytest.raises(InvalidPolicy, match="'prior' has no weights; choose 'shipped', or the file of a trained one"):
        train(tmp_path / "new", policy="prior")


def test_a_run_is_neither_overwritten_nor_resumed_with_other_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidRun, match="cannot be read"):
        train(tmp_path, resume=True)
    train(tmp_path, TINY, should_stop=lambda: True)
    with pytest.raises(InvalidRun, match="holds another run with 0 updates; resume that one"):
        train(tmp_path, replace(TINY, training=replace(TINY.training, seed=8)))
    with pytest.raises(GnnplaceError, match="updates is 5, but the run began with 12; leave updates out"):
        train(tmp_path, resume=True, updates=5)
    with pytest.raises(GnnplaceError, match="processes is 0; expected a whole number from 1 on"):
        train(tmp_path / "new", processes=0)
    for option, value in (
        ("seed", -1),
        ("seed", "x"),
        ("updates", "a"),
        ("minutes", -1),
        ("minutes", "x"),
        ("processes", 10**6),
    ):
        with pytest.raises(GnnplaceError, match=f"{option} is {value!r}; expected a"):
            train(tmp_path / "new", **{option: value})
    assert not (tmp_path / "new").exists()
    with pytest.raises(GnnplaceError, match="settings determine updates, processes, seed and ablation"):
        train(tmp_path / "new", TINY, updates=5)
    state = read_state(RunFiles(tmp_path).state)
    changed = json.loads(state.settings)
    changed["training"]["seed"] = "many"
    document = torch.load(RunFiles(tmp_path).state, weights_only=True)
    torch.save({**document, "settings": json.dumps(changed)}, RunFiles(tmp_path).state)
    with pytest.raises(InvalidRun, match="its settings are not those of this version"):
        stored_settings(tmp_path)
    for key, value in (("update", -5), ("update", "a"), ("update", 1.5), ("wall_s", None)):
        torch.save({**document, key: value}, RunFiles(tmp_path).state)
        with pytest.raises(InvalidRun, match=r"is damaged .*; start another run"):
            train(tmp_path, resume=True)


def test_a_run_from_a_trained_policy_takes_smaller_steps_over_problems_of_full_size() -> None:
    fresh, further = TrainSettings.of(200, 2, 0), TrainSettings.of(200, 2, 0, is_trained=True)
    assert further.training.ppo.learning_rate < fresh.training.ppo.learning_rate
    assert further.training.lesson_problems > fresh.training.lesson_problems
    assert further.problems.growth == further.lessons.growth == 1
    assert min(fresh.problems.growth, fresh.lessons.growth) >= 100


@pytest.mark.parametrize("ablation", get_args(Ablation))
def test_an_ablation_leaves_out_one_part_and_its_card_names_it(tmp_path: Path, ablation: Ablation) -> None:
    whole, without = TrainSettings.of(10, 1, 0), TrainSettings.of(10, 1, 0, [ablation])
    assert (whole.ablations, without.ablations) == ((), (ablation,))
    changed = replace(without, policy=whole.policy, training=replace(without.training, ppo=whole.training.ppo))
    assert changed == whole
    card = train(tmp_path / "run", without, minutes=0.0)
    assert card["command"].endswith(f" --seed 0 --ablation {ablation}")


def test_a_run_may_leave_out_several_parts(tmp_path: Path) -> None:
    parts: list[Ablation] = ["no-schedule-features", "no-message-passing"]
    card = train(tmp_path, updates=10, processes=1, ablation=parts, minutes=0.0)
    assert card["command"].endswith(" --ablation no-message-passing --ablation no-schedule-features")
    assert stored_settings(tmp_path) == TrainSettings.of(10, 1, 0, parts)
    train(tmp_path, ablation=parts, resume=True, minutes=0.0)
    with pytest.raises(GnnplaceError, match="but the run began with no-message-passing, no-schedule-features"):
        train(tmp_path, ablation="no-message-passing", resume=True)
    with pytest.raises(GnnplaceError, match="ablation is 'all'; expected no-device-features, no-message-passing"):
        train(tmp_path / "new", ablation="all")
