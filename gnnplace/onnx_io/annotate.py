"""The placement inside the model file: ONNX's multi-device fields, and `metadata_props` for those who know only names.

ONNX has no field for "this node is on device k". So each node gets both encodings of it: its segment's number as
`pipeline_stage`, and for each output a sharding spec with one device and no sharded dimension. The placement file stays
the truth: no runtime acts on these fields, and many tools drop them.

ONNX Runtime from 1.25 on can act on something else, the metadata `layer_ann`: within one session, so for one CPU and one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from gnnplace.arrays import IntArray
from gnnplace.devices.real_names import parse_real
from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidPlacement, InvalidTopology
from gnnplace.files import new_file
from gnnplace.onnx_io.external_data import external_files, link_files, relocate
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.split import MAX_IR_VERSION, checked_opset, proto_of, serialized

__all__ = [
    "CONFIGURATION",
    "DEVICE_KEY",
    "FIRST_IR_WITH_DEVICES",
    "LAYER_KEY",
    "annotate",
    "layer_assignment",
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
