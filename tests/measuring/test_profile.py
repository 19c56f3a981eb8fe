"""Profiles of real sessions: seconds per op, their sum, and the cost model that they make."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, MeasuredCost, read_costs, write_costs
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.errors import InvalidTopology
from gnnplace.graph.op_graph import Op, OpGraph
from gnnplace.measuring import link_probe, profile
from gnnplace.measuring.link_probe import (
    FLOATS,
    device_pairs,
    dispatch_overhead_s,
    fitted_link,
    probe_link,
    probe_links,
    probing_process,
)  # fmt: skip
from gnnplace.measuring.profile import by_signature, measured_costs, profile_model, without_profiler
from gnnplace.measuring.profile_job import PROFILE, ProfileJob
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.optimised import OPTIMISED
from tests.measuring_processes import CORE, CORES, QUICK
from tests.quick_measuring import measure_quickly

two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def model(tmp_path: Path) -> OnnxModel:
    """A large product, the same product again, a small product, and two elementwise ops."""
    rng = np.random.default_rng(0)
    weights = [("w", 256, 256), ("u", 256, 2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "large"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("MatMul", ["b", "w"], ["c"], "again"),
        helper.make_node("MatMul", ["c", "u"], ["d"], "small"),
        helper.make_node("Exp", ["d"], ["y"], "exp"),
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(rng.random(shape, dtype=np.float32), name) for name, *shape in weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return read_onnx(tmp_path / "m.onnx", {"N": 256})


def test_ops_on_a_gpu_share_the_seconds_of_the_session_as_parts_take_them(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[ProfileJob] = []

    class Worker(nullcontext["Worker"]):
        def __enter__(self) -> "Worker":
            return self

        def samples(self, job: ProfileJob, context: str, remedy: str) -> np.ndarray:
            jobs.append(job)
            return np.full((1, 5), 30.0)

    monkeypatch.setattr(profile, "check_offered", lambda device: None)
    monkeypatch.setattr(profile, "process_for", lambda *_: Worker())
    monkeypatch.setattr(profile, "measured_shares", lambda *_: np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    seconds, kernels = profile_model(model, "cuda:0", {}, QUICK)
    assert seconds.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert kernels.tolist() == [0, 1, 2, 3, 4]
    assert [job.part.device for job in jobs] == ["cuda:0"]


def test_ops_of_a_core_lose_what_the_profiler_adds_before_they_are_scaled(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled_us = {"large": 102, "tanh": 3, "again": 52, "small": 3, "exp": 3}

    class Worker(nullcontext["Worker"]):
        def __enter__(self) -> "Worker":
            return self

        def samples(self, job: ProfileJob, context: str, remedy: str) -> np.ndarray:
            runs = job.rule.warmup + 3
            events = [
                {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds}
                for name, microseconds in profiled_us.items()
            ]
            (job.folder / PROFILE).write_text(json.dumps(events * runs), encoding="utf-8")
            shutil.copy(model.path, job.folder / OPTIMISED)
            return np.array([[400e-6] * 5, [153e-6] * 5])

    monkeypatch.setattr(profile, "process_for", lambda *_: Worker())
    seconds, _ = profile_model(model, CORE, {}, QUICK)
    assert seconds == pytest.approx([100e-6, 1e-6, 50e-6, 1e-6, 1e-6])


def inputs(model: OnnxModel) -> dict[str, np.ndarray]:
    return sample_inputs(model, np.random.default_rng(0))


def test_ops_with_more_work_have_more_seconds(model: OnnxModel) -> None:
    op_s, _ = profile_model(model, CORE, inputs(model), QUICK)
    seconds = dict(zip(model.graph.op_names, op_s, strict=True))
    assert min(seconds["large"], seconds["again"]) > max(seconds["small"], seconds["exp"])


def test_what_the_profiler_adds_is_taken_off_every_kernel_alike() -> None:
    short = {f"short {number}": 2e-6 for number in range(30)}
    found = without_profiler({"long": 101.5e-6, "middle": 11.5e-6, **short}, 125e-6)
    assert found["long"] == pytest.approx(100e-6)
    assert found["middle"] == pytest.approx(10e-6)
    assert found["short 7"] == pytest.approx(0.5e-6)


@pytest.mark.parametrize(
    ("kernel_s", "session_s", "expected_s"),
    [
        pytest.param([100e-6, 50e-6], 200e-6, [100e-6, 50e-6], id="the session is longer: nothing was added"),
        pytest.param(
            [1e-3, 2e-3], 1.5e-3, [0.996e-3, 1.996e-3], id="more than a profiler adds: the rest is no part of it"
        ),
        pytest.param([2e-6] * 9 + [400e-6], 300e-6, [0.0] * 9 + [398e-6], id="no kernel takes less than nothing"),
        pytest.param([], 1e-3, [], id="no kernels"),
    ],
)
def test_what_the_profiler_adds_is_bounded(kernel_s: list[float], session_s: float, expected_s: list[float]) -> None:
    found = without_profiler({str(number): seconds for number, seconds in enumerate(kernel_s)}, session_s)
    assert list(found.values()) == pytest.approx(expected_s)


def test_profiling_leaves_no_file_and_does_not_pin_the_calling_thread(
    model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    profile_model(model, CORE, inputs(model), QUICK)
    assert os.sched_getaffinity(0) == set(CORES)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_device_is_refused(model: OnnxModel) -> None:
    with pytest.raises(InvalidTopology, match="does not exist on this machine"):
        profile_model(model, "k40:0", inputs(model), QUICK)


def test_ops_of_equal_signatures_get_their_mean_so_that_the_sum_stays() -> None:
    graph = OpGraph.build("g", [Op("a", signature="s"), Op("b", signature="s"), Op("c", signature="t"), Op("d")])
    assert by_signature(graph, np.array([1.0, 3.0, 5.0, 7.0])) == {"s": 2.0, "t": 5.0}


@two_cores
def test_measured_costs_hold_the_ops_of_the_model_and_the_links(
    model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_quickly(QUICK, monkeypatch.setattr)
    topology = load_topology(f"cpu:{CORES[0]},cpu:{CORES[1]}")
    store, fits, _ = measured_costs(model, topology, np.random.default_rng(0), QUICK)
    (kind,) = {device.kind for device in topology.devices}
    assert set(store.kinds) == set(fits) == {kind}
    assert set(store.links) == {(kind, kind)}
    first, second = topology.device_names
    assert set(store.device_links) == {(first, second), (second, first)}
    write_costs(store, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == store
    cost = MeasuredCost(store)
    seconds = cost.op_time_s(model.graph, topology)
    assert seconds.sum(axis=0) == pytest.approx(sum(store.kinds[kind].op_s[s] for s in model.graph.signatures))
    calibrated = cost.calibrated(topology)
    call_s, costs = store.kinds[kind].dispatch_overhead_s, store.links[kind, kind]
    assert call_s is not None
    assert calibrated.devices[0].dispatch_overhead_s == pytest.approx(call_s + costs.waking_s)
    assert [link.latency_s for link in calibrated.links] == pytest.approx([costs.next_value_s, costs.next_value_s])


def test_a_session_call_takes_some_microseconds() -> None:
    with probing_process() as worker:
        assert 1e-7 < dispatch_overhead_s(CORE, worker, QUICK) < 1e-2


@two_cores
def test_a_handover_has_a_latency_and_a_bandwidth() -> None:
    with probing_process() as worker:
        costs = probe_link(f"cpu:{CORES[0]}", f"cpu:{CORES[1]}", worker, QUICK)
    assert costs.next_value_s is not None
    assert 0 <= costs.next_value_s <= costs.latency_s < 1e-1
    assert 1e6 < costs.bandwidth_bytes_per_s <= 1e11


def test_a_link_is_fitted_to_the_seconds_of_its_hand_overs() -> None:
    latency_s, size_s = 1e-3, 4 * np.array([0, *FLOATS[1:]]) / 1e9
    costs = fitted_link((latency_s + size_s).tolist())
    assert (costs.latency_s, costs.bandwidth_bytes_per_s) == pytest.approx((latency_s, 1e9))
    assert fitted_link([1e-3] * 4) == LinkCosts(1e-3, pytest.approx(1e11))  # bytes make no difference


def test_the_probe_of_many_values_tells_what_each_further_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def per_part_s(patterns: object, num_floats: int, worker: object, rule: object, values: int) -> list[float]:
        return [1e-4 + 1e-5 + 1e-6 * (values - 1) + 4e-9 * num_floats * (num_floats > 1), 1e-4, 1e-4]

    monkeypatch.setattr(link_probe, "_per_part_s", per_part_s)
    with probing_process() as worker:
        costs = probe_link("cpu:0", "cpu:1", worker)
    assert costs == LinkCosts(pytest.approx(1e-5), pytest.approx(1e9), pytest.approx(1e-6))
    assert costs.waking_s == pytest.approx(9e-6)


def test_linked_devices_form_one_pair_each() -> None:
    names = ("cpu:0", "cpu:1", "cpu:2", "cuda:0")
    links = [("cpu:0", "cpu:1"), ("cpu:1", "cpu:0"), ("cpu:2", "cpu:0"), ("cpu:1", "cuda:0")]
    topology = Topology("t", tuple(map(Device, names, names)), tuple(Link(*ends, 0.0, 1.0) for ends in links))
    assert device_pairs(topology) == [("cpu:0", "cpu:1"), ("cpu:0", "cpu:2"), ("cpu:1", "cuda:0")]
    assert device_pairs(load_topology(CORE)) == []


def test_one_probe_of_a_pair_gives_the_costs_of_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = LinkCosts(1e-6, 1e10), LinkCosts(9e-6, 1e9)
    monkeypatch.setattr(link_probe, "probe_link", lambda source, target, *_: near if source == "cpu:0" else far)
    with probing_process() as worker:
        found = probe_links([("cpu:0", "cpu:1"), ("cpu:1", "cpu:2")], worker)
        assert worker.pid is None
    assert found == {
        ("cpu:0", "cpu:1"): near, ("cpu:1", "cpu:0"): near, ("cpu:1", "cpu:2"): far, ("cpu:2", "cpu:1"): far,
    }  # fmt: skip


@two_cores
def test_only_the_links_of_the_stated_pairs_are_probed(model: OnnxModel) -> None:
    topology = load_topology(f"cpu:{CORES[0]},cpu:{CORES[1]}")
    store, _, _ = measured_costs(model, topology, np.random.default_rng(0), QUICK, pairs=[])
    assert (store.links, store.device_links) == ({}, {})
    assert len(store.kinds) == 1


def test_costs_of_another_machine_do_not_apply_to_this_one(model: OnnxModel) -> None:
    topology = load_topology(CORE)
    store = CostStore({"cpu-of-another-make-x1": KindCosts(dict.fromkeys(model.graph.signatures, 1e9))})
    assert MeasuredCost(store).op_time_s(model.graph, topology).max() < 1.0
