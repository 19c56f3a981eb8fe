"""Measured segments: their kind, ops, expected seconds and arrived bytes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.measuring import grouped_parts
from gnnplace.measuring.grouped_parts import GroupedModel, PartMaker, measured_segments, model_setup
from gnnplace.onnx_io.model import OnnxModel

PAIR = Topology(
    "pair", (Device("a", "slow"), Device("b", "fast")), (Link("a", "b", 0.0, 1.0), Link("b", "a", 0.0, 1.0))
)
GRAPH = OpGraph.build(
    "g",
    [Op(name) for name in "vwxyz"],
    [Tensor("v", 7, ("w", "x", "y")), Tensor("w", 5, ("z",)), Tensor("x", 3, ("z",)), Tensor("y", 2, ("z",))],
)
OP_TIME_S = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0], [5.0, 50.0]])


def part(device: str, *ops: int) -> tuple[str, tuple[int, ...]]:
    return device, ops


def test_a_copy_counts_only_for_the_first_part_that_reads_it() -> None:
    parts = [part("a", 0, 1), part("b", 2), part("b", 3), part("a", 4)]
    found = measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.array([4.0, 31.0, 41.0, 6.0]))
    assert [segment.kind for segment in found] == ["slow", "fast", "fast", "slow"]
    assert [segment.ops for segment in found] == [(0, 1), (2,), (3,), (4,)]
    assert [segment.expected_s for segment in found] == [3.0, 30.0, 40.0, 5.0]
    assert [segment.arrived_bytes for segment in found] == [0.0, 7.0, 0.0, 5.0]
    assert [segment.seconds for segment in found] == [4.0, 31.0, 41.0, 6.0]


def test_a_model_on_one_device_has_no_measured_segments() -> None:
    parts = [part("a", 0, 1, 2), part("a", 3, 4)]
    assert measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.ones(2)) == []


def test_outputs_of_constant_ops_are_never_copied() -> None:
    parts = [part("a", 0, 1), part("b", 2), part("b", 3), part("a", 4)]
    constant = np.array([True, False, False, False, False])
    found = measured_segments(GRAPH, PAIR, OP_TIME_S, parts, np.ones(4), constant)
    assert [segment.arrived_bytes for segment in found] == [0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize(
    ("on_gpu", "kept", "loadings"), [(100, 7, 4), (5, 5, 4), (3, 3, 2), (1, 2, 1), (None, 7, 4)], ids=str
)
def test_the_memory_of_a_gpu_limits_the_sessions_that_are_kept(
    on_gpu: int | None, kept: int, loadings: int, small_model: Callable[[str], OnnxModel], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model = small_model("opset_9")
    copy_bytes = 8 * max(model.graph.total_weight_bytes, 1)
    monkeypatch.setattr(grouped_parts, "available_memory_bytes", lambda: 7 * copy_bytes)
    memory = None if on_gpu is None else on_gpu * copy_bytes
    topology = Topology("gpu", (Device("cpu:0", "cpu", memory_bytes=copy_bytes), Device("cuda:0", "gpu", memory)), ())
    grouped = GroupedModel((model,), model.graph, np.arange(model.graph.num_ops))
    setup = model_setup(grouped, PartMaker(model, tmp_path), [{}], topology, "worst")
    assert (setup.kept_jobs, setup.loadings) == (kept, loadings)
