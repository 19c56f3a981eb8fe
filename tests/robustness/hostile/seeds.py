"""Valid files of every kind that gnnplace reads, which mutations start from."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from gnnplace.api import place
from gnnplace.api.options import PlaceOptions
from gnnplace.api.workload import Workload
from gnnplace.arrays import IntArray
from gnnplace.cost.cost_model import Efficiency
from gnnplace.cost.measured import CostStore, KindCosts, LinkCosts, SegmentCosts, write_costs
from gnnplace.devices.detect import allowed_cores
from gnnplace.devices.json_format import topology_to_json
from gnnplace.devices.presets import preset
from gnnplace.devices.spec import load_topology
from gnnplace.devices.topology import Topology
from gnnplace.graph.json_format import graph_to_json
from gnnplace.graph.op_graph import Op, OpGraph, SharedWeight, Tensor
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.sample_inputs import model_from_text
from gnnplace.onnx_io.segments import Segment, segment_numbers
from gnnplace.placement import Placement, save_placement
from tests.robustness.hostile.room import Files, read_files, write_files

_HEAD = '<ir_version: 10, opset_import: ["": 21]>'
_TEXTS = (
    """ g (float[batch, 4] x) => (float[batch, 2] y) <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] bias = {1,2,3}, int64[2] to = {-1, 2}, float[3, 2] v = {1,2,3,4,5,6}>
        { a = MatMul(x, w) b = Add(a, bias) c = Relu(b) d = MatMul(c, v) y = Reshape(d, to) }""",
    """ g (float[1, 3, 8, 8] x, float[2, 3, 3, 3] w) => (float[1, 2] y) <int64[1] axes = {1}>
        { a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) b = MaxPool<kernel_shape = [2, 2]>(a) c = Flatten(b)
          d = ReduceMean<keepdims = 0>(c, axes) e = Shape(x) f = ConstantOfShape<value = float[1] {0.5}>(e) s = ReduceMax<keepdims = 0>(f) t = Mul(d, s)
          u = Concat<axis = 0>(t, t) y = Unsqueeze(u, axes2) k = Constant<value = int64[1] {0}>() axes2 = Identity(k) }""",
    """ g (float[N, 2] x, bool on) => (float[N, 2] y) <float[2] w = {3, 4}>
        { a = Exp(x) c = If (on) <then_branch = t () => (float[N, 2] p) { p = Add(a, w) },
                       else_branch = e () => (float[N, 2] q) { r = Mul(a, w)  q = Relu(r) }> y = Mul(c, a) }""",
    """ g (float[2] x) => (float[2] y, float[3, 2] all) <int64 trips = {3}, bool go = {1}>
        { a = Sigmoid(x) c, all = Loop (trips, go, x) <body = l (int64 i, bool on, float[2] s) => (bool still, float[2] t, float[2] u)
                { still = Identity(on)  t = Mul(s, a) u = Neg(t) }> y = Add(c, a) }""",
    """ g (float[2] first, float[5, 2] x) => (float[2] last, float[5, 2] y)
        { last, y = Scan <num_scan_inputs = 1, body = s (float[2] sum, float[2] next) => (float[2] total, float[2] out)
                { total = Add(sum, next)  out = Identity(total) }>(first, x) }""",
    """ g (float[2, 3] x) => (float[3] y) { i = Constant<value = int64 {1}>() parts = SplitToSequence<axis = 0, keepdims = 0>(x) y = SequenceAt(parts, i) }""",
    """ g (uint8[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float s = {0.1}, uint8 z = {128}, uint8[2, 2, 1, 1] w = {1, 2, 3, 4}, float s2 = {0.2}>
        { a = QLinearConv(x, s, z, w, s, z, s2, z) y = DequantizeLinear(a, s2, z) }""",
)  # fmt: skip
_WITH_FUNCTION = """<ir_version: 10, opset_import: ["": 21, "own": 1], metadata_props: ["gnnplace.state": "{\\"m\\": \\"n\\"}"]>
    g (float[2] x, float[2] m) => (float[2] y, float[2] n) { a = own.twice(x) y = own.twice(a) n = Add(m, y) }
    <domain: "own", opset_import: ["": 21]> twice (p) => (q) { h = Constant<value = float {2.0}>() q = Mul(p, h) }"""
_WITH_OUTSIDE_WEIGHTS = """ g (float[2, 4] x) => (float[2, 4] y)
    <float[4, 4] w = ["location": "weights.bin", "offset": "0", "length": "64"], float[4] v = ["location": "weights.bin", "offset": "64", "length": "16"]>
        { a = MatMul(x, w) b = MatMul(a, w) y = Add(b, v) }"""
_WITH_MAPS = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]> g (float[1, 3] x) => (seq(map(int64, float)) m, bfloat16[1, 3] h)
    <bfloat16[3] b = {16256, 16384, 16448}>
    { a = Relu(x) m = ai.onnx.ml.ZipMap<classlabels_int64s = [7, 8, 9]>(a) c = Cast<to = 16>(a) h = Mul(c, b) }"""
_SPECS = (
    "cpu:0", "cpu:0,cpu:1", "cpu:0-1", "cuda:0[sms=66,slice=1,memory=8GiB]", "ep:OpenVINO:CPU[cores=1,num_of_threads=1]", "k40x4", "v100x2", "auto",
)  # fmt: skip

GRAPH = OpGraph.build(
    "small",
    [
        Op("a", "Conv", {"k40": 0.5, "cpu": 2.0}, 1e6, 1e4, 100, 10, stage=0),
        Op("b", "MatMul", flops=1e7, bytes_accessed=1e5, memory_bytes=5, group="pair"),
        Op("c", "Relu", flops=10.0, group="pair", dtype="float16", stage=1),
        Op("d", "Add", devices=("k40:0", "cpu")),
        Op("alone"),
    ],
    [Tensor("a", 64, ("b", "c")), Tensor("b", 8, ("d",)), Tensor("c", 0, ("d",)), Tensor("d", 4)],
    [SharedWeight(12, ("b", "c"))],
)
TOPOLOGY: Topology = preset("k40x2")


@cache
def models() -> Sequence[Files]:
    """Models of a few ops with every kind of node; one has external weights."""
    texts = [*(_HEAD + text for text in _TEXTS), _WITH_FUNCTION, _WITH_MAPS]
    inside = [{"model.onnx": model_from_text(text)} for text in texts]
    weights = np.arange(20, dtype="<f4").tobytes()
    return [*inside, {"model.onnx": model_from_text(_HEAD + _WITH_OUTSIDE_WEIGHTS), "weights.bin": weights}]


@cache
def graphs() -> Sequence[Files]:
    """Op graphs: one with every field of the format, and one of the zoo."""
    shipped = files("models_zoo").joinpath("networks", "structures")
    plain = [{"graph.json": json.dumps(graph_to_json(graph)).encode()} for graph in (GRAPH, _model().graph)]
    return [*plain, {"graph.json.gz": shipped.joinpath("alexnet_2018.json.gz").read_bytes()}]


@cache
def topologies() -> Sequence[Files]:
    return [{"topology.json": json.dumps(topology_to_json(preset(name))).encode()} for name in ("k40x2", "k40x4")]


@cache
def placements() -> Sequence[Files]:
    """Placements of `GRAPH` on `TOPOLOGY`, with priorities and without."""
    found = [Placement(np.array([0, 1, 1, 0, 2]), priorities) for priorities in (None, np.arange(5.0, 0.0, -1.0))]
    save = partial(save_placement, graph=GRAPH, topology=TOPOLOGY, facts={"seed": 0})
    return [_written("placement.json", partial(save, placement=placement)) for placement in found]


@cache
def costs() -> Sequence[Files]:
    k40 = KindCosts({"s": 0.1, "": 1e-6}, 1e-5, SegmentCosts(1e-5, 1e-10), {"other": Efficiency(0.5, 0.5)}, 1e-6)
    links = {("k40", "cpu"): LinkCosts(1e-5, 1e10), ("k40", "k40"): LinkCosts(1e-5, 1e10)}
    store = CostStore({"k40": k40}, links, {("k40:0", "k40:1"): LinkCosts(1e-6, 1e11)})
    return [_written("costs.json", partial(write_costs, store))]


@cache
def placed() -> Sequence[Files]:
    """Placed folders with one part, and with several on the cores of this machine."""
    return [_written("parts", partial(write_parts, _model(), cut, devices)) for devices, _, cut in _cuts()]


@cache
def annotated() -> Sequence[Files]:
    written = []
    for devices, assignment, cut in _cuts():
        topology, stages = load_topology(",".join(devices)), segment_numbers(cut, len(assignment))
        written.append(_written("placed.onnx", partial(write_placed, _model(), topology, assignment, stages)))
    return written


@cache
def policies() -> Sequence[Files]:
    """A small policy and its card."""
    from gnnplace.policy.checkpoint import save_policy
    from gnnplace.policy.network import PolicyConfig, build_policy

    policy = build_policy(0, PolicyConfig(hidden=4, rounds=1))
    return [_written("policy.safetensors", lambda path: save_policy(path, policy, {"seed": 0}))]


@cache
def states() -> Sequence[Files]:
    from gnnplace.policy.network import PolicyConfig, build_policy
    from gnnplace.training.run_state import fresh_state, write_state

    state = fresh_state(build_policy(0, PolicyConfig(hidden=4, rounds=1)), "{}")
    return [_written("state.pt", lambda path: write_state(path, state))]


@cache
def arrays() -> Sequence[Files]:
    x = np.ones((2, 2), np.float32)
    plain = partial(np.savez, x=x, n=np.array(3), s=np.array(["a"]))
    return [_written("inputs.npz", write) for write in (plain, partial(np.savez_compressed, x=x))]


@cache
def runs() -> Sequence[Files]:
    """Records of a simulated and of a measured run."""
    record = place(GRAPH, TOPOLOGY, PlaceOptions(planner="heft")).record(command=["place"])
    run = {"label": "placed", "median_s": 0.5, "spread_s": 0.1, "repeats": 9}
    search = {"executed": 5, "recalled": 1, "executing_s": 1.0, "wall_s": 2.0}
    measured = {**run, "single_session_s": 1.0, "runs": [run, run], "search": search}
    return [{"run.json": json.dumps({**record, "measured": found}).encode()} for found in (None, measured)]


@cache
def benches() -> Sequence[Files]:
    """Small results of the benches that have pages."""
    documents = Path(__file__).with_name("documents")
    names = ("seeds", "generalization", "measured", "fidelity")
    return [{"result.json": (documents / f"{name}.json").read_bytes()} for name in names]


@cache
def specs() -> Sequence[Files]:
    return [{"spec.txt": spec.encode()} for spec in _SPECS]


def _written(name: str, write: Callable[[Path], object]) -> Files:
    """The files that `write` makes at a path of this name."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return dict(sorted(read_files(Path(folder)).items()))


@cache
def _model() -> OnnxModel:
    with tempfile.TemporaryDirectory() as folder:
        write_files(models()[0], Path(folder))
        return read_onnx(Path(folder) / "model.onnx")


def _cuts() -> Iterator[tuple[Sequence[str], IntArray, Sequence[Segment]]]:
    """Devices, assignment and segments of the first model, on one core and on all of up to two cores."""
    graph, names = _model().graph, [f"cpu:{core}" for core in allowed_cores()[:2]]
    for devices in (names[:1], names):
        assignment = np.arange(graph.num_ops) % len(devices)
        yield devices, assignment, Workload.of(_model()).segments(assignment, graph.topological_order)
