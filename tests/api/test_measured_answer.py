"""The finalists of an executed search, and the choice of the answer."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnplace.api.judging import executed_plan, finalists_of
from gnnplace.api.plan import Plan
from gnnplace.api.problem_setup import ProblemSetup
from gnnplace.api.workload import load_workload
from gnnplace.devices.spec import load_topology
from gnnplace.evaluation import Evaluation
from gnnplace.graph.json_format import write_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring.measured_evaluator import Comparison
from gnnplace.placement import Placement
from gnnplace.planners.search import Solution
from gnnplace.run_record import MeasuredSearch

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
    finalists = finalists_of("gnn", [on(0, 1), on(1, 0)], {"heft": on(1, 1)})
    solution = Solution("gnn", 0, on(0, 1), 1.0, 5, 2.0, ())
    base = setup.simulator.evaluate(on(0, 1))

    def measured(median_s: float) -> Evaluation:
        return dataclasses.replace(base, evaluator="measured", makespan_s=median_s, spread_s=0.01, repeats=9)

    def plan(medians: list[float], single_s: float, confirmed: bool = True) -> Plan:
        device = setup.topology.device_names[0]
        comparison = Comparison(tuple(map(measured, medians)), measured(single_s), device, confirmed)
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


def test_the_placement_of_a_faster_planner_is_kept_and_named(answered: Answered) -> None:
    plan = answered([1.0, 0.9, 0.7], 2.0)
    assert (plan.placement.assignment.tolist(), plan.kept) == ([1, 1], "heft")
    assert plan.warnings == ("the placement of 'heft' was faster side by side than that of 'gnn'",)
    assert plan.facts()["planner"] == "heft"


def test_a_placement_that_beats_the_single_device_only_by_noise_is_not_kept(answered: Answered) -> None:
    plan = answered([1.0, 0.99, 1.2], 1.005)
    assert (plan.placement.assignment.tolist(), plan.kept) == ([0, 0], "single")
    assert "no placement beats the single device k40:0 beyond the noise" in plan.warnings[0]


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
