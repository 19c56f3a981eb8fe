import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.devices.topology import Device, Topology
from gnnplace.errors import InvalidPlacement, UnsupportedModel
from gnnplace.onnx_io.annotate import annotate, check_annotation, write_placed
from gnnplace.onnx_io.model import OnnxModel

PAIR = Topology("pair", (Device("cpu:0"), Device("cpu:1")))


@pytest.fixture
def annotated(small_model: Callable[[str], OnnxModel]) -> onnx.ModelProto:
    proto = annotate(small_model("chain"), PAIR, [0, 1, 1, 0], [0, 1, 1, 2])
    assert check_annotation(proto) == []
    return proto


def test_a_placed_model_passes_the_checker_and_runs_like_the_original(
    each_small_model: OnnxModel, random_inputs: Callable[[OnnxModel], Mapping[str, np.ndarray]], tmp_path: Path
) -> None:
    model, count = each_small_model, each_small_model.graph.num_ops
    write_placed(model, PAIR, [op % 2 for op in range(count)], list(range(count)), tmp_path / "placed.onnx")
    proto = onnx.load(tmp_path / "placed.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert check_annotation(proto) == []
    assert 11 <= proto.ir_version <= 13
    assert {o.domain: o.version for o in proto.opset_import} == dict(model.model.opset_imports)
    feed = random_inputs(model)
    found, wanted = (
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
        for path in (tmp_path / "placed.onnx", model.path)
    )
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found, wanted, strict=True))


def test_a_node_carries_its_stage_and_a_one_device_spec_per_output(annotated: onnx.ModelProto) -> None:
    (configuration,) = annotated.configuration
    assert (configuration.num_devices, list(configuration.device)) == (2, ["cpu:0", "cpu:1"])
    (placed,) = annotated.graph.node[1].device_configurations
    (spec,) = placed.sharding_spec
    assert (placed.configuration_id, placed.pipeline_stage) == (configuration.name, 1)
    assert (spec.tensor_name, list(spec.device), len(spec.sharded_dim)) == ("b", [1], 0)
    assert [(entry.key, entry.value) for entry in annotated.graph.node[1].metadata_props] == [
        ("gnnplace.device", "cpu:1")
    ]
    assert annotated.graph.node[0].device_configurations[0].HasField("pipeline_stage")  # stage 0 is stated too


def test_a_new_placement_replaces_an_older_one(
    small_model: Callable[[str], OnnxModel], onnx_model: Callable[..., OnnxModel]
) -> None:
    older = annotate(small_model("chain"), PAIR, [0, 0, 0, 0], [0, 0, 0, 0])
    newer = annotate(onnx_model(older), PAIR, [1, 1, 1, 1], [0, 0, 0, 0])
    assert check_annotation(newer) == []
    assert newer.graph.node[0].metadata_props[0].value == "cpu:1"


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda m: m.configuration.pop(), "there are 0 device configurations"),
        (lambda m: setattr(m.configuration[0], "num_devices", 3), "num_devices is 3 for 2"),
        (lambda m: setattr(m, "ir_version", 8), "IR version is 8"),
        (lambda m: setattr(m.graph.node[0], "name", "Exp_1"), "names are not unique"),
        (lambda m: m.graph.node[0].device_configurations.pop(), "has the configurations \\[\\]"),
        (lambda m: setattr(m.graph.node[0].device_configurations[0], "configuration_id", "x"), "\\['x'\\]"),
        (lambda m: m.graph.node[0].device_configurations[0].ClearField("pipeline_stage"), "has no pipeline stage"),
        (lambda m: setattr(m.graph.node[0].device_configurations[0], "pipeline_stage", 1), "stage 1 is on 'cpu:0' and"),
        (
            lambda m: setattr(m.graph.node[3].device_configurations[0], "pipeline_stage", 0),
            "of stage 0 reads 'c' of stage 1",
        ),
        (lambda m: setattr(m.graph.node[0].metadata_props[0], "value", "tpu"), "is on 'tpu'"),
        (lambda m: setattr(m.graph.node[0].metadata_props[0], "value", "cpu:1"), "on the devices \\[0\\]"),
        (lambda m: m.graph.node[0].device_configurations[0].sharding_spec[0].device.append(1), "devices \\[0, 1\\]"),
        (lambda m: m.graph.node[0].device_configurations[0].sharding_spec[0].sharded_dim.add(axis=0), "is sharded"),
        (lambda m: m.graph.node[0].device_configurations[0].sharding_spec.pop(), "has sharding specs for \\[\\]"),
    ],
)
def test_every_fault_that_the_onnx_checker_accepts_is_described(
    annotated: onnx.ModelProto, spoil: Callable[[onnx.ModelProto], object], problem: str
) -> None:
    spoil(annotated)
    assert re.search(problem, check_annotation(annotated)[0])


@pytest.mark.parametrize(
    ("assignment", "message"), [([0, 1], "2 ops are placed"), ([0, 0, 0, 2], "is on device 2; there are 2")]
)
def test_a_placement_of_another_model_is_refused(
    small_model: Callable[[str], OnnxModel], assignment: list[int], message: str
) -> None:
    with pytest.raises(InvalidPlacement, match=message):
        annotate(small_model("chain"), PAIR, assignment, [0] * len(assignment))


def test_an_operator_set_that_cannot_be_run_is_refused(small_model: Callable[[str], OnnxModel]) -> None:
    model = small_model("chain")
    model.model.opset_imports[""] = 28
    with pytest.raises(UnsupportedModel, match="opset 28"):
        annotate(model, PAIR, [0] * 4, [0] * 4)
