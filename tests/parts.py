"""Parts of placed models, made from ONNX's text form."""

import onnx

from gnnplace.onnx_io.split import Part

__all__ = ["add_one", "part"]


def part(graph: str, device: str, key: str | None = None) -> Part:
    """The part of a graph such as `(float[N] x) => (float[N] y) { y = Neg(x) }`."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {graph}')
    inputs, outputs = (tuple(value.name for value in values) for values in (proto.graph.input, proto.graph.output))
    return Part(f"{'+'.join(inputs)}->{'+'.join(outputs)}", device, proto.SerializeToString(), inputs, outputs, key=key)


def add_one(source: str, target: str, device: str, key: str | None = None) -> Part:
    """The part that computes `target = source + 1`."""
    graph = f"(float[N] {source}) => (float[N] {target}) <float one = {{1}}> {{ {target} = Add({source}, one) }}"
    return part(graph, device, key)
