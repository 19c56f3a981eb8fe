"""Weights in files of their own: referred to, never rewritten.

ONNX Runtime refuses external data outside the model's folder, by absolute path, by `..` and through symbolic links. A
hard link passes, so a model that is written elsewhere gets one (a copy where the file system has no hard links).
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx.external_data_helper import set_external_data

from gnnplace.errors import UnsupportedModel
from gnnplace.files import file_inside, new_file
from gnnplace.onnx_io.model import OnnxModel

__all__ = [
    "external_beside",
    "external_files",
    "external_tensors",
    "light_copy",
    "link_files",
    "refer",
    "relocate",
    "take_in_attributes",
    "written_outside",
]


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor whose data lie in another file: weights and attributes, of bodies and functions too."""
    for graph in (*model.graphs(), *(body for function in model.functions.values() for body in function.subgraphs())):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    yield from (attribute.value for _, attribute in _external_attributes(model))


def take_in_attributes(model: ir.Model) -> None:
    """Reads the tensors of attributes (constants in bodies) that lie in other files.

    ONNX's checker, which ONNX Runtime asks about them, takes no hard links.
    """
    for node, attribute in list(_external_attributes(model)):
        tensor: ir.ExternalTensor = attribute.value
        held = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
        node.attributes.add(ir.AttrTensor(attribute.name, held))


def _external_attributes(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Attr]]:
    nodes = (model.graph.all_nodes(), *(function.all_nodes() for function in model.functions.values()))
    for node in itertools.chain.from_iterable(nodes):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                yield node, attribute


def external_files(model: ir.Model) -> dict[str, Path]:
    """The file behind every external location that the model's weights name.

    Raises:
        UnsupportedModel: a file is missing.
    """
    found: dict[str, Path] = {}
    for tensor in external_tensors(model):
        found[os.fspath(tensor.location)] = Path(tensor.path)
    for location, path in found.items():
        if not path.is_file():
            raise UnsupportedModel(
                f"{path}: the weights that the model keeps in {location!r} are missing; put the file there"
            )
    return found


def external_beside(path: Path) -> dict[str, Path]:
    """The files that the weights of a model file lie in, by location; all of them are in its folder.

    Raises:
        UnsupportedModel: a file is missing, or lies elsewhere.
    """
    found = external_files(ir.load(path))
    for location in found:
        if file_inside(path.parent, location) is None:
            raise UnsupportedModel(
                f"{path}: keeps weights in {location!r}, outside of its folder; place the model again"
            )
    return found


def link_files(files: Mapping[str, Path], folder: Path, subfolder: str = "data") -> dict[str, str]:
    """Makes external files reachable from models in `folder`; the new location of each old one."""
    locations: dict[str, str] = {}
    for number, (location, path) in enumerate(files.items()):
        name = (
            path.name
            if path.name not in {Path(taken).name for taken in locations.values()}
            else f"{number}-{path.name}"
        )
        target = folder / subfolder / name
        locations[location] = f"{subfolder}/{name}"
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


def relocate(graph: onnx.GraphProto, locations: Mapping[str, str]) -> None:
    """Replaces the locations of external weights in a graph and in the bodies of its nodes."""
    if not locations:
        return
    for tensor in _tensors(graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = locations.get(entry.value, entry.value)


def written_outside(values: Iterable[ir.Value], folder: Path, file: str) -> dict[str, ir.ExternalTensor]:
    """Writes the weights of `values` to one file in `folder`; where each then is, by name."""
    tensors = [value.const_value for value in values if value.const_value is not None]
    if not tensors:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    outside = ir.external_data.convert_tensors_to_external(tensors, folder, file, alignment=4096, align_threshold=0)
    return {str(tensor.name): found for tensor, found in zip(tensors, outside, strict=True)}


def refer(graph: onnx.GraphProto, outside: Mapping[str, ir.ExternalTensor]) -> None:
    """Replaces weights of a graph by references to where they are."""
    for tensor in graph.initializer:
        found = outside.get(tensor.name)
        if found is not None:
            set_external_data(tensor, os.fspath(found.location), found.offset, found.length)
            tensor.ClearField("raw_data")


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ():
                yield from _tensors(body)


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


_SMALL_BYTES = 1024  # scalars and shapes stay in the model, where ONNX Runtime can fold them
_FEW_BYTES = 1 << 20


def light_copy(model: OnnxModel, folder: Path) -> tuple[ir.Model, Path]:
    """The same model with its weights outside, and the folder that they lie in.

    Weights that are outside already stay where they are; others are written to `folder`, unless there are hardly any. The
    nodes are the same, in the same order.
    """
    values = [value.const_value for graph in model.model.graphs() for value in graph.initializers.values()]
    inside = sum(tensor.nbytes for tensor in values if tensor is not None and not isinstance(tensor, ir.ExternalTensor))
    if inside <= _FEW_BYTES:
        return model.model, model.path.resolve().parent
    path = folder / "light.onnx"
    ir.save(model.model, path, external_data="weights.bin", size_threshold_bytes=_SMALL_BYTES)
    light = ir.load(path)
    for old, new in zip(_values(model.model.graph), _values(light.graph), strict=True):
        new.meta.update(old.meta)
    return light, folder


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs
