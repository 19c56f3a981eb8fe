"""Small ONNX models that many tests cut, place and run, and a run record that charts and reports draw."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gnnplace.errors import InvalidTopology
from gnnplace.graph.op_graph import Op, OpGraph, Tensor
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.run_record import RunRecord
from gnnplace.running.devices import parse_device
from tests.example_run import example_run

SMALL_MODELS = {
    "chain": """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x)  b = Exp(a)  c = Neg(b)  y = Sigmoid(c) }""",
    "branches": """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y, float[N, 8] both)
        { a = Relu(x)  b = Tanh(z)  c = Add(a, b)  d = Mul(a, z)  y = Sub(c, d)  both = Concat<axis=1>(c, b) }""",
    "shared_weights": """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 2] x) => (float[N, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] bias = {0.5, -0.5}>
        { a = MatMul(x, w)  b = Add(a, bias)  c = MatMul(b, w)  y = Add(c, bias) }""",
    "captured_by_if": """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 2] x, bool on) => (float[N, 2] y)
        <float[2] w = {3, 4}>
        { a = Exp(x)  b = Neg(a)
          c = If (on) <then_branch = t () => (float[N, 2] p) { p = Add(a, w) },
                       else_branch = e () => (float[N, 2] q) { r = Mul(b, w)  q = Relu(r) }>
          y = Mul(c, a) }""",
    "captured_by_loop": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y)
        <int64 trips = {3}, bool go = {1}>
        { a = Sigmoid(x)  b = Add(x, x)
          c = Loop (trips, go, b) <body = l (int64 i, bool on, float[2] s) => (bool still, float[2] t)
                { still = Identity(on)  t = Mul(s, a) }>
          y = Add(c, a) }""",
    "initialiser_as_output": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, float[2] w, float[2] x) <float[2] w = {1, 2}> { a = Add(x, w)  y = Exp(a) }""",
    "overridable_initialiser": """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x, float[2] w = {1, 2}) => (float[2] y, float[2] w) { a = Add(x, w)  b = Exp(a)  y = Mul(b, w) }""",
    "opset_9": """<ir_version: 4, opset_import: ["": 9]>
        g (float[1, 2, 4, 4] x) => (float[1, 32] y)
        <float[2, 2, 1, 1] w = {1, -1, 0.5, 2}>
        { a = Conv(x, w)  b = Relu(a)  c = MaxPool<kernel_shape=[1, 1]>(b)  d = Flatten(c)  y = Softmax(d) }""",
    "several_outputs": """<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 2] x) => (float[2, 2] y, float[4, 1] v)
        <int64[1] k = {1}>
        { a, b = Split<axis=0>(x)  v, places = TopK(x, k)  y = Add(a, b) }""",
}


@pytest.fixture
def run() -> RunRecord:
    """A new `example_run`."""
    return example_run()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache of measured costs."""
    monkeypatch.setenv("GNNPLACE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def onnx_model(tmp_path: Path) -> Callable[..., OnnxModel]:
    """Makes the in-memory model of a proto or of a text, with an op per node."""

    def build(source: onnx.ModelProto | str, path: Path = tmp_path / "model.onnx") -> OnnxModel:
        proto = onnx.parser.parse_model(source) if isinstance(source, str) else source
        for number, node in enumerate(proto.graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        path.write_bytes(proto.SerializeToString())
        model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
        ir.external_data.set_base_dir(model.graph, path.parent)
        return OnnxModel(path, hashlib.sha256(path.read_bytes()).hexdigest(), model, _op_graph(model), {})

    return build


@pytest.fixture
def small_model(onnx_model: Callable[..., OnnxModel]) -> Callable[[str], OnnxModel]:
    """The small model of a name in `SMALL_MODELS`."""
    return lambda name: onnx_model(SMALL_MODELS[name])


@pytest.fixture(params=sorted(SMALL_MODELS))
def each_small_model(request: pytest.FixtureRequest, small_model: Callable[[str], OnnxModel]) -> OnnxModel:
    """Every small model in turn."""
    return small_model(request.param)


@pytest.fixture
def random_inputs() -> Callable[[OnnxModel], Mapping[str, np.ndarray]]:
    """Values for the inputs of a model that have no default; symbolic sizes are 3."""

    def draw(model: OnnxModel) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(7)
        values = {}
        for value in model.model.graph.inputs:
            if value.is_initializer():
                continue
            shape = tuple(dim if isinstance(dim, int) else 3 for dim in value.shape or ())
            values[str(value.name)] = (
                rng.standard_normal(shape).astype(value.dtype.numpy()) if shape else np.array(True)
            )
        return values

    return draw


def _op_graph(model: ir.Model) -> OpGraph:
    """An op per node; a value that a body captures is read by the node that has the body."""
    names = [str(node.name) for node in model.graph]
    owner = {}
    for node, name in zip(model.graph, names, strict=True):
        bodies = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type.name == "GRAPH"]
        owner.update(dict.fromkeys([node, *(n for b in bodies for n in ir.traversal.RecursiveGraphIterator(b))], name))
    tensors = [
        Tensor(name, 16, tuple(owner[user] for user, _ in value.uses()))
        for node, name in zip(model.graph, names, strict=True)
        for value in node.outputs
        if value.uses() or value.is_graph_output()
    ]
    return OpGraph.build("small", [Op(n, node.op_type) for n, node in zip(names, model.graph, strict=True)], tensors)


@pytest.fixture
def needs_two_cores() -> None:
    """Skips where there is no `cpu:0` or `cpu:1`."""
    try:
        for name in ("cpu:0", "cpu:1"):
            parse_device(name)
    except InvalidTopology:
        pytest.skip("the machine lacks one of the cores 0 and 1")
