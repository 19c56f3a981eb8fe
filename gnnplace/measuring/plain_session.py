"""One plain ONNX Runtime session of a whole model file on one device: what placed models are compared with."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import onnxruntime as ort

from gnnplace.arrays import FloatArray
from gnnplace.measuring.timing import StoppingRule, interleaved
from gnnplace.running.dataflow import RunnerPart
from gnnplace.running.devices import RealDevice, create_session, parse_device, pin, pinned, session_options
from gnnplace.running.values import python_run

__all__ = ["OPTIMISED", "PROFILE", "PlainSession", "ProfileJob", "profiled_samples"]


class PlainSession:
    """The file as it is, on the calling thread, which stays pinned to the device while the context is open."""

    def __init__(self, path: Path, device_name: str, spinning: bool = False, optimised: bool = True) -> None:
        """Loads the model; `spinning` lets the threads of a core set wait for work as ONNX Runtime does by default.

        Unless it is `optimised`, every op of the model runs as it is.

        Raises:
            InvalidTopology: the device is not on this machine.
            MissingDependency: ONNX Runtime has no provider for it.
        """
        self._device = parse_device(device_name)
        self._before = os.sched_getaffinity(0)
        options = session_options(self._device, spinning)
        if not optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = create_session(path, self._device, options=options)
        self._run = python_run(session)
        self.inputs = tuple(arg.name for arg in session.get_inputs())
        """Names of those without a default."""

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """All outputs."""
        return list(self._run(None, dict(feed)))

    def __enter__(self) -> PlainSession:
        pin(self._device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.sched_setaffinity(0, self._before)


PROFILE, OPTIMISED = "profile.json", "optimised.onnx"
"""What the profiler saw, and the model that ONNX Runtime made of the given one."""


@dataclass(frozen=True)
class ProfileJob:
    """A model in one part, to be profiled on the part's device."""

    part: RunnerPart
    folder: Path
    """Gets the files `PROFILE` and `OPTIMISED`, except from an `ep:` device, of whose kernels a profile says too little."""
    rule: StoppingRule
    limit_s: float = math.inf
    """For loading and running the model, where that is less than the process's own limit."""


def profiled_samples(job: ProfileJob, feed: Mapping[str, Any]) -> FloatArray:
    """`[2, R]` seconds of the profiled session and of the plain one; on an `ep:` device `[1, R]` of the plain one."""
    device, part = parse_device(job.part.device), job.part
    with pinned(device):
        plain = create_session(part.model, device, part.data_folder, custom_ops=part.custom_ops)
        calls: list[Callable[[], object]] = [partial(python_run(plain), None, feed)]
        if device.family == "ep":
            return interleaved(calls, job.rule)
        profiled = create_session(part.model, device, part.data_folder, _profiling(device, job.folder), part.custom_ops)
        samples = interleaved([partial(python_run(profiled), None, feed), *calls], job.rule)
        Path(profiled.end_profiling()).rename(job.folder / PROFILE)
        return samples


def _profiling(device: RealDevice, folder: Path) -> ort.SessionOptions:
    """Options of a session that writes its profile, and the model that it made of this one, into `folder`."""
    options = session_options(device)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / OPTIMISED)
    # Weights beside the model, so that they neither hit the size limit of a file nor have to be parsed.
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    return options
