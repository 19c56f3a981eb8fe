"""Cuts a model into parts: models of their own, each for one device."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx_ir as ir

from gnnplace.errors import UnsupportedModel
from gnnplace.files import new_file
from gnnplace.onnx_io.external_data import copied_files, external_files, refer, relocate, write_external
from gnnplace.onnx_io.folding import values_read
from gnnplace.onnx_io.model import OnnxModel, constant_ops
from gnnplace.onnx_io.part import Part
from gnnplace.onnx_io.run_order import listed_to_run
from gnnplace.onnx_io.value_types import kept_type, restore_map_types, write_crossing_types

MAX_IR_VERSION = 13
"""Newest IR version that ONNX Runtime 1.31 reads."""
MAX_OPSET = 26
"""Newest version of the default operator set that ONNX Runtime 1.31 runs."""
SHARED_WEIGHTS = "shared.bin"
"""File with the weights of several parts."""
_FIRST_IR_WITH_FREE_INITIALIZERS = 4
_SHARED_BYTES = 1 << 16  # mapping a file does not pay for a few pages of memory
_MAX_PROTO_BYTES = 2**31 - 1


class Boundary(NamedTuple):
    """Values that a set of ops exchanges with the rest of the model."""

    inputs: tuple[ir.Value, ...]
    optional_inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    weights: tuple[ir.Value, ...]
    """Constant initialisers that the ops read; each part contains its own copy."""


class ModelCutter:
    """Makes parts of one model; indexes the values once, so that the cost of a part depends on its own size alone.

    An op is a node of the main graph, by index. If, Loop and Scan stay whole, with the values that their bodies capture
    as inputs. Parts never exchange the results of constant ops: every part that reads one contains the op, so that a
    runtime folds it there. (Cutting the Transpose of a tied weight from its MatMul made BERT 1.3 times as slow.)
    """

    def __init__(self, model: ir.Model, keeps_order: bool = False) -> None:
        """With `keeps_order`, parts run their nodes in the order of the model's file; else they list them in that order."""
        self.model = model
        self._nodes = tuple(model.graph)
        self._constant = constant_ops(model)
        self._reads = [values_read(node) for node in self._nodes]
        self._producer = {value: op for op, node in enumerate(self._nodes) for value in node.outputs}
        self._readers: defaultdict[ir.Value, list[int]] = defaultdict(list)
        for op, values in enumerate(self._reads):
            for value in values:
                self._readers[value].append(op)
        self._keeps_order = keeps_order

    def shared_weights(self, parts: Sequence[Sequence[int]]) -> list[ir.Value]:
        """Weights inside the model file that several parts read, except small ones."""
        readers = Counter(value for ops in parts for value in self.boundary(ops).weights)
        return [
            value
            for value, count in readers.items()
            if count > 1
            and isinstance(tensor := value.const_value, ir.TensorProtocol)
            and not isinstance(tensor, (ir.ExternalTensor, ir.StringTensor))
            and tensor.nbytes >= _SHARED_BYTES
        ]

    def held(self, ops: Sequence[int]) -> set[int]:
        """The ops that a part of `ops` contains: with the constant ops that they read, without those that only others read."""
        wanted = {
            op
            for op in ops
            if not self._constant[op] or any(value.is_graph_output() for value in self._nodes[op].outputs)
        }
        stack = list(found := wanted or set(ops))
        while stack:
            for value in self._reads[stack.pop()]:
                op = self._producer.get(value)
                if op is not None and self._constant[op] and op not in found:
                    found.add(op)
                    stack.append(op)
        return found

    def boundary(self, ops: Sequence[int], extra_outputs: Sequence[ir.Value] = ()) -> Boundary:
        """The values that cross the border of `ops`; `extra_outputs` are initialisers to return as well.

        If no other part reads a value, the outputs of the last op count, since ONNX Runtime requires an output.
        """
        own, inside = set(ops), self.held(ops)
        read = dict.fromkeys((*(value for op in sorted(inside) for value in self._reads[op]), *extra_outputs))
        outputs = [
            value
            for op in sorted(inside)
            for value in self._nodes[op].outputs
            if value.name
            and (
                (value.is_graph_output() and op in own)
                or (not self._constant[op] and any(reader not in inside for reader in self._readers.get(value, ())))
            )
        ]
        outputs += extra_outputs
        if not outputs and inside:
            outputs = [value for value in self._nodes[max(inside)].outputs if value.name]
        return Boundary(
            inputs=tuple(v for v in read if not v.is_initializer() and self._producer.get(v) not in inside),
            optional_inputs=tuple(v for v in read if has_default(self.model, v)),
            outputs=tuple(outputs),
            weights=tuple(v for v in read if v.is_initializer() and not has_default(self.model, v)),
        )

    def part_proto(self, ops: Sequence[int], extra_outputs: Sequence[ir.Value] = ()) -> tuple[onnx.ModelProto, Part]:
        """The part as a model and its description without name, device and file; external weights keep their locations.

        Raises:
            UnsupportedModel: an exchanged value has no known type, or the operator set is too new.
        """
        boundary = self.boundary(ops, extra_outputs)
        for value in boundary.inputs:
            if value.type is None and kept_type(value) is None:
                raise UnsupportedModel(
                    f"the model cannot be cut at the value {value.name!r}: its type is not known; "
                    "place the ops that exchange it on one device"
                )
        source = self.model
        view = ir.GraphView(
            [*boundary.inputs, *boundary.optional_inputs],
            boundary.outputs,
            nodes=[self._nodes[op] for op in self._listed(self.held(ops))],
            initializers=[*boundary.optional_inputs, *boundary.weights],
            opset_imports=dict(checked_opset(source)),
            name=source.graph.name or "part",
        )
        part = ir.Model(
            view,  # type: ignore[arg-type]  # documented to be allowed, as `Model` only reads it
            ir_version=min(MAX_IR_VERSION, max(_FIRST_IR_WITH_FREE_INITIALIZERS, source.ir_version)),
            producer_name=source.producer_name,
            producer_version=source.producer_version,
            domain=source.domain,
            model_version=source.model_version,
            doc_string=source.doc_string,
            functions=tuple(source.functions.values()),
            metadata_props=dict(source.metadata_props),
        )
        inputs, outputs, optional_inputs = (
            tuple(str(value.name) for value in values)
            for values in (boundary.inputs, boundary.outputs, boundary.optional_inputs)
        )
        proto = proto_of(part, (*boundary.inputs, *boundary.outputs))
        write_crossing_types(proto.graph, (*boundary.inputs, *boundary.outputs))
        return proto, Part("", "", b"", inputs, outputs, optional_inputs)

    def _listed(self, ops: set[int]) -> list[int]:
        """The ops in the order in which a part lists them; producers come before consumers."""
        in_file = sorted(ops)
        if not self._keeps_order:
            return in_file
        return listed_to_run(
            in_file, {op: ops & {self._producer.get(value) for value in self._reads[op]} for op in in_file}
        )

    def part_in_memory(self, ops: Sequence[int]) -> Part:
        """The part in memory, without name and device; its external weights lie in the model's own folder.

        Raises:
            UnsupportedModel: see `part_proto`.
        """
        proto, part = self.part_proto(ops)
        return replace(part, model=serialized(proto, "a part"))


def split_model(
    model: OnnxModel, parts: Sequence[Sequence[int]], folder: Path, keeps_order: bool = False, links: bool = False
) -> tuple[Part, ...]:
    """Writes one model per list of ops into `folder`; returns the parts, without devices, in the same order.

    Weights of several parts go to one file: sessions map it into memory and share it. The first part returns model
    outputs that are initialisers (a part without ops if there is no other). No part returns outputs that are inputs.
    `keeps_order` is that of `ModelCutter`, and `links` that of `copied_files`.

    Raises:
        UnsupportedModel: see `ModelCutter.part_proto`; or external weights are missing.
    """
    cutter = ModelCutter(model.model, keeps_order)
    locations = copied_files(external_files(model.model), folder, links)
    shared = write_external(cutter.shared_weights(parts), folder, SHARED_WEIGHTS)
    written: list[Part] = []
    for proto, part in _protos(cutter, parts):
        relocate(proto.graph, locations)
        refer(proto.graph, shared)
        with new_file(folder / part.name) as temporary:
            temporary.write_bytes(serialized(proto, part.name))
        written.append(replace(part, model=folder / part.name))
    return tuple(written)


def parts_in_memory(
    model: ir.Model, parts: Sequence[Sequence[int]], data_folder: Path, keeps_order: bool = False
) -> tuple[Part, ...]:
    """The parts of `split_model` in memory, whose external weights stay in `data_folder`.

    Raises:
        UnsupportedModel: see `ModelCutter.part_proto`.
    """
    found = _protos(ModelCutter(model, keeps_order), parts)
    return tuple(replace(part, model=serialized(proto, part.name), data_folder=data_folder) for proto, part in found)


def _protos(cutter: ModelCutter, parts: Sequence[Sequence[int]]) -> Iterator[tuple[onnx.ModelProto, Part]]:
    """The parts with the names of their files; the first one also returns outputs of the model that are initialisers."""
    stray = tuple(value for value in dict.fromkeys(cutter.model.graph.outputs) if value.is_initializer())
    for number, ops in enumerate(parts if parts or not stray else [()]):
        proto, part = cutter.part_proto(ops, stray if number == 0 else ())
        yield proto, replace(part, name=f"part-{number:04d}.onnx")


def has_default(model: ir.Model, value: ir.Value) -> bool:
    """Whether the value is a model input with a default."""
    free = model.ir_version >= _FIRST_IR_WITH_FREE_INITIALIZERS
    return free and value.is_initializer() and value.is_graph_input()


def checked_opset(model: ir.Model) -> Mapping[str, int]:
    """Operator sets of the model.

    Raises:
        UnsupportedModel: the default operator set is newer than ONNX Runtime can run.
    """
    version = model.opset_imports.get("", 0)
    if version > MAX_OPSET:
        raise UnsupportedModel(f"the model uses opset {version}; up to {MAX_OPSET} can be run, so export it with that")
    return model.opset_imports


def proto_of(model: ir.Model, borders: Iterable[ir.Value]) -> onnx.ModelProto:
    """Converts a model to its message, with the map types of its inputs and outputs `borders`.

    Raises:
        UnsupportedModel: ONNX cannot express the model, for example a shape without a type.
    """
    try:
        proto = ir.to_proto(model)
    except (ir.serde.SerdeError, ValueError, TypeError) as problem:
        reason = str(problem.__cause__ or problem)
        raise UnsupportedModel(f"the model cannot be written as ONNX ({reason}); export it again") from None
    restore_map_types(proto.graph, borders)
    return proto


def serialized(proto: onnx.ModelProto, what: str) -> bytes:
    """The bytes of a model.

    Raises:
        UnsupportedModel: the model exceeds the 2 GiB limit of one file.
    """
    if proto.ByteSize() > _MAX_PROTO_BYTES:
        raise UnsupportedModel(f"{what} has more than 2 GiB of weights in one file; save the model with external data")
    return bytes(proto.SerializeToString())
