"""Impossible costs are refused by name; small and large ones, and long graphs, are placed."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gnnplace.api import place
from gnnplace.api.options import PlaceOptions
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidGraph, InvalidTopology
from gnnplace.graph.json_format import graph_from_json, read_graph
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.run_record import read_run

TWO = Topology("two", (Device("a", "cpu"), Device("b", "cpu")), (Link("a", "b", 0.0, 1e9), Link("b", "a", 0.0, 1e9)))
CHAIN = 10_000


def document(**op: Any) -> dict[str, Any]:
    return {"format": "gnnplace.graph/1", "name": "g", "ops": [{"name": "a", **op}], "tensors": []}


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"flops": math.inf}, "flops of op 'a' is inf"),
        ({"time_s": {"cpu": math.nan}}, "expected finite seconds"),
        ({"time_s": {"cpu": -1.0}}, "time_s of 'cpu' of op 'a' is -1"),
        ({"time_s": {"cpu": 10**400}}, "expected finite seconds"),
        ({"memory_bytes": 2**62}, "memory_bytes of op 'a'"),
        ({"workspace_bytes": -(2**62)}, "workspace_bytes of op 'a'"),
        ({"flops": 10**400}, "flops of op 'a' has too many digits"),
        ({"stage": 2**40}, "stage of op 'a'"),
    ],
)
def test_impossible_costs_in_a_file_are_refused_by_name(op: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        graph_from_json(document(**op))


@pytest.mark.parametrize("text", ["1" + "0" * 5000, "9223372036854775808", "-9223372036854775809", '"\\ud800"'])
def test_numbers_and_texts_beyond_the_range_of_json_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document(memory_bytes="HERE")).replace('"HERE"', text))
    with pytest.raises(InvalidGraph, match=r"graph\.json: (is no valid JSON|a text holds half)"):
        read_graph(path)


def test_sums_that_overflow_are_refused() -> None:
    with pytest.raises(InvalidGraph, match=r"add up to 1\.5 EiB"):
        OpGraph.build("g", [Op(name, memory_bytes=2**59) for name in "abc"])
    with pytest.raises(InvalidGraph, match="time_s of 'cpu' of all ops add up to inf"):
        OpGraph.build("g", [Op(name, time_s={"cpu": 1e308}) for name in "abc"])
    slow = OpGraph.build("g", [Op(name, time_s={"cpu": 1e200}) for name in "abc"])
    with pytest.raises(InvalidGraph, match=r"the seconds of all ops and transfers add up to 3e\+200"):
        place(slow, TWO, PlaceOptions(planner="heft"))
    far = Topology("far", TWO.devices, (Link("a", "b", 1e308, 1e9), Link("b", "a", 1e308, 1e9)))
    pair = OpGraph.build("g", [Op("a", time_s={"cpu": 1.0}), Op("b", time_s={"cpu": 1.0})], [Tensor("a", 1, ("b",))])
    with pytest.raises(InvalidGraph, match="check the times, rates and latencies"):
        place(pair, far, PlaceOptions(planner="heft"))


def test_seconds_of_an_op_that_overflow_are_refused() -> None:
    graph = OpGraph.build("g", [Op("a", flops=1e299)])
    slow = Topology("slow", (Device("d", peak_flops_per_s={"float32": 1e-300}),))
    with pytest.raises(InvalidTopology, match="op 'a' would take more seconds than a number holds"):
        place(graph, slow, PlaceOptions(planner="heft"))


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, 5e-324])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(InvalidTopology, match="above zero"):
        Device("d", peak_flops_per_s={"float32": rate})
    with pytest.raises(InvalidTopology, match="above zero"):
        Link("a", "b", 0.0, rate)


@pytest.mark.parametrize("seconds", [5e-324, 1e-310, 0.0, 1e90])
def test_denormal_zero_and_large_costs_are_placed(seconds: float, tmp_path: Path) -> None:
    ops = [Op(name, time_s={"cpu": seconds}) for name in "abcd"]
    plan = place(OpGraph.build("g", ops, [Tensor("a", 0, ("b", "c"))]), TWO, PlaceOptions(planner="heft"))
    plan.save(tmp_path / "out")
    assert plan.evaluation.feasible
    assert seconds <= plan.makespan_s <= 4 * seconds
    assert read_run(tmp_path / "out" / "run.json")["summary"]["feasible"]


@pytest.mark.parametrize(("planner", "kind"), [("heft", "chain"), ("heft", "isolated"), ("annealing", "isolated")])
def test_ten_thousand_ops_in_a_row_or_side_by_side_are_placed(planner: str, kind: str) -> None:
    ops = [Op(f"op{number}", time_s={"cpu": 1e-3}) for number in range(CHAIN)]
    tensors = [Tensor(f"op{number}", 8, (f"op{number + 1}",)) for number in range(CHAIN - 1)] if kind == "chain" else []
    plan = place(OpGraph.build(kind, ops, tensors), TWO, PlaceOptions(planner=planner, evaluations=20, max_groups=64))
    expected_s = CHAIN * 1e-3 if kind == "chain" else CHAIN * 1e-3 / 2
    assert plan.evaluation.feasible
    assert plan.makespan_s == pytest.approx(expected_s, rel=0.05)


@pytest.mark.parametrize("spec", ["cpu:0-99999999999", "cpu:" + "9" * 5000, "cuda:" + "9" * 5000, "x" * 5000, "a\0b", "cpu:0[memory=1.2.3GiB]"])  # fmt: skip
def test_device_sets_beyond_any_machine_are_refused(spec: str) -> None:
    with pytest.raises(InvalidTopology):
        load_topology(spec)
