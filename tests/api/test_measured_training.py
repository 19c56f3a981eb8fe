"""Training on one model by execution: what it learns, and how it resumes."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnplace.api import training_run
from gnnplace.api.measured_training import EXECUTING, ExecutedProblem, MeasuredModel
from gnnplace.api.train_settings import TrainSettings
from gnnplace.api.training_run import RunFiles, train
from gnnplace.arrays import IntArray
from gnnplace.difference import Difference
from gnnplace.errors import GnnplaceError, MeasurementFailed
from gnnplace.evaluation import Evaluation
from gnnplace.files import read_json, read_json_lines, write_text
from gnnplace.measuring import busy
from gnnplace.measuring.paired import PairRule
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.placement import Placement
from gnnplace.policy.network import PolicyConfig
from gnnplace.report import devices_of_letters
from gnnplace.training.run_state import InvalidRun, read_state
from gnnplace.training.search_ppo import SearchPpoConfig
from tests.planners.test_gnn_measured import Distorted
from tests.problems import random_layers
from tests.quick_measuring import measure_quickly

SMALL = PolicyConfig(hidden=8, rounds=1, type_width=2)
CLOCKS = {"problem_s", "search_s", "learning_s", "lesson_s", "wall_s"}


class Remembering(Distorted):
    """Executes an unknown placement and remembers its seconds, as a measured evaluator does."""

    def evaluate(self, placement: Placement) -> Evaluation:
        key = placement.assignment.tobytes()
        if key not in self.known:
            self.known[key] = super().evaluate(placement)
        return self.known[key]

    def forget(self) -> None:
        self.known.clear()
        self.forgotten.append(len(self.executed))

    def fastest(self, count: int) -> list[Placement]:
        keys = sorted(self.known, key=lambda key: self.known[key].makespan_s)[:count]
        return [Placement(np.frombuffer(key, dtype=np.int64)) for key in keys]

    def difference(self, first: Placement, second: Placement, rule: PairRule | None = None) -> Difference:
        """Does not count as an execution, so that tests can tell what searches executed."""
        executed = [*self.executed]
        found = super().difference(first, second)
        self.executed[:] = executed
        return found

    @property
    def measurements(self) -> int:
        return len(self.executed)


def save(path: Path, assignment: IntArray) -> None:
    write_text(path, json.dumps(assignment.tolist()))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Remembering]:
    """The evaluators of all runs of the test, each over the same problem."""
    evaluators: list[Remembering] = []

    @contextmanager
    def executed(*_: object) -> Iterator[ExecutedProblem]:
        problem = random_layers(2, num_ops=30)
        evaluator = Remembering(problem)
        evaluator.known, evaluator.forgotten = {}, []
        evaluators.append(evaluator)
        yield ExecutedProblem("layers", "0" * 64, replace(problem, evaluator=evaluator), evaluator, save)  # type: ignore[arg-type]

    monkeypatch.setattr(training_run, "executed_problem", executed)
    return evaluators


def settings(updates: int, rate: float = 2e-3) -> TrainSettings:
    ppo = SearchPpoConfig(num_updates=updates, learning_rate=rate)
    return TrainSettings(
        replace(EXECUTING, ppo=ppo), policy=SMALL, measured=MeasuredModel("layers.onnx", "cpu:0,cpu:1")
    )


def weights(out: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in read_state(RunFiles(out).state).network.state_dict().values()])


def test_searches_gain_more_from_the_same_executions_after_training(opened: list[Remembering], tmp_path: Path) -> None:
    rows: list[training_run.Row] = []
    train(tmp_path, settings(60, rate=1e-2), on_update=rows.append)
    gains = [row["gain"] for row in rows]
    assert np.mean(gains[-15:]) > 1.2 * np.mean(gains[:15])


def test_a_stopped_run_resumes_to_the_same_weights_and_metrics(opened: list[Remembering], tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(whole, settings(6))
    left = iter([False, False, True])
    assert train(stopped, settings(6), should_stop=lambda: next(left))["updates"] == 2
    card = train(stopped, resume=True)
    assert torch.equal(weights(whole), weights(stopped))
    assert card["command"] == (
        "gnnplace train --out policy.safetensors --updates 6 --measure layers.onnx --devices cpu:0,cpu:1 --seed 0"
    )
    one, other = (read_json_lines(RunFiles(out).metrics, GnnplaceError) for out in (whole, stopped))
    plain = [[{key: row[key] for key in row.keys() - CLOCKS} for row in rows] for rows in (one, other)]
    assert plain[0] == plain[1]
    assert [row["executions"] for row in one] == [*opened[0].forgotten[1:], len(opened[0].executed)]
    assert one[-1]["best_s"] == pytest.approx(min(row["problems"][0]["best_s"] for row in one))
    assert one[-1]["best_s"] < one[0]["start_s"]
    with pytest.raises(GnnplaceError, match="devices is cpu:0,cpu:2, but the run began with cpu:0,cpu:1"):
        train(stopped, resume=True, measure="layers.onnx", devices="cpu:0,cpu:2")


def test_every_update_executes_its_start_anew_and_no_placement_twice(opened: list[Remembering], tmp_path: Path) -> None:
    train(tmp_path, settings(3))
    (evaluator,) = opened
    updates = np.split(np.arange(len(evaluator.executed)), evaluator.forgotten)[1:]
    assert len(updates) == 3
    assert len({evaluator.executed[update[0]] for update in updates}) == 1
    for update in updates:
        placements = [evaluator.executed[number] for number in update]
        assert len(set(placements)) == len(placements) <= 1 + 4 * 12


def test_the_fastest_placement_is_kept_by_paired_measurements_and_compared_with_the_start(
    opened: list[Remembering], tmp_path: Path
) -> None:
    card = train(tmp_path, settings(4))
    (evaluator,) = opened
    kept, start = (
        read_json(tmp_path / "placement.json", GnnplaceError),
        read_json(tmp_path / "start.json", GnnplaceError),
    )
    fastest, first = (Placement(np.array(row)) for row in (kept, devices_of_letters(start["start"])))
    seconds, start_s = evaluator.evaluate(fastest).makespan_s, evaluator.evaluate(first).makespan_s
    assert seconds <= min(
        evaluator.evaluate(Placement(np.frombuffer(key, np.int64))).makespan_s for key in evaluator.executed
    )
    assert card["executed"]["difference"] == pytest.approx(seconds / start_s - 1) == pytest.approx(start["ratio"] - 1)
    assert card["executed"]["difference_interval"][1] < 0
    challengers, incumbents = zip(*evaluator.pairs, strict=True)
    assert incumbents[0] == incumbents[-1] == first.assignment.tobytes()
    assert challengers[-1] == fastest.assignment.tobytes()


def test_a_challenger_that_is_no_faster_beyond_the_interval_does_not_replace_the_start(
    opened: list[Remembering], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembering, "difference", lambda *_: Difference(-0.2, -0.5, 0.1, 20))
    card = train(tmp_path, settings(2))
    start = read_json(tmp_path / "start.json", GnnplaceError)
    assert (start["fastest"], start["ratio"]) == (start["start"], 1.0)
    assert card["executed"] == {"difference": 0.0, "difference_interval": [0.0, 0.0], "pairs": 0}


def test_a_run_is_not_resumed_with_another_model(opened: list[Remembering], tmp_path: Path) -> None:
    train(tmp_path, settings(2), should_stop=lambda: True)
    start = tmp_path / "start.json"
    assert len(read_json(start, GnnplaceError)["start"]) == 30
    start.write_text(start.read_text().replace("0" * 64, "1" * 64))
    with pytest.raises(InvalidRun, match="the run began with another model"):
        train(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda kept: kept.clear(), "'ratio' is None"),
        (lambda kept: kept.update(fastest=["a"]), "'fastest' is"),
        (lambda kept: kept.update(fastest="z" * 30), "'fastest' names devices that the run does not have; start anew"),
    ],
)
def test_a_damaged_start_is_refused(
    change: Callable[[dict[str, Any]], None], expected: str, opened: list[Remembering], tmp_path: Path
) -> None:
    train(tmp_path, settings(2), should_stop=lambda: True)
    kept = read_json(tmp_path / "start.json", GnnplaceError)
    change(kept)
    (tmp_path / "start.json").write_text(json.dumps(kept))
    with pytest.raises(InvalidRun, match=f"start.json: {expected}"):
        train(tmp_path, resume=True)


def test_measure_and_devices_belong_together_in_one_process(tmp_path: Path) -> None:
    with pytest.raises(GnnplaceError, match="measure and devices belong together"):
        train(tmp_path, measure="model.onnx")
    with pytest.raises(GnnplaceError, match="leave processes and ray out"):
        train(tmp_path, measure="model.onnx", devices="cpu:0", processes=2)


def test_a_busy_machine_is_refused_without_force(
    small_model: Callable[[str], OnnxModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    measure_quickly(StoppingRule(warmup=1, min_repeats=2, max_repeats=2), monkeypatch.setattr)
    monkeypatch.setattr(busy, "busy_shares", lambda devices: dict.fromkeys(devices, 0.9))
    model, devices, warnings = str(small_model("opset_9").path), f"cpu:{cores[0]},cpu:{cores[1]}", list[str]()
    out = tmp_path / "run"
    with pytest.raises(MeasurementFailed, match="add --force"):
        train(out, measure=model, devices=devices, updates=1)
    assert not out.exists()
    card = train(out, measure=model, devices=devices, updates=1, force=True, on_warning=warnings.append)
    assert (card["updates"], card["start"]) == (1, None)
    assert "other work runs on" in warnings[0]
    (row,) = read_json_lines(RunFiles(out).metrics, GnnplaceError)
    assert 1 <= row["executions"] <= 49
    assert 0.0 < row["best_s"] <= row["start_s"]
