"""The parts of a placed model and how they fit together: `parts/manifest.json`, format `gnnplace.parts/1`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from gnnplace.errors import InvalidPlacement, shown
from gnnplace.files import file_inside, read_json, write_text
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.split import ModelCutter, split_model

__all__ = ["FORMAT", "MANIFEST", "Manifest", "PlacedPart", "ValueInfo", "read_manifest", "write_parts"]

FORMAT = "gnnplace.parts/1"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ValueInfo:
    """A model input or output, described as `onnxruntime.NodeArg` does it."""

    name: str
    type: str
    """For example `tensor(float)`."""
    shape: tuple[int | str | None, ...]
    """A symbolic size by its name; None where nothing is known."""
    optional: bool = False
    """An input that has a default."""
    known_rank: bool = True


@dataclass(frozen=True)
class PlacedPart:
    """One model file, its device, and the values that it exchanges."""

    file: str
    device: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional_inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """All parts in a global run order, and the inputs and outputs of the whole model."""

    devices: tuple[str, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    parts: tuple[PlacedPart, ...]


def write_parts(model: OnnxModel, found: Sequence[Segment], device_names: Sequence[str], folder: Path) -> Manifest:
    """Writes one model per segment and the manifest, in place of what `folder` held; `found` is in a global run order.

    Raises:
        UnsupportedModel: the model cannot be cut there, or its operator set is too new to run; `folder` stays as it was.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        fresh, old = Path(scratch) / "new", Path(scratch) / "old"
        fresh.mkdir()
        split = split_model(model, [segment.ops for segment in found], fresh)
        # Only a model without ops has a part and no segment.
        devices = [device_names[segment.device] for segment in found] or [device_names[0]] * len(split)
        manifest = Manifest(
            devices=tuple(device_names),
            inputs=_value_infos(model.model, model.model.graph.inputs),
            outputs=_value_infos(model.model, model.model.graph.outputs),
            parts=tuple(
                PlacedPart(part.file, device, part.inputs, part.outputs, part.optional_inputs)
                for part, device in zip(split, devices, strict=True)
            ),
        )
        write_text(fresh / MANIFEST, json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n")
        if folder.exists():
            shutil.move(folder, old)
        fresh.rename(folder)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a folder of parts, checked: the files are there, and producers come before consumers.

    Raises:
        InvalidPlacement: it is missing or breaks a rule.
    """
    path = folder / MANIFEST
    document = read_json(path, InvalidPlacement)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InvalidPlacement(f'{path}: "format" is {shown(found)}; expected {FORMAT!r}')
    manifest = Manifest(
        devices=_names(document, "devices", path),
        inputs=tuple(_value_info(row, path) for row in _rows(document, "inputs", path)),
        outputs=tuple(_value_info(row, path) for row in _rows(document, "outputs", path)),
        parts=tuple(
            PlacedPart(
                file=_text(row, "file", path),
                device=_text(row, "device", path),
                inputs=_names(row, "inputs", path),
                outputs=_names(row, "outputs", path),
                optional_inputs=_names(row, "optional_inputs", path),
            )
            for row in _rows(document, "parts", path)
        ),
    )
    _check(manifest, folder, path)
    return manifest


def _check(manifest: Manifest, folder: Path, path: Path) -> None:
    available = {info.name for info in manifest.inputs}
    defaults = {info.name for info in manifest.inputs if info.optional}
    for part in manifest.parts:
        file = file_inside(folder, part.file)
        if file is None:
            raise InvalidPlacement(
                f"{path}: the part {part.file!r} lies outside of the folder; parts are files inside it"
            )
        if not file.is_file():
            raise InvalidPlacement(f"{path}: the part {part.file!r} is missing; place the model again")
        if part.device not in manifest.devices:
            raise InvalidPlacement(
                f"{path}: part {part.file!r} is on {part.device!r}; the devices are {', '.join(manifest.devices)}"
            )
        for name in (*part.inputs, *part.optional_inputs):
            if name not in available:
                raise InvalidPlacement(
                    f"{path}: part {part.file!r} reads {name!r}, which no model input or earlier part gives"
                )
        for name in part.outputs:
            if name in available and name not in defaults:
                raise InvalidPlacement(f"{path}: part {part.file!r} gives {name!r}, which is there already")
        available.update(part.outputs)
    for info in manifest.outputs:
        if info.name not in available:
            raise InvalidPlacement(f"{path}: no part gives the model output {info.name!r}")


def _value_infos(model: ir.Model, values: Sequence[ir.Value]) -> tuple[ValueInfo, ...]:
    cutter = ModelCutter(model)
    return tuple(
        ValueInfo(
            name=str(value.name),
            type=_type_name(value.type),
            shape=tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape or ()),
            optional=cutter.has_default(value),
            known_rank=value.shape is not None,
        )
        for value in dict.fromkeys(values)
        if cutter.has_default(value) or not (value.is_initializer() and value.is_graph_input())
    )


def _type_name(value_type: ir.TypeProtocol | None) -> str:
    """A type as ONNX Runtime writes it."""
    if value_type is None:
        return ""
    if isinstance(value_type, ir.SequenceType):
        return f"seq({_type_name(value_type.elem_type)})"
    if isinstance(value_type, ir.OptionalType):
        return f"optional({_type_name(value_type.elem_type)})"
    kind = "sparse_tensor" if isinstance(value_type, ir.SparseTensorType) else "tensor"
    return f"{kind}({value_type.dtype.name.lower()})"


def _value_info(row: dict[str, Any], path: Path) -> ValueInfo:
    shape = row.get("shape")
    if not isinstance(shape, list) or not all(dim is None or type(dim) in (int, str) for dim in shape):
        raise InvalidPlacement(
            f"{path}: 'shape' of {shown(row.get('name'))} is {shown(shape)}; expected a list of sizes and names"
        )
    return ValueInfo(
        name=_text(row, "name", path),
        type=_text(row, "type", path),
        shape=tuple(shape),
        optional=bool(row.get("optional", False)),
        known_rank=bool(row.get("known_rank", True)),
    )


def _rows(document: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    rows = document.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidPlacement(f"{path}: {key!r} is no list of objects")
    return rows


def _text(row: dict[str, Any], key: str, path: Path) -> str:
    if not isinstance(row.get(key), str):
        raise InvalidPlacement(f"{path}: {key!r} is {shown(row.get(key))} in {shown(row)}; expected text")
    return str(row[key])


def _names(row: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    names = row.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidPlacement(f"{path}: {key!r} is {shown(names)}; expected a list of names")
    return tuple(names)
