"""The record of a run: a critical path without gaps, memory over time, and the reasons why ops cannot move."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.api import place
from gnnplace.api.record import critical_path, memory_over_time
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.sim.simulator import Simulator

TWO = Topology("two", (Device("a", "k"), Device("b", "k")), (Link("a", "b", 1.0, 1.0), Link("b", "a", 1.0, 1.0)))


def test_the_critical_path_leads_over_the_transfer_that_the_last_op_waits_for() -> None:
    ops = [Op("x", time_s={"k": 2.0}), Op("y", time_s={"k": 1.0}), Op("z", time_s={"k": 3.0})]
    graph = OpGraph.build("g", ops, [Tensor("x", 1, ("y", "z")), Tensor("y", 1, ("z",))])
    schedule = Simulator(graph, TWO, np.array([[2.0] * 2, [1.0] * 2, [3.0] * 2])).schedule(
        Placement(np.array([0, 0, 1]))
    )
    rows = {(int(t)): row for row, t in enumerate(schedule.transfer_tensor)}
    assert critical_path(graph, TWO, schedule) == [("op", 0), ("transfer", rows[0]), ("transfer", rows[1]), ("op", 2)]


def test_an_empty_graph_has_no_critical_path() -> None:
    graph = OpGraph.build("g", [])
    schedule = Simulator(graph, TWO, np.zeros((0, 2))).schedule(Placement(np.zeros(0, dtype=np.int64)))
    assert critical_path(graph, TWO, schedule) == []
    assert memory_over_time(graph, TWO, schedule) == [[(0.0, 0)], [(0.0, 0)]]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_each_event_starts_when_the_one_before_it_ends_and_memory_reaches_its_peak(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"op{index}" for index in range(count)]
    ops = [Op(name, memory_bytes=int(rng.integers(9)), workspace_bytes=int(rng.integers(9))) for name in names]
    tensors = [
        Tensor(name, int(rng.integers(1, 9)), tuple(later for later in names[index + 1 :] if rng.random() < 0.2))
        for index, name in enumerate(names)
    ]
    graph = OpGraph.build("g", ops, tensors)
    schedule = Simulator(graph, TWO, rng.uniform(0.5, 2.0, (count, 2))).schedule(Placement(rng.integers(0, 2, count)))
    spans = [
        (schedule.start_s[index], schedule.end_s[index])
        if kind == "op"
        else (schedule.transfer_start_s[index], schedule.transfer_end_s[index])
        for kind, index in critical_path(graph, TWO, schedule)
    ]
    assert spans[0][0] == 0.0
    assert spans[-1][1] == schedule.makespan_s
    assert [start for start, _ in spans[1:]] == pytest.approx([end for _, end in spans[:-1]])
    courses = memory_over_time(graph, TWO, schedule)
    assert [max(level for _, level in course) for course in courses] == schedule.peak_memory_bytes.tolist()


def test_a_run_records_costs_and_the_reasons_why_ops_cannot_move() -> None:
    ops = [Op("free", time_s={"k": 1.0}), Op("bound", time_s={"k": 1.0}, devices=("b",))]
    ops += [Op(name, time_s={"k": 1.0}, group="pair") for name in ("one", "two")]
    run = place(OpGraph.build("g", ops), TWO, planner="heft").record()
    assert run["ops"]["held"][:2] == ["", "The model allows only b."]
    assert run["ops"]["held"][2].startswith("It shares a device with 1 others of 'pair'.")
    assert run["ops"]["cost_s"][0] == [1.0, 1.0]
    assert run["steps"] == []


def test_the_steps_of_the_policy_lead_from_the_best_start_to_the_best_of_its_search() -> None:
    run = place("zoo:inception_v3", "k40x2", evaluations=400).record()
    steps, best_s = run["steps"], dict(run["stages"])
    assert steps[0]["before_s"] == best_s["starts"]
    assert steps[-1]["after_s"] <= best_s["starts"]
    assert all(step["after_s"] < step["before_s"] for step in steps)
    assert [step["before_s"] for step in steps[1:]] == [step["after_s"] for step in steps[:-1]]
    probabilities = [step["probability"] for step in steps if step["probability"] is not None]
    assert probabilities
    assert all(0.0 < probability <= 1.0 for probability in probabilities)
    assert all(step["moved"] >= 1 and len(step["moves"]) == min(step["moved"], 20) for step in steps)
