"""Real devices by name: `cpu:K` is one core, `cpu:A-B` a set of cores, `cuda:K` a GPU; how ONNX Runtime is told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnxruntime as ort

from gnnplace.devices.topology import Topology
from gnnplace.errors import InvalidTopology, MissingDependency

__all__ = [
    "RealDevice",
    "create_session",
    "cuda_is_offered",
    "is_real",
    "parse_device",
    "parse_devices",
    "pin",
    "pinned",
    "session_options",
]

_REAL = re.compile(r"cuda:\d+|cpu:\d+(-\d+)?")
_ERRORS_ONLY = 3  # ONNX Runtime's log level: a declared shape that does not hold is no news in a cut model


@dataclass(frozen=True)
class RealDevice:
    """Where sessions run: some cores of this machine, or one GPU."""

    name: str
    cores: tuple[int, ...] = ()
    """Of a CPU device; the thread that calls a session runs on the first one."""
    cuda_id: int | None = None
    """Of a GPU."""

    @property
    def provider(self) -> str:
        """ONNX Runtime's execution provider."""
        return "CPUExecutionProvider" if self.cuda_id is None else "CUDAExecutionProvider"

    @property
    def provider_options(self) -> dict[str, str]:
        """Of that provider."""
        return {} if self.cuda_id is None else {"device_id": str(self.cuda_id)}


def cuda_is_offered() -> bool:
    """The installed ONNX Runtime has a CUDA provider."""
    return "CUDAExecutionProvider" in ort.get_available_providers()


def is_real(topology: Topology) -> bool:
    """Every device has the name of one that can run a model."""
    return all(_REAL.fullmatch(name) for name in topology.device_names)


def parse_device(name: str) -> RealDevice:
    """The real device that a name means.

    >>> parse_device("cpu:0").cores, parse_device("cuda:1").cuda_id
    ((0,), 1)

    Raises:
        InvalidTopology: the name means no real device, or a core that this process may not use.
    """
    gpu = re.fullmatch(r"cuda:(\d+)", name)
    if gpu:
        return RealDevice(name, cuda_id=int(gpu[1]))
    match = re.fullmatch(r"cpu:(\d+)(?:-(\d+))?", name)
    if match is None:
        raise InvalidTopology(
            f"device {name!r} does not exist on this machine; devices that can run a model are cpu:K, cpu:A-B and cuda:K"
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InvalidTopology(f"device {name!r} is an empty set of cores; write the smaller core first")
    allowed = _usable_cores()
    for core in range(first, last + 1):
        if core not in allowed:
            listed = ", ".join(map(str, sorted(allowed)))
            raise InvalidTopology(f"device {name!r}: core {core} is not available to this process; it may use {listed}")
    return RealDevice(name, cores=tuple(range(first, last + 1)))


def parse_devices(names: Sequence[str]) -> tuple[RealDevice, ...]:
    """One real device per name; see `parse_device`."""
    return tuple(parse_device(name) for name in names)


def pin(device: RealDevice) -> None:
    """Keeps the calling thread on the first core of a CPU device; nothing for a GPU or where the system cannot pin."""
    if device.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, device.cores[:1])


@contextmanager
def pinned(device: RealDevice) -> Iterator[None]:
    """The calling thread stays on the device's core within the block, and may go where it could before after it."""
    if not device.cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    if before == {device.cores[0]}:
        yield
        return
    os.sched_setaffinity(0, device.cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def session_options(device: RealDevice) -> ort.SessionOptions:
    """Options under which a session uses this device's cores and no other.

    The calling thread counts as one of the threads, so the affinities name the other cores, and ONNX Runtime counts
    cores from one there. No spinning: workers of several sessions share the machine.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = max(1, len(device.cores))
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    _share_arena()
    options.add_session_config_entry("session.use_env_allocators", "1")
    if len(device.cores) > 1:
        others = ";".join(str(core + 1) for core in device.cores[1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", others)
    return options


def create_session(model: Path | bytes, device: RealDevice, data_folder: Path | None = None) -> ort.InferenceSession:
    """A session of a model on a device; call it on the thread that `pin` keeps on the device.

    `data_folder` is where external weights of a model in memory lie.

    Raises:
        MissingDependency: ONNX Runtime does not offer the device's provider, or did not use it.
    """
    if device.provider not in ort.get_available_providers():
        raise MissingDependency(
            f"device {device.name!r} needs ONNX Runtime's {device.provider}; "
            f"installed are {', '.join(ort.get_available_providers())}: install onnxruntime-gpu or choose other devices"
        )
    options = session_options(device)
    if data_folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(data_folder))
    session = ort.InferenceSession(
        model if isinstance(model, bytes) else str(model),
        options,
        providers=[(device.provider, device.provider_options)],
        enable_fallback=0,
    )
    if session.get_providers()[0] != device.provider:
        raise MissingDependency(
            f"device {device.name!r}: ONNX Runtime runs on {session.get_providers()[0]} instead of {device.provider}; "
            "check the GPU's driver and libraries"
        )
    return session


@cache
def _share_arena() -> None:
    """One arena of main memory for all sessions of the process.

    With an arena each, the outputs of many small sessions lie far apart and fall out of the cache: a cell of 52 segments then
    took 1.23 times as long on two cores.
    """
    arena = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(arena, None)


def _usable_cores() -> set[int]:
    """Cores of the process, asked of its main thread, as other threads may be pinned."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(os.getpid()))
    return set(range(os.cpu_count() or 1))
