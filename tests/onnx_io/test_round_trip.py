"""A placed model is the model that was placed, and what it says besides is for ONNX Runtime to act on."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.devices.topology import Device, Topology
from gnnplace.onnx_io.annotate import LAYER_KEY, annotated_segments, layer_assignment, write_placed
from gnnplace.onnx_io.manifest import MANIFEST, read_manifest, write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import Segment
from gnnplace.running.part_session import infer_types

TEXT = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1], producer_name: "exporter", producer_version: "1.2",
           domain: "org.example", model_version: 7, doc_string: "about", metadata_props: ["key": "value"]>
    net (float[N, 4] x, bool on, float[4] r = {1, 1, 1, 1}) => (float[N, 4] y, float[4] w, float[N, 4] z)
    <float[4] w = {1, 2, 3, 4}, float[1, 4] v = {5, 6, 7, 8}>
    { [first] a = Add(x, w)  [second] b = com.microsoft.QuickGelu<alpha=1.5>(a)  [third] c = Clip(b, , )
      [fourth] d = If (on) <then_branch = t () => (float[N, 4] p) { [inner] p = Mul(c, v) },
                            else_branch = e () => (float[N, 4] q) { [other] q = Sub(c, v) }>
      [fifth] y, = Dropout(d)  [sixth] z = Mul(y, r) }"""
FEED = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "on": np.array(True)}
ASSIGNMENT, STAGES = [0, 1, 1, 0, 1, 0], [0, 1, 1, 2, 3, 4]


def read(path: Path) -> OnnxModel:
    return read_onnx(path, infer_types=infer_types)


def pair(*names: str) -> Topology:
    return Topology("pair", tuple(map(Device, names)))


@pytest.fixture
def original(tmp_path: Path) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT.replace("c = Clip(b, , )", "c = Clip(b)").replace("y, = ", "y = "))
    proto.graph.doc_string = "of the graph"
    proto.graph.input[0].doc_string = "what comes in"
    proto.graph.input[0].type.denotation = "TENSOR"
    proto.graph.node[1].doc_string = "of a node"
    proto.graph.node[2].metadata_props.add(key="layer", value="3")
    proto.graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="w"
    )
    onnx.save(proto, tmp_path / "model.onnx")
    return proto


@pytest.fixture
def placed(original: onnx.ModelProto, tmp_path: Path) -> onnx.ModelProto:
    model = read(tmp_path / "model.onnx")
    write_placed(model, pair("cpu:0", "cpu:1"), ASSIGNMENT, STAGES, tmp_path / "placed.onnx")
    return onnx.load(tmp_path / "placed.onnx")


def test_a_placed_model_differs_from_the_original_only_by_its_annotation(
    original: onnx.ModelProto, placed: onnx.ModelProto
) -> None:
    onnx.checker.check_model(placed, full_check=True)
    placed.ir_version = original.ir_version
    del placed.configuration[:]
    for node in placed.graph.node:
        del node.device_configurations[:]
        mine = [entry for entry in node.metadata_props if entry.key == "gnnplace.device"]
        assert len(mine) == 1
        node.metadata_props.remove(mine[0])
    for proto in (original, placed):
        bodies = [attribute.g for node in proto.graph.node for attribute in node.attribute]
        for graph in (proto.graph, *bodies):
            del graph.value_info[:]  # inferred types were added
            for node in graph.node:
                node.domain = node.domain  # stated as empty, or not stated
    mine, theirs = (str(proto).splitlines() for proto in (placed, original))
    assert mine == theirs


def test_the_placement_comes_back_as_devices_and_segments(placed: onnx.ModelProto, tmp_path: Path) -> None:
    devices, found = annotated_segments(read_onnx(tmp_path / "placed.onnx"))
    assert devices == ("cpu:0", "cpu:1")
    assert found == tuple(
        Segment(ASSIGNMENT[STAGES.index(s)], ops) for s, ops in enumerate([(0,), (1, 2), (3,), (4,), (5,)])
    )


CONSTANT = """g (float[2, 2] x) => (float[2, 2] y)
    <float[2, 2] k = {1, 2, 3, 4}> { w = Softmax(k)  a = MatMul(x, w)  b = Neg(a)  y = MatMul(b, w) }"""
"""Each part that reads `w` computes it."""
BODY = """g (float[2] x, bool on) => (float[2] y)
    { a = If (on) <then_branch = t () => (float[2] p) { b = Exp(x)  p = Neg(b) },
                   else_branch = e () => (float[2] q) { q = Neg(x) }>
      b = Abs(a)  y = Neg(b) }"""


@pytest.mark.parametrize(
    ("text", "assignment", "stages", "expected"),
    [
        pytest.param(CONSTANT, [1, 0, 0, 1], [1, 0, 0, 1], [(1, 2), (0, 3)], id="a constant op of a later stage"),
        pytest.param(BODY, [0, 1, 0], [0, 1, 2], [(0,), (1,), (2,)], id="a name that a body uses for another value"),
    ],
)
def test_a_legal_annotation_is_read(
    text: str, assignment: list[int], stages: list[int], expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / "model.onnx")
    write_placed(read(tmp_path / "model.onnx"), pair("cpu:0", "cpu:1"), assignment, stages, tmp_path / "placed.onnx")
    assert [segment.ops for segment in annotated_segments(read_onnx(tmp_path / "placed.onnx"))[1]] == expected


def test_one_session_with_a_cpu_and_a_gpu_reads_the_device_of_each_op(
    original: onnx.ModelProto, tmp_path: Path
) -> None:
    model = read(tmp_path / "model.onnx")
    write_placed(model, pair("cpu:0", "cuda:1"), ASSIGNMENT, STAGES, tmp_path / "placed.onnx")
    found = [
        {entry.key: entry.value for entry in node.metadata_props}[LAYER_KEY]
        for node in onnx.load(tmp_path / "placed.onnx").graph.node
    ]
    assert found == ["gnnplace_gpu" if device else "gnnplace_cpu" for device in ASSIGNMENT]
    segments = [Segment(device, (op,)) for op, device in enumerate(ASSIGNMENT)]
    write_parts(model, segments, ("cpu:0", "cuda:1"), tmp_path / "parts")
    (entry,) = json.loads((tmp_path / "parts" / MANIFEST).read_text())["layer_assignment"].items()
    assert read_manifest(tmp_path / "parts").layer_assignment == dict([entry])

    wanted = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"]).run(None, FEED)
    options = ort.SessionOptions()
    options.add_session_config_entry(*entry)
    # There is no GPU that the rule could be about; its ops then run on the CPU.
    outputs = ort.InferenceSession(tmp_path / "placed.onnx", options, providers=["CPUExecutionProvider"]).run(
        None, FEED
    )
    assert all(np.array_equal(one, other) for one, other in zip(outputs, wanted, strict=True))
    spoilt = ort.SessionOptions()
    spoilt.add_session_config_entry(entry[0], entry[1].replace(")", ""))
    with pytest.raises(Exception, match=r"(?i)layer|invalid"):  # so the rules above are read
        ort.InferenceSession(tmp_path / "placed.onnx", spoilt, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "names", [("cpu:0", "cpu:1"), ("cpu:0", "cuda:0", "cuda:1"), ("cpu:0", "ep:OpenVINO:CPU"), ("k40-0", "k40-1")]
)
def test_device_sets_beyond_one_session_have_no_layer_annotation(
    original: onnx.ModelProto, names: tuple[str, ...], tmp_path: Path
) -> None:
    write_placed(read(tmp_path / "model.onnx"), pair(*names), ASSIGNMENT, STAGES, tmp_path / "placed.onnx")
    keys = {entry.key for node in onnx.load(tmp_path / "placed.onnx").graph.node for entry in node.metadata_props}
    assert keys == {"gnnplace.device", "layer"}
    assert layer_assignment(names) == {}
