import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.external_data import copied_files, external_beside
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.split import ModelCutter, split_model
from tests.onnx_io.texts import parsed

Models = Callable[[str], OnnxModel]
Protos = Callable[..., OnnxModel]


def run_parts(
    model: OnnxModel, parts: list[list[int]], folder: Path, feed: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Every part in a session of its own, one after the other."""
    values = dict(feed)
    for part in split_model(model, parts, folder):
        session = ort.InferenceSession(str(folder / part.name), providers=["CPUExecutionProvider"])
        taken = [*part.inputs, *(name for name in part.optional_inputs if name in values)]
        values.update(zip(part.outputs, session.run(list(part.outputs), {n: values[n] for n in taken}), strict=True))
    return values


def test_every_part_passes_the_onnx_checker_and_the_model_stays_as_it_was(
    each_small_model: OnnxModel, tmp_path: Path
) -> None:
    before = ir.to_proto(each_small_model.model).SerializeToString(deterministic=True)
    for part in split_model(each_small_model, [[op] for op in range(each_small_model.graph.num_ops)], tmp_path):
        proto = onnx.load(tmp_path / part.name)
        # The full check needs the rank of every exchanged value; ONNX Runtime does not.
        if all(value.type.tensor_type.HasField("shape") for value in (*proto.graph.input, *proto.graph.output)):
            onnx.checker.check_model(proto, full_check=True)
        assert 4 <= proto.ir_version <= 13
        assert {o.domain: o.version for o in proto.opset_import} == dict(each_small_model.model.opset_imports)
    assert ir.to_proto(each_small_model.model).SerializeToString(deterministic=True) == before


# Parts of small models, and of each part the inputs, those with a default, outputs and weights.
EXCHANGED = {
    # a = Relu(x)  b = Tanh(z)  c = Add(a, b)  d = Mul(a, z)  y = Sub(c, d)  both = Concat(c, b)
    "branches": ([[0, 1, 2], [3, 4, 5]], [("x z", "", "a b c", ""), ("a b c z", "", "both y", "")]),
    # a = Exp(x)  b = Neg(a)  c = If(on) {a + w | Relu(b * w)}  y = Mul(c, a)
    "captured_by_if": ([[0, 1], [2], [3]], [("x", "", "a b", ""), ("a b on", "", "c", "w"), ("a c", "", "y", "")]),
    "shared_weights": (
        [[0], [1], [2], [3]], [("x", "", "a", "w"), ("a", "", "b", "bias"), ("b", "", "c", "w"), ("c", "", "y", "bias")],
    ),
    "overridable_initialiser": ([[0], [1], [2]], [("x", "w", "a w", "w"), ("a", "", "b", ""), ("b", "w", "y", "w")]),
    # nothing reads the places of the TopK
    "several_outputs": ([[0], [1], [2]], [("x", "", "a b", ""), ("x", "", "v", "k"), ("a b", "", "y", "")]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCHANGED)
def test_a_part_has_the_values_and_weights_that_its_ops_and_bodies_read_and_gives_what_others_read(
    name: str, small_model: Models, tmp_path: Path
) -> None:
    assignment, expected = EXCHANGED[name]
    for part, texts in zip(split_model(small_model(name), assignment, tmp_path), expected, strict=True):
        weights = [tensor.name for tensor in onnx.load(tmp_path / part.name).graph.initializer]
        found = (part.inputs, part.optional_inputs, part.outputs, weights)
        assert [sorted(names) for names in found] == [text.split() for text in texts]


def test_a_part_without_a_reader_can_be_loaded(onnx_model: Protos, tmp_path: Path) -> None:
    model = onnx_model(parsed("g (float[2] x) => (float[2] y) { y = Exp(x)  dead = Neg(x) }"))
    _, dead = split_model(model, [[0], [1]], tmp_path)
    assert dead.outputs == ("dead",)


def test_a_cut_value_without_a_type_is_refused_by_name(small_model: Models, tmp_path: Path) -> None:
    model = small_model("chain")
    model.model.graph[0].outputs[0].type = None
    with pytest.raises(UnsupportedModel, match="cannot be cut at the value 'a'"):
        split_model(model, [[0], [1, 2, 3]], tmp_path)


@pytest.fixture
def external_model(onnx_model: Protos, tmp_path: Path) -> OnnxModel:
    """y = (x @ w) @ w with w in a file of its own in a subfolder."""
    proto = parsed(
        "g (float[N, 2] x) => (float[N, 2] y) { a = MatMul(x, w)  y = MatMul(a, w) }",
        w=np.array([[0, 1], [2, 0]], np.float32),
    )
    (w,) = proto.graph.initializer
    (tmp_path / "source" / "weights").mkdir(parents=True)
    (tmp_path / "source" / "weights" / "w.bin").write_bytes(b"padding!" + w.raw_data)
    onnx.external_data_helper.set_external_data(w, "weights/w.bin", offset=8, length=16)
    w.ClearField("raw_data")
    return onnx_model(proto, tmp_path / "source" / "model.onnx")


@pytest.mark.parametrize("clones", [True, False])
def test_external_weights_are_copied_and_their_files_stay_as_they_are(
    external_model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clones: bool
) -> None:
    def no_clone(*_: object) -> None:
        raise OSError(errno.EXDEV, "other file system")

    if not clones:
        monkeypatch.setattr("os.copy_file_range", no_clone)
    values = run_parts(external_model, [[0], [1]], tmp_path / "out", {"x": np.array([[1, 1]], np.float32)})
    assert values["y"].tolist() == [[2, 2]]
    source, copy = tmp_path / "source" / "weights" / "w.bin", tmp_path / "out" / "data" / "w.bin"
    assert copy.read_bytes() == source.read_bytes()
    assert [path.stat().st_nlink for path in (source, copy)] == [1, 1]  # ONNX refuses files with several hard links
    assert (tmp_path / "out" / "part-0000.onnx").stat().st_size < 300


@pytest.mark.parametrize("can_link", [True, False])
def test_files_that_gnnplace_has_written_may_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(errno.EXDEV, "other file system")

    if not can_link:
        monkeypatch.setattr("os.link", no_link)
    (tmp_path / "w").write_text("weights")
    (location,) = copied_files({"w": tmp_path / "w"}, tmp_path / "out", links=True).values()
    assert (tmp_path / "out" / location).read_text() == "weights"
    assert (tmp_path / "out" / location).samefile(tmp_path / "w") is can_link


def test_external_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w").write_text(folder)
    for _ in range(2):  # again over what is there
        locations = copied_files({"a/w": tmp_path / "a" / "w", "b/w": tmp_path / "b" / "w"}, tmp_path / "out")
        assert [(tmp_path / "out" / locations[old]).read_text() for old in ("a/w", "b/w")] == ["a", "b"]
    names = ("a/2-w", "a/w", "b/w")  # the number that keeps the last one apart is part of the first one's name
    for name in names:
        (tmp_path / name).write_text(name)
    locations = copied_files({name: tmp_path / name for name in names}, tmp_path / "again")
    assert [(tmp_path / "again" / locations[name]).read_text() for name in names] == list(names)


def test_the_external_files_of_a_part_in_memory_are_those_of_its_folder(
    external_model: OnnxModel, tmp_path: Path
) -> None:
    part = ModelCutter(external_model.model).part_in_memory([0])
    assert isinstance(part.model, bytes)
    found = external_beside(part.model, tmp_path / "source")
    assert found == {"weights/w.bin": tmp_path / "source" / "weights" / "w.bin"}


def test_missing_external_weights_are_named(external_model: OnnxModel, tmp_path: Path) -> None:
    (tmp_path / "source" / "weights" / "w.bin").unlink()
    with pytest.raises(
        UnsupportedModel, match=r"w.bin: the weights that the model keeps in 'weights/w.bin' are missing"
    ):
        split_model(external_model, [[0], [1]], tmp_path / "out")


def test_a_part_in_memory_finds_external_weights_in_the_models_folder(external_model: OnnxModel) -> None:
    part = ModelCutter(external_model.model).part_in_memory([1])
    assert (part.name, part.inputs, part.outputs) == ("", ("a",), ("y",))
    options = ort.SessionOptions()
    folder = str(external_model.path.parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    session = ort.InferenceSession(part.model, options, providers=["CPUExecutionProvider"])
    assert session.run(None, {"a": np.array([[1, 2]], np.float32)})[0].tolist() == [[4, 1]]


def test_parts_together_hold_every_node_once_when_there_are_many(onnx_model: Protos, tmp_path: Path) -> None:
    nodes = " ".join(f"v{i + 1} = Relu(v{i})" for i in range(300))
    model = onnx_model(parsed(f"g (float[2] v0) => (float[2] v300) {{ {nodes} }}"))
    parts = split_model(model, [[op, op + 150] for op in range(150)], tmp_path)
    assert sum(len(onnx.load(tmp_path / part.name).graph.node) for part in parts) == 300
    assert parts[0].inputs == ("v0", "v150")
    assert parts[-1].outputs == ("v150", "v300")


def test_weights_that_several_parts_read_lie_in_one_file_beside_them(onnx_model: Protos, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shared, own = (rng.standard_normal((129, 129)).astype(np.float32) for _ in range(2))
    proto = parsed(
        """g (float[2, 129] x) => (float[2, 129] y)
        { a = MatMul(x, shared)  b = Add(a, small)  c = MatMul(b, own)  d = Add(c, small)  y = MatMul(d, shared) }""",
        shared=shared,
        own=own,
        small=np.ones(129, np.float32),
    )
    model, feed = onnx_model(proto), {"x": np.ones((2, 129), np.float32)}
    found = run_parts(model, [[0, 1], [2, 3], [4]], tmp_path / "parts", feed)["y"]
    wanted = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"]).run(None, feed)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert (tmp_path / "parts" / "shared.bin").read_bytes() == shared.tobytes()
    sizes = [(tmp_path / "parts" / f"part-000{number}.onnx").stat().st_size for number in range(3)]
    assert [size > own.nbytes for size in sizes] == [False, True, False]
    assert max(sizes[0], sizes[2]) < 2000
    assert model.model.graph.initializers["shared"].const_value.nbytes == shared.nbytes


def _tied(onnx_model: Protos) -> OnnxModel:
    """The rows of a table are multiplied by the whole transposed table, which is also an output."""
    table = np.random.default_rng(0).standard_normal((600, 500)).astype(np.float32)  # too large to be folded twice
    text = """g (int64[3] i) => (float z, float turned)
        { [gather] gathered = Gather(table, i)  [turn] turned = Transpose(table)  [first] y = MatMul(gathered, turned)
          [total] total = ReduceSum(turned)  [second] z = Add(y, total) }"""
    proto = parsed(text, table=table)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx_model(proto)


def test_every_part_that_reads_a_constant_op_holds_it_and_none_transfers_it(onnx_model: Protos, tmp_path: Path) -> None:
    model = _tied(onnx_model)
    assert dict(zip(model.graph.op_names, model.constant_ops.tolist(), strict=True)) == {
        "gather": False, "turn": True, "first": False, "total": True, "second": False,
    }  # fmt: skip
    feed = {"i": np.array([5, 0, 599])}
    parts = [[0], [1], [2], [3], [4]]
    split = split_model(model, parts, tmp_path / "parts")
    assert [(part.inputs, part.outputs) for part in split] == [
        (("i",), ("gathered",)),
        ((), ("turned",)),  # an output of the model
        (("gathered",), ("y",)),
        ((), ("total",)),  # nobody needs it
        (("y",), ("z",)),
    ]
    nodes = [[node.name for node in onnx.load(tmp_path / "parts" / part.name).graph.node] for part in split]
    assert nodes == [["gather"], ["turn"], ["turn", "first"], ["turn", "total"], ["turn", "total", "second"]]
    found = run_parts(model, parts, tmp_path / "run", feed)
    wanted = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"]).run(["z", "turned"], feed)
    np.testing.assert_allclose(found["z"], wanted[0], rtol=1e-4)
    np.testing.assert_array_equal(found["turned"], wanted[1])


def test_a_part_leaves_out_the_constant_ops_that_only_others_read(onnx_model: Protos, tmp_path: Path) -> None:
    (first, second) = split_model(_tied(onnx_model), [[0, 3], [1, 2, 4]], tmp_path)
    assert [node.name for node in onnx.load(tmp_path / first.name).graph.node] == ["gather"]
    assert (first.outputs, second.inputs) == (("gathered",), ("gathered",))


def test_random_ops_ops_of_other_domains_and_overridable_weights_are_not_constant(onnx_model: Protos) -> None:
    proto = parsed(
        """g (float[2] free = {1, 1}) => (float[2] y) <float[2] w = {1, 1}>
        { noise = RandomNormal<shape = [2]>()  a = Relu(free)  b = com.microsoft.Gelu(w)  c = Exp(w)
          y = Sum(noise, a, b, c) }"""
    )
    assert onnx_model(proto).constant_ops.tolist() == [False, False, False, True, False]
