"""A training graph run step after step: what it makes of its weights is what the next step reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort

from gnnplace.errors import InvalidInput
from gnnplace.onnx_io.manifest import ValueInfo
from gnnplace.running.feed import checked_feed
from gnnplace.running.runner import PlacedRunner
from gnnplace.running.values import as_numpy

__all__ = ["TrainingLoop"]


class TrainingLoop:
    """Steps of a placed training graph; `Session.training_loop` makes one.

    State (weights, moments, running statistics) goes from step to step as ONNX Runtime's values, without a way through
    numpy: it stays in the memory of the device that makes and reads it, other state is moved as any other value. A step
    reads the old state and makes a new one, so both are in memory at once, and a step that fails changes nothing. One
    caller at a time.
    """

    def __init__(
        self,
        runner: PlacedRunner,
        declared: Mapping[str, ValueInfo],
        pairs: Mapping[str, str],
        state: Mapping[str, Any],
    ) -> None:
        """`declared` are all inputs; the arrays of `state` are copied.

        Raises:
            InvalidInput: a pair names no input or output; a value is missing, unknown, or of another dtype or rank.
        """
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

    def step(
        self,
        input_feed: Mapping[str, Any],
        output_names: Sequence[str] | None = None,
        run_options: ort.RunOptions | None = None,
    ) -> list[Any]:
        """Takes one step; the named outputs of it (all that are no state when None). `input_feed` are the other inputs.

        Raises:
            InvalidInput: an input is missing, unknown, or of another dtype or rank; an output is unknown.
            MeasurementFailed: a part failed; the message names it, and the state is that before the step.
        """
        names = self.output_names if output_names is None else output_names
        feed = checked_feed(self._inputs, input_feed)
        outputs, self._state = self._runner.run_with_state(names, feed, self._state, run_options)
        # What numpy sees of a value is its memory, and the next step reads the state's.
        shared = set(self._state.plan.pairs.values())
        return [np.array(value) if name in shared else value for name, value in zip(names, outputs, strict=True)]

    def state(self) -> dict[str, Any]:
        """Copies of all state by input, such as for a checkpoint."""
        return {name: np.array(as_numpy(self._state.value(name))) for name in self._state.plan.pairs}
