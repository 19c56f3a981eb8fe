"""Placed models behind ONNX's own interface for backends.

ONNX's test suite takes the class unchanged: `onnx.backend.test.runner.Runner(PlacedBackend, __name__)`.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
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
from gnnplace.running.devices import parse_device
from gnnplace.running.session import PARTS, Session

DEVICES = ("cpu:0", "cpu:1")
"""Devices by default."""


class PlacedModel(BackendRep):
    """A model that is cut and loaded; close it, or drop it."""

    def __init__(self, session: Session, num_segments: int) -> None:
        self._session = session
        self.num_segments = num_segments
        """Number of parts."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs; `inputs` are the inputs without a default in the model's order, or a single one.

        Raises:
            InvalidInput: the number of inputs differs from the model's, or one is of another dtype or rank.
            MeasurementFailed: a part failed.
        """
        del kwargs  # of other backends
        names = [info.name for info in self._session.get_inputs()]
        values = _as_list(inputs)
        if len(values) != len(names):
            raise InvalidInput(f"{len(values)} inputs are given; the model has {', '.join(names) or 'none'}")
        return tuple(self._session.run(None, dict(zip(names, values, strict=True))))

    def close(self) -> None:
        """Ends the threads and frees the parts."""
        self._session.close()


class PlacedBackend(Backend):
    """Reads a model, places its ops on random devices, cuts it into parts, and runs them."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", seed: int = 0, devices: Sequence[str] = DEVICES, **kwargs: Any
    ) -> PlacedModel:
        """The model, ready to run; its ops are spread evenly over `devices` at random, by `seed`.

        Raises:
            UnsupportedModel: the model breaks ONNX's rules, or cannot be cut.
            InvalidTopology: a device is not on this machine.
            MeasurementFailed: ONNX Runtime refuses a part.
        """
        del device, kwargs  # device names state the kind; other arguments are for other backends
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
        """The outputs of one run of a model; see `prepare` and `PlacedModel.run`."""
        with closing(cls.prepare(model, device, **kwargs)) as prepared:
            return prepared.run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a node; `inputs` are the arrays of the inputs that it names.

        `opset_version` is the version of the node's domain: by default the newest that runs, or for other domains the one
        that introduced the operator. Output types are inferred, so `outputs_info` is ignored.
        """
        del outputs_info
        arrays = [np.asarray(value) for value in _as_list(inputs)]
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
        """True for `CPU` on a machine with two cores; ONNX's test suite asks for `CPU` and `CUDA`."""
        with suppress(InvalidTopology):
            return device.partition(":")[0] == "CPU" and all(map(parse_device, DEVICES))
        return False


def _newest_version(node: onnx.NodeProto) -> int:
    if node.domain in ("", "ai.onnx"):
        return MAX_OPSET
    return int(onnx.defs.get_schema(node.op_type, domain=node.domain).since_version)


def _as_list(inputs: Any) -> Sequence[Any]:
    return inputs if isinstance(inputs, list | tuple) else [inputs]
