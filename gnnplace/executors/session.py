"""`gnnplace.Session`: a placed model behind the methods of `onnxruntime.InferenceSession`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.executors.dataflow import RunnerPart
from gnnplace.executors.runner import PlacedRunner
from gnnplace.onnx_io.manifest import MANIFEST, Manifest, ValueInfo, read_manifest

__all__ = ["PARTS", "Session", "runner_parts"]

PARTS = "parts"
"""The folder of a saved plan that holds the parts and their manifest."""

_NUMPY_TYPES = {"float": "float32", "double": "float64", "string": "object"}


def runner_parts(manifest: Manifest, folder: Path) -> list[RunnerPart]:
    """The parts in `folder` as a runner takes them."""
    return [
        RunnerPart(
            name=part.file,
            device=part.device,
            model=folder / part.file,
            inputs=part.inputs,
            outputs=part.outputs,
            optional_inputs=part.optional_inputs,
        )
        for part in manifest.parts
    ]


class Session:
    """The placed model in a folder that `gnnplace place` or `Plan.save` wrote; swap it for an `InferenceSession`.

    Threads of its own run the parts; close it, or use it as a context. Safe for several callers, who take turns.
    """

    def __init__(self, folder: str | Path) -> None:
        """Loads all parts onto their devices.

        Raises:
            InvalidPlacement: the folder holds no placed model, or a broken one.
            InvalidTopology: a device of the placement is not on this machine.
            MissingDependency: ONNX Runtime has no provider for a device.
            MeasurementFailed: ONNX Runtime refuses a part.
        """
        parts = Path(folder) / PARTS
        self._manifest = read_manifest(parts)
        self._inputs = {info.name: info for info in self._manifest.inputs}
        self._runner = PlacedRunner(
            runner_parts(self._manifest, parts), list(self._inputs), [info.name for info in self._manifest.outputs]
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """The named outputs (all when None) for the given inputs.

        Raises:
            InvalidInput: an input is missing, unknown, or of another dtype or rank; an output is unknown.
            MeasurementFailed: a part failed; the message names it.
        """
        if not self._runner.in_one_piece:
            return self._runner.run(output_names, self._checked(input_feed), run_options)
        try:
            return self._runner.run(output_names, input_feed, run_options)
        except MeasurementFailed:
            self._checked(input_feed)  # ONNX Runtime has found something; say it as for a model in several parts
            raise

    def get_inputs(self) -> list[ValueInfo]:
        """Name, type and shape of every input that must be given."""
        return [info for info in self._manifest.inputs if not info.optional]

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """Name, type and shape of every input that has a default."""
        return [info for info in self._manifest.inputs if info.optional]

    def get_outputs(self) -> list[ValueInfo]:
        """Name, type and shape of every output."""
        return list(self._manifest.outputs)

    def get_providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts."""
        return list(dict.fromkeys(name for session in self._runner.sessions for name in session.get_providers()))

    def get_modelmeta(self) -> ort.ModelMetadata:
        """What the model says about itself; every part carries it.

        Raises:
            InvalidInput: the model has no op, so there is no part to ask.
        """
        if not self._runner.sessions:
            raise InvalidInput(f"{MANIFEST} lists no part, so the model has no metadata")
        return self._runner.sessions[0].get_modelmeta()

    def get_devices(self) -> list[str]:
        """The devices of the placement."""
        return list(self._manifest.devices)

    def close(self) -> None:
        """Ends the threads and frees the parts."""
        self._runner.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self, input_feed: Mapping[str, Any]) -> dict[str, Any]:
        """The feed, lists made into arrays."""
        for info in self._manifest.inputs:
            if not info.optional and info.name not in input_feed:
                raise InvalidInput(
                    f"the model input {info.name!r} is missing; given are {', '.join(input_feed) or 'none'}"
                )
        feed: dict[str, Any] = {}
        for name, value in input_feed.items():
            if name not in self._inputs:
                raise InvalidInput(f"{name!r} is no input of the model; it has {', '.join(self._inputs) or 'none'}")
            feed[name] = _checked_value(self._inputs[name], value)
        return feed


def _checked_value(info: ValueInfo, value: Any) -> Any:
    """The value as an array of the right dtype and shape; sequences and optionals are left to ONNX Runtime."""
    if not info.type.startswith("tensor("):
        return value
    element = info.type[len("tensor(") : -1]
    expected = _NUMPY_TYPES.get(element, element)
    if isinstance(value, ort.OrtValue):
        value = value.numpy()
    if not isinstance(value, np.ndarray):
        value = np.asarray(value, dtype=expected if hasattr(np, expected) else None)
    fits = value.dtype.kind in "OUS" if element == "string" else value.dtype.name == expected
    if not fits:
        raise InvalidInput(f"the model input {info.name!r} is of dtype {value.dtype.name}; expected {expected}")
    if info.known_rank and value.ndim != len(info.shape):
        raise InvalidInput(
            f"the model input {info.name!r} has {value.ndim} dimensions {list(value.shape)}; expected {list(info.shape)}"
        )
    for axis, (found, declared) in enumerate(zip(value.shape, info.shape, strict=False)):
        if isinstance(declared, int) and found != declared:
            raise InvalidInput(
                f"the model input {info.name!r} has size {found} in dimension {axis}; expected {list(info.shape)}"
            )
    return value
