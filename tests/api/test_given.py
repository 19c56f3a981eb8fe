"""A placement that somebody made is a plan like a planner's."""

import json
from pathlib import Path

import numpy as np
import pytest

from gnnplace.api import PlaceOptions, evaluate, plan_of
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InfeasiblePlacement, InvalidPlacement
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement

GRAPH = OpGraph.build(
    "pair",
    [
        Op("first", time_s={"a": 2.0, "b": 1.0}, memory_bytes=6),
        Op("second", time_s={"a": 2.0, "b": 1.0}, memory_bytes=6),
    ],
    [Tensor("first", 1, ("second",))],
)
PAIR = Topology("pair", (Device("a", memory_bytes=20), Device("b", memory_bytes=10)), (Link("a", "b", 0.5, 1.0),))


def test_its_seconds_are_those_of_its_ops_and_transfers() -> None:
    plan = plan_of(GRAPH, PAIR, Placement(np.array([0, 1])))
    assert plan.makespan_s == 2.0 + 0.5 + 1.0 + 1.0
    assert plan.makespan_s == evaluate(GRAPH, PAIR, Placement(np.array([0, 1])))["makespan_s"]
    assert plan.schedule.start_s.tolist() == [0.0, 3.5]
    assert (plan.solution.evaluations, plan.rows) == (1, ())


def test_it_is_saved_and_reported_as_given(tmp_path: Path) -> None:
    plan = plan_of(GRAPH, PAIR, Placement(np.array([0, 0])), PlaceOptions(seed=3))
    plan.save(tmp_path)
    saved = json.loads((tmp_path / "placement.json").read_text())
    assert (saved["planner"], saved["seed"], saved["assignment"]) == ("given", 3, {"first": "a", "second": "a"})
    assert plan.record()["kept"] == "given"


def test_one_that_does_not_fit_is_told_as_that_and_not_saved(tmp_path: Path) -> None:
    plan = plan_of(GRAPH, PAIR, Placement(np.array([1, 1])))
    assert not plan.evaluation.feasible
    with pytest.raises(InfeasiblePlacement, match="b lacks"):
        plan.save(tmp_path)


def test_one_of_another_graph_is_refused() -> None:
    with pytest.raises(InvalidPlacement):
        plan_of(GRAPH, PAIR, Placement(np.array([0, 0, 0])))
