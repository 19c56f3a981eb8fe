"""Weights in files of their own: referred to and linked, never rewritten.

ONNX Runtime refuses external data outside the model's folder: absolute paths, `..` and symbolic links. Hard links pass,
so a model that is written elsewhere gets hard links (copies where the file system has none).
"""

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import set_external_data

from gnnplace.errors import UnsupportedModel
from gnnplace.files import file_inside, new_file
from gnnplace.onnx_io.folding import readable
from gnnplace.onnx_io.model import OnnxModel

LINKED_FILES = "data"
"""Folder of links to the files with weights outside the model."""
_SMALL_BYTES = 1024  # scalars and shapes stay in the model, where ONNX Runtime can fold them
_FEW_BYTES = 1 << 20


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor with data in another file: weights and attributes, also those of bodies and functions."""
    for graph in (*model.graphs(), *(body for function in model.functions.values() for body in function.subgraphs())):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    yield from (attribute.value for _, attribute in _external_attributes(model))


def load_attribute_tensors(model: ir.Model) -> None:
    """Loads tensors of attributes (constants in bodies) from other files, since ONNX Runtime refuses hard links there."""
    for node, attribute in list(_external_attributes(model)):
        tensor: ir.ExternalTensor = attribute.value
        held = ir.Tensor(readable(tensor).numpy(), dtype=tensor.dtype, name=tensor.name)
        node.attributes.add(ir.AttrTensor(attribute.name, held))


def _external_attributes(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    nodes = (model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
    for node in itertools.chain.from_iterable(nodes):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                yield node, attribute


def external_files(model: ir.Model) -> dict[str, Path]:
    """The file behind every location that external tensors of the model name.

    Raises:
        UnsupportedModel: a file is missing.
    """
    found = {os.fspath(tensor.location): Path(tensor.path) for tensor in external_tensors(model)}
    for location, path in found.items():
        if not path.is_file():
            raise UnsupportedModel(
                f"{path}: the weights that the model keeps in {location!r} are missing; put the file there"
            )
    return found


def external_beside(path: Path) -> dict[str, Path]:
    """The external files of a model file by location, all of them in the folder of the model.

    Raises:
        UnsupportedModel: a file is missing or lies elsewhere.
    """
    found = external_files(ir.load(path))
    for location in found:
        if file_inside(path.parent, location) is None:
            raise UnsupportedModel(
                f"{path}: keeps weights in {location!r}, outside of its folder; place the model again"
            )
    return found


class ExternalWeight(NamedTuple):
    """An initialiser of a model in a file."""

    name: str
    file: Path
    offset: int
    num_bytes: int
    element_type: int
    """As ONNX numbers them."""
    shape: tuple[int, ...]


def external_weights(model: Path | bytes, folder: Path | None = None) -> list[ExternalWeight]:
    """The initialisers of the main graph that lie in files of the model's folder; `folder` is that of a model in memory.

    Empty for a file that is no model or breaks the format; the runtime that loads it reports why.
    """
    found = []
    with suppress(DecodeError, KeyError, ValueError):
        if isinstance(model, Path):
            folder, proto = model.parent, onnx.load(model, load_external_data=False)
        else:
            proto = onnx.load_model_from_string(model)
        for tensor in proto.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL and folder is not None:
                entries = {entry.key: entry.value for entry in tensor.external_data}
                file, offset, num_bytes = file_inside(folder, entries["location"]), int(entries.get("offset", 0)), 0
                if file is not None and file.is_file() and offset >= 0:
                    num_bytes = int(entries.get("length", file.stat().st_size - offset))
                    shape = tuple(tensor.dims)
                    found.append(ExternalWeight(tensor.name, file, offset, num_bytes, tensor.data_type, shape))
    return found


def link_files(files: Mapping[str, Path], folder: Path) -> dict[str, str]:
    """Links external files into a subfolder of `folder`; returns the new location of each old one."""
    locations: dict[str, str] = {}
    for number, (location, path) in enumerate(files.items()):
        name = path.name
        while f"{LINKED_FILES}/{name}" in locations.values():
            name = f"{number}-{name}"
        locations[location] = f"{LINKED_FILES}/{name}"
        target = folder / locations[location]
        if target.exists() and target.samefile(path):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(path.resolve(), target)
        except OSError:
            with new_file(target) as temporary:
                shutil.copyfile(path, temporary)
    return locations


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    return [
        body
        for attribute in node.attribute
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]


def relocate(graph: onnx.GraphProto, locations: Mapping[str, str]) -> None:
    """Replaces the locations of external weights in a graph and in the bodies of its nodes."""
    for tensor in graph.initializer:
        for entry in tensor.external_data if tensor.data_location == onnx.TensorProto.EXTERNAL else ():
            if entry.key == "location":
                entry.value = locations.get(entry.value, entry.value)
    for node in graph.node:
        for body in bodies_of(node):
            relocate(body, locations)


def write_external(values: Iterable[ir.Value], folder: Path, file: str) -> dict[str, ir.ExternalTensor]:
    """Writes the weights of `values` to one file in `folder`; returns references to them by name."""
    tensors = [value.const_value for value in values if value.const_value is not None]
    if not tensors:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    outside = ir.external_data.convert_tensors_to_external(tensors, folder, file, alignment=4096, align_threshold=0)
    return {str(tensor.name): found for tensor, found in zip(tensors, outside, strict=True)}


def refer(graph: onnx.GraphProto, outside: Mapping[str, ir.ExternalTensor]) -> None:
    """Replaces weights of a graph by references to an external file."""
    for tensor in graph.initializer:
        if (found := outside.get(tensor.name)) is not None:
            set_external_data(tensor, os.fspath(found.location), found.offset, found.length)
            tensor.ClearField("raw_data")


def light_copy(model: OnnxModel, folder: Path) -> tuple[ir.Model, Path]:
    """The same nodes with all weights in external files, and the folder of these files.

    The weights are written to one file in `folder`, unless those inside the model file have at most 1 MiB together.
    """
    values = [value.const_value for graph in model.model.graphs() for value in graph.initializers.values()]
    inside = sum(tensor.nbytes for tensor in values if tensor is not None and not isinstance(tensor, ir.ExternalTensor))
    if inside <= _FEW_BYTES:
        return model.model, model.path.resolve().parent
    light = model.model.clone()
    for value in (value for graph in light.graphs() for value in graph.initializers.values()):
        value.const_value = None if value.const_value is None else readable(value.const_value)
    return ir.external_data.unload_from_model(light, folder, "weights.bin", size_threshold_bytes=_SMALL_BYTES), folder
