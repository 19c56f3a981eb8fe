"""The roofline, against seconds computed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.cost.cost_model import CostModel, Efficiency, RooflineCost, Scaling, op_class
from gnnplace.devices.presets import preset
from gnnplace.devices.topology import Device, Topology
from gnnplace.errors import InvalidPlacement, InvalidTopology
from gnnplace.graph.op_graph import Op, OpGraph

EXACT = RooflineCost(
    {name: Efficiency(0.5, 0.25) for name in ("convolution", "matrix", "other")}, launch_s=5e-6, host_launch_s=1e-6
)
GPU = Device("g:0", "g", peak_flops_per_s={"float32": 1e12, "float16": 4e12}, memory_bandwidth_bytes_per_s=1e11)
HOST = Device("cpu:0", "cpu-x", peak_flops_per_s={"float32": 1e11}, memory_bandwidth_bytes_per_s=1e10)
BARE = Device("bare")


def seconds(op: Op, *devices: Device, cost: RooflineCost = EXACT) -> list[float]:
    return [float(value) for value in cost.op_time_s(OpGraph.build("g", [op]), Topology("t", devices))[0]]


def test_the_roofline_is_a_cost_model_that_leaves_the_topology_unchanged() -> None:
    assert isinstance(EXACT, CostModel)
    assert EXACT.calibrated(preset("k40x2")) == preset("k40x2")


def test_an_op_takes_the_longer_of_computing_and_moving_data_plus_the_launch() -> None:
    # 1e9 FLOP at 0.5e12 are 2 ms, 1e7 bytes at 0.25e11 are 0.4 ms; the host is ten times slower.
    assert seconds(Op("a", flops=1e9, bytes_accessed=1e7), GPU, HOST) == pytest.approx([2.005e-3, 20.001e-3])
    assert seconds(Op("a", flops=1e9, bytes_accessed=1e9), GPU) == pytest.approx([40.005e-3])


def test_several_cores_shorten_what_runs_on_several_threads_and_meet_at_the_end() -> None:
    cores = tuple(f"core:{core}" for core in range(4))
    four = Device(
        "cpu:0-3", "cpu-x4", peak_flops_per_s={"float32": 4e11}, memory_bandwidth_bytes_per_s=4e10, resources=cores
    )
    scaling = Scaling({"convolution": 0.0, "matrix": 0.5, "other": 0.2}, frozenset({"Concat"}), sync_s=1e-6)
    cost = replace(EXACT, scaling=scaling)
    for op_type, seconds_on_four in (("Conv", 2.5e-3), ("MatMul", 6.25e-3), ("Relu", 4e-3), ("Concat", 10e-3)):
        op = Op("a", op_type, flops=5e8)  # 10 ms on one core
        assert seconds(op, HOST, four, cost=cost) == pytest.approx([10.001e-3, seconds_on_four + 2e-6 + 1e-6])
    assert seconds(Op("a", "Concat", flops=5e8), four, cost=replace(EXACT, scaling=None)) == pytest.approx([2.501e-3])


def test_an_op_without_work_takes_the_launch_even_where_no_rate_is_known() -> None:
    assert seconds(Op("a"), GPU, HOST, BARE) == [5e-6, 1e-6, 5e-6]


def test_unsigned_dtypes_have_the_signed_rate_and_unlisted_ones_that_of_float32() -> None:
    assert seconds(Op("a", flops=1e9, dtype="float16"), GPU) == pytest.approx([0.505e-3])
    assert seconds(Op("a", flops=1e9, dtype="bfloat16"), GPU) == pytest.approx([2.005e-3])
    int8 = Device("i", peak_flops_per_s={"float32": 1e12, "int8": 8e12}, memory_bandwidth_bytes_per_s=1e11)
    assert seconds(Op("a", flops=1e9, dtype="uint8"), int8) == pytest.approx([0.255e-3])


def test_stated_seconds_win_by_name_then_by_kind_and_take_no_launch() -> None:
    op = Op("a", flops=1e9, time_s={"g": 0.5, "g:1": 0.25})
    other = Device("g:1", "g")
    assert seconds(op, GPU, other, HOST) == pytest.approx([0.5, 0.25, 20.001e-3])
    assert seconds(Op("a", flops=1e9, time_s={"g": 0.0}), GPU) == [0.0]


def test_an_op_takes_forever_where_it_may_not_run() -> None:
    assert seconds(Op("a", devices=("cpu-x",)), GPU, HOST) == [np.inf, 1e-6]
    with pytest.raises(InvalidPlacement, match="add one that fits"):
        seconds(Op("a", devices=("tpu",)), GPU)


@pytest.mark.parametrize(
    ("op", "key"),
    [(Op("a", flops=1.0), "peak_flops_per_s"), (Op("a", bytes_accessed=1.0), "memory_bandwidth_bytes_per_s")],
)
def test_a_missing_rate_is_an_error_that_names_device_op_and_key(op: Op, key: str) -> None:
    with pytest.raises(InvalidTopology, match=f"'bare' states no {key}, and op 'a'"):
        seconds(op, BARE)


def test_no_rate_is_needed_where_the_time_is_stated_or_the_op_may_not_run() -> None:
    assert seconds(Op("a", flops=1.0, time_s={"bare": 2.0}), BARE) == [2.0]
    assert seconds(Op("a", flops=1e9, devices=("g",)), BARE, GPU)[0] == np.inf


def test_an_empty_graph_has_no_seconds() -> None:
    assert EXACT.op_time_s(OpGraph.build("g", []), Topology("t", (GPU, BARE))).shape == (0, 2)


@pytest.mark.parametrize(
    ("op_type", "expected"),
    [
        ("Conv", "convolution"), ("ConvTranspose", "convolution"), ("ConvInteger", "convolution"), ("Gemm", "matrix"),
        ("QLinearMatMul", "matrix"), ("LSTM", "matrix"), ("Attention", "matrix"), ("Relu", "other"), ("Unknown", "other"),
    ],
)  # fmt: skip
def test_the_class_of_an_op_follows_from_its_type(op_type: str, expected: str) -> None:
    assert op_class(op_type) == expected


@given(
    flops=st.floats(0, 1e15),
    size=st.floats(0, 1e12),
    factor=st.floats(1, 100),
    op_type=st.sampled_from(["Conv", "Relu"]),
)
def test_more_work_never_takes_less_time(flops: float, size: float, factor: float, op_type: str) -> None:
    cost = RooflineCost()
    less = seconds(Op("a", op_type, flops=flops, bytes_accessed=size), GPU, HOST, cost=cost)
    more = seconds(Op("a", op_type, flops=flops * factor, bytes_accessed=size * factor), GPU, HOST, cost=cost)
    assert all(m >= s for m, s in zip(more, less, strict=True))


def test_an_efficiency_of_zero_is_refused() -> None:
    with pytest.raises(InvalidTopology, match="efficiency"):
        Efficiency(0.0, 0.5)
