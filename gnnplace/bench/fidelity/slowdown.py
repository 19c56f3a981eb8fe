"""How much devices slow each other down: what the execution model does not know of, and a virtual machine does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from gnnplace.files import temporary_folder
from gnnplace.measuring.grouped_parts import PartMaker
from gnnplace.measuring.timing import StoppingRule, interleaved, quiet_s
from gnnplace.onnx_io.model import OnnxModel
from gnnplace.onnx_io.sample_inputs import sample_inputs
from gnnplace.running.runner import PlacedRunner
from gnnplace.schedule import Schedule

__all__ = ["overlap_s", "slowdown_together"]

_RULE = StoppingRule(warmup=2, min_repeats=15, max_repeats=200, max_s=4.0, relative_spread=0.0)


def slowdown_together(model: OnnxModel, devices: Sequence[str]) -> float:
    """Seconds of one session of the whole model on each device, all at once, over those of the slowest one alone.

    One where devices share nothing. Cores share caches and memory, and those of a virtual machine may be two threads of one core:
    on a rented machine of two such cores it was 1.0 for some minutes and 1.3 for others.
    """
    inputs, outputs = (
        [str(value.name) for value in found] for found in (model.model.graph.inputs, model.model.graph.outputs)
    )
    with temporary_folder() as folder, ExitStack() as stack:
        maker, every_op = PartMaker(model, folder), range(model.graph.num_ops)
        parts = [maker.part(every_op, device, "the whole model") for device in devices]
        runners = [stack.enter_context(PlacedRunner((part,), inputs, outputs)) for part in parts]
        values = sample_inputs(model, np.random.default_rng(0))
        feed = {name: values[name] for name in parts[0].inputs}

        def all_at_once() -> None:
            for future in [runner.submit(None, feed) for runner in runners]:
                future.result()

        samples = interleaved([all_at_once, *(partial(runner.run, None, feed) for runner in runners)], _RULE)
    together_s, *alone_s = quiet_s(samples).tolist()
    return float(together_s / max(alone_s))


def overlap_s(schedule: Schedule) -> float:
    """Seconds of a schedule in which each further device computes beside another one."""
    ends = np.concatenate([schedule.start_s, schedule.end_s])
    order = np.argsort(ends, kind="stable")
    running = np.cumsum(np.repeat([1, -1], len(schedule.start_s))[order])
    return float(np.maximum(running[:-1] - 1, 0) @ np.diff(ends[order]))
