"""Models on sets of cores of every size, plain and placed."""

from collections.abc import Callable

import pytest

from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload
from gnnplace.bench import core_sets
from gnnplace.bench.harness import BenchOptions
from gnnplace.cost.cost_model import RooflineCost
from gnnplace.devices.spec import load_topology
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.model import OnnxModel


def test_sets_are_powers_of_two_and_all_cores() -> None:
    assert core_sets.core_sets([4]) == {1: ["cpu:4"]}
    assert core_sets.core_sets([0, 1, 2]) == {
        1: ["cpu:0", "cpu:1", "cpu:2"], 2: ["cpu:0-1[spinning=1]"], 3: ["cpu:0-2[spinning=1]"]
    }  # fmt: skip


@pytest.mark.usefixtures("needs_two_cores")
def test_every_set_and_planner_is_compared_with_the_fastest_plain_session(
    small_model: Callable[[str], OnnxModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = small_model("opset_9"), []

    def setup(name: str, devices: str) -> ProblemSetup:
        asked.append(devices)
        return ProblemSetup.build(Workload.of(model), load_topology(devices), RooflineCost())

    monkeypatch.setattr(core_sets, "real_setup", setup)
    monkeypatch.setattr(core_sets, "_RULE", StoppingRule(warmup=1, min_repeats=3, max_repeats=3))
    monkeypatch.setattr(core_sets, "PLANNERS", ("heft", "single"))
    rows = core_sets.core_sets_result(core_sets.CoreSetsCase("some", (0, 1), 0))["rows"]
    assert asked == ["cpu:0,cpu:1,cpu:0-1[spinning=1]"]
    assert [row["way"] for row in rows] == ["1 core", "2 cores", "heft", "single"]
    assert 1.0 in [row["ratio_to_best_set"] for row in rows[:2]]
    assert [row["simulated_s"] is None for row in rows] == [True, True, False, False]
    assert all(row["measured_s"] > 0 and row["segments"] >= 1 and row["repeats"] == 3 for row in rows)


def test_the_summary_names_the_fastest_set_and_the_speed_up_of_the_best_placement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"way": "1 core", "measured_s": 2.0, "ratio_to_best_set": 2.0},
        {"way": "4 cores", "measured_s": 1.0, "ratio_to_best_set": 1.0},
        {"way": "heft", "measured_s": 1.1, "ratio_to_best_set": 1.1},
        {"way": "gnn", "measured_s": 0.9, "ratio_to_best_set": 0.8},
    ]
    monkeypatch.setattr(core_sets, "run_cases", lambda cases, *_: {case: {"rows": rows} for case in cases})
    summary = core_sets.bench_sets(BenchOptions(only=("squeezenet",))).summary
    assert summary == {
        "best_set": {"light_squeezenet": "4 cores"},
        "speed_up_over_best_set": {"light_squeezenet": pytest.approx(1.25)},
    }
