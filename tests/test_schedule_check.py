"""The independent check finds every way in which a schedule can be impossible."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.schedule import Schedule, check_schedule
from gnnplace.sim.simulator import Simulator

GRAPH = OpGraph.build(
    "g",
    [Op("x", memory_bytes=9), Op("y"), Op("z"), Op("w")],
    [Tensor("x", 10, ("y", "z")), Tensor("y", 10, ("w",)), Tensor("z", 10, ("w",))],
)
DEVICES = (Device("a", dispatch_overhead_s=0.5), Device("b", dispatch_overhead_s=0.5))
TOPOLOGY = Topology("pair", DEVICES, (Link("a", "b", 1.0, 10.0), Link("b", "a", 1.0, 10.0)))
TIMES = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [1.0, 1.0]])


@pytest.fixture
def schedule() -> Schedule:
    return Simulator(GRAPH, TOPOLOGY, TIMES).schedule(Placement(np.array([0, 0, 1, 0])))


def found(schedule: Schedule) -> str:
    return "\n".join(check_schedule(GRAPH, TOPOLOGY, TIMES, schedule))


def with_entry(values: np.ndarray, index: int, value: float) -> np.ndarray:
    changed = np.array(values)
    changed[index] = value
    return changed


def test_a_possible_schedule_passes(schedule: Schedule) -> None:
    assert found(schedule) == ""
    assert schedule.makespan_s == 1 + 2 + 4.5 + 2 + 1.5


def test_an_op_before_its_inputs_is_found(schedule: Schedule) -> None:
    early = replace(schedule, start_s=with_entry(schedule.start_s, 2, 0.5), end_s=with_entry(schedule.end_s, 2, 5.0))
    assert "op z starts at 0.5 s, its inputs are there at 3.0 s" in found(early)


def test_two_ops_at_once_on_one_device_are_found(schedule: Schedule) -> None:
    overlap = replace(schedule, start_s=with_entry(schedule.start_s, 1, 0.5), end_s=with_entry(schedule.end_s, 1, 2.5))
    assert "a does two things at once" in found(overlap)


def test_a_wrong_duration_is_found(schedule: Schedule) -> None:
    assert "op z lasts" in found(replace(schedule, end_s=with_entry(schedule.end_s, 2, 7.0)))


def test_a_missing_transfer_is_found(schedule: Schedule) -> None:
    kept = {
        name: getattr(schedule, name)[1:]
        for name in ("transfer_tensor", "transfer_target", "transfer_link", "transfer_start_s", "transfer_end_s")
    }
    assert "takes links [], not (0,)" in found(replace(schedule, **kept))


def test_a_transfer_that_starts_before_its_tensor_exists_is_found(schedule: Schedule) -> None:
    early = replace(
        schedule,
        transfer_start_s=with_entry(schedule.transfer_start_s, 0, 0.0),
        transfer_end_s=with_entry(schedule.transfer_end_s, 0, 2.0),
    )
    assert "is sent at 0.0 s but exists at 1.0 s" in found(early)


def test_a_transfer_that_is_too_fast_is_found(schedule: Schedule) -> None:
    assert "occupies link 0 for" in found(replace(schedule, transfer_end_s=with_entry(schedule.transfer_end_s, 0, 1.5)))


def test_idling_while_an_op_is_ready_is_found(schedule: Schedule) -> None:
    late = replace(schedule, start_s=with_entry(schedule.start_s, 1, 2.0), end_s=with_entry(schedule.end_s, 1, 4.5))
    assert "idles before op y" in found(late)


def test_a_wrong_peak_is_found(schedule: Schedule) -> None:
    peaks = with_entry(schedule.peak_memory_bytes, 0, schedule.peak_memory_bytes[0] - 1)
    assert "device a peaks at" in found(replace(schedule, peak_memory_bytes=peaks))


def test_a_split_colocation_group_is_found() -> None:
    graph = OpGraph.build("g", [Op("x", group="q"), Op("y", group="q")])
    split = Simulator(graph, TOPOLOGY, TIMES[:2]).schedule(Placement(np.array([0, 1])))
    assert check_schedule(graph, TOPOLOGY, TIMES[:2], split) == ["colocation group q is on several devices"]
