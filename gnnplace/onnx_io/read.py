"""Any ONNX model file as an `OnnxModel`: checked, normalised, with costs for every op."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gnnplace.errors import UnsupportedModel
from gnnplace.graph.op_graph import OpGraph
from gnnplace.onnx_io.checks import check_model, settle_external_data
from gnnplace.onnx_io.conversion import convert
from gnnplace.onnx_io.external_data import load_tensors_of_bodies
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.normalise import normalise
from gnnplace.onnx_io.shapes.inference import infer_shapes
from gnnplace.onnx_io.shapes.node_types import annotate_types
from gnnplace.onnx_io.shapes.tensor_info import Dimensions, choose_dimensions
from gnnplace.onnx_io.spelling import respell
from gnnplace.onnx_io.split import MAX_IR_VERSION
from gnnplace.onnx_io.value_types import attach_map_types, detach_map_types, kept_type, set_type, type_from_text

TypeText = tuple[str, Sequence[int | str | None]]
"""A type and a shape as ONNX Runtime writes them, such as `tensor(float)` and `['N', 4]`."""
TypeInference = Callable[[bytes, OnnxModel], Mapping[str, TypeText]]
"""Maps the bytes of a model, and the model that they derive from, to the types of the outputs by name."""

_FIRST_IR_WITH_OPSETS = 3
_HEAD_BYTES = 64
_OTHER_FORMATS = (
    (0, b"version https://git-lfs", "is a pointer of Git LFS and not the model; git lfs pull brings the model"),
    (0, b"<!doctype html", "is a web page; download the model again"),
    (0, b"<html", "is a web page; download the model again"),
    (4, b"ORTM", "is in ONNX Runtime's own format; give the .onnx file that it was made from"),
    (0, b"PK\x03\x04", "is a zip archive, as PyTorch saves models; export the model with torch.onnx.export"),
    (8, b'{"', "is a file of weights (safetensors) without a graph; export the model with torch.onnx.export"),
    (4, b"TFL3", "is a model of TensorFlow Lite; convert it with tf2onnx"),
    (0, b"\x89HDF", "is an HDF5 file, as Keras saves models; convert the model with tf2onnx"),
)
"""Where the mark of another format is in a file, the mark, and what to do."""
_UNKNOWN_SIZE = "unk__"  # prefix of ONNX Runtime's names for sizes that it does not know


def read_onnx(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    custom_ops: Sequence[str | Path] = (),
    infer_types: TypeInference | None = None,
) -> OnnxModel:
    """Reads a model file, normalises it, and computes its op graph with costs at the given dimensions.

    The model keeps its symbolic dimensions. External weights are checked and not loaded. Model inputs are assumed to be
    on every device when a step starts, at no cost.

    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.onnx_io.sample_inputs import probe_model
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "negative.onnx").write_bytes(probe_model(4, "x", "y"))  # y = -x
    ...     read_onnx(folder / "negative.onnx").graph.op_types
    ('Neg',)

    Args:
        path: The ONNX file.
        dims: Sizes of symbolic dimensions of the inputs, by default 1; an axis without a name is called `INPUT.AXIS`.
        custom_ops: Shared libraries with operators that ONNX Runtime lacks, for running the model.
        infer_types: Infers types that follow from no rule of ONNX, as behind custom operators.

    Returns:
        The model, whose `warnings` list the assumptions.

    Raises:
        UnsupportedModel: the file is not an ONNX model, is damaged or incomplete, or lacks a dimension of `dims`.
    """
    path = Path(path)
    proto = _parse(path)
    respell(proto, str(path))
    check_model(proto, str(path))
    map_types = detach_map_types(proto.graph)
    try:
        model = ir.serde.deserialize_model(proto)
    except (ir.serde.SerdeError, ValueError, TypeError) as problem:
        reason = str(problem.__cause__ or problem).splitlines()[0]
        raise UnsupportedModel(f"{path}: breaks the rules of ONNX ({reason})") from None
    attach_map_types(model.graph, map_types)
    settle_external_data(model, path)
    normalise(model, str(path))
    load_tensors_of_bodies(model)
    annotate_types(model)
    graph, dimensions, warnings = _costs(path, model, dims or {})
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    found = OnnxModel(
        path, sha256, model, graph, dimensions.values, warnings, tuple(map(Path, custom_ops)), dimensions.assumed
    )
    return found if infer_types is None else with_inferred_types(found, infer_types, dims)


def at_dims(model: OnnxModel, dims: Mapping[str, int]) -> OnnxModel:
    """The same nodes and weights with costs at other dimensions, measured with random inputs; see `read_onnx`.

    Raises:
        UnsupportedModel: the model lacks a dimension of `dims`.
    """
    graph, dimensions, warnings = _costs(model.path, model.model, dims)
    return replace(
        model, graph=graph, dims=dimensions.values, warnings=warnings, assumed=dimensions.assumed, inputs=None
    )


def with_inferred_types(
    model: OnnxModel, infer_types: TypeInference, dims: Mapping[str, int] | None = None
) -> OnnxModel:
    """The model with types for values that lack one, since it cannot be cut at those; costs at `dims` follow from them.

    Returns the same object if no type is missing or none is found.
    """
    produced = (value for node in model.model.graph for value in node.outputs)
    untyped = [value for value in produced if value.name and value.type is None and kept_type(value) is None]
    if not untyped:
        return model
    proto = ir.to_proto(model.model)
    proto.ir_version = min(MAX_IR_VERSION, proto.ir_version)
    outputs = {output.name for output in proto.graph.output}
    for value in untyped:
        if value.name not in outputs:
            proto.graph.output.add(name=value.name)
    found = infer_types(proto.SerializeToString(), model)
    for value in untyped:
        text, shape = found.get(str(value.name), ("", ()))
        if text:
            set_type(value, type_from_text(text))
            if isinstance(value.type, ir.TensorType) and shape:  # an empty shape means scalar or unknown
                value.shape = ir.Shape([None if _is_unknown(size) else size for size in shape])
    return at_dims(model, dims or {}) if found else model


def _is_unknown(size: int | str | None) -> bool:
    return size.startswith(_UNKNOWN_SIZE) if isinstance(size, str) else size is None or size < 0


def _costs(path: Path, model: ir.Model, dims: Mapping[str, int]) -> tuple[OpGraph, Dimensions, tuple[str, ...]]:
    """The op graph of a normalised model at the given dimensions, all dimensions, and the warnings."""
    dimensions = choose_dimensions(model.graph.inputs, dims, str(path))
    tensors, guesses = infer_shapes(model, dimensions)
    graph, assumptions = convert(path.stem, model, tensors, str(path))
    return graph, dimensions, (*dimensions.warnings, *guesses, *assumptions)


def _parse(path: Path) -> onnx.ModelProto:
    """The message in a model file, refused if it is obviously not a whole model."""
    if path.is_dir():
        raise UnsupportedModel(f"{path}: is a directory; name the .onnx file in it")
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as problem:
        raise UnsupportedModel(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    except DecodeError:
        reason = _other_format(path) or "is no ONNX model, or is cut off or damaged; export or copy it again"
        raise UnsupportedModel(f"{path}: {reason}") from None
    if path.stat().st_size == 0:
        raise UnsupportedModel(f"{path}: is empty; export or copy it again")
    if not proto.HasField("graph") or not proto.ir_version:
        reason = _other_format(path) or "holds no graph; expected an ONNX model"
        raise UnsupportedModel(f"{path}: {reason}")
    if proto.ir_version >= _FIRST_IR_WITH_OPSETS and not proto.opset_import:
        raise UnsupportedModel(f"{path}: states no operator set; the file may be cut off, export or copy it again")
    return proto


def _other_format(path: Path) -> str | None:
    """What a file is that is often taken for an ONNX model, and what to do; None if it is nothing known."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return next((reason for at, mark, reason in _OTHER_FORMATS if head[at:].lower().startswith(mark.lower())), None)
