"""The placement inside the model file: ONNX's multi-device fields, and `metadata_props` for those who know only names.

ONNX has no field for "this node is on device k". So each node gets both encodings of it: its segment's number as
`pipeline_stage`, and for each output a sharding spec with one device and no sharded dimension. The placement file stays
the truth: no runtime acts on these fields, and many tools drop them.

ONNX Runtime from 1.25 on can act on something else, the metadata `layer_ann`: within one session, so for one CPU and one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gnnplace.arrays import IntArray
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidPlacement, InvalidTopology, UnsupportedModel
from gnnplace.files import new_file
from gnnplace.onnx_io.external_data import external_files, link_files, relocate
from gnnplace.onnx_io.model import OnnxModel, is_deterministic
from gnnplace.onnx_io.segments import Segment
from gnnplace.onnx_io.split import MAX_IR_VERSION, checked_opset, proto_of, serialized

__all__ = [
    "CONFIGURATION",
    "DEVICE_KEY",
    "FIRST_IR_WITH_DEVICES",
    "LAYER_KEY",
    "annotate",
    "annotated_segments",
    "check_annotation",
    "layer_assignment",
    "read_annotation",
    "write_placed",
]


CONFIGURATION = "gnnplace"
"""Name of the device configuration."""
DEVICE_KEY = "gnnplace.device"
"""The node's metadata that holds its device's name."""
FIRST_IR_WITH_DEVICES = 11
LAYER_KEY = "layer_ann"
"""The node's metadata that ONNX Runtime reads."""
_LAYERS = {"cpu": "gnnplace_cpu", "cuda": "gnnplace_gpu"}


def annotate(
    model: OnnxModel, topology: Topology, assignment: IntArray | Sequence[int], segment_of_op: Sequence[int]
) -> onnx.ModelProto:
    """The model with the device and the segment of every node; external weights keep their locations.

    Raises:
        InvalidPlacement: the assignment is not for this model and these devices.
        UnsupportedModel: the operator set is newer than ONNX Runtime can run, or the model cannot be written.
    """
    checked_opset(model.model)
    if not len(assignment) == len(segment_of_op) == len(model.model.graph):
        raise InvalidPlacement(f"{len(assignment)} ops are placed; the model has {len(model.model.graph)} nodes")
    names = topology.device_names
    proto = proto_of(model.model, (*model.model.graph.inputs, *model.model.graph.outputs))
    proto.ir_version = min(MAX_IR_VERSION, max(FIRST_IR_WITH_DEVICES, proto.ir_version))
    del proto.configuration[:]
    proto.configuration.add(name=CONFIGURATION, num_devices=len(names), device=names)
    layers = [_LAYERS[parse_real(name).family] for name in names] if layer_assignment(names) else None
    for node, device, segment in zip(proto.graph.node, assignment, segment_of_op, strict=True):
        if not 0 <= device < len(names):
            raise InvalidPlacement(f"node {node.name!r} is on device {device}; there are {len(names)}")
        del node.device_configurations[:]
        _set(node, DEVICE_KEY, names[device])
        if layers is not None:
            _set(node, LAYER_KEY, layers[device])
        placed = node.device_configurations.add(configuration_id=CONFIGURATION, pipeline_stage=int(segment))
        for output in node.output:
            if output:
                placed.sharding_spec.add(tensor_name=output, device=[int(device)])
    return proto


def write_placed(
    model: OnnxModel,
    topology: Topology,
    assignment: IntArray | Sequence[int],
    segment_of_op: Sequence[int],
    path: Path,
) -> None:
    """Writes the annotated model; external weights are linked beside it, not rewritten.

    Raises:
        InvalidPlacement: see `annotate`.
        UnsupportedModel: see `annotate`; or external weights are missing.
    """
    proto = annotate(model, topology, assignment, segment_of_op)
    relocate(proto.graph, link_files(external_files(model.model), path.parent))
    with new_file(path) as temporary:
        temporary.write_bytes(serialized(proto, path.name))


def layer_assignment(device_names: Sequence[str]) -> dict[str, str]:
    """The session options under which one ONNX Runtime session of the placed model keeps to the placement.

    It takes ops that no GPU kernel runs to the CPU all the same. Empty where one session cannot keep to it: one has at most
    one GPU, and no other providers are annotated.

    >>> layer_assignment(["cpu:0", "cuda:0"])
    {'session.layer_assignment_settings': 'cpu(=gnnplace_cpu);cuda(=gnnplace_gpu)'}
    >>> layer_assignment(["cuda:0", "cuda:1"])
    {}
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


def _set(node: onnx.NodeProto, key: str, value: str) -> None:
    """States one piece of metadata in place of what was stated."""
    for position in reversed(range(len(node.metadata_props))):
        if node.metadata_props[position].key == key:
            del node.metadata_props[position]
    node.metadata_props.add(key=key, value=value)


def check_annotation(proto: onnx.ModelProto) -> list[str]:
    """Everything that is wrong with a model's placement, in words; empty when it is whole. ONNX's checker sees none of it.

    What is the same in every run may be of any stage: each part that reads it makes it itself.
    """
    found = [configuration for configuration in proto.configuration if configuration.name == CONFIGURATION]
    if len(found) != 1:
        return [f"there are {len(found)} device configurations named {CONFIGURATION!r}; expected one"]
    devices = list(found[0].device)
    problems = []
    if found[0].num_devices != len(devices):
        problems.append(f"num_devices is {found[0].num_devices} for {len(devices)} device names")
    if not FIRST_IR_WITH_DEVICES <= proto.ir_version <= MAX_IR_VERSION:
        problems.append(f"the IR version is {proto.ir_version}; expected {FIRST_IR_WITH_DEVICES} to {MAX_IR_VERSION}")
    names = [node.name for node in proto.graph.node]
    if len(set(names)) < len(names):
        problems.append("node names are not unique")
    stage_device: dict[int, str] = {}
    stage_of_value: dict[str, int] = {}
    constant = _constants(proto)
    for node in proto.graph.node:
        problems += _node_problems(node, devices, stage_device)
        stages = [placed.pipeline_stage for placed in node.device_configurations]
        for name in _reads(node):
            if name not in constant and stages and stage_of_value.get(name, -1) > stages[0]:
                problems.append(
                    f"node {node.name!r} of stage {stages[0]} reads {name!r} of stage {stage_of_value[name]}"
                )
        stage_of_value.update({name: stage for stage in stages for name in node.output})
    return problems


def read_annotation(path: str | Path) -> dict[str, str]:
    """Node name -> device name of an annotated model; external weights are not loaded.

    Raises:
        UnsupportedModel: the file is missing or is no ONNX model.
        InvalidPlacement: the model carries no placement, or a broken one.
    """
    return {node.name: _device_name(node) for node in _annotated(Path(path)).graph.node}


def annotated_segments(model: OnnxModel) -> tuple[tuple[str, ...], tuple[Segment, ...]]:
    """The devices and the segments of a model that was read from a placed file, in a global run order.

    Raises:
        UnsupportedModel: the file is missing or is no ONNX model.
        InvalidPlacement: it carries no placement, or a broken one, or was placed when its ops were others.
    """
    proto = _annotated(model.path)
    devices = tuple(next(found.device for found in proto.configuration if found.name == CONFIGURATION))
    annotated = {node.name: node for node in proto.graph.node}
    ops_of: dict[tuple[int, int], list[int]] = {}
    for op, node in enumerate(model.model.graph):
        found = annotated.get(str(node.name))
        if found is None:
            raise InvalidPlacement(f"{model.path}: op {node.name!r} is not placed; place the model again")
        stage = found.device_configurations[0].pipeline_stage
        ops_of.setdefault((stage, devices.index(_device_name(found))), []).append(op)
    return devices, tuple(Segment(device, tuple(ops)) for (_, device), ops in sorted(ops_of.items()))


def _annotated(path: Path) -> onnx.ModelProto:
    """A model file with a whole placement."""
    try:
        proto = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise UnsupportedModel(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except DecodeError:
        raise UnsupportedModel(f"{path}: is no ONNX model, or is cut off") from None
    problems = check_annotation(proto)
    if problems:
        raise InvalidPlacement(f"{path}: carries no usable placement: {problems[0]}")
    return proto


def _node_problems(node: onnx.NodeProto, devices: list[str], stage_device: dict[int, str]) -> list[str]:
    """Of one node; `stage_device` collects the device of each stage."""
    who = f"node {node.name!r}"
    if len(node.device_configurations) != 1 or node.device_configurations[0].configuration_id != CONFIGURATION:
        ids = [placed.configuration_id for placed in node.device_configurations]
        return [f"{who} has the configurations {ids}; expected one, {CONFIGURATION!r}"]
    placed = node.device_configurations[0]
    name = _device_name(node)
    problems = []
    if name not in devices:
        problems.append(f"{who} is on {name!r}; the devices are {', '.join(devices)}")
    if not placed.HasField("pipeline_stage"):
        problems.append(f"{who} has no pipeline stage")
    elif stage_device.setdefault(placed.pipeline_stage, name) != name:
        problems.append(f"stage {placed.pipeline_stage} is on {stage_device[placed.pipeline_stage]!r} and on {name!r}")
    outputs = sorted(output for output in node.output if output)
    if sorted(spec.tensor_name for spec in placed.sharding_spec) != outputs:
        problems.append(f"{who} has sharding specs for {[s.tensor_name for s in placed.sharding_spec]}, not {outputs}")
    for spec in placed.sharding_spec:
        if len(spec.device) != 1 or not 0 <= spec.device[0] < len(devices) or devices[spec.device[0]] != name:
            problems.append(
                f"{who} is on {name!r} but its output {spec.tensor_name!r} on the devices {list(spec.device)}"
            )
        if spec.sharded_dim or spec.index_to_device_group_map:
            problems.append(f"{who}: its output {spec.tensor_name!r} is sharded; a node is on one device as a whole")
    return problems


def _device_name(node: onnx.NodeProto) -> str:
    return next((entry.value for entry in node.metadata_props if entry.key == DEVICE_KEY), "")


def _constants(proto: onnx.ModelProto) -> set[str]:
    """Values of the main graph that are the same in every run; see `constant_ops`."""
    version = next((entry.version for entry in proto.opset_import if not entry.domain), 0)
    found = {tensor.name for tensor in proto.graph.initializer} - {value.name for value in proto.graph.input}
    for node in proto.graph.node:
        if not node.domain and is_deterministic(node.op_type, version) and found.issuperset(filter(None, node.input)):
            found.update(node.output)
    return found


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, and that its bodies read from outside of them."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {value.name for value in (*body.input, *body.initializer)}
            own.update(name for inner in body.node for name in inner.output)
            read = (name for inner in body.node for name in _reads(inner))
            yield from (name for name in (*read, *(value.name for value in body.output)) if name not in own)
