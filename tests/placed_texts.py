"""Models in ONNX's text form, placed on two cores, and their outputs beside those of one plain session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from gnnplace.devices.topology import Device, Link, Topology
from gnnplace.onnx_io.annotate import write_placed
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segment_numbers, segments
from gnnplace.running.part_session import infer_types
from gnnplace.running.session import PARTS

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "ai.onnx.ml": 1]>'
NAMES = ("cpu:0", "cpu:1")
TOPOLOGY = Topology(
    "two cores", tuple(Device(name, "cpu") for name in NAMES), (Link(*NAMES, 0.0, 1e9), Link(*NAMES[::-1], 0.0, 1e9))
)
Feed = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A model as text, by default of `HEAD`'s versions, and the feeds of consecutive runs."""

    text: str
    feeds: tuple[Feed, ...]

    @property
    def proto(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(self.text if self.text.startswith("<") else HEAD + self.text)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def saved(path: Path, proto: onnx.ModelProto) -> OnnxModel:
    """The model as `gnnplace.place` reads it from a file."""
    onnx.save(proto, path)
    return read_onnx(path, infer_types=infer_types)


def place(model: OnnxModel, assignment: Sequence[int], folder: Path) -> int:
    """Writes the placed model and its parts; the number of values that cross between devices."""
    found = segments(model.graph, assignment, model.graph.topological_order, model.constant_ops)
    write_placed(model, TOPOLOGY, assignment, segment_numbers(found, model.graph.num_ops), folder / "placed.onnx")
    manifest = write_parts(model, found, NAMES, folder / PARTS)
    producer = {name: part.device for part in manifest.parts for name in part.outputs}
    return sum(producer.get(name, part.device) != part.device for part in manifest.parts for name in part.inputs)


def plain(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def assert_equal(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert found == pytest.approx(wanted)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    else:
        assert found.dtype == wanted.dtype
        if found.dtype.kind in "OU":
            assert found.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
