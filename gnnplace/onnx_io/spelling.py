"""One spelling for what a model file may write in several ways, as ONNX Runtime reads them."""

import math

import numpy as np
import onnx
from onnx import numpy_helper

from gnnplace.errors import UnsupportedModel
from gnnplace.onnx_io.external_data import nodes_of

_ALIAS = "ai.onnx"
"""Another name of the default domain."""
_MOST_DENSE = 2**28  # elements of a sparse constant


def respell(proto: onnx.ModelProto, where: str) -> None:
    """Changes a model in place, whose results in ONNX Runtime stay the same.

    - The domain `ai.onnx` becomes the default one.
    - Functions with the name of a standard operator are removed, since the operator is what runs.
    - Sparse constants become dense.
    - STFT states its default `onesided`, which the shape inference of ONNX ignores.
    - An output that is an input or a weight has the type of that, as there is one value.

    Raises:
        UnsupportedModel: a sparse constant is too large; the message begins with `where`.
    """
    for owner in (proto, *proto.functions):
        versions = {entry.domain: entry.version for entry in owner.opset_import}
        if _ALIAS in versions:
            versions.setdefault("", versions.pop(_ALIAS))
            versions.pop(_ALIAS, None)
            del owner.opset_import[:]
            owner.opset_import.extend(onnx.helper.make_opsetid(*pair) for pair in versions.items())
    for function in proto.functions:
        function.domain = "" if function.domain == _ALIAS else function.domain
    shadowed = [function for function in proto.functions if function.domain == "" and onnx.defs.has(function.name)]
    for function in shadowed:
        proto.functions.remove(function)
    _retype_outputs(proto.graph)
    for node in nodes_of(proto):
        if node.domain == _ALIAS:
            node.domain = ""
        if node.domain == "" and node.op_type == "Constant":
            _make_dense(node, where)
        if node.domain == "" and node.op_type == "STFT" and all(entry.name != "onesided" for entry in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))


def _retype_outputs(graph: onnx.GraphProto) -> None:
    types = {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    types |= {info.name: info.type for info in graph.input}
    for output in graph.output:
        if output.name in types:
            output.type.CopyFrom(types[output.name])


def _make_dense(node: onnx.NodeProto, where: str) -> None:
    for attribute in node.attribute:
        if attribute.type != onnx.AttributeProto.SPARSE_TENSOR:
            continue
        sparse = attribute.sparse_tensor
        if math.prod(sparse.dims) > _MOST_DENSE:
            raise UnsupportedModel(f"{where}: the sparse constant {node.output[0]!r} is too large to be made dense")
        dense = _dense(sparse, f"{where}: the sparse constant {node.output[0]!r}")
        attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(dense, node.output[0])))


def _dense(sparse: onnx.SparseTensorProto, what: str) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """The elements of a sparse tensor, whose indices are linear or have a column for each dimension."""
    try:
        values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
        dense = np.zeros(tuple(sparse.dims), dtype=values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (ValueError, IndexError, TypeError) as problem:
        raise UnsupportedModel(f"{what} breaks the rules of ONNX ({problem}); export the model again") from None
    return dense
