"""Models written as text, read by gnnplace, and run by ONNX Runtime."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from tests.onnx_io.texts import HEAD

ReadText = Callable[..., OnnxModel]
RunBoth = Callable[[OnnxModel, Mapping[str, np.ndarray]], list[np.ndarray]]


@pytest.fixture
def read_text(tmp_path: Path) -> ReadText:
    """Reads a model in ONNX's text form, by default of `HEAD`'s versions; numbers for dimensions by name."""

    def read(text: str, **dims: int) -> OnnxModel:
        path = tmp_path / "model.onnx"
        onnx.save(onnx.parser.parse_model(text if text.startswith("<") else HEAD + text), path)
        return read_onnx(path, dims)

    return read


@pytest.fixture
def run_both() -> RunBoth:
    """Runs the file and the normalised model on the same inputs, asserts equal bits, and gives the outputs."""

    def run(model: OnnxModel, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        # A model from memory finds external data from the working directory; this one has to be saved beside it.
        normalised = model.path.with_name("normalised.onnx")
        onnx.save(ir.to_proto(model.model), normalised)
        outputs = []
        for path in (model.path, normalised):
            session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
            outputs.append(session.run(None, dict(inputs)))
        for original, result in zip(*outputs, strict=True):
            np.testing.assert_array_equal(result, original)
        return outputs[0]

    return run
