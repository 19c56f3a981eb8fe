"""The finalists of an executed search, and the choice of the answer."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnplace.api import evaluate
from gnnplace.api.judging import executed_plan, finalists_of
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import Workload, load_workload
from gnnplace.devices.real_names import all_core_sessions
from gnnplace.devices.spec import load_topology
from gnnplace.difference import Difference
from gnnplace.evaluation import Evaluation
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring.comparison import Comparison, PlainSessions
from gnnplace.measuring.plain_session import PlainSession
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.placement import Placement
from gnnplace.planners.solution import Solution
from gnnplace.report.answer import answer
from gnnplace.run_record import MeasuredSearch, read_run
from gnnplace.running.session import Session
from gnnplace.units import format_s

Answered = Callable[..., Plan]
SEARCH: MeasuredSearch = {"executed": 5, "recalled": 0, "executing_s": 1.0, "wall_s": 2.0}


def on(*devices: int) -> Placement:
    return Placement(np.array(devices))


def test_each_placement_of_the_search_is_a_finalist_once_before_those_of_other_planners() -> None:
    found = finalists_of("gnn", [on(0, 1), on(0, 1), on(1, 1)], {"single": on(0, 0), "heft": on(0, 1)})
    assert [(finalist.label, finalist.planner) for finalist in found] == [
        ("gnn", "gnn"), ("gnn, rank 2", "gnn"), ("single", "single"), ("heft", "heft"),
    ]  # fmt: skip
    assert found[1].placement.assignment.tolist() == [1, 1]


@pytest.fixture
def answered(tmp_path: Path) -> Answered:
    """The plan for measured medians of `gnn`, its runner-up and `heft`, and of the plain session."""
    graph = OpGraph.build("pair", [Op("a", flops=1e9), Op("b", flops=1e9)], [Tensor("a", 8, ("b",))])
    write_graph(graph, tmp_path / "pair.json")
    setup = ProblemSetup.build(load_workload(tmp_path / "pair.json"), load_topology("k40x2"))
    base = setup.simulator.evaluate(on(0, 1))

    def measured(median_s: float) -> Evaluation:
        return dataclasses.replace(base, evaluator="measured", makespan_s=median_s, spread_s=0.01, repeats=9)

    def plan(
        medians: list[float],
        single_s: float,
        confirmed: bool = True,
        difference: Difference | None = None,
        heft: Placement = on(1, 1),
        gnn: Placement = on(0, 1),
        before_s: float | None = None,
    ) -> Plan:
        solution = Solution("gnn", 0, gnn, 1.0, 5, 2.0, ())
        finalists = finalists_of("gnn", [gnn, on(1, 0)], {"heft": heft})
        device = setup.topology.device_names[0]
        plain = PlainSessions(measured(single_s), device, measured(single_s), device, {device: before_s or single_s})
        comparison = Comparison(tuple(map(measured, medians)), plain, difference, confirmed)
        return executed_plan(setup, solution, finalists, comparison, SEARCH)

    return plan


def test_a_runner_up_that_is_faster_side_by_side_is_the_answer(answered: Answered) -> None:
    plan = answered([1.0, 0.8, 0.9], 2.0)
    assert (plan.placement.assignment.tolist(), plan.kept, plan.warnings) == ([1, 0], "gnn", ())
    assert {row["planner"]: row["makespan_s"] for row in plan.rows} == {"gnn": 0.8, "heft": 0.9}
    assert plan.measured is not None
    assert [run["label"] for run in plan.measured["runs"]] == ["gnn", "gnn, rank 2", "heft", "one session on k40:0"]


def test_an_answer_below_the_bound_names_slow_profiling_as_the_cause(answered: Answered) -> None:
    assert "above the lower bound" in answered([1.0, 0.9, 0.7], 2.0).headline()
    plan = answered([1e-9, 1e-9, 1e-9], 1.0)
    assert plan.headline().endswith("the machine was slower when it was profiled")
    bound_s = plan.bound.value_s
    assert answered([bound_s * (1 - 1e-9)] * 3, 1.0).headline().endswith("0.0% above the lower bound")


def test_the_placement_of_a_faster_planner_is_kept_and_named(answered: Answered) -> None:
    plan = answered([1.0, 0.9, 0.7], 2.0)
    assert (plan.placement.assignment.tolist(), plan.kept) == ([1, 1], "heft")
    assert plan.warnings == ("the placement of 'heft' was faster side by side than that of 'gnn'",)
    assert plan.facts()["planner"] == "heft"


@pytest.mark.parametrize(("before_s", "warns"), [(1.3, True), (2.4, False), (2.6, True)])
def test_a_reference_that_takes_another_time_after_the_search_than_before_is_named(
    answered: Answered, before_s: float, warns: bool
) -> None:
    plan = answered([1.0, 0.8, 0.9], 2.0, before_s=before_s)
    expected = f"the plain session over k40:0 took {format_s(before_s)} before the search and {format_s(2.0)} at"
    assert [expected in warning for warning in plan.warnings] == [True] * warns
    assert answered([1.0, 0.8, 0.9], 2.0, confirmed=False, before_s=before_s).warnings[0].startswith("the seconds are")


def test_a_planner_that_is_faster_only_within_the_noise_is_kept_without_a_warning(answered: Answered) -> None:
    plan = answered([0.9, 0.95, 0.895], 2.0)
    assert (plan.kept, plan.warnings) == ("heft", ())


def test_a_placement_that_beats_the_single_device_only_by_noise_is_not_kept(answered: Answered) -> None:
    plan = answered([1.0, 0.99, 1.2], 1.005)
    assert (plan.placement.assignment.tolist(), plan.kept) == ([0, 0], "single")
    assert "no placement beats the single device k40:0 beyond the noise" in plan.warnings[0]
    assert {row["planner"]: row["makespan_s"] for row in plan.rows} == {"gnn": 0.99, "heft": 1.2, "single": 1.005}


def test_a_planner_that_leaves_the_model_on_the_best_single_device_is_the_one_that_is_kept(answered: Answered) -> None:
    plan = answered([1.0, 0.99, 0.985], 0.981, heft=on(0, 0))
    assert (plan.placement.assignment.tolist(), plan.kept) == ([0, 0], "heft")
    assert [warning for warning in plan.warnings if "no placement beats the single device k40:0" in warning]
    found = answered([0.985, 0.99, 1.2], 0.981, gnn=on(0, 0))
    assert (found.placement.assignment.tolist(), found.kept, found.warnings) == ([0, 0], "gnn", ())
    assert {row["planner"]: row["makespan_s"] for row in plan.rows} == {"gnn": 0.99, "heft": 0.981}


@pytest.mark.parametrize(("single_s", "kept", "median_s"), [(2.0, "gnn", 0.8), (0.81, "single", 0.81)])
def test_figures_of_an_interrupted_search_are_marked_and_beat_the_single_device_only_beyond_their_intervals(
    answered: Answered, single_s: float, kept: str, median_s: float
) -> None:
    plan = answered([1.0, 0.8, 0.9], single_s, confirmed=False)
    assert plan.measured is not None
    assert (plan.kept, plan.measured["confirmed"]) == (kept, False)
    assert (plan.measured["median_s"], plan.measured["spread_s"], plan.measured["repeats"]) == (median_s, 0.01, 9)
    assert [warning for warning in plan.warnings if "not confirmed by a side-by-side measurement" in warning]
    confirmed = answered([1.0, 0.8, 0.9], single_s)
    assert confirmed.measured is not None
    assert "confirmed" not in confirmed.measured
    assert not [warning for warning in confirmed.warnings if "not confirmed" in warning]


@pytest.mark.parametrize(
    ("difference", "kept", "median_s"),
    [
        (Difference(-0.02, -0.03, -0.01, 40), "gnn", 1.96),
        (Difference(-0.02, -0.05, 0.01, 40), "single", 2.0),
        (Difference(0.02, 0.01, 0.03, 40), "single", 2.0),
    ],
)
def test_the_paired_difference_decides_whether_the_fastest_finalist_is_the_answer(
    answered: Answered, difference: Difference, kept: str, median_s: float
) -> None:
    for medians in ([2.5, 2.0, 2.3], [1.5, 1.1, 1.4]):  # whatever the rounds show
        plan = answered(medians, 2.0, difference=difference)
        assert plan.measured is not None
        assert (plan.kept, plan.measured["median_s"]) == (kept, pytest.approx(median_s))
        assert plan.measured["difference"] == difference.difference
        assert plan.measured["difference_interval"] == (difference.low, difference.high)
        if kept == "gnn":
            assert (plan.measured["spread_s"], plan.measured["repeats"]) == (pytest.approx(0.02), 40)
            assert "by 1.01x to 1.03x, the 95 % interval of paired runs" in answer(plan.record())
    assert "difference" not in answered([1.0, 0.8, 0.9], 2.0).measured  # type: ignore[operator]


@pytest.mark.skipif("len(os.sched_getaffinity(0)) < 2", reason="needs two cores")
@pytest.mark.parametrize(("best_s", "is_session"), [(0.5, True), (0.795, True), (0.9, False)])
def test_one_session_over_all_cores_is_the_answer_unless_a_placement_beats_it_and_runs_as_a_saved_model(
    best_s: float, is_session: bool, small_model: Callable[[str], OnnxModel], tmp_path: Path
) -> None:
    model = small_model("branches")
    cores = sorted(os.sched_getaffinity(0))[:2]
    session = all_core_sessions(f"cpu:{core}" for core in cores)[-1]
    setup = ProblemSetup.build(Workload.of(model), load_topology(",".join(f"cpu:{core}" for core in cores)))
    halves = Placement(np.arange(setup.coarsening.graph.num_ops) % 2)
    base = setup.group_evaluator.evaluate(halves)

    def measured(median_s: float) -> Evaluation:
        return dataclasses.replace(base, evaluator="measured", makespan_s=median_s, spread_s=0.01, repeats=9)

    plain = PlainSessions(measured(best_s), session, measured(1.0), setup.topology.device_names[0])
    solution = Solution("gnn", 0, halves, 0.8, 5, 2.0, ())
    comparison = Comparison((measured(0.8),), plain)
    plan = executed_plan(setup, solution, finalists_of("gnn", [halves], {}), comparison, SEARCH)
    assert plan.measured is not None
    figures = [plan.measured[key] for key in ("median_s", "single_session_s", "best_session_s", "best_session")]  # type: ignore[literal-required]
    assert figures == [best_s if is_session else 0.8, 1.0, best_s, session]
    names = plan.setup.topology.device_names
    assert {names[device] for device in plan.placement.assignment.tolist()} == ({session} if is_session else {*names})
    assert any(f"one plain session over {session}" in warning for warning in plan.warnings) == is_session
    assert (plan.kept == "plain session") == is_session == ("plain session" in plan.summary()["compared"])
    if not is_session:
        return
    alone_s = setup.evaluator.evaluate(Placement(np.zeros(model.graph.num_ops, dtype=np.int64))).makespan_s
    assert plan.evaluation.makespan_s == pytest.approx(best_s * alone_s)
    out = plan.save(tmp_path / "placed")
    assert read_run(out / "run.json")["summary"]["measured"]["best_session"] == session  # type: ignore[index]
    evaluated = evaluate(model.path, ",".join(names[:2]), out / "placement.json")
    assert (evaluated["feasible"], evaluated["busy_s"][session]) == (True, evaluated["makespan_s"])
    feed = {"x": np.ones((2, 4), np.float32), "z": np.ones((2, 4), np.float32)}
    expected = PlainSession(model.path, session).run(feed)
    for placed in (out, out / "placed.onnx"):
        with Session(placed) as runs:
            assert runs.get_devices()[-1] == session
            assert all(np.array_equal(a, b) for a, b in zip(runs.run(None, feed), expected, strict=True))
