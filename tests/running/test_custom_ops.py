"""Operators from a shared library, in models that are cut between devices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import gnnplace
from gnnplace.api.options import PlaceOptions
from gnnplace.errors import MeasurementFailed
from gnnplace.placement import Placement
from gnnplace.running.session import Session

extensions = pytest.importorskip("onnxruntime_extensions", reason="onnxruntime-extensions is not installed")
pytestmark = pytest.mark.usefixtures("needs_two_cores")

TEXT = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]> g (string[N] s) => (string[N] y, string[N] z)
    { a = ai.onnx.contrib.StringUpper(s)  b = ai.onnx.contrib.StringConcat(a, s)  y = Identity(b)
      z = ai.onnx.contrib.StringLower(b) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_a_model_with_operators_of_a_library_is_cut_and_runs(model: Path, tmp_path: Path) -> None:
    library = Path(extensions.get_library_path())
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(library))
    feed = {"s": np.array(["Ab", "cD"])}
    wanted = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run(None, feed)
    plan = gnnplace.place(model, "cpu:0,cpu:1", PlaceOptions("round-robin", custom_ops=(library,)))
    for assignment in ([0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 1]):
        cut = replace(plan, placement=Placement(np.array(assignment)))
        out = cut.save(tmp_path / f"out{assignment}")
        for placed in (out, out / "placed.onnx"):
            with Session(placed, custom_ops=[library]) as session:
                found = session.run(None, feed)
            assert [value.tolist() for value in found] == [value.tolist() for value in wanted]


def test_without_the_library_the_operator_is_named(model: Path, tmp_path: Path) -> None:
    plan = gnnplace.place(model, "cpu:0", PlaceOptions("single"))
    plan.save(tmp_path / "out")
    with pytest.raises(MeasurementFailed, match="StringUpper") as caught:
        Session(tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_such_library_is_refused(model: Path, tmp_path: Path) -> None:
    library = Path(extensions.get_library_path())
    gnnplace.place(model, "cpu:0", PlaceOptions("single", custom_ops=(library,))).save(tmp_path / "out")
    with pytest.raises(MeasurementFailed, match=r"model\.onnx: cannot be loaded as a library of custom operators"):
        Session(tmp_path / "out", custom_ops=[model])
