"""NVIDIA's GPUs as the CUDA driver numbers them in a process, streams on them, and copies out of their memory, by ctypes alone.

The driver alone knows the numbers: they follow `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, by default from the fastest GPU to
the slowest, while `nvidia-smi` counts by PCI bus. `gpus` asks it in a short process of its own, as a process that has
initialised the driver cannot fork others that use it. There this file runs as a program.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any
from uuid import UUID

_LIBRARY = "libcuda.so.1"
_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: page-locked for every context
_NAME_BYTES, _UUID_BYTES = 256, 16
_TIMEOUT_S = 60.0  # the driver of a machine with many GPUs takes seconds to start


@dataclass(frozen=True)
class Gpu:
    """A GPU as its driver describes it."""

    index: int
    """CUDA's index in this process."""
    name: str
    memory_bytes: int | None
    multiprocessors: int | None = None
    """Number of streaming multiprocessors."""
    uuid: str = ""
    """As `nvidia-smi` writes it, without the prefix; of an instance of a GPU (MIG) its own."""


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA shows to processes with this environment, in its order; none without a driver."""
    return _visible(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))


@cache
def _visible(visible: str | None, order: str | None) -> tuple[Gpu, ...]:
    """Asks once for each environment."""
    try:
        command = [sys.executable, "-I", __file__]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stdout
        return tuple(Gpu(**row) for row in json.loads(answer))
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


def cuda_version() -> tuple[int, int] | None:
    """The newest version of CUDA, such as (13, 0), that the driver of this machine runs; None without a driver."""
    version = ctypes.c_int()
    try:
        _call(_driver(), "cuDriverGetVersion", ctypes.byref(version))
    except RuntimeError:
        return None
    return version.value // 1000, version.value % 1000 // 10


def gpus_of(driver: Any) -> list[Gpu]:
    """The GPUs of an open driver library.

    Raises:
        RuntimeError: the driver refuses a call.
    """
    call, count = partial(_call, driver), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for index in range(count.value):
        device, cores, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        name, uuid = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_ubyte * _UUID_BYTES)()
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDeviceGetName", name, _NAME_BYTES, device)
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        call("cuDeviceGetAttribute", ctypes.byref(cores), _MULTIPROCESSOR_COUNT, device)
        call("cuDeviceGetUuid_v2", ctypes.byref(uuid), device)
        text = name.value.decode("utf-8", errors="replace")
        found.append(Gpu(index, text, memory.value, cores.value, str(UUID(bytes=bytes(uuid)))))
    return found


@cache
def shared_stream(gpu: int) -> int:
    """The handle of a stream on a whole GPU that all sessions of this process share, made once.

    Raises:
        RuntimeError: there is no driver, or it refuses a call.
    """
    driver, stream = _driver(), ctypes.c_void_p()
    _call(driver, "cuInit", 0)
    with _in_context(driver, gpu):
        _call(driver, "cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
    return int(stream.value or 0)


def copied_to_host(address: int, num_bytes: int) -> bytes:
    """The bytes at an address in a GPU's memory, whichever GPU it is.

    ONNX Runtime copies only element types that numpy has.

    Raises:
        RuntimeError: there is no driver, or it refuses a call.
    """
    copied = ctypes.create_string_buffer(num_bytes)
    copy_to_host(copied, address, num_bytes)
    return copied.raw


def copy_to_host(target: Any, address: int, num_bytes: int) -> None:
    """Copies the bytes at an address in a GPU's memory, whichever GPU it is, into `target`, a ctypes array or pointer.

    Raises:
        RuntimeError: there is no driver, or it refuses a call.
    """
    driver, gpu = _driver(), ctypes.c_int()
    _call(driver, "cuInit", 0)
    _call(driver, "cuPointerGetAttribute", ctypes.byref(gpu), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    with _in_context(driver, gpu.value):
        _call(driver, "cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), ctypes.c_size_t(num_bytes))


def pinned_memory(num_bytes: int, gpu: int) -> int:
    """The address of new page-locked memory of the host; made in the context of one GPU, it serves all.

    Raises:
        RuntimeError: there is no driver, or it refuses a call.
    """
    driver, address = _driver(), ctypes.c_void_p()
    _call(driver, "cuInit", 0)
    with _in_context(driver, gpu):
        _call(driver, "cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(num_bytes), _PORTABLE)
    return int(address.value or 0)


def free_pinned_memory(address: int, gpu: int) -> None:
    """Gives memory of `pinned_memory` back to the system.

    Raises:
        RuntimeError: there is no driver, or it refuses a call.
    """
    driver = _driver()
    with _in_context(driver, gpu):
        _call(driver, "cuMemFreeHost", ctypes.c_void_p(address))


@contextmanager
def _in_context(driver: Any, gpu: int) -> Iterator[None]:
    """The calling thread is in the primary context of a GPU, in which ONNX Runtime computes; it lives as long as the process."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(driver, "cuDeviceGet", ctypes.byref(device), gpu)
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(driver, "cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        _call(driver, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def _driver() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise RuntimeError(f"there is no CUDA driver: {error}") from None


def _call(driver: Any, name: str, *arguments: Any) -> None:
    function: Callable[..., int] = getattr(driver, name)
    failed = function(*arguments)
    if failed:
        raise RuntimeError(f"CUDA's {name} answers error {failed}")


if __name__ == "__main__":
    try:
        rows = [asdict(gpu) for gpu in gpus_of(_driver())]
    except RuntimeError:
        rows = []
    print(json.dumps(rows))
