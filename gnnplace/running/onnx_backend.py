"""Placed models behind ONNX's own interface for backends.

ONNX's test suite takes the class as it is: `onnx.backend.test.runner.Runner(PlacedBackend, __name__)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from gnnplace.errors import InvalidInput, InvalidTopology
from gnnplace.files import temporary_folder
from gnnplace.onnx_io.manifest import write_parts
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import segments
from gnnplace.onnx_io.split import MAX_IR_VERSION, MAX_OPSET, serialized
from gnnplace.placement import scattered
from gnnplace.running.devices import parse_devices
from gnnplace.running.session import PARTS, Session

__all__ = ["DEVICES", "PlacedBackend", "PlacedModel"]


DEVICES = ("cpu:0", "cpu:1")
"""Where models are placed unless others are named."""


class PlacedModel(BackendRep):
    """A model that is cut and loaded; close it, or let it be forgotten."""

    def __init__(self, session: Session, num_segments: int) -> None:
        self._session = session
        self.num_segments = num_segments
        """Parts that the devices run."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs; `inputs` are in the model's order, without those that have a default, or one alone.

        Raises:
            InvalidInput: there are more or fewer inputs than the model has, or one is of another dtype or rank.
            MeasurementFailed: a part failed.
        """
        del kwargs  # of other backends
        names = [info.name for info in self._session.get_inputs()]
        given: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(names):
            raise InvalidInput(f"{len(given)} inputs are given; the model has {', '.join(names) or 'none'}")
        return tuple(self._session.run(None, dict(zip(names, given, strict=True))))

    def close(self) -> None:
        """Ends the threads and frees the parts."""
        self._session.close()


class PlacedBackend(Backend):
    """Reads a model, scatters its ops over devices, cuts it there, and runs the parts."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", seed: int = 0, devices: Sequence[str] = DEVICES, **kwargs: Any
    ) -> PlacedModel:
        """The model, ready to run: its ops are on `devices` at random by `seed`, as many on each as on any other.

        Raises:
            UnsupportedModel: the model breaks ONNX's rules, or cannot be cut.
            InvalidTopology: a device is not on this machine.
            MeasurementFailed: ONNX Runtime refuses a part.
        """
        del device, kwargs  # the kind is in the names of the devices; other arguments are for other backends
        with temporary_folder() as folder:
            path = folder / "model.onnx"
            path.write_bytes(serialized(model, "the model"))
            read = read_onnx(path)
            assignment = scattered(read.graph, len(devices), np.random.default_rng(seed))
            found = segments(read.graph, assignment, read.graph.topological_order, read.constant_ops)
            write_parts(read, found, devices, folder / PARTS)
            return PlacedModel(Session(folder), len(found))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a model that is run once; see `prepare` and `PlacedModel.run`."""
        prepared = cls.prepare(model, device, **kwargs)
        try:
            return prepared.run(inputs)
        finally:
            prepared.close()

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a node for arrays, of those inputs that it names.

        `opset_version` is that of the node's domain: by default the newest that runs, or that in which the operator became
        what it is. Types of outputs are found out, so `outputs_info` is not asked.
        """
        del outputs_info
        arrays = [np.asarray(value) for value in (inputs if isinstance(inputs, list | tuple) else [inputs])]
        names = [name for name in node.input if name]
        if len(arrays) != len(names):
            raise InvalidInput(f"{len(arrays)} inputs are given; the node names {', '.join(names) or 'none'}")
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in zip(names, arrays, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        version = kwargs.pop("opset_version", None) or _newest_version(node)
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=MAX_IR_VERSION)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether tests for ONNX's `CPU` or `CUDA` are meant for it: for `CPU`, where there are two cores."""
        try:
            parse_devices(DEVICES)
        except InvalidTopology:
            return False
        return device.partition(":")[0] == "CPU"


def _newest_version(node: onnx.NodeProto) -> int:
    if node.domain in ("", "ai.onnx"):
        return MAX_OPSET
    return int(onnx.defs.get_schema(node.op_type, domain=node.domain).since_version)
