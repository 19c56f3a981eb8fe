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


BREAKS = {
    "an op before its inputs": ({"start_s": (2, 0.5), "end_s": (2, 5.0)}, "op z starts at 0.5 s, its inputs"),
    "two ops at once": ({"start_s": (1, 0.5), "end_s": (1, 2.5)}, "a does two things at once"),
    "a wrong duration": ({"end_s": (2, 7.0)}, "op z lasts"),
    "a transfer before its tensor": ({"transfer_start_s": (0, 0.0), "transfer_end_s": (0, 2.0)}, "is sent at 0.0 s"),
    "a transfer that is too fast": ({"transfer_end_s": (0, 1.5)}, "occupies link 0 for"),
    "idling while an op is ready": ({"start_s": (1, 2.0), "end_s": (1, 4.5)}, "idles before op y"),
    "a wrong peak": ({"peak_memory_bytes": (0, 1)}, "device a peaks at"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_an_impossible_schedule_is_found(schedule: Schedule, name: str) -> None:
    entries, message = BREAKS[name]
    changed = {field: with_entry(getattr(schedule, field), *entry) for field, entry in entries.items()}
    assert message in found(replace(schedule, **changed))


def test_a_missing_transfer_is_found(schedule: Schedule) -> None:
    fields = ("transfer_tensor", "transfer_target", "transfer_link", "transfer_start_s", "transfer_end_s")
    assert "takes links [], not (0,)" in found(
        replace(schedule, **{name: getattr(schedule, name)[1:] for name in fields})
    )


def test_a_split_colocation_group_is_found() -> None:
    graph = OpGraph.build("g", [Op("x", group="q"), Op("y", group="q")])
    split = Simulator(graph, TOPOLOGY, TIMES[:2]).schedule(Placement(np.array([0, 1])))
    assert check_schedule(graph, TOPOLOGY, TIMES[:2], split) == ["colocation group q is on several devices"]
