"""Any ONNX model file as an `OnnxModel`: checked, normalised, with costs for every op."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gnnplace.errors import UnsupportedModel
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.checks import check_nodes, check_tensors, settle_external_data
from gnnplace.onnx_io.conversion import convert
from gnnplace.onnx_io.external_data import take_in_attributes
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.normalise import normalise
from gnnplace.onnx_io.shapes.inference import infer_shapes
from gnnplace.onnx_io.shapes.node_types import annotate_types
from gnnplace.onnx_io.shapes.tensor_info import choose_dimensions
from gnnplace.onnx_io.value_types import attach, set_aside

__all__ = ["at_dims", "read_onnx"]

_FIRST_IR_WITH_OPSETS = 3


def read_onnx(
    path: str | Path, dims: Mapping[str, int] | None = None, custom_ops: Sequence[str | Path] = ()
) -> OnnxModel:
    """The model in a file, normalised, and its op graph with costs at the given dimensions.

    The model keeps its symbolic dimensions, and its weights stay where they are: external data is checked to be there,
    and not loaded. Costs are for `dims`, and 1 for every dimension that is left out. The model's inputs are taken to be
    on every device when a step starts, free of cost.

    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.onnx_io.sample_inputs import probe_model
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "negative.onnx").write_bytes(probe_model(4, "x", "y"))  # y = -x
    ...     read_onnx(folder / "negative.onnx").graph.op_types
    ('Neg',)

    Args:
        path: An ONNX file.
        dims: Numbers for symbolic dimensions of the inputs; an axis without a name is called `INPUT.AXIS`.
        custom_ops: Shared libraries with operators that ONNX Runtime does not have; loaded when the model is run.

    Returns:
        The model; `warnings` says what was assumed.

    Raises:
        UnsupportedModel: the file is no ONNX model, is damaged or incomplete, or has no such dimension.
    """
    path = Path(path)
    proto = _parse(path)
    check_nodes(proto, str(path))
    check_tensors(proto, str(path))
    map_types = set_aside(proto.graph)
    try:
        model = ir.serde.deserialize_model(proto)
    except (ir.serde.SerdeError, ValueError, TypeError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise UnsupportedModel(f"{path}: breaks the rules of ONNX ({reason})") from None
    attach(model.graph, map_types)
    settle_external_data(model, path)
    normalise(model, str(path))
    take_in_attributes(model)
    annotate_types(model)
    graph, values, warnings = _costs(path, model, dims or {})
    libraries = tuple(Path(library) for library in custom_ops)
    return OnnxModel(path, _sha256(path), model, graph, values, warnings, libraries)


def at_dims(model: OnnxModel, dims: Mapping[str, int]) -> OnnxModel:
    """The same nodes and weights with costs at other dimensions; see `read_onnx`.

    Raises:
        UnsupportedModel: the model has no such dimension.
    """
    graph, values, warnings = _costs(model.path, model.model, dims)
    return replace(model, graph=graph, dims=values, warnings=warnings)


def _costs(path: Path, model: ir.Model, dims: Mapping[str, int]) -> tuple[OpGraph, Mapping[str, int], tuple[str, ...]]:
    """The op graph of a normalised model at the given dimensions, all dimensions, and what was assumed."""
    dimensions = choose_dimensions(model.graph.inputs, dims, str(path))
    shapes = infer_shapes(model, dimensions)
    graph, assumptions = convert(path.stem, model, shapes.tensors, str(path))
    return graph, dimensions.values, (*dimensions.warnings, *shapes.warnings, *assumptions)


def _parse(path: Path) -> onnx.ModelProto:
    """The protobuf message in a file that looks like a whole model."""
    if path.is_dir():
        raise UnsupportedModel(f"{path}: is a directory; name the .onnx file in it")
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as problem:
        raise UnsupportedModel(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except DecodeError:
        raise UnsupportedModel(f"{path}: is no ONNX model, or is cut off or damaged; export or copy it again") from None
    if path.stat().st_size == 0:
        raise UnsupportedModel(f"{path}: is empty; export or copy it again")
    if not proto.HasField("graph") or not proto.ir_version:
        raise UnsupportedModel(f"{path}: holds no graph; expected an ONNX model")
    if proto.ir_version >= _FIRST_IR_WITH_OPSETS and not proto.opset_import:
        raise UnsupportedModel(f"{path}: states no operator set; the file may be cut off, export or copy it again")
    return proto


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
