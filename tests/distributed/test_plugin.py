"""The plug-in without a cluster: the single device, the row of a planner that fails, and a missing policy."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gnnplace.api.options import PlaceOptions
from gnnplace.api.pipeline import set_up
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.distributed.plugin import HostsExecutor, RayHosts, _compared
from gnnplace.evaluation import Evaluation
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.placement import Placement
from gnnplace.planners.search import Budget
from gnnplace.policy.checkpoint import InvalidPolicy

GRAPH = OpGraph.build(
    "pair", [Op(name, time_s={"a": 1.0, "b": 2.0}, memory_bytes=8) for name in "xy"], [Tensor("x", 1, ("y",))]
)


def machine(fast_bytes: int, slow_bytes: int) -> Topology:
    devices = (Device("a", memory_bytes=fast_bytes), Device("b", memory_bytes=slow_bytes))
    return Topology("two", devices, (Link("a", "b", 0.1, 10.0), Link("b", "a", 0.1, 10.0)))


@pytest.mark.parametrize(("fast_bytes", "slow_bytes", "device"), [(100, 100, "a"), (10, 100, "b"), (10, 10, None)])
def test_the_plain_session_runs_on_the_fastest_device_that_the_model_fits_on(
    fast_bytes: int, slow_bytes: int, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(executor: HostsExecutor, placements: Sequence[Placement]) -> list[Evaluation]:
        return [executor.setup.evaluate_groups(placement)[1] for placement in placements]

    monkeypatch.setattr(HostsExecutor, "_executed", simulated)
    setup = set_up(GRAPH, machine(fast_bytes, slow_bytes), max_groups=2)
    groups = setup.coarsening.graph.num_ops
    comparison = HostsExecutor("address", setup, PlaceOptions()).compare([Placement(np.zeros(groups, dtype=np.int64))])
    assert comparison.single_device == device
    assert (comparison.single is None) == (device is None)
    assert comparison.single is None or comparison.single.feasible
    assert len(comparison.evaluations) == 1


def test_the_row_of_a_planner_that_fails_on_a_host_has_the_seconds_that_it_took() -> None:
    row = _compared(set_up(GRAPH, machine(100, 100)), Budget(evaluations=None, seconds=0.0), 0, None, {}, "annealing")
    assert row["error"]
    assert row["makespan_s"] is None
    assert row["wall_s"] > 0.0


def test_a_policy_that_cannot_be_read_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    rows = RayHosts("10.0.0.1:6379").rows
    with pytest.raises(InvalidPolicy, match="absent"):
        next(rows(set_up(GRAPH, machine(100, 100)), ["gnn"], PlaceOptions(policy=tmp_path / "absent.safetensors")))
