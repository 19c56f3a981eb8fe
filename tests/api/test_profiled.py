"""Measurements before a search, and reuse of earlier ones."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest

from gnnplace.api import measuring, problem, set_up
from gnnplace.api.measuring import profiled, profiled_anew
from gnnplace.api.problem_setup import stored_costs
from gnnplace.api.workload import Workload, load_workload
from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, MeasuredCost
from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.measuring.link_probe import device_pairs
from gnnplace.onnx_io.model import OnnxModel

RATES = {"peak_flops_per_s": {"float32": 1e10}, "memory_bandwidth_bytes_per_s": 1e10}


def devices(*kinds: str) -> Topology:
    """A device for each kind, with links between all of them."""
    names = [f"cpu:{number}" for number in range(len(kinds))]
    links = tuple(Link(a, b, 1.0, 1.0) for a in names for b in names if a != b)
    return Topology("t", tuple(Device(name, kind, **RATES) for name, kind in zip(names, kinds, strict=True)), links)


def costs_between(source: str, target: str) -> LinkCosts:
    """Different costs for every two devices."""
    return LinkCosts(1e-6 * (int(source[-1]) + 1) * (int(target[-1]) + 1), 1e9)


class Machine:
    """Replaces the devices, and counts profiles and probes."""

    def __init__(self) -> None:
        self.models = 0
        self.op_s = self.now_op_s = self.call_s = 1e-3
        self.probed: list[tuple[str, str]] = []

    def costs(
        self, model: OnnxModel, topology: Topology, rng: object, pairs: object = None
    ) -> tuple[CostStore, dict, dict]:
        self.models += 1
        kinds = {
            device.kind: KindCosts(dict.fromkeys(model.graph.signatures, self.op_s), self.call_s)
            for device in topology.devices
        }
        links = self.links(device_pairs(topology) if pairs is None else pairs)
        return CostStore(kinds, {}, links), {}, {kind: np.arange(model.graph.num_ops) for kind in kinds}

    def dispatch_overhead_s(self, name: str, worker: object = None) -> float:
        return self.call_s

    def session_s(self, model: OnnxModel, *_: object) -> float:
        return model.graph.num_ops * self.now_op_s

    def links(self, pairs: list[tuple[str, str]], worker: object = None) -> Mapping[tuple[str, str], LinkCosts]:
        self.probed += pairs
        return {ends: costs_between(*pair) for pair in pairs for ends in (pair, pair[::-1])}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "measured_costs", machine.costs)
    monkeypatch.setattr(measuring, "session_s", machine.session_s)
    monkeypatch.setattr(measuring, "probe_links", machine.links)
    monkeypatch.setattr(measuring, "dispatch_overhead_s", machine.dispatch_overhead_s)
    monkeypatch.setattr(measuring, "probing_process", nullcontext)
    monkeypatch.setattr(measuring, "_measure_segments", lambda *_: None)
    return machine


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { a = Exp(x)  y = Cos(a) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    return load_workload(tmp_path / "m.onnx")


def test_each_link_between_equal_kinds_has_its_own_costs(machine: Machine, workload: Workload) -> None:
    topology = devices("x", "x", "x")
    found = MeasuredCost(profiled(workload, topology, 0)).calibrated(topology)
    assert {(link.source, link.target): link.latency_s for link in found.links} == pytest.approx({
        ("cpu:0", "cpu:1"): 2e-6, ("cpu:1", "cpu:0"): 2e-6, ("cpu:0", "cpu:2"): 3e-6,
        ("cpu:2", "cpu:0"): 3e-6, ("cpu:1", "cpu:2"): 6e-6, ("cpu:2", "cpu:1"): 6e-6,
    })  # fmt: skip
    assert stored_costs().links["x", "x"].latency_s == pytest.approx(3e-6)


def test_each_link_is_probed_once_when_it_is_first_needed(machine: Machine, workload: Workload) -> None:
    for topology in (devices("x", "x"), devices("x", "x"), devices("x", "x", "x")):
        profiled(workload, topology, 0)
    assert machine.probed == [("cpu:0", "cpu:1"), ("cpu:0", "cpu:2"), ("cpu:1", "cpu:2")]
    assert machine.models == 1


def test_links_are_probed_again_when_names_stand_for_another_kind(machine: Machine, workload: Workload) -> None:
    profiled(workload, devices("x", "x"), 0)
    profiled(workload, devices("y", "y"), 0)
    assert machine.probed == [("cpu:0", "cpu:1")] * 2


def test_links_that_were_probed_on_a_busy_machine_are_probed_again(machine: Machine, workload: Workload) -> None:
    topology, pair = devices("x", "x"), ("cpu:0", "cpu:1")
    machine.call_s = 5e-3
    profiled(workload, topology, 0)
    assert machine.probed == [pair]
    machine.call_s, machine.op_s, machine.now_op_s = 1e-3, 1e-4, 1e-4  # the other work has ended
    profiled(workload, topology, 0)
    assert machine.probed == [pair] * 2
    profiled(workload, topology, 0)
    assert machine.probed == [pair] * 2
    assert stored_costs().kinds["x"].dispatch_overhead_s == 1e-3


def test_with_more_than_six_pairs_one_link_per_two_kinds_is_probed(machine: Machine, workload: Workload) -> None:
    profiled(workload, devices("x", "x", "x", "x"), 0)
    assert len(machine.probed) == 6
    profiled(workload, devices("x", "x", "x", "x", "y"), 0)
    assert len(machine.probed) == 7
    assert "cpu:4" in machine.probed[-1]


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.0, 1.4, 3.0])
def test_a_model_whose_stored_profile_no_longer_holds_is_profiled_again(
    machine: Machine, workload: Workload, factor: float
) -> None:
    topology, heard = devices("x"), list[str]()
    first = profiled(workload, topology, 0, heard.append)
    machine.op_s = machine.now_op_s = factor * 1e-3
    found = profiled(workload, topology, 0, heard.append)
    if factor in (0.3, 3.0):
        assert set(found.kinds["x"].op_s.values()) == {factor * 1e-3}  # the old seconds are in no median
        (warning,) = heard
        assert warning.startswith("m.onnx takes ")
        assert warning.endswith(" on cpu:0, but 2.00 ms in its stored profile; it is profiled again")
        assert machine.models == 2
        assert profiled(workload, topology, 0, heard.append) == found
        assert machine.models == 2
    else:
        assert (found, heard, machine.models) == (first, [], 1)


def test_the_warning_is_among_those_of_the_answer(machine: Machine, workload: Workload) -> None:
    assert workload.onnx is not None
    for op_s, is_new in ((1e-3, False), (1e-2, True)):
        machine.op_s = machine.now_op_s = op_s
        warnings = set_up(workload.onnx.path, "cpu:0", measure=True, force=True).warnings
        assert any("is profiled again" in text for text in warnings) == is_new


def test_the_warning_is_heard_where_the_answer_has_none(machine: Machine, workload: Workload) -> None:
    assert workload.onnx is not None
    for op_s, is_new in ((1e-3, False), (1e-2, True)):
        machine.op_s = machine.now_op_s = op_s
        heard = list[str]()
        problem(workload.onnx.path, "cpu:0", measure=True, force=True, on_warning=heard.append)
        assert any("is profiled again" in text for text in heard) == is_new


def test_a_profile_always_probes_every_two_devices(machine: Machine, workload: Workload) -> None:
    topology = devices(*"xxxxx")
    assert workload.onnx is not None
    for _ in range(2):
        costs, _ = profiled_anew(workload.onnx, topology, 0)
    assert machine.probed == device_pairs(topology) * 2
    assert len(costs.device_links) == 20
