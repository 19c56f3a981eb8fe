"""Placements: which are legal, and their file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidPlacement
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement, allowed_mask, check_legal, load_placement, save_placement, scattered

GRAPH = OpGraph.build(
    "g",
    [Op("first", group="q"), Op("second", devices=("gpu",)), Op("third", group="q")],
    [Tensor("first", 4, ("second",))],
)
DEVICES = (Device("cpu:0", "cpu"), Device("g0", "gpu"), Device("g1", "gpu"))
TOPOLOGY = Topology(
    "t", DEVICES, tuple(Link(s, t, 0.0, 1.0) for s, t in [("cpu:0", "g0"), ("g0", "cpu:0"), ("cpu:0", "g1")])
)


def test_an_op_may_run_on_the_names_and_kinds_that_it_lists() -> None:
    assert allowed_mask(GRAPH, TOPOLOGY).tolist() == [[True] * 3, [False, True, True], [True] * 3]


def test_a_colocation_group_may_run_where_all_of_its_ops_may() -> None:
    graph = OpGraph.build("g", [Op("a", group="q", devices=("g0",)), Op("b", group="q")])
    assert allowed_mask(graph, TOPOLOGY).tolist() == [[False, True, False]] * 2


def test_an_op_that_nothing_can_run_is_named() -> None:
    graph = OpGraph.build("g", [Op("a", devices=("tpu",))])
    with pytest.raises(InvalidPlacement, match=r"op 'a' may run on tpu; the devices are cpu:0 \(cpu\)"):
        allowed_mask(graph, TOPOLOGY)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0, 1], "2 ops, the graph 3"),
        ([0, 3, 0], "op 'second' has the device index 3"),
        ([0, 0, 0], "op 'second' may not run on 'cpu:0'; allowed: g0, g1"),
        ([0, 1, 2], "colocation group 'q' is spread over cpu:0, g1"),
        ([2, 1, 2], "from 'g1' to 'g0', which no link or host connects"),
    ],
)
def test_an_illegal_placement_is_refused_with_the_reason(assignment: list[int], message: str) -> None:
    with pytest.raises(InvalidPlacement, match=message):
        check_legal(GRAPH, TOPOLOGY, Placement(np.array(assignment)))


@pytest.mark.parametrize("assignment", [[0.5, 1.0], [[0, 1]], "abc", None, [2**70]])
def test_an_assignment_that_is_no_row_of_whole_numbers_is_refused(assignment: object) -> None:
    with pytest.raises(InvalidPlacement, match="expected the number of a device per op"):
        Placement(assignment)  # type: ignore[arg-type]


def test_priorities_must_be_numbers_one_per_op() -> None:
    with pytest.raises(InvalidPlacement, match="priority nan"):
        check_legal(GRAPH, TOPOLOGY, Placement(np.array([0, 1, 0]), np.array([0.0, np.nan, 1.0])))
    with pytest.raises(InvalidPlacement, match="1 entries of priority"):
        check_legal(GRAPH, TOPOLOGY, Placement(np.array([0, 1, 0]), np.array([0.0])))


def test_a_placement_survives_its_file(tmp_path: Path) -> None:
    placement = Placement(np.array([0, 2, 0]), np.array([1.0, 2.0, 0.5]))
    save_placement(tmp_path / "p.json", GRAPH, TOPOLOGY, placement, {"model": {"sha256": "ab"}, "planner": "heft"})
    read = load_placement(tmp_path / "p.json", GRAPH, TOPOLOGY, sha256="ab")
    assert read.assignment.tolist() == [0, 2, 0]
    assert read.priorities is not None
    assert read.priorities.tolist() == [1.0, 2.0, 0.5]
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["format"] == "gnnplace.placement/1"
    assert document["model"] == {"name": "g", "sha256": "ab", "ops": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


MINIMAL: dict[str, Any] = {
    "format": "gnnplace.placement/1",
    "devices": ["cpu:0", "g0", "g1"],
    "assignment": {"first": "cpu:0", "second": "g0", "third": "cpu:0"},
}


def test_only_format_devices_and_assignment_are_required(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(MINIMAL))
    assert load_placement(path, GRAPH, TOPOLOGY, sha256="anything").assignment.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, '"format" is not'),
        ({"assignment": []}, "are required"),
        ({"model": {"sha256": "cd" * 32}}, "made for a model with sha256 cdcdcdcdcdcd"),
        ({"devices": ["cpu:0", "tpu:7"]}, "names the device 'tpu:7'"),
        ({"assignment": {**MINIMAL["assignment"], "secnd": "g0"}}, "names the op 'secnd', .*did you mean 'second'"),
        ({"assignment": {"first": "cpu:0", "second": "g0"}}, "lacks the op 'third'"),
        ({"assignment": {**MINIMAL["assignment"], "third": ["g0"]}}, "names the device"),
        ({"assignment": {**MINIMAL["assignment"], "second": "cpu:0"}}, "may not run on 'cpu:0'"),
        ({"priorities": 3}, "'priorities' is no object"),
        ({"priorities": {"first": 1, "second": "high", "third": 2}}, "the priority of op 'second' is 'high'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**MINIMAL, **change}))
    with pytest.raises(InvalidPlacement, match=message):
        load_placement(path, GRAPH, TOPOLOGY, sha256="ab" * 32)


def test_a_scattered_graph_is_on_all_devices_evenly_and_its_groups_stay_whole() -> None:
    ops = [Op(f"free{i}") for i in range(5)] + [Op(f"{group}{i}", group=group) for group in "ab" for i in range(3)]
    graph = OpGraph.build("g", ops, [])
    seen = set()
    for seed in range(20):
        assignment = scattered(graph, 2, np.random.default_rng(seed))
        assert len(set(assignment[5:8])) == len(set(assignment[8:])) == 1
        units = [*assignment[:5], assignment[5], assignment[8]]
        assert sorted(np.bincount(units)) == [3, 4]
        seen.add(tuple(assignment))
    assert len(seen) > 10
    assert scattered(OpGraph.build("g", [], []), 2, np.random.default_rng(0)).tolist() == []
