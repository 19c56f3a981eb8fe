"""The fit of a roofline recovers the efficiencies and launch seconds behind its input."""

import numpy as np
import pytest

from gnnplace.arrays import FloatArray
from gnnplace.cost.calibrate import fit_roofline, fit_segments
from gnnplace.cost.cost_model import Efficiency, RooflineCost
from gnnplace.devices.topology import Device, Topology
from gnnplace.errors import MeasurementFailed
from gnnplace.graph.op_graph import Op, OpGraph

DEVICE = Device("d", peak_flops_per_s={"float32": 1e12}, memory_bandwidth_bytes_per_s=1e11)
TRUE = {"convolution": Efficiency(0.55, 0.6), "matrix": Efficiency(0.8, 0.5), "other": Efficiency(0.05, 0.9)}
LAUNCH_S = 4e-6


def random_graph(seed: int, num_ops: int = 300) -> OpGraph:
    """Ops of all classes and sizes, bound by computing, by memory, and by the launch."""
    rng = np.random.default_rng(seed)
    types = rng.choice(["Conv", "MatMul", "Relu"], num_ops)
    work = [(float(10 ** rng.uniform(3, 9)), float(10 ** rng.uniform(2, 8))) for _ in range(num_ops)]
    return OpGraph.build(
        "random", [Op(f"op{i}", str(types[i]), flops=f, bytes_accessed=b) for i, (f, b) in enumerate(work)]
    )


def true_seconds(graph: OpGraph) -> FloatArray:
    return RooflineCost(TRUE, launch_s=LAUNCH_S).op_time_s(graph, Topology("t", (DEVICE,)))[:, 0]


@pytest.mark.parametrize("seed", range(5))
def test_known_efficiencies_and_the_launch_are_recovered(seed: int) -> None:
    graph = random_graph(seed)
    fit = fit_roofline(graph, DEVICE, true_seconds(graph))
    assert fit.relative_error < 1e-6
    assert fit.launch_s == pytest.approx(LAUNCH_S, rel=1e-2)
    for name, efficiency in TRUE.items():
        assert fit.efficiency[name].compute == pytest.approx(efficiency.compute, rel=1e-2)
        assert fit.efficiency[name].bandwidth == pytest.approx(efficiency.bandwidth, rel=1e-2)


def test_noise_fused_ops_and_single_outliers_hardly_move_the_fit() -> None:
    graph = random_graph(7)
    rng = np.random.default_rng(1)
    measured = true_seconds(graph) * rng.lognormal(0.0, 0.05, graph.num_ops)
    measured[rng.choice(graph.num_ops, 15, replace=False)] *= 10
    measured[::20] = 0.0
    measured[1::40] = np.nan
    fit = fit_roofline(graph, DEVICE, measured)
    assert fit.efficiency["convolution"].compute == pytest.approx(0.55, rel=0.15)
    assert fit.efficiency["other"].bandwidth == pytest.approx(0.9, rel=0.15)


def test_the_fit_of_one_op_is_exact_and_has_only_its_class() -> None:
    graph = OpGraph.build("one", [Op("a", "Relu", flops=1e6, bytes_accessed=1e6)])
    fit = fit_roofline(graph, DEVICE, np.array([1e-3]))
    assert set(fit.efficiency) == {"other"}
    assert fit.relative_error < 1e-9


def test_ops_without_work_determine_only_the_launch() -> None:
    graph = OpGraph.build("views", [Op(f"r{i}", "Reshape") for i in range(3)])
    fit = fit_roofline(graph, DEVICE, np.array([1e-6, 2e-6, 9e-6]))
    assert fit.launch_s == pytest.approx(2e-6)


def test_a_graph_without_measured_ops_is_refused() -> None:
    graph = OpGraph.build("none", [Op("a", "Relu", flops=1.0)])
    for nothing in (np.array([np.nan]), np.array([0.0])):
        with pytest.raises(MeasurementFailed, match="profile it again"):
            fit_roofline(graph, DEVICE, nothing)


def test_segment_costs_are_recovered_through_the_noise_of_long_segments() -> None:
    rng = np.random.default_rng(0)
    expected_s, arrived_bytes = 10 ** rng.uniform(-5, -2, 400), rng.integers(0, 10**6, 400).astype(float)
    measured_s = expected_s * rng.normal(1.0, 0.02, 400) + 6e-5 + arrived_bytes / 2e10
    found = fit_segments(expected_s, arrived_bytes, measured_s)
    assert found.overhead_s == pytest.approx(6e-5, rel=0.2)
    assert found.intake_s_per_byte == pytest.approx(1 / 2e10, rel=0.3)


def test_segments_that_take_less_than_their_ops_have_no_costs_of_their_own() -> None:
    found = fit_segments(np.full(5, 1e-3), np.ones(5), np.full(5, 9e-4))
    assert (found.overhead_s, found.intake_s_per_byte) == (0.0, 0.0)
