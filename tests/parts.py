"""Parts of placed models, from ONNX's text form and from models of tests."""

from collections.abc import Sequence
from pathlib import Path

import onnx

from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.segments import segments
from gnnplace.running.session import PARTS


def save(model: OnnxModel, assignment: Sequence[int], folder: Path) -> int:
    """Writes the parts of a model whose ops are on `cpu:0` and `cpu:1`; the number of parts."""
    found = segments(model.graph, assignment, model.graph.topological_order)
    write_parts(model, found, ("cpu:0", "cpu:1"), folder / PARTS)
    return len(found)


def part(graph: str, device: str, key: str | None = None) -> Part:
    """The part of a graph such as `(float[N] x) => (float[N] y) { y = Neg(x) }`."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {graph}')
    inputs, outputs = (tuple(value.name for value in values) for values in (proto.graph.input, proto.graph.output))
    return Part(f"{'+'.join(inputs)}->{'+'.join(outputs)}", device, proto.SerializeToString(), inputs, outputs, key=key)


def add_one(source: str, target: str, device: str, key: str | None = None) -> Part:
    """The part that computes `target = source + 1`."""
    graph = f"(float[N] {source}) => (float[N] {target}) <float one = {{1}}> {{ {target} = Add({source}, one) }}"
    return part(graph, device, key)
