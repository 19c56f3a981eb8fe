"""The manifest of a folder of parts: `parts/manifest.json`, format `gnnplace.parts/1`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from gnnplace.errors import InvalidPlacement, shown
from gnnplace.files import file_inside, new_folder, read_json, write_text
from gnnplace.json_fields import JsonObject, checked_format
from gnnplace.onnx_io.annotate import layer_assignment
from gnnplace.onnx_io.external_data import DATA, light_copy
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.part import Part, ValueInfo
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.shapes.node_types import declared_type
from gnnplace.onnx_io.split import SHARED_WEIGHTS, has_default, parts_in_memory, split_model
from gnnplace.onnx_io.value_types import type_text

FORMAT = "gnnplace.parts/1"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """All parts in a global run order, and the inputs and outputs of the whole model."""

    devices: tuple[str, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    parts: tuple[Part, ...]
    layer_assignment: Mapping[str, str] = field(default_factory=dict)
    """Session options that make one session of `placed.onnx` follow the placement; see `annotate.layer_assignment`."""
    optimised_for: Mapping[str, str] = field(default_factory=dict)
    """The machine whose kernels the parts hold (see `kernels.KernelModel`); empty for parts that run on any machine."""


def write_parts(
    model: OnnxModel,
    found: Sequence[Segment],
    device_names: Sequence[str],
    folder: Path,
    kernels: KernelModel | None = None,
) -> Manifest:
    """Replaces the content of `folder` by one model per segment and the manifest; `found` is in a global run order.

    Segments that name kernels are cut out of `kernels`.

    Raises:
        UnsupportedModel: the model cannot be cut there, or its operator set is too new; `folder` stays unchanged.
    """
    with new_folder(folder, last=MANIFEST) as fresh:
        cut, ops, kernels = _to_cut(model, found, kernels)
        written = split_model(cut, ops, fresh, keeps_order=kernels is not None, links=kernels is not None)
        split = [replace(part, model=folder / part.name) for part in written]
        manifest = _manifest(model, split, found, device_names, kernels)
        keys = ("device", "inputs", "outputs", "optional_inputs")
        rows = [{"file": part.name, **{key: getattr(part, key) for key in keys}} for part in manifest.parts]
        document = {"format": FORMAT, **asdict(replace(manifest, parts=())), "parts": rows}
        write_text(fresh / MANIFEST, json.dumps(document, indent=1) + "\n")
    return manifest


def manifest_in_memory(
    model: OnnxModel,
    found: Sequence[Segment],
    device_names: Sequence[str],
    folder: Path,
    kernels: KernelModel | None = None,
) -> Manifest:
    """The manifest of `write_parts` with parts in memory; large weights inside the model file go to a file in `folder`.

    External weights stay where they are: in the folder of the model, or of `kernels`.

    Raises:
        UnsupportedModel: the model cannot be cut there, or its operator set is too new.
    """
    cut, ops, kernels = _to_cut(model, found, kernels)
    light, data_folder = light_copy(cut, folder)
    split = parts_in_memory(light, ops, data_folder, keeps_order=kernels is not None)
    return _manifest(model, split, found, device_names, kernels)


def _to_cut(
    model: OnnxModel, found: Sequence[Segment], kernels: KernelModel | None
) -> tuple[OnnxModel, list[tuple[int, ...]], KernelModel | None]:
    """The model to cut, the ops of each part, and the kernels where these are cut."""
    if kernels is None or any(segment.kernels is None for segment in found):
        return model, [segment.ops for segment in found], None
    return kernels.model, [segment.kernels or () for segment in found], kernels


def _manifest(
    model: OnnxModel,
    split: Sequence[Part],
    found: Sequence[Segment],
    device_names: Sequence[str],
    kernels: KernelModel | None,
) -> Manifest:
    # Only a model without ops has a part and no segment.
    devices = [device_names[segment.device] for segment in found] or [device_names[0]] * len(split)
    return Manifest(
        devices=tuple(device_names),
        inputs=value_infos(model.model, model.model.graph.inputs),
        outputs=value_infos(model.model, model.model.graph.outputs),
        parts=tuple(
            replace(part, device=device, optimised=kernels is not None)
            for part, device in zip(split, devices, strict=True)
        ),
        layer_assignment=layer_assignment(device_names),
        optimised_for={} if kernels is None else kernels.made_for,
    )


def written_files(folder: Path) -> list[Path]:
    """The files and folders that `write_parts` wrote to `folder`; none without a manifest."""
    names = (MANIFEST, "part-*.onnx", SHARED_WEIGHTS, DATA)
    return [file for name in names for file in folder.glob(name)] if (folder / MANIFEST).exists() else []


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of a folder of parts; checks that the files exist and that producers come before consumers.

    Raises:
        InvalidPlacement: the manifest is missing or breaks a rule.
    """
    path = folder / MANIFEST
    document = checked_format(read_json(path, InvalidPlacement), FORMAT, str(path), InvalidPlacement)
    options, machine = (_texts_by_name(document, name) for name in ("layer_assignment", "optimised_for"))
    manifest = Manifest(
        devices=document.texts("devices"),
        inputs=tuple(_value_info(row) for row in document.objects("inputs", required=True)),
        outputs=tuple(_value_info(row) for row in document.objects("outputs", required=True)),
        parts=tuple(
            Part(
                name=(name := row.text("file")),
                device=row.text("device"),
                model=folder / name,
                inputs=row.texts("inputs"),
                outputs=row.texts("outputs"),
                optional_inputs=row.texts("optional_inputs"),
                optimised=bool(machine),
            )
            for row in document.objects("parts", required=True)
        ),
        layer_assignment=options,
        optimised_for=machine,
    )
    _check(manifest, folder, path)
    return manifest


def _texts_by_name(document: JsonObject, name: str) -> Mapping[str, str]:
    found = document.fields.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidPlacement(f"{document.where}: {name!r} is {shown(found)}; expected an object of texts")
    return found


def _check(manifest: Manifest, folder: Path, path: Path) -> None:
    available = {info.name for info in manifest.inputs}
    defaults = {info.name for info in manifest.inputs if info.optional}
    for part in manifest.parts:
        what = f"{path}: the part {part.name!r}"
        file = file_inside(folder, part.name)
        if file is None:
            raise InvalidPlacement(f"{what} lies outside of the folder; parts are files inside it")
        if not file.is_file():
            raise InvalidPlacement(f"{what} is missing; place the model again")
        if part.device not in manifest.devices:
            raise InvalidPlacement(f"{what} is on {part.device!r}; the devices are {', '.join(manifest.devices)}")
        for name in part.reads:
            if name not in available:
                raise InvalidPlacement(f"{what} reads {name!r}, which no model input or earlier part gives")
        for name in part.outputs:
            if name in available and name not in defaults:
                raise InvalidPlacement(f"{what} gives {name!r}, which is there already")
        available.update(part.outputs)
    for info in manifest.outputs:
        if info.name not in available:
            raise InvalidPlacement(f"{path}: no part gives the model output {info.name!r}")


def value_infos(model: ir.Model, values: Sequence[ir.Value]) -> tuple[ValueInfo, ...]:
    """What a session says about inputs or outputs of a model."""
    return tuple(
        ValueInfo(
            name=str(value.name),
            type=type_text(declared_type(value)),
            shape=_shape(value),
            optional=has_default(model, value),
            known_rank=value.shape is not None,
        )
        for value in values
        if has_default(model, value) or not (value.is_initializer() and value.is_graph_input())
    )


def _shape(value: ir.Value) -> tuple[int | str | None, ...]:
    """Sizes and names of a tensor's dimensions; a sequence or an optional has none, whatever its elements have."""
    is_tensor = isinstance(value.type, ir.TensorType | ir.SparseTensorType)
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape or ()) if is_tensor else ()


def _value_info(row: JsonObject) -> ValueInfo:
    shape = row.fields.get("shape")
    if not isinstance(shape, list) or not all(dim is None or type(dim) in (int, str) for dim in shape):
        raise InvalidPlacement(
            f"{row.where}: 'shape' of {shown(row.fields.get('name'))} is {shown(shape)}; "
            "expected a list of sizes and names"
        )
    return ValueInfo(
        name=row.text("name"),
        type=row.text("type"),
        shape=tuple(shape),
        optional=bool(row.fields.get("optional", False)),
        known_rank=bool(row.fields.get("known_rank", True)),
    )
