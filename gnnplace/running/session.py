"""`gnnplace.Session`: a placed model behind the methods of `onnxruntime.InferenceSession`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.arguments import check_paths
from gnnplace.arrays import BoolArray
from gnnplace.errors import InvalidInput, InvalidPlacement, MeasurementFailed, shown
from gnnplace.files import parsed_json, temporary_folder
from gnnplace.onnx_io.annotate import annotated_segments
from gnnplace.onnx_io.kernels import KernelModel
from gnnplace.onnx_io.manifest import MANIFEST, Manifest, manifest_in_memory, read_manifest
from gnnplace.onnx_io.model import STATE_KEY
from gnnplace.onnx_io.part import ValueInfo
from gnnplace.onnx_io.read import read_onnx
from gnnplace.onnx_io.segments import Segment
from gnnplace.running.devices import runs_kernels
from gnnplace.running.exclusive import rivals_of
from gnnplace.running.feed import check_complete, checked_feed, must_be_given, takes_as_it_is
from gnnplace.running.optimised import optimised, suits_this_machine
from gnnplace.running.part_session import infer_types
from gnnplace.running.runner import DevicesOf, PlacedRunner
from gnnplace.running.values import Feed, Options, OutputNames, as_numpy

PARTS = "parts"
"""The folder of a saved plan that holds the parts and their manifest."""
PLACED = "placed.onnx"
"""The file of a saved plan that holds the whole model with the placement."""


def _manifest_of(placed: Path, custom_ops: Sequence[str | Path], opened: ExitStack) -> Manifest:
    """The parts of a saved plan. Those of a model file are cut in memory, and need files that exist until `opened` is closed.

    A plan whose parts were optimised for another kind of machine is cut again, too.
    """
    if not placed.is_file():
        manifest = read_manifest(placed / PARTS)
        machine = manifest.optimised_for
        if suits_this_machine(machine):
            return manifest
        placed = placed / PLACED
        if not placed.is_file():
            named = ", ".join(f"{name} {value}" for name, value in machine.items())
            raise InvalidPlacement(
                f"{placed.parent}: its parts were optimised for another machine ({named}), and {PLACED} is missing; "
                "copy it there, or place the model again"
            )
    model = read_onnx(placed, custom_ops=custom_ops, infer_types=infer_types)
    devices, found = annotated_segments(model)
    own = np.array([runs_kernels(name) for name in devices])
    kernels = optimised(model) if all(own[segment.device] for segment in found) else None
    if kernels is not None:
        found = _of_kernels(kernels, found, devices, own)
    opened.callback(lambda kernels: None, kernels)  # whose files vanish with it
    return manifest_in_memory(model, found, devices, opened.enter_context(temporary_folder()), kernels)


def _of_kernels(
    kernels: KernelModel, found: Sequence[Segment], devices: Sequence[str], own: BoolArray
) -> tuple[Segment, ...]:
    """The segments of kernels for those of ops, which stay where their kernels are on several devices; `own` `[D]` run kernels."""
    assignment = np.zeros(len(kernels.kernel_of_op), dtype=np.int64)
    for segment in found:
        assignment[list(segment.ops)] = segment.device
    order = np.array([op for segment in found for op in segment.ops])
    rivals = rivals_of(devices)
    excludes = np.array([[other in rivals.get(name, ()) for other in devices] for name in devices])
    return kernels.segments(assignment, order, excludes, own) or tuple(found)


class Session:
    """The placed model in a folder that `gnnplace place` or `Plan.save` wrote; swap it for an `InferenceSession`.

    A folder's `placed.onnx` alone is enough as well.

    Threads of the session run the parts; close it, or use it as a context. Several threads may call it: on several devices
    their requests are pipelined, on one device they take turns.

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
            max_in_flight: Limit of requests under way at once, by default two per device.
            custom_ops: Shared libraries with operators that ONNX Runtime does not have.
            devices_of: Function that makes the devices; None: threads of this process.

        Raises:
            InvalidPlacement: there is no placed model, or a broken one.
            UnsupportedModel: the file is no ONNX model.
            InvalidTopology: a device of the placement is not on this machine.
            MissingDependency: ONNX Runtime has no provider for a device.
            MeasurementFailed: ONNX Runtime refuses a part, or a library.
            InvalidInput: `max_in_flight` is less than one.
        """
        if not isinstance(placed, str | os.PathLike):
            raise InvalidPlacement(f"the placed model is {shown(placed)}; expected its folder or file")
        check_paths("custom_ops", custom_ops)
        libraries = tuple(map(Path, custom_ops))
        with ExitStack() as opened:
            self._manifest = _manifest_of(Path(placed), custom_ops, opened)
            self._inputs = {info.name: info for info in self._manifest.inputs}
            self._runner = PlacedRunner(
                [replace(part, custom_ops=libraries) for part in self._manifest.parts],
                list(self._inputs),
                [info.name for info in self._manifest.outputs],
                max_in_flight=max_in_flight,
                devices_of=devices_of,
            )
            self._close_files = weakref.finalize(self, opened.pop_all().close)

    @property
    def max_in_flight(self) -> int:
        """Requests that are under way at once."""
        return self._runner.max_in_flight

    def run(self, output_names: OutputNames, input_feed: Feed, run_options: Options = None) -> list[Any]:
        """The named outputs, or all when None.

        Raises:
            InvalidInput: an input is missing, unknown, or of another dtype or rank; an output is unknown.
            MeasurementFailed: a part failed; the message names it.
        """
        if not (self._runner.in_one_piece and takes_as_it_is(input_feed)):
            return self._runner.run(output_names, checked_feed(self._inputs, input_feed), run_options)
        try:
            return self._runner.run(output_names, input_feed, run_options)
        except MeasurementFailed:
            feed = checked_feed(self._inputs, input_feed)  # raises the error that several parts would raise
            if all(feed.get(name) is value for name, value in input_feed.items()):
                raise
            return self._runner.run(output_names, feed, run_options)  # ONNX Runtime takes fewer lists and scalars

    def run_many(
        self, output_names: OutputNames, input_feeds: Iterable[Feed], run_options: Options = None
    ) -> Iterator[list[Any]]:
        """The named outputs for each feed, in order, while later feeds are under way.

        Arrays must not change until their outputs are delivered. The iterator raises the errors of `run` when it reaches a
        feed.
        """
        feeds = (checked_feed(self._inputs, feed) for feed in input_feeds)
        return self._runner.run_many(output_names, feeds, run_options)

    def submit(self, output_names: OutputNames, input_feed: Feed, run_options: Options = None) -> Future[list[Any]]:
        """A future of the outputs; the call waits while `max_in_flight` submitted requests have not been delivered.

        The arrays must not change until the delivery. One thread delivers all results and runs the callbacks. A callback may
        run and submit; it must not wait for another future. The future carries the error of a part that fails.

        Raises:
            InvalidInput: as `run`.
        """
        return self._runner.submit(output_names, checked_feed(self._inputs, input_feed), run_options)

    def run_async(
        self,
        output_names: OutputNames,
        input_feed: Feed,
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: Options = None,
    ) -> None:
        """Calls `callback(outputs, user_data, error)` later, on another thread, as `InferenceSession.run_async` does.

        `error` is empty on success; otherwise `outputs` is. As in ONNX Runtime, only a missing input raises here, and an
        exception of the callback is logged. Unlike there, one thread per device suffices, and the call waits while
        `max_in_flight` requests have not been delivered.

        Raises:
            InvalidInput: an input is missing.
        """
        check_complete((info.name for info in self.get_inputs() if must_be_given(info)), input_feed)

        def answer(ended: Future[list[Any]]) -> None:
            error = ended.exception()
            callback([] if error else ended.result(), user_data, str(error or ""))

        try:
            self._runner.submit(output_names, checked_feed(self._inputs, input_feed), run_options, answer)
        except InvalidInput as error:
            future: Future[list[Any]] = Future()
            future.set_exception(error)
            future.add_done_callback(answer)

    def training_loop(self, state: Feed, pairs: Mapping[str, str] | None = None) -> TrainingLoop:
        """Steps of a training graph, each of which reads the state that the previous step made; `state` is the first one.

        `pairs` are inputs with the outputs that replace them; None: those in the model's metadata `gnnplace.state`.

        Raises:
            InvalidInput: there are no pairs, or one names no input or output; a value is missing, unknown, or of another
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
        """Name, type and shape of every required input."""
        return [info for info in self._manifest.inputs if not info.optional]

    def get_overridable_initializers(self) -> list[ValueInfo]:
        """Name, type and shape of every input that has a default."""
        return [info for info in self._manifest.inputs if info.optional]

    def get_outputs(self) -> list[ValueInfo]:
        """Name, type and shape of every output."""
        return list(self._manifest.outputs)

    def get_providers(self) -> list[str]:
        """ONNX Runtime's execution providers of all parts."""
        return self._runner.devices.providers()

    def get_modelmeta(self) -> ort.ModelMetadata:
        """The model's metadata, which every part carries.

        Raises:
            InvalidInput: the model has no op, and so no part; or the session is closed.
        """
        found = self._runner.devices.modelmeta()
        if found is None:
            self._runner.check_open()
            raise InvalidInput(f"{MANIFEST} lists no part, so the model has no metadata")
        return found

    def get_devices(self) -> list[str]:
        """The devices that run a part of the model, in the order of the device set that it was placed on."""
        used = {part.device for part in self._manifest.parts}
        return [name for name in self._manifest.devices if name in used]

    def close(self) -> None:
        """Ends the threads and frees the parts."""
        self._runner.close()
        self._close_files()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TrainingLoop:
    """Steps of a placed training graph, with its state between them; `Session.training_loop` makes one.

    State (weights, moments, running statistics) stays in the memory of the device that makes and reads it; other state moves
    between devices as other values do. A step reads the old state and makes a new one, so both are in memory at once. A step
    that fails changes nothing. Only one thread at a time may call it.
    """

    def __init__(
        self, runner: PlacedRunner, declared: Mapping[str, ValueInfo], pairs: Mapping[str, str], state: Feed
    ) -> None:
        """`declared` are all inputs; the arrays of `state` are copied. Errors are those of `Session.training_loop`."""
        for names, known, what in ((pairs, declared, "input"), (pairs.values(), runner.outputs, "output")):
            for name in names:
                if name not in known:
                    raise InvalidInput(
                        f"the state names {name!r}, which is no {what}; expected inputs and their outputs"
                    )
        first = checked_feed({name: replace(declared[name], optional=False) for name in pairs}, state)
        self._runner = runner
        self._inputs = {name: info for name, info in declared.items() if name not in pairs}
        self._state = runner.first_state(pairs, {name: np.array(value) for name, value in first.items()})
        replacing = set(pairs.values())
        self.output_names = [name for name in runner.outputs if name not in replacing]
        """The outputs that are no state, such as the loss."""

    def step(self, input_feed: Feed, output_names: OutputNames = None, run_options: Options = None) -> list[Any]:
        """Takes one step and returns its named outputs, or all that are no state when None.

        `input_feed` are the inputs that are no state.

        Raises:
            InvalidInput: an input is missing, unknown, or of another dtype or rank; an output is unknown.
            MeasurementFailed: a part failed (the message names it), and the state is that before the step.
        """
        names = self.output_names if output_names is None else output_names
        feed = checked_feed(self._inputs, input_feed)
        outputs, self._state = self._runner.run_with_state(names, feed, self._state, run_options)
        # An array of a state output shares its memory with the value that the next step reads.
        shared = set(self._state.pairs.values())
        return [np.array(value) if name in shared else value for name, value in zip(names, outputs, strict=True)]

    def state(self) -> dict[str, Any]:
        """Copies of all state by input, such as for a checkpoint."""
        return {name: np.array(as_numpy(self._state.value(name))) for name in self._state.pairs}
