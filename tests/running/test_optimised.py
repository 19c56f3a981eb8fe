"""Parts that are cut out of the model as ONNX Runtime optimises it: the kernels of one session, on several devices."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import psutil
import pytest

from gnnplace.devices.topology import Device, Topology
from gnnplace.errors import InvalidPlacement, MeasurementFailed
from gnnplace.host_memory import return_free_memory
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.manifest import MANIFEST, write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import Segment, segment_numbers, segments
from gnnplace.running.optimised import optimised
from gnnplace.running.session import PARTS, PLACED, Session
from tests.kernel_order import kernels_run
from tests.onnx_io.texts import parsed

NAMES = ("cpu:0", "cpu:1")
BOTH = np.array([True, True])
RIGHT = ("right", "norm", "relu2")
Inputs = Callable[[OnnxModel], Mapping[str, np.ndarray]]


def kernels_of(model: OnnxModel) -> KernelModel:
    found = optimised(model)
    assert found is not None
    return found


@pytest.fixture
def branches(tmp_path: Path) -> OnnxModel:
    """Two branches of a convolution with a ReLU, a convolution that reads both, and a Softmax."""
    text = """branches (float[1, 16, 12, 12] x) => (float[1, 16, 12, 12] y)
        { [stem] s = Conv<pads = [1, 1, 1, 1]>(x, w0)
          [left] l = Conv<pads = [1, 1, 1, 1]>(s, w1)  [relu1] lr = Relu(l)
          [right] r = Conv<pads = [1, 1, 1, 1]>(s, w2)  [norm] n = BatchNormalization(r, one, zero, zero, one)
          [relu2] rr = Relu(n)
          [both] b = Concat<axis = 1>(lr, rr)  [last] c = Conv<pads = [1, 1, 1, 1]>(b, w3)  [softmax] y = Softmax<axis = 3>(c) }"""
    rng = np.random.default_rng(0)
    shapes = {"w0": (16, 16, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 32, 3, 3)}
    weights = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    channels = {"one": np.ones(16, np.float32), "zero": np.zeros(16, np.float32)}
    onnx.save(parsed(text, **weights, **channels), tmp_path / "branches.onnx")
    return read_onnx(tmp_path / "branches.onnx")


def assigned(model: OnnxModel, *on_second: str) -> np.ndarray:
    return np.array([int(name in on_second) for name in model.graph.op_names])


def side_by_side(model: OnnxModel, kernels: KernelModel) -> tuple[Segment, ...]:
    """The segments of kernels with the right branch on the second device."""
    found = kernels.segments(assigned(model, *RIGHT), model.graph.topological_order, None, BOTH)
    assert found is not None
    return found


def one_session(model: OnnxModel, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    return session.run([value.name for value in model.model.graph.outputs], dict(feed))


@pytest.mark.usefixtures("needs_two_cores")
def test_kernels_on_two_devices_compute_exactly_what_one_session_computes(
    branches: OnnxModel, random_inputs: Inputs, tmp_path: Path
) -> None:
    kernels, feed = kernels_of(branches), random_inputs(branches)
    found = side_by_side(branches, kernels)
    assert sorted(op for segment in found for op in segment.ops) == list(range(branches.graph.num_ops))
    assert sorted(kernel for segment in found for kernel in segment.kernels or ()) == [
        *range(kernels.model.graph.num_ops)
    ]
    manifest = write_parts(branches, found, NAMES, tmp_path / PARTS, kernels)
    types = [
        node.op_type for part in manifest.parts for node in onnx.load(part.model, load_external_data=False).graph.node
    ]
    assert sorted(types) == sorted(node.op_type for node in kernels.model.model.graph)
    with Session(tmp_path) as session:
        (y,) = session.run(None, feed)
    np.testing.assert_array_equal(y, one_session(branches, feed)[0])


@pytest.mark.usefixtures("needs_two_cores")
def test_random_placements_of_the_kernels_of_every_small_model_give_the_outputs_of_one_session(
    each_small_model: OnnxModel, random_inputs: Inputs, tmp_path: Path
) -> None:
    model, kernels = each_small_model, optimised(each_small_model)
    if kernels is None:  # ONNX Runtime drops outputs that no node computes
        assert any(value.is_graph_input() or value.is_initializer() for value in model.model.graph.outputs)
        return
    feed, rng = random_inputs(model), np.random.default_rng(1)
    expected = one_session(model, feed)
    for number in range(4):
        assignment = rng.integers(0, 2, kernels.model.graph.num_ops)[kernels.kernel_of_op]
        found = kernels.segments(assignment, model.graph.topological_order, None, BOTH)
        if found is None:  # all on one device
            continue
        write_parts(model, found, NAMES, tmp_path / str(number) / PARTS, kernels)
        with Session(tmp_path / str(number)) as session:
            for value, wanted in zip(session.run(None, feed), expected, strict=True):
                np.testing.assert_array_equal(value, wanted)


def test_ops_of_one_kernel_on_two_devices_are_cut_as_they_are(branches: OnnxModel) -> None:
    kernels, order = kernels_of(branches), branches.graph.topological_order
    assert kernels.segments(assigned(branches, "relu1"), order, None, BOTH) is None


def test_kernels_are_cut_wherever_all_devices_of_the_placement_run_them(branches: OnnxModel) -> None:
    kernels, order = kernels_of(branches), branches.graph.topological_order
    only_cores = np.array([True, True, False])
    on_cores, elsewhere = assigned(branches, *RIGHT), 2 * assigned(branches, *RIGHT)
    assert kernels.segments(on_cores, order, None, only_cores) == side_by_side(branches, kernels)
    assert kernels.segments(elsewhere, order, None, only_cores) is None


def test_a_model_on_one_device_is_left_to_one_session(branches: OnnxModel) -> None:
    assert kernels_of(branches).segments(assigned(branches), branches.graph.topological_order, None, BOTH) is None


def test_parts_keep_the_run_order_of_one_session(branches: OnnxModel, tmp_path: Path) -> None:
    kernels, feed = kernels_of(branches), {"x": np.zeros((1, 16, 12, 12), np.float32)}
    of_one_session = kernels_run(branches.path, feed, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, tmp_path)
    assert of_one_session == list(kernels.model.graph.op_names)
    write_parts(branches, segments_of_all(kernels), NAMES[:1], tmp_path / PARTS, kernels)
    part = tmp_path / PARTS / "part-0000.onnx"
    assert kernels_run(part, feed, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, tmp_path) == of_one_session


def segments_of_all(kernels: KernelModel) -> list[Segment]:
    return [Segment(0, tuple(range(len(kernels.kernel_of_op))), tuple(range(kernels.model.graph.num_ops)))]


@pytest.mark.usefixtures("needs_two_cores")
def test_parts_for_another_machine_are_cut_again_from_the_placed_model(
    branches: OnnxModel, random_inputs: Inputs, tmp_path: Path
) -> None:
    kernels, feed = kernels_of(branches), random_inputs(branches)
    found = side_by_side(branches, kernels)
    write_parts(branches, found, NAMES, tmp_path / PARTS, kernels)
    manifest = tmp_path / PARTS / MANIFEST
    manifest.write_text(manifest.read_text().replace(ort.__version__, "0.0.0"))
    with pytest.raises(InvalidPlacement, match=r"another machine .*onnxruntime 0\.0\.0.*placed\.onnx is missing"):
        Session(tmp_path)
    assignment = assigned(branches, *RIGHT)
    of_ops = segments(branches.graph, assignment, branches.graph.topological_order)
    numbers = segment_numbers(of_ops, branches.graph.num_ops)
    write_placed(branches, Topology("pair", tuple(map(Device, NAMES)), ()), assignment, numbers, tmp_path / PLACED)
    for place in (tmp_path, tmp_path / PLACED):
        with Session(place) as session:
            (y,) = session.run(None, feed)
        np.testing.assert_array_equal(y, one_session(branches, feed)[0])


@pytest.fixture
def repeated(tmp_path: Path) -> OnnxModel:
    """Three products with one large weight."""
    text = """repeated (float[2, 256] x) => (float[2, 256] y)
        { [first] a = MatMul(x, w)  [relu] b = Relu(a)  [second] c = MatMul(b, w)  [third] y = MatMul(c, w) }"""
    weight = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    onnx.save(parsed(text, w=weight), tmp_path / "repeated.onnx")
    return read_onnx(tmp_path / "repeated.onnx")


@pytest.mark.usefixtures("needs_two_cores")
def test_parts_share_large_weights(repeated: OnnxModel, random_inputs: Inputs, tmp_path: Path) -> None:
    order, feed = repeated.graph.topological_order, random_inputs(repeated)
    found = segments(repeated.graph, assigned(repeated, "second"), order)
    write_parts(repeated, found, NAMES, tmp_path / PARTS)
    with Session(tmp_path) as session:
        (y,) = session.run(None, feed)
        shared = [*session._runner.devices._weights._tensors]  # type: ignore[attr-defined]
        assert [(weight.name, weight.shape) for weight in shared] == [("w", (256, 256))]
    np.testing.assert_allclose(y, one_session(repeated, feed)[0], rtol=1e-4)


@pytest.mark.usefixtures("needs_two_cores")
def test_parts_keep_one_packed_form_of_a_shared_weight_and_no_memory_of_others(tmp_path: Path) -> None:
    products = [f"[p{i}] v{i + 1} = MatMul(v{i}, w)" for i in range(16)]
    weight = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)
    text = f"long (float[1, 1024] v0) => (float[1, 1024] v16) {{ {' '.join(products)} }}"
    onnx.save(parsed(text, w=weight), tmp_path / "long.onnx")
    model = read_onnx(tmp_path / "long.onnx")
    found = segments(model.graph, np.arange(16) % 2, model.graph.topological_order)
    write_parts(model, found, NAMES, tmp_path / PARTS)
    return_free_memory()
    before_bytes = private_bytes()
    with Session(tmp_path) as session:
        assert len(found) == 16
        session.run(None, {"v0": np.ones((1, 1024), np.float32)})
        assert private_bytes() - before_bytes < 6 * weight.nbytes  # 16 of them if no memory went back


def private_bytes() -> int:
    """Resident memory of this process that no file holds."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


@pytest.mark.usefixtures("needs_two_cores")
def test_weights_outside_of_the_folder_of_parts_are_refused(repeated: OnnxModel, tmp_path: Path) -> None:
    found = segments(repeated.graph, assigned(repeated, "second"), repeated.graph.topological_order)
    manifest = write_parts(repeated, found, NAMES, tmp_path / PARTS)
    (tmp_path / "outside.bin").write_bytes((tmp_path / PARTS / "shared.bin").read_bytes())
    part = onnx.load(manifest.parts[0].model, load_external_data=False)
    part.graph.initializer[0].external_data[0].value = "../outside.bin"
    onnx.save(part, manifest.parts[0].model)
    with pytest.raises(MeasurementFailed, match=r"part-0000.*cannot be loaded"):
        Session(tmp_path)
