"""Weights in files of their own: referred to and copied as they are.

ONNX Runtime refuses external data outside the model's folder: absolute paths, `..` and symbolic links. ONNX also refuses files with
several hard links, so a model that is written elsewhere gets copies, which share their blocks where the file system can clone files.
"""

import errno
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

DATA = "data"
"""Folder of the files with weights outside the model."""
TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
"""Fields of a tensor with its elements, in place of its bytes."""
_SMALL_BYTES = 1024  # scalars and shapes stay in the model, where ONNX Runtime can fold them
_FEW_BYTES = 1 << 20
_NO_COPYING = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # the file system cannot copy by itself


def external_tensors(model: ir.Model) -> Iterator[ir.ExternalTensor]:
    """Every tensor with data in another file: weights and attributes, also those of bodies and functions."""
    for graph in (*model.graphs(), *(body for function in model.functions.values() for body in function.subgraphs())):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value.const_value
    yield from (attribute.value for _, attribute in _external_attributes(model))


def load_tensors_of_bodies(model: ir.Model) -> None:
    """Loads constants and initialisers of bodies from other files, which ONNX Runtime does not find for a model in memory."""
    for node, attribute in list(_external_attributes(model)):
        node.attributes.add(ir.AttrTensor(attribute.name, _loaded(attribute.value)))
    for graph in model.graphs():
        for value in graph.initializers.values() if graph is not model.graph else ():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _loaded(value.const_value)


def _loaded(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    return ir.Tensor(readable(tensor).numpy().copy(), dtype=tensor.dtype, name=tensor.name)


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


def external_beside(model: Path | bytes, folder: Path | None = None) -> dict[str, Path]:
    """The external files of a model by location, all of them in its folder; `folder` is that of a model in memory.

    Raises:
        UnsupportedModel: a file is missing or lies elsewhere.
    """
    if isinstance(model, Path):
        where, folder, found = str(model), model.parent, external_files(ir.load(model))
    else:
        read = ir.from_proto(onnx.load_model_from_string(model))
        ir.external_data.set_base_dir(read.graph, folder or Path())
        where, found = "a part", external_files(read)
    for location in found:
        if file_inside(folder or Path(), location) is None:
            raise UnsupportedModel(
                f"{where}: keeps weights in {location!r}, outside of its folder; place the model again"
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


def names_of_copies(files: Mapping[str, Path]) -> dict[str, str]:
    """The location that `copied_files` gives each external file, by its old location."""
    locations: dict[str, str] = {}
    for number, (location, path) in enumerate(files.items()):
        name = path.name
        while f"{DATA}/{name}" in locations.values():
            name = f"{number}-{name}"
        locations[location] = f"{DATA}/{name}"
    return locations


def copied_files(files: Mapping[str, Path], folder: Path, links: bool = False) -> dict[str, str]:
    """Copies external files into a subfolder of `folder`; returns the new location of each old one.

    With `links`, the copies are hard links where the file system has them, for files that gnnplace itself has written.
    """
    locations = names_of_copies(files)
    for location, path in files.items():
        target = folder / locations[location]
        if target.exists() and target.samefile(path):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if links:
            with suppress(OSError):
                os.link(path.resolve(), target)
                continue
        with new_file(target) as temporary:
            _copy(path, temporary)
    return locations


def _copy(source: Path, target: Path) -> None:
    """Copies a file; holes stay holes, and file systems that can do so share its blocks."""
    try:
        with source.open("rb") as read, target.open("wb") as written:
            _copy_ranges(read.fileno(), written.fileno())
    except OSError as error:
        if error.errno not in _NO_COPYING:
            raise
        shutil.copyfile(source, target)


def _copy_ranges(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    begin = end = 0
    while end < size:
        try:
            begin = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # a hole up to the end
        end = os.lseek(source, begin, os.SEEK_HOLE)
        while begin < end:
            copied = os.copy_file_range(source, target, end - begin, begin, begin)
            if not copied:
                raise OSError(errno.EIO, "was cut off while it was copied")
            begin += copied


def bodies_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    return [
        body
        for attribute in node.attribute
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]


def nodes_of(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of all graphs, bodies and functions."""
    stack = [proto.graph.node, *(function.node for function in proto.functions)]
    while stack:
        for node in stack.pop():
            yield node
            stack.extend(body.node for body in bodies_of(node))


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
            for field in TYPED_FIELDS:
                tensor.ClearField(field)
            tensor.raw_data = b""  # `set_external_data` expects the field
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
