"""The placement inside a model file: ONNX's multi-device fields, and `metadata_props` for tools that read only these.

ONNX has no field for "this node is on device k". So every node carries two encodings of it: the number of its segment
as `pipeline_stage`, and per output a sharding spec with one device and no sharded dimension. `placement.json` stays the
truth: no runtime acts on these fields, and many tools drop them. ONNX Runtime from 1.25 on acts on the metadata
`layer_ann` within one session, that is, for one CPU and one GPU.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from gnnplace.arrays import IntArray
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidPlacement, InvalidTopology
from gnnplace.files import new_file
from gnnplace.onnx_io.external_data import copied_files, external_files, names_of_copies, relocate
from gnnplace.onnx_io.folding import values_read
from gnnplace.onnx_io.model import OnnxModel, constant_ops
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.split import MAX_IR_VERSION, checked_opset, proto_of, serialized
from gnnplace.onnx_io.value_types import detach_map_types

LAYER_KEY = "layer_ann"
"""Metadata of a node that ONNX Runtime reads."""
_CONFIGURATION = "gnnplace"
_DEVICE_KEY = "gnnplace.device"
_FIRST_IR_WITH_DEVICES = 11
_LAYERS = {"cpu": "gnnplace_cpu", "cuda": "gnnplace_gpu"}


def annotate(
    model: OnnxModel, topology: Topology, assignment: IntArray | Sequence[int], segment_of_op: Sequence[int]
) -> onnx.ModelProto:
    """The model with the device and the segment of every node; external weights keep their locations.

    Raises:
        InvalidPlacement: the assignment does not belong to this model and these devices.
        UnsupportedModel: the operator set is too new, or ONNX cannot express the model.
    """
    checked_opset(model.model)
    if not len(assignment) == len(segment_of_op) == len(model.model.graph):
        raise InvalidPlacement(f"{len(assignment)} ops are placed; the model has {len(model.model.graph)} nodes")
    names = topology.device_names
    proto = proto_of(model.model, (*model.model.graph.inputs, *model.model.graph.outputs))
    proto.ir_version = min(MAX_IR_VERSION, max(_FIRST_IR_WITH_DEVICES, proto.ir_version))
    del proto.configuration[:]
    proto.configuration.add(name=_CONFIGURATION, num_devices=len(names), device=names)
    layers = [_LAYERS[parse_real(name).family] for name in names] if layer_assignment(names) else None
    for node, device, segment in zip(proto.graph.node, assignment, segment_of_op, strict=True):
        if not 0 <= device < len(names):
            raise InvalidPlacement(f"node {node.name!r} is on device {device}; there are {len(names)}")
        del node.device_configurations[:]
        added = {_DEVICE_KEY: names[device]} | ({LAYER_KEY: layers[device]} if layers else {})
        stated = {entry.key: entry.value for entry in node.metadata_props if entry.key not in added}
        onnx.helper.set_metadata_props(node, stated | added)
        placed = node.device_configurations.add(configuration_id=_CONFIGURATION, pipeline_stage=int(segment))
        for output in filter(None, node.output):
            placed.sharding_spec.add(tensor_name=output, device=[int(device)])
    return proto


def write_placed(
    model: OnnxModel,
    topology: Topology,
    assignment: IntArray | Sequence[int],
    segment_of_op: Sequence[int],
    path: Path,
    copied_in: str | None = None,
) -> None:
    """Writes the annotated model, and copies of its external weights beside it.

    `copied_in` is a folder beside `path` in which `split_model` has copied these weights; then it makes no others.

    Raises:
        InvalidPlacement: see `annotate`.
        UnsupportedModel: see `annotate`; or external weights are missing.
    """
    proto = annotate(model, topology, assignment, segment_of_op)
    files = external_files(model.model)
    if copied_in is None:
        locations = copied_files(files, path.parent)
    else:
        locations = {old: f"{copied_in}/{new}" for old, new in names_of_copies(files).items()}
    relocate(proto.graph, locations)
    with new_file(path) as temporary:
        temporary.write_bytes(serialized(proto, path.name))


def layer_assignment(device_names: Sequence[str]) -> dict[str, str]:
    """Session options that make one ONNX Runtime session of the placed model follow the placement.

    Ops without a GPU kernel still run on the CPU. Empty unless the devices are CPUs and exactly one GPU: one session has
    at most one GPU, and ONNX Runtime has no rules for other providers.
    """
    try:
        devices = [parse_real(name) for name in device_names]
    except InvalidTopology:
        return {}
    gpus = {device.gpu for device in devices if device.family == "cuda"}
    if len(gpus) != 1 or any(device.family not in _LAYERS or device.host for device in devices):
        return {}
    rules = ";".join(f"{family}(={layer})" for family, layer in _LAYERS.items())
    return {"session.layer_assignment_settings": rules}


def annotated_segments(model: OnnxModel) -> tuple[tuple[str, ...], tuple[Segment, ...]]:
    """Devices and segments, in a global run order, of a model that was read from a placed file.

    Raises:
        InvalidPlacement: the model has no placement or a broken one, or its ops have changed since.
    """
    proto = onnx.load(model.path, load_external_data=False)
    if problems := check_annotation(proto):
        raise InvalidPlacement(f"{model.path}: carries no usable placement: {problems[0]}")
    devices = tuple(next(found.device for found in proto.configuration if found.name == _CONFIGURATION))
    annotated = {node.name: node for node in proto.graph.node}
    ops_of: dict[tuple[int, int], list[int]] = {}
    for op, node in enumerate(model.model.graph):
        found = annotated.get(str(node.name))
        if found is None:
            raise InvalidPlacement(f"{model.path}: op {node.name!r} is not placed; place the model again")
        stage = found.device_configurations[0].pipeline_stage
        ops_of.setdefault((stage, devices.index(_device_name(found))), []).append(op)
    return devices, tuple(Segment(device, tuple(ops)) for (_, device), ops in sorted(ops_of.items()))


def check_annotation(proto: onnx.ModelProto) -> list[str]:
    """Describes every fault of a model's placement; ONNX's checker finds none of these.

    Constant ops may have any stage, since every part that reads one contains it. Removes map types from `proto`.
    """
    found = [configuration for configuration in proto.configuration if configuration.name == _CONFIGURATION]
    if len(found) != 1:
        return [f"there are {len(found)} device configurations named {_CONFIGURATION!r}; expected one"]
    devices = list(found[0].device)
    problems = []
    if found[0].num_devices != len(devices):
        problems.append(f"num_devices is {found[0].num_devices} for {len(devices)} device names")
    if not _FIRST_IR_WITH_DEVICES <= proto.ir_version <= MAX_IR_VERSION:
        problems.append(f"the IR version is {proto.ir_version}; expected {_FIRST_IR_WITH_DEVICES} to {MAX_IR_VERSION}")
    if len({node.name for node in proto.graph.node}) < len(proto.graph.node):
        problems.append("node names are not unique")
    stage_device: dict[int, str] = {}
    stage_of: dict[ir.Value, int] = {}
    detach_map_types(proto.graph)
    model = ir.from_proto(proto)
    for node, entry, is_constant in zip(proto.graph.node, model.graph, constant_ops(model), strict=True):
        problems += _node_problems(node, devices, stage_device)
        stage = next((placed.pipeline_stage for placed in node.device_configurations), -1)
        later = [value for value in values_read(entry) if stage_of.get(value, -1) > stage >= 0]
        problems += [f"node {node.name!r} of stage {stage} reads {v.name!r} of stage {stage_of[v]}" for v in later]
        stage_of.update(dict.fromkeys(() if is_constant else entry.outputs, stage))
    return problems


def _node_problems(node: onnx.NodeProto, devices: list[str], stage_device: dict[int, str]) -> list[str]:
    """The faults of one node; `stage_device` collects the device of each stage."""
    who = f"node {node.name!r}"
    if (ids := [placed.configuration_id for placed in node.device_configurations]) != [_CONFIGURATION]:
        return [f"{who} has the configurations {ids}; expected one, {_CONFIGURATION!r}"]
    placed = node.device_configurations[0]
    name = _device_name(node)
    problems = []
    if name not in devices:
        problems.append(f"{who} is on {name!r}; the devices are {', '.join(devices)}")
    if not placed.HasField("pipeline_stage"):
        problems.append(f"{who} has no pipeline stage")
    elif stage_device.setdefault(placed.pipeline_stage, name) != name:
        problems.append(f"stage {placed.pipeline_stage} is on {stage_device[placed.pipeline_stage]!r} and on {name!r}")
    outputs = sorted(filter(None, node.output))
    if sorted(spec.tensor_name for spec in placed.sharding_spec) != outputs:
        problems.append(f"{who} has sharding specs for {[s.tensor_name for s in placed.sharding_spec]}, not {outputs}")
    for spec in placed.sharding_spec:
        if [devices[k] for k in spec.device if 0 <= k < len(devices)] != [name] or len(spec.device) != 1:
            problems.append(
                f"{who} is on {name!r} but its output {spec.tensor_name!r} on the devices {list(spec.device)}"
            )
        if spec.sharded_dim or spec.index_to_device_group_map:
            problems.append(f"{who}: its output {spec.tensor_name!r} is sharded; a node is on one device as a whole")
    return problems


def _device_name(node: onnx.NodeProto) -> str:
    return next((entry.value for entry in node.metadata_props if entry.key == _DEVICE_KEY), "")
