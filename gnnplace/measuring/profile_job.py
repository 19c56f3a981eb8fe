"""Running a model under ONNX Runtime's profiler, in an isolated process."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime as ort

from gnnplace.devices.real_names import RealDevice
from gnnplace.measuring.timing import StoppingRule, interleaved
from gnnplace.measuring.worker_process import Answer, ProcessState, failed
from gnnplace.onnx_io.part import Part
from gnnplace.running.devices import create_session, parse_device, pinned, session_options
from gnnplace.running.optimised import writes_optimised
from gnnplace.running.values import python_run

PROFILE = "profile.json"
"""File that a profiled session writes beside its optimised model."""


@dataclass(frozen=True)
class ProfileJob:
    """A model in one part, to be profiled on the device of the part."""

    part: Part
    folder: Path
    """Folder for the profile and the optimised model; only ONNX Runtime's CPU provider writes them, as other profiles have too little detail."""
    rule: StoppingRule
    limit_s: float = math.inf
    """Seconds for loading and running the model, where the limit of the process is longer."""

    @property
    def lighter(self) -> Self:
        """Itself, as a GPU holds one session of it."""
        return self

    def execute(self, state: ProcessState) -> Answer:
        """`[2, R]` seconds of the profiled session and of the plain one; off the CPU provider `[1, R]` of the plain one."""
        device, part, feed = parse_device(self.part.device), self.part, state.setup.feeds[0]
        rng = np.random.default_rng(0)
        try:
            with pinned(device):
                plain = create_session(part.model, device, part.data_folder, custom_ops=part.custom_ops)
                calls: list[Callable[[], object]] = [partial(python_run(plain), None, feed)]
                if device.family != "cpu":
                    return Answer(interleaved(calls, self.rule, rng))
                options = _profiling(device, self.folder)
                profiled = create_session(part.model, device, part.data_folder, options, part.custom_ops)
                samples = interleaved([partial(python_run(profiled), None, feed), *calls], self.rule, rng)
                Path(profiled.end_profiling()).rename(self.folder / PROFILE)
                return Answer(samples)
        except Exception as error:  # any failure of the model is an answer
            return failed(error, 0)


def _profiling(device: RealDevice, folder: Path) -> ort.SessionOptions:
    """Options of a session that writes its profile and its optimised model into `folder`."""
    options = session_options(device)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    writes_optimised(options, folder)
    return options
