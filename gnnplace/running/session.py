"""`gnnplace.Session`: a placed model behind the methods of `onnxruntime.InferenceSession`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import onnxruntime as ort

from gnnplace.errors import InvalidInput, MeasurementFailed
from gnnplace.files import parsed_json, scratch_folder, temporary_folder
from gnnplace.onnx_io.annotate import annotated_segments
from gnnplace.onnx_io.manifest import MANIFEST, Manifest, ValueInfo, read_manifest, write_parts
from gnnplace.onnx_io.metadata import STATE_KEY
from gnnplace.onnx_io.read import read_onnx
from gnnplace.running.dataflow import RunnerPart
from gnnplace.running.feed import check_given, checked_feed
from gnnplace.running.part_session import with_known_types
from gnnplace.running.runner import DevicesOf, PlacedRunner
from gnnplace.running.training_loop import TrainingLoop

__all__ = ["PARTS", "Session", "runner_parts"]


PARTS = "parts"
"""The folder of a saved plan that holds the parts and their manifest."""


def runner_parts(manifest: Manifest, folder: Path, custom_ops: Sequence[str | Path] = ()) -> list[RunnerPart]:
    """The parts in `folder` as a runner takes them; `custom_ops` are libraries that their operators come from."""
    return [
        RunnerPart(
            name=part.file,
            device=part.device,
            model=folder / part.file,
            inputs=part.inputs,
            outputs=part.outputs,
            optional_inputs=part.optional_inputs,
            custom_ops=tuple(Path(library) for library in custom_ops),
        )
        for part in manifest.parts
    ]


@contextmanager
def _parts_of(placed: Path, custom_ops: Sequence[str | Path]) -> Iterator[Path]:
    """The parts of a saved plan; those of a model file are written for as long as it takes to load them.

    They are written beside it, if that is possible, so that weights in files of their own are linked and not copied.
    """
    if not placed.is_file():
        yield placed / PARTS
        return
    model = with_known_types(read_onnx(placed, custom_ops=custom_ops))
    devices, found = annotated_segments(model)
    beside = os.access(placed.parent, os.W_OK)
    with scratch_folder(placed.with_name(f"{placed.name}.{PARTS}")) if beside else temporary_folder() as scratch:
        write_parts(model, found, devices, scratch / PARTS)
        yield scratch / PARTS


class Session:
    """The placed model in a folder that `gnnplace place` or `Plan.save` wrote; swap it for an `InferenceSession`.

    Its `placed.onnx` alone is enough as well.

    Threads of its own run the parts; close it, or use it as a context. Safe for several callers: on several devices their
    requests are pipelined, on one they take turns.

    >>> import numpy as np
    >>> from gnnplace.api import PlaceOptions, place
    >>> from gnnplace.files import temporary_folder
    >>> from gnnplace.onnx_io.sample_inputs import probe_model
    >>> with temporary_folder() as folder:
    ...     _ = (folder / "negative.onnx").write_bytes(probe_model(4, "x", "y"))  # y = -x
    ...     _ = place(folder / "negative.onnx", "cpu:0", PlaceOptions(planner="single")).save(folder / "placed")
    ...     with Session(folder / "placed") as session:
    ...         session.run(None, {"x": np.arange(4, dtype=np.float32)})[0].tolist()
    [-0.0, -1.0, -2.0, -3.0]
    """

    def __init__(
        self,
        placed: str | Path,
        max_in_flight: int | None = None,
        custom_ops: Sequence[str | Path] = (),
        devices_of: DevicesOf | None = None,
    ) -> None:
        """Loads all parts onto their devices.

        Args:
            placed: The folder, or the model file with the placement in it.
            max_in_flight: Requests that are under way at once, by default two per device.
            custom_ops: Shared libraries with operators that ONNX Runtime does not have.
            devices_of: What runs the parts; None: threads of this process.

        Raises:
            InvalidPlacement: there is no placed model, or a broken one.
            UnsupportedModel: the file is no ONNX model.
            InvalidTopology: a device of the placement is not on this machine.
            MissingDependency: ONNX Runtime has no provider for a device.
            MeasurementFailed: ONNX Runtime refuses a part, or a library.
            InvalidInput: `max_in_flight` is less than one.
        """
        with _parts_of(Path(placed), custom_ops) as parts:
            self._manifest = read_manifest(parts)
            self._inputs = {info.name: info for info in self._manifest.inputs}
            self._runner = PlacedRunner(
                runner_parts(self._manifest, parts, custom_ops),
                list(self._inputs),
                [info.name for info in self._manifest.outputs],
                max_in_flight=max_in_flight,
                devices_of=devices_of,
            )

    @property
    def max_in_flight(self) -> int:
        """Requests that are under way at once."""
        return self._runner.max_in_flight

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
            return self._runner.run(output_names, checked_feed(self._inputs, input_feed), run_options)
        try:
            return self._runner.run(output_names, input_feed, run_options)
        except MeasurementFailed:
            feed = checked_feed(
                self._inputs, input_feed
            )  # ONNX Runtime has found something; say it as for several parts
            if all(feed[name] is value for name, value in input_feed.items()):
                raise
            return self._runner.run(output_names, feed, run_options)  # it takes fewer lists and scalars than we do

    def run_many(
        self,
        output_names: Sequence[str] | None,
        input_feeds: Iterable[Mapping[str, Any]],
        run_options: ort.RunOptions | None = None,
    ) -> Iterator[list[Any]]:
        """The named outputs for one feed after the other, in order, pipelined: later ones are under way meanwhile.

        Arrays must not change until their outputs are there.

        Raises:
            InvalidInput: as `run`, when it is that feed's turn.
            MeasurementFailed: as `run`.
        """
        feeds = (checked_feed(self._inputs, feed) for feed in input_feeds)
        return self._runner.run_many(output_names, feeds, run_options)

    def submit(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: ort.RunOptions | None = None,
    ) -> Future[list[Any]]:
        """What `run` gives, later; it waits while `max_in_flight` submitted requests have not been delivered.

        The arrays must not change until then. One thread delivers, and calls what `add_done_callback` was given. A callback
        may run and submit; it must not wait for another future. A future's exception is that of `run` for a part that fails.

        Raises:
            InvalidInput: as `run`.
        """
        return self._runner.submit(output_names, checked_feed(self._inputs, input_feed), run_options)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: ort.RunOptions | None = None,
    ) -> None:
        """Calls `callback(outputs, user_data, error)` later, on another thread, as `InferenceSession.run_async` does.

        `error` is empty when all went well; otherwise `outputs` is. As there, only a missing input is raised, and an
        exception of the callback is reported and goes no further. Unlike there, one thread per device is enough, and the call
        waits while `max_in_flight` requests have not been delivered.

        Raises:
            InvalidInput: an input is missing.
        """
        check_given(self._inputs, input_feed)
        try:
            future = self.submit(output_names, input_feed, run_options)
        except InvalidInput as error:
            future = Future()
            future.set_exception(error)

        def answer(ended: Future[list[Any]]) -> None:
            error = ended.exception()
            callback([] if error else ended.result(), user_data, str(error or ""))

        future.add_done_callback(answer)

    def training_loop(self, state: Mapping[str, Any], pairs: Mapping[str, str] | None = None) -> TrainingLoop:
        """Steps of a training graph, each with the state that the one before gave; `state` is that before the first.

        `pairs` are inputs and the outputs that replace them; None: what the model's metadata `gnnplace.state` says.

        Raises:
            InvalidInput: nobody names pairs, or one names no input or output; a value is missing, unknown, or of another
                dtype or rank.
        """
        if pairs is None:
            text = self.get_modelmeta().custom_metadata_map.get(STATE_KEY)
            if text is None:
                raise InvalidInput(
                    f"the model's metadata has no {STATE_KEY}; give pairs of inputs and their new outputs"
                )
            pairs = parsed_json(text.encode(), f"metadata {STATE_KEY} of the model", InvalidInput)
            if not isinstance(pairs, dict) or not all(isinstance(output, str) for output in pairs.values()):
                raise InvalidInput(f"metadata {STATE_KEY} of the model is no object from input to output names")
        return TrainingLoop(self._runner, self._inputs, pairs, state)

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
        return self._runner.providers()

    def get_modelmeta(self) -> ort.ModelMetadata:
        """What the model says about itself; every part carries it.

        Raises:
            InvalidInput: the model has no op, so there is no part to ask.
        """
        found = self._runner.modelmeta()
        if found is None:
            raise InvalidInput(f"{MANIFEST} lists no part, so the model has no metadata")
        return found

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
