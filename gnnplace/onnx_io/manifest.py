"""The parts of a placed model and how they fit together: `parts/manifest.json`, format `gnnplace.parts/1`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gnnplace.errors import InvalidPlacement, shown
from gnnplace.files import file_inside, new_folder, read_json, write_text
from gnnplace.onnx_io.annotate import layer_assignment
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.shapes.node_types import declared_type
from gnnplace.onnx_io.split import ModelCutter, Part, split_model

__all__ = ["FORMAT", "MANIFEST", "Manifest", "ValueInfo", "read_manifest", "write_parts"]

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
class Manifest:
    """All parts in a global run order, and the inputs and outputs of the whole model."""

    devices: tuple[str, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    parts: tuple[Part, ...]
    layer_assignment: Mapping[str, str] = field(default_factory=dict)
    """Options under which one session of `placed.onnx` keeps to the placement; see `annotate.layer_assignment`."""


def write_parts(model: OnnxModel, found: Sequence[Segment], device_names: Sequence[str], folder: Path) -> Manifest:
    """Writes one model per segment and the manifest, in place of what `folder` held; `found` is in a global run order.

    Raises:
        UnsupportedModel: the model cannot be cut there, or its operator set is too new to run; `folder` stays as it was.
    """
    with new_folder(folder, last=MANIFEST) as fresh:
        split = split_model(model, [segment.ops for segment in found], fresh)
        # Only a model without ops has a part and no segment.
        devices = [device_names[segment.device] for segment in found] or [device_names[0]] * len(split)
        manifest = Manifest(
            devices=tuple(device_names),
            inputs=_value_infos(model.model, model.model.graph.inputs),
            outputs=_value_infos(model.model, model.model.graph.outputs),
            parts=tuple(
                replace(part, device=device, model=folder / part.name)
                for part, device in zip(split, devices, strict=True)
            ),
            layer_assignment=layer_assignment(device_names),
        )
        write_text(fresh / MANIFEST, json.dumps(_document(manifest), indent=1) + "\n")
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
            Part(
                name=(name := _text(row, "file", path)),
                device=_text(row, "device", path),
                model=folder / name,
                inputs=_names(row, "inputs", path),
                outputs=_names(row, "outputs", path),
                optional_inputs=_names(row, "optional_inputs", path),
            )
            for row in _rows(document, "parts", path)
        ),
        layer_assignment=_layer_assignment(document, path),
    )
    _check(manifest, folder, path)
    return manifest


def _document(manifest: Manifest) -> dict[str, Any]:
    parts = [
        {
            "file": part.name,
            "device": part.device,
            "inputs": part.inputs,
            "outputs": part.outputs,
            "optional_inputs": part.optional_inputs,
        }
        for part in manifest.parts
    ]
    return {
        "format": FORMAT,
        "devices": manifest.devices,
        "inputs": [asdict(info) for info in manifest.inputs],
        "outputs": [asdict(info) for info in manifest.outputs],
        "parts": parts,
        "layer_assignment": manifest.layer_assignment,
    }


def _check(manifest: Manifest, folder: Path, path: Path) -> None:
    available = {info.name for info in manifest.inputs}
    defaults = {info.name for info in manifest.inputs if info.optional}
    for part in manifest.parts:
        file = file_inside(folder, part.name)
        if file is None:
            raise InvalidPlacement(
                f"{path}: the part {part.name!r} lies outside of the folder; parts are files inside it"
            )
        if not file.is_file():
            raise InvalidPlacement(f"{path}: the part {part.name!r} is missing; place the model again")
        if part.device not in manifest.devices:
            raise InvalidPlacement(
                f"{path}: part {part.name!r} is on {part.device!r}; the devices are {', '.join(manifest.devices)}"
            )
        for name in part.reads:
            if name not in available:
                raise InvalidPlacement(
                    f"{path}: part {part.name!r} reads {name!r}, which no model input or earlier part gives"
                )
        for name in part.outputs:
            if name in available and name not in defaults:
                raise InvalidPlacement(f"{path}: part {part.name!r} gives {name!r}, which is there already")
        available.update(part.outputs)
    for info in manifest.outputs:
        if info.name not in available:
            raise InvalidPlacement(f"{path}: no part gives the model output {info.name!r}")


def _value_infos(model: ir.Model, values: Sequence[ir.Value]) -> tuple[ValueInfo, ...]:
    cutter = ModelCutter(model)
    return tuple(
        ValueInfo(
            name=str(value.name),
            type=_type_name(declared_type(value)),
            shape=tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape or ()),
            optional=cutter.has_default(value),
            known_rank=value.shape is not None,
        )
        for value in dict.fromkeys(values)
        if cutter.has_default(value) or not (value.is_initializer() and value.is_graph_input())
    )


def _type_name(found: onnx.TypeProto | None) -> str:
    """A type as ONNX Runtime writes it; empty where it is not known."""
    kind = None if found is None else found.WhichOneof("value")
    if found is None or kind is None:
        return ""
    if kind == "map_type":
        return f"map({_element_name(found.map_type.key_type)},{_type_name(found.map_type.value_type)})"
    inner = getattr(found, kind).elem_type
    shown = kind.removesuffix("_type").replace("sequence", "seq")
    return f"{shown}({_element_name(inner) if isinstance(inner, int) else _type_name(inner)})"


def _element_name(elem_type: int) -> str:
    return str(onnx.TensorProto.DataType.Name(elem_type)).lower()


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


def _layer_assignment(document: dict[str, Any], path: Path) -> dict[str, str]:
    options = document.get("layer_assignment", {})
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise InvalidPlacement(f"{path}: 'layer_assignment' is {options!r}; expected an object of session options")
    return options


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
