"""Inputs that the user gives to models which random ones do not suit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import gnnplace
from gnnplace.api.options import PlaceOptions
from gnnplace.api.training_run import train
from gnnplace.api.workload import load_workload
from gnnplace.cost.measured import read_costs
from gnnplace.devices.detect import allowed_cores
from gnnplace.errors import GnnplaceError, InvalidInput, MeasurementFailed, UnsupportedModel
from gnnplace.measuring.timing import StoppingRule
from gnnplace.onnx_io.read import at_dims
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.feed import write_arrays
from gnnplace.sim.example import diamond

# `x` must have four times `rows` elements; a random scalar is 1.
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[N] x, int64 rows) => (float y)
    <int64[1] zero = {0}, float[4] ones = {1, 1, 1, 1}>
    { a = Exp(x)  r = Unsqueeze(rows, zero)  all = Tile(ones, r)  b = MatMul(a, all)  y = Neg(b) }"""
X = np.linspace(0, 1, 12, dtype=np.float32)
GIVEN = {"x": X, "rows": np.array(3)}
QUICK = StoppingRule(warmup=1, min_repeats=2, max_repeats=2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_arrays(tmp_path / "x.npz", GIVEN)
    return tmp_path / "x.npz"


def test_a_model_is_profiled_placed_and_compared_with_the_inputs(
    model: Path, file: Path, tmp_path: Path, measure_quickly: Callable[[StoppingRule], None]
) -> None:
    measure_quickly(QUICK)
    core = f"cpu:{allowed_cores()[0]}"
    with pytest.raises(MeasurementFailed, match=r"\(inputs are random, of size 1 along 'N'; --dim NAME=N or --input"):
        gnnplace.profile(model, core)
    with pytest.raises(MeasurementFailed, match=r"\(inputs are random; --input X.npz gives others\)$"):
        gnnplace.profile(model, core, dims={"N": 12})
    gnnplace.profile(model, core, out=tmp_path / "costs.json", inputs=file)
    assert read_costs(tmp_path / "costs.json").kinds
    plan = gnnplace.place(model, core, planner="single", measure=True, inputs=GIVEN)
    assert plan.evaluation.feasible
    assert gnnplace.evaluate(model, core, plan.placement, measure=True, inputs=file)["evaluator"] == "measured"
    plan.save(tmp_path / "placed")
    with gnnplace.Session(tmp_path / "placed") as session:
        assert session.run(None, GIVEN)[0] == pytest.approx(-np.exp(X).sum())


def test_their_shapes_are_the_sizes_of_dimensions(model: Path, file: Path) -> None:
    read = load_workload(model, inputs=file).onnx
    assert read is not None
    assert (dict(read.dims), read.assumed, read.remedy) == ({"N": 12}, (), "")
    assert read.graph.bytes_accessed[0] == 2 * X.nbytes
    assert all(
        np.array_equal(array, GIVEN[name]) for name, array in sample_inputs(read, np.random.default_rng()).items()
    )
    assert at_dims(read, {"N": 4}).inputs is None


def test_measurements_with_other_inputs_are_not_taken_for_these(model: Path, file: Path) -> None:
    def key(**keywords: Any) -> str:
        read = load_workload(model, **keywords).onnx
        assert read is not None
        return read.key

    assert key(inputs=file) == key(inputs=GIVEN) == key(inputs=dict(reversed(GIVEN.items())))
    others = [{"inputs": GIVEN | {"rows": 1}}, {"inputs": GIVEN | {"x": X + 1}}, {"dims": {"N": 12}}]
    assert len({key(inputs=GIVEN), *(key(**other) for other in others)}) == 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X}, "the model input 'rows' is missing"),
        (GIVEN | {"z": X}, "'z' is no input of the model; it has x, rows"),
        (GIVEN | {"x": X.astype(np.float64)}, "'x' is of dtype float64; expected float32"),
        (GIVEN | {"x": X.reshape(3, 4)}, r"'x' has 2 dimensions \[3, 4\]"),
        ("nowhere.npz", "nowhere.npz: cannot be read"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused(model: Path, inputs: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        gnnplace.place(model, "k40x2", planner="single", inputs=inputs)


def test_one_dimension_has_one_size(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x, float[N] z) => (float[N] y) { y = Add(x, z) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "sum.onnx")
    with pytest.raises(InvalidInput, match="dimension 'N' has size 5 in the input 'z', but 12 in an earlier one"):
        load_workload(tmp_path / "sum.onnx", inputs={"x": X, "z": X[:5]})


def test_only_tensors_can_be_measured(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (seq(float[2]) s) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "sequence.onnx")
    with pytest.raises(UnsupportedModel, match=r"input 's' of sequence\.onnx is no tensor"):
        load_workload(tmp_path / "sequence.onnx", inputs={"s": [X[:2]]})


def test_inputs_where_they_mean_nothing_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(GnnplaceError, match="leave out the sizes of dimensions"):
        PlaceOptions(inputs=GIVEN, dims={"N": 12})
    with pytest.raises(GnnplaceError, match=r"inputs is 3; expected arrays by name, or an \.npz file"):
        PlaceOptions(inputs=3)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModel, match="'diamond' is an op graph, which has no inputs; leave inputs out"):
        load_workload(diamond().graph, inputs=GIVEN)
    with pytest.raises(GnnplaceError, match="leave out measured runs, inputs and sizes"):
        gnnplace.place("record:nmt_2-k40x2", inputs=GIVEN)
    with pytest.raises(GnnplaceError, match="name the model with measure, or leave input out"):
        train(tmp_path / "run", input="x.npz")


def test_training_executes_with_the_inputs_and_is_resumed_with_the_same(
    model: Path, file: Path, tmp_path: Path, measure_quickly: Callable[[StoppingRule], None]
) -> None:
    if len(allowed_cores()) < 2:
        pytest.skip("needs two cores")
    measure_quickly(QUICK)
    out, devices = tmp_path / "run", ",".join(f"cpu:{core}" for core in allowed_cores()[:2])
    card = train(out, measure=model, devices=devices, input=file, updates=1)
    assert card["updates"] == 1
    assert f"--devices {devices} --input {file} " in card["command"]
    with pytest.raises(GnnplaceError, match=r"input is other.npz, but the run began with .*x.npz; leave input out"):
        train(out, measure=model, devices=devices, input="other.npz", resume=True)
